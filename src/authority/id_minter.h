/* Mints the ids of events: strictly rising UUIDv7 that carry the store's mark.
 * Owned by the writer's thread. Allocates nothing.
 * Starting asks the system for random bytes: STATUS_SYSTEM_ERROR. STATUS_LIMIT_REACHED when the
 * last id leaves no room above it.
 * Each id is greater than the one before and than the last id of the log, for any clock. */
#ifndef AUTHORITY_ID_MINTER_H
#define AUTHORITY_ID_MINTER_H

#include "store/id_mark.h"

struct id_minter {
    struct uuid7_generator generator;
    struct id_mark mark;
    struct uuid last;
};

/* last: of the log; NULL: the log is empty. */
MUST_CHECK enum status id_minter_init(struct id_minter *minter, const struct id_mark *mark,
                                      const struct uuid *last);
struct uuid id_minter_next(struct id_minter *minter, uint64_t now_ms);

#endif
