/* Makes the epoch of a log: a UUID that identifies one history.
 * Any thread.
 * Writes the caller's memory; allocates nothing.
 * STATUS_SYSTEM_ERROR when the system has no random bytes.
 * No two epochs are equal. */
#ifndef STORE_STORE_EPOCH_H
#define STORE_STORE_EPOCH_H

#include "store/store.h"

MUST_CHECK enum status store_epoch_mint(char epoch[STORE_EPOCH_SIZE + 1]);

#endif
