/* Makes the epoch of a log: a UUID that identifies one history.
 * Any thread.
 * Writes the caller's memory; keeps nothing.
 * STATUS_SYSTEM_ERROR when the system has no random bytes.
 * No two epochs are equal. */
#ifndef STORE_STORE_EPOCH_H
#define STORE_STORE_EPOCH_H

#include "store/store.h"

MUST_CHECK enum status store_epoch_mint(char epoch[STORE_EPOCH_SIZE + 1]);
/* Gives the log of the store a new epoch, so that all clients start again. No server may use the
 * store. fork_log_id: the last event that is in all histories of the log; NULL: its last one. The
 * statuses of store_open; the message has a sentence for people. */
MUST_CHECK enum status store_epoch_renew(const char *url, const uint64_t *fork_log_id,
                                         char epoch[STORE_EPOCH_SIZE + 1],
                                         struct store_message *message);
#endif
