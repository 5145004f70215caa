/* An owner: the user, guest or organisation to which an entity, an event or a frame belongs.
 * Any thread.
 * Borrows its texts.
 * Cannot fail.
 * Absent parts have data NULL. An owner has a user or a guest, never both. */
#ifndef TOPIC_OWNER_H
#define TOPIC_OWNER_H

#include "base/slice.h"

struct owner {
    struct slice user_id;
    struct slice guest_scope;
    struct slice org_id;
};

#endif
