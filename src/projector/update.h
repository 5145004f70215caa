/* Builds the rows of a summary (the document, its hashes, its checkpoint), and decides against the
 * last checkpoint whether to write, repair or skip them.
 * Thread: any.
 * Memory: the caller's arena.
 * Errors: STATUS_OUT_OF_MEMORY; STATUS_PAYLOAD_TOO_LARGE for a summary over SUMMARY_BYTES_MAX. A
 * decision cannot fail.
 * Invariant: commits and reprojection build their rows here, so that they cannot differ. */
#ifndef PROJECTOR_UPDATE_H
#define PROJECTOR_UPDATE_H

#include "projector/fold.h"
#include "projector/sink.h"
#include "store/store.h"

/* A version of an entity's metadata that is in the store. */
struct update_metadata {
    struct slice text; /* absent: none is known */
    uint8_t hash[SHA256_BYTES];
};

struct update_source {
    enum document_kind kind;
    const union any_summary *summary;
    uint64_t entity_ref;
    struct owner owner;
    uint64_t version; /* the new document's */
    uint64_t log_id;
    uint64_t first_seq; /* seq of the first event since the last frame; 0: unknown */
    struct slice projection_version;
    uint64_t now_ms;
    const struct update_metadata *stored_metadata; /* NULL: none is known */
    bool is_first_frame;                           /* the document had none before */
    struct slice fields_were; /* in the frame before, as summary_write_fields; absent: not known */
};

/* Buffers that all updates reuse. */
struct update_scratch {
    struct buffer document;
    struct buffer text;
    struct summary_marks marks; /* offsets in the last document */
};

void update_scratch_init(struct update_scratch *scratch);
void update_scratch_release(struct update_scratch *scratch);

/* How a payload with this metadata is written, which is a part of its text; *cut NULL: whole. */
MUST_CHECK enum status update_cut(struct slice payload, struct slice metadata,
                                  const struct update_metadata *stored, struct arena *arena,
                                  const struct store_cut **cut);
MUST_CHECK enum status update_build(const struct update_source *source,
                                    struct update_scratch *scratch, struct arena *arena,
                                    struct sink_update *update);

/* The checkpoint decision: write, repair or skip a new summary, given the last checkpoint.
 *
 *   checkpoint            incoming                       action   drift
 *   none                  from the first event           write    -
 *   none                  events before it are missing   repair   sequence_gap
 *   ahead of incoming     any                            repair   checkpoint_ahead
 *   same seq              same version, same hash        skip     - (idempotent)
 *   same seq              same version, other hash       write    summary_hash_mismatch
 *   same seq              other version                  write    projection_version_changed
 *   behind                other version                  repair   projection_version_changed
 *   behind                events between are missing     repair   sequence_gap
 *   behind                continues at the next seq      write    -
 *
 * To repair is to fold the missing events from the log; all events for another version, or if the
 * checkpoint is ahead. The log is the truth, so a summary never waits for its checkpoint. */

enum checkpoint_action { CHECKPOINT_WRITE, CHECKPOINT_SKIP, CHECKPOINT_REPAIR };

struct checkpoint_incoming {
    uint64_t first_seq; /* the first event since the last summary */
    uint64_t last_seq;
    struct slice projection_version;
    const uint8_t *summary_hash;
};

struct checkpoint_decision {
    enum checkpoint_action action;
    bool has_drift;
    enum reason drift;
};

/* checkpoint may be NULL. */
struct checkpoint_decision checkpoint_decide(const struct store_checkpoint *checkpoint,
                                             const struct checkpoint_incoming *incoming);

#endif
