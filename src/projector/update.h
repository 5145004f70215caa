/* Builds the rows of a summary: the document, its hashes, its checkpoint.
 * Any thread.
 * Everything made lives in the caller's arena.
 * STATUS_OUT_OF_MEMORY; STATUS_PAYLOAD_TOO_LARGE for a summary over SUMMARY_BYTES_MAX.
 * Commits and reprojection build their rows here, so that they cannot differ. */
#ifndef PROJECTOR_UPDATE_H
#define PROJECTOR_UPDATE_H

#include "projector/fold.h"
#include "projector/sink.h"

struct update_source {
    enum document_kind kind;
    const union any_summary *summary;
    uint64_t entity_ref;
    struct owner owner;
    uint64_t version; /* of the new document */
    uint64_t log_id;
    uint64_t first_seq; /* of the first event since the last frame; 0: unknown */
    struct slice projection_version;
    uint64_t now_ms;
};

/* Buffers that all updates reuse. */
struct update_scratch {
    struct buffer document;
    struct buffer text;
    struct summary_marks marks; /* of the last document */
};

void update_scratch_init(struct update_scratch *scratch);
void update_scratch_release(struct update_scratch *scratch);

MUST_CHECK enum status update_build(const struct update_source *source,
                                    struct update_scratch *scratch, struct arena *arena,
                                    struct sink_update *update);

#endif
