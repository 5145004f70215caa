/* Keys that the server generates, kept in the store as well as in files of the data folder.
 * The main thread, at start.
 * Memory for one file at a time; copies of keys are cleared.
 * STATUS_SYSTEM_ERROR with errno when a file cannot be read or written; the statuses of the store.
 * The key in the store wins, so that every server of one database uses the same keys. */
#ifndef SERVER_SHARED_KEYS_H
#define SERVER_SHARED_KEYS_H

#include "store/store.h"

/* Writes the files of the keys that the store has. Before the keys are loaded. */
MUST_CHECK enum status shared_keys_fetch(struct store *store, const char *folder);
/* Keeps the keys of the files in the store. After they were loaded or generated. */
MUST_CHECK enum status shared_keys_keep(struct store *store, const char *folder);

#endif
