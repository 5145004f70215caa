/* Names of topics and entities: which bytes may be one. topic_table.h has the built-in ones.
 * Thread: any.
 * Memory: messages are static.
 * Errors: STATUS_INVALID_TOPIC for a bad name.
 * Invariant: names are bytes: never trimmed, never normalised, compared exactly. */
#ifndef TOPIC_TOPIC_NAME_H
#define TOPIC_TOPIC_NAME_H

#include "topic/topic_table.h"

#define TOPIC_NAME_BYTES_MAX 512

/* The whole log as a topic: its seq is the log id. A control character keeps the name apart from
 * every topic of a client. */
#define LOG_TOPIC "\001log"

/* Non-empty, at most TOPIC_NAME_BYTES_MAX, UTF-8, no control character (C0, DEL, C1). */
MUST_CHECK enum status topic_name_check(struct slice topic);

static inline bool topic_is_log(struct slice topic) {
    return slice_equal(topic, SLICE(LOG_TOPIC));
}

/* Whether a client may give that name to a new run, worker or topic, or to an owner: NULL, or a
 * static sentence that says why not. A good name is no wildcard of a grant, no step of a path, and
 * is displayed as it is. Only creations are checked: a store may hold older names, which stay
 * readable. The name is valid UTF-8 within its size limit, as the parsers of requests have checked.
 */
const char *entity_name_problem(struct slice name);

#endif
