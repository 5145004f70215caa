/* The checkpoint decision: write, repair or skip a new summary, given the last checkpoint.
 * A pure function. Any thread; allocates nothing; cannot fail.
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
 * To repair is to fold the missing events from the log; all events for another version, or where
 * the checkpoint is ahead. The log is the truth, so a summary never waits for its checkpoint. */
#ifndef PROJECTOR_CHECKPOINT_H
#define PROJECTOR_CHECKPOINT_H

#include "store/store.h"

enum checkpoint_action { CHECKPOINT_WRITE, CHECKPOINT_SKIP, CHECKPOINT_REPAIR };

struct checkpoint_incoming {
    uint64_t first_seq; /* of the events since the last summary */
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
