#include "authority/id_minter.h"

enum status id_minter_init(struct id_minter *minter, const struct id_mark *mark,
                           const struct uuid *last) {
    minter->mark = *mark;
    minter->last = last ? *last : (struct uuid){{0}};
    return uuid7_generator_init(&minter->generator, last);
}

/* The generator's steps are random and mostly larger than the mark. Where a step is smaller, the
 * stamped id may not be above the last one: the next step is taken then. */
struct uuid id_minter_next(struct id_minter *minter, uint64_t now_ms) {
    struct uuid id;
    do {
        id = uuid7_next(&minter->generator, now_ms);
        id_mark_stamp(&minter->mark, &id);
    } while (uuid_compare(&id, &minter->last) <= 0);
    minter->last = id;
    return id;
}
