/* A principal: who reads. What a frame is to it follows from the frame's owner alone.
 * Any thread. Texts are the maker's and outlive every subscription made with it.
 * Cannot fail.
 * What belongs to nobody is for those who may read everything. */
#ifndef AUTH_PRINCIPAL_H
#define AUTH_PRINCIPAL_H

#include "topic/owner.h"

struct principal {
    struct owner who; /* absent parts have data NULL */
    bool read_all;
};

/* Its own user's or guest's; or its organisation's, where that has no user or guest. */
bool principal_may_read(const struct principal *principal, const struct owner *owner);

#endif
