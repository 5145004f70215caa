#include "store/topic_epoch.h"

/* Topics that are served from the log have its epoch, and so far all others too. */
struct topic_epoch topic_epoch_of(const struct store_state *state,
                                  const struct store_topic *topic) {
    struct topic_epoch epoch = {{0}};
    (void)topic;
    memcpy(epoch.text, state->epoch, STORE_EPOCH_SIZE);
    return epoch;
}
