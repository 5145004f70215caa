/* Keys that the server generates, kept in the store as well as in files of the data folder.
 * The main thread, at start, or during a move.
 * Memory for one file at a time; copies of keys are cleared.
 * STATUS_SYSTEM_ERROR with errno when a file cannot be read or written; the statuses of the store.
 * The key in the store wins, so that every server of one database uses the same keys. */
#ifndef SERVER_SHARED_KEYS_H
#define SERVER_SHARED_KEYS_H

#include "store/store.h"

/* A store, and the folder of its keys where the store does not keep them itself. */
struct key_place {
    struct store *store;
    const char *folder;
};

/* Writes the files of the keys that the store has. Before the keys are loaded. Until the caller
 * closes lock, no other server passes this call, so that one server generates the keys of all. On
 * failure lock may be open too. It stays NULL where the store keeps no keys. */
MUST_CHECK enum status shared_keys_fetch(struct store *store, const char *folder,
                                         struct store_session **lock);
/* Keeps the keys of the files in the store. After they were loaded or generated. */
MUST_CHECK enum status shared_keys_keep(struct store_session *lock, const char *folder);
/* Copies the generated keys of one store for another. */
MUST_CHECK enum status shared_keys_copy(const struct key_place *source,
                                        const struct key_place *target);

#endif
