/* The mark of a store in the event ids that its server mints: their last three bytes.
 * Thread: any.
 * Invariant: a stored event whose id is not listed among the supplied ids has an id that may be
 * minted. So a supplied id that cannot be minted is compared with supplied ids only, and the log is
 * not searched. */
#ifndef STORE_ID_MARK_H
#define STORE_ID_MARK_H

#include "base/uuid7.h"

#define ID_MARK_BYTES 3

struct id_mark {
    uint8_t bytes[ID_MARK_BYTES];
    struct uuid
        unmarked_max; /* ids minted without the mark are at most this; zero: there are none */
};

static inline void id_mark_stamp(const struct id_mark *mark, struct uuid *id) {
    memcpy(id->bytes + sizeof(id->bytes) - ID_MARK_BYTES, mark->bytes, ID_MARK_BYTES);
}

/* False: the server of this store did not mint this id. */
static inline bool id_mark_may_be_minted(const struct id_mark *mark, const struct uuid *id) {
    return memcmp(id->bytes + sizeof(id->bytes) - ID_MARK_BYTES, mark->bytes, ID_MARK_BYTES) == 0 ||
           uuid_compare(id, &mark->unmarked_max) <= 0;
}

#endif
