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

#endif
