/* A hint: the log of an epoch has reached a log id. The one message between nodes.
 * Any thread; pure functions over values.
 * Allocates nothing.
 * Errors: STATUS_INVALID_REQUEST for every text that hint_write cannot have written.
 * A text has one size and one form, so that one comparison of sizes bounds the input. A hint
 * carries no frame, because other programs can read and forge messages on a shared server. */
#ifndef FANOUT_HINT_H
#define FANOUT_HINT_H

#include <stdint.h>

#include "base/slice.h"
#include "base/uuid7.h"

/* "1 ", the epoch, a blank, and the log id in 20 digits. */
#define HINT_LOG_ID_BYTES 20
#define HINT_BYTES        (2 + UUID_TEXT_SIZE + 1 + HINT_LOG_ID_BYTES)
#define HINT_LOG_ID_MAX   INT64_MAX

struct hint {
    char epoch[UUID_TEXT_SIZE + 1];
    uint64_t log_id; /* 1 to HINT_LOG_ID_MAX */
};

/* Writes HINT_BYTES characters, no NUL. The epoch is a UUIDv7 in lower case. */
void hint_write(const struct hint *hint, char text[HINT_BYTES]);
MUST_CHECK enum status hint_parse(struct slice text, struct hint *hint);

#endif
