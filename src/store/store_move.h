/* Moves a whole store into another, between any two engines: log, ids, cursors, chains, topics,
 * journal, documents, keys of retries, revocations and epoch. Clients continue at their cursors.
 * Thread: one; neither store is in use by a server.
 * Memory: one page of rows.
 * Errors: those of store.h, with a sentence for people in the message. STATUS_ALREADY_EXISTS: the
 * move is refused, and nothing was written. STATUS_INVALID_REQUEST: both are the same store.
 * Invariant: the source is marked before the first row is copied, and is not served again. The
 * target is not served before the last row is there. After a crash at any moment the same move goes
 * on. */
#ifndef STORE_STORE_MOVE_H
#define STORE_STORE_MOVE_H

#include "store/store.h"

struct store_move_options {
    const char *source_url;
    const char *target_url;
    void *user;
    void (*on_progress)(void *user, uint64_t done, uint64_t total);
    /* Called before the move is complete: copies the generated keys, which an engine may keep in
     * files. */
    enum status (*copy_keys)(void *user, struct store *source, struct store *target);
};

struct store_moved {
    char source[STORE_MESSAGE_MAX];
    char target[STORE_MESSAGE_MAX];
    char epoch[STORE_EPOCH_SIZE + 1];
    uint64_t events;
    bool is_begun;     /* the same move goes on after a failure */
    bool was_complete; /* an earlier call had completed it */
};

MUST_CHECK enum status store_move(const struct store_move_options *options,
                                  struct store_moved *moved, struct store_message *message);

struct store_move_undone {
    char target[STORE_MESSAGE_MAX]; /* the other store, which stays as it is */
    char epoch[STORE_EPOCH_SIZE + 1];
    bool is_epoch_new; /* the target may have been served under the old epoch */
};

/* Lets a store be served again that was moved, as it was before the move. STATUS_NOT_FOUND: it was
 * not moved. */
MUST_CHECK enum status store_move_undo(const char *url, struct store_move_undone *undone,
                                       struct store_message *message);

#endif
