#include "projector/checkpoint.h"

#include <assert.h>

static struct checkpoint_decision plain(enum checkpoint_action action) {
    return (struct checkpoint_decision){.action = action};
}

static struct checkpoint_decision drifted(enum checkpoint_action action, enum reason drift) {
    return (struct checkpoint_decision){.action = action, .has_drift = true, .drift = drift};
}

struct checkpoint_decision checkpoint_decide(const struct store_checkpoint *checkpoint,
                                             const struct checkpoint_incoming *incoming) {
    assert(incoming->first_seq >= 1 && incoming->first_seq <= incoming->last_seq);
    uint64_t seen = checkpoint ? checkpoint->last_runtime_seq : 0;
    bool same_version =
        !checkpoint || slice_equal(checkpoint->projection_version, incoming->projection_version);
    if (seen > incoming->last_seq)
        return drifted(CHECKPOINT_REPAIR, REASON_CHECKPOINT_AHEAD);
    if (seen == incoming->last_seq) {
        assert(checkpoint);
        if (!same_version)
            return drifted(CHECKPOINT_WRITE, REASON_PROJECTION_VERSION_CHANGED);
        if (memcmp(checkpoint->summary_hash, incoming->summary_hash, SHA256_BYTES) != 0)
            return drifted(CHECKPOINT_WRITE, REASON_SUMMARY_HASH_MISMATCH);
        return plain(CHECKPOINT_SKIP);
    }
    if (!same_version)
        return drifted(CHECKPOINT_REPAIR, REASON_PROJECTION_VERSION_CHANGED);
    if (incoming->first_seq > seen + 1)
        return drifted(CHECKPOINT_REPAIR, REASON_SEQUENCE_GAP);
    return plain(CHECKPOINT_WRITE);
}
