/* An owner: to whom an entity, an event or a frame belongs.
 * Any thread. Texts are the maker's.
 * Cannot fail.
 * Absent parts have data NULL; a user and a guest exclude each other. */
#ifndef TOPIC_OWNER_H
#define TOPIC_OWNER_H

#include "base/slice.h"

struct owner {
    struct slice user_id;
    struct slice guest_scope;
    struct slice org_id;
};

#endif
