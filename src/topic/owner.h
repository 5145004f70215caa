/* An owner: the user, guest or organisation to which an entity, an event or a frame belongs.
 * Thread: any.
 * Memory: borrows its texts; absent parts have data NULL.
 * Invariant: an owner has a user or a guest, never both. */
#ifndef TOPIC_OWNER_H
#define TOPIC_OWNER_H

#include "base/slice.h"

struct owner {
    struct slice user_id;
    struct slice guest_scope;
    struct slice org_id;
};

static inline bool owner_text_equal(struct slice a, struct slice b) {
    return a.data && b.data ? slice_equal(a, b) : !a.data && !b.data;
}

static inline bool owner_equal(const struct owner *a, const struct owner *b) {
    return owner_text_equal(a->user_id, b->user_id) &&
           owner_text_equal(a->guest_scope, b->guest_scope) &&
           owner_text_equal(a->org_id, b->org_id);
}

#endif
