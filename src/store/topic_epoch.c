#include "store/topic_epoch.h"

#include <inttypes.h>
#include <stdio.h>

struct topic_epoch topic_epoch_of(const struct store_state *state,
                                  const struct store_topic *topic) {
    struct topic_epoch epoch = {{0}};
    memcpy(epoch.text, state->epoch, STORE_EPOCH_SIZE);
    if (topic && topic->entity_ref == 0)
        snprintf(epoch.text + STORE_EPOCH_SIZE, sizeof(epoch.text) - STORE_EPOCH_SIZE, ".%" PRIu64,
                 topic->journal_epoch);
    return epoch;
}
