/* The marks that a move leaves in both stores, as properties.
 * Thread: one; any session reads them.
 * Memory: the caller's.
 * Errors: those of store.h.
 * Invariant: a store with a mark of leaving is not opened for writing, one that is arriving not at
 * all. */
#ifndef STORE_STORE_MARKS_H
#define STORE_STORE_MARKS_H

#include "store/store.h"

#define STORE_MOVE_OUT SLICE("move_out")
#define STORE_MOVE_IN  SLICE("move_in")

/* One side of a move. */
struct store_mark {
    bool is_set;
    bool is_complete;
    char id[STORE_EPOCH_SIZE + 1]; /* the same in both stores */
    char other[256];               /* the other store, for people */
};

struct store_marks {
    struct store_mark out; /* this store was moved elsewhere */
    struct store_mark in;  /* another store was moved here */
};

MUST_CHECK enum status store_marks_read(struct store_session *session, struct store_marks *marks);
struct store_mark_text {
    char text[384];
};
/* The value of the property. */
struct store_mark_text store_mark_write(const struct store_mark *mark);

/* STATUS_INVALID_CONFIG: a move keeps the store from being opened in this way, and the message has
 * the remedy. label names the store. */
MUST_CHECK enum status store_marks_check(struct store *store, bool exclusive, const char *label,
                                         struct store_message *message);

#endif
