/* From a summary to the rows that carry it: the document, its hashes, its checkpoint, its frame.
 * Any thread. Everything made lives in the arena given.
 * STATUS_OUT_OF_MEMORY, or STATUS_PAYLOAD_TOO_LARGE for a summary over SUMMARY_BYTES_MAX.
 * The commit path and the reprojection make their rows here, so that they cannot disagree. */
#ifndef PROJECTOR_UPDATE_H
#define PROJECTOR_UPDATE_H

#include "projector/fold.h"
#include "projector/sink.h"

struct update_source {
    enum document_kind kind;
    const union any_summary *summary;
    uint64_t entity_ref;
    struct owner owner;
    uint64_t version; /* the document's new one */
    uint64_t log_id;
    uint64_t range_first_seq; /* the first of the events since the last frame; 0: unknown */
    struct slice projection_version;
    uint64_t now_ms;
};

/* Memory that is used again for every update. */
struct update_scratch {
    struct buffer document;
    struct buffer text;
    struct summary_marks marks; /* of the document built last */
};

void update_scratch_init(struct update_scratch *scratch);
void update_scratch_release(struct update_scratch *scratch);

MUST_CHECK enum status update_build(const struct update_source *source,
                                    struct update_scratch *scratch, struct arena *arena,
                                    struct sink_update *update);

#endif
