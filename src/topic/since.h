/* A time from which a client reads: an RFC 3339 time, or a duration before now such as "2h".
 * Thread: any.
 * Errors: STATUS_INVALID_REQUEST for any other text. The result is not set then.
 * Invariant: times are whole milliseconds since 1970. A time before 1970 is 0. */
#ifndef TOPIC_SINCE_H
#define TOPIC_SINCE_H

#include <stdint.h>

#include "base/slice.h"
#include "spec/codes.h"

/* Longer than any text of a since. */
#define SINCE_BYTES_MAX 64
/* The accepted texts, for messages. */
#define SINCE_FORMS "a time (RFC 3339) or a duration such as 90s, 2h or 7d"

struct since {
    bool is_duration; /* ms is the distance from now */
    uint64_t ms;
};

/* A fraction of a second is cut after three digits, so that the time never moves ahead. A duration
 * is a whole number and one of ms, s, m, h and d. */
MUST_CHECK enum status since_read(struct slice text, struct since *since);
uint64_t since_time_ms(const struct since *since, uint64_t now_ms);

#endif
