/* The epoch of a topic, which most subscriptions of the topic have in common.
 * Belongs to the thread of its subscriptions.
 * Memory: counted references; the last one frees it.
 * NULL for an epoch that cannot be made.
 * The text never changes. */
#ifndef DELIVERY_SHARED_EPOCH_H
#define DELIVERY_SHARED_EPOCH_H

#include <stdlib.h>

#include "topic/position.h"

struct shared_epoch {
    size_t references;
    struct topic_epoch epoch;
};

/* Without a reference so far. */
static inline struct shared_epoch *shared_epoch_make(const struct topic_epoch *epoch) {
    struct shared_epoch *made = malloc(sizeof(*made));
    if (made)
        *made = (struct shared_epoch){.epoch = *epoch};
    return made;
}

static inline void shared_epoch_unref(struct shared_epoch *epoch) {
    if (epoch && --epoch->references == 0)
        free(epoch);
}

/* Refers to this epoch, instead of the one before. */
static inline void shared_epoch_set(struct shared_epoch **place, struct shared_epoch *epoch) {
    epoch->references++;
    shared_epoch_unref(*place);
    *place = epoch;
}

#endif
