/* Names of topics and entities: which bytes may be one, which are reserved, and how built-in topics
 * are named.
 * Thread: any.
 * Memory: a name that is made lives in the caller's arena or is static.
 * Errors: STATUS_INVALID_TOPIC for a bad name; STATUS_OUT_OF_MEMORY.
 * Invariant: names are bytes: never trimmed, never normalised, compared exactly. */
#ifndef TOPIC_TOPIC_NAME_H
#define TOPIC_TOPIC_NAME_H

#include "base/arena.h"
#include "base/slice.h"
#include "spec/codes.h"
#include "topic/topic_table.h"

#define TOPIC_NAME_BYTES_MAX 512

/* The whole log as a topic: its seq is the log id. A control character keeps the name apart from
 * every topic of a client. */
#define LOG_TOPIC "\001log"

/* Non-empty, at most TOPIC_NAME_BYTES_MAX, UTF-8, no control character (C0, DEL, C1). */
MUST_CHECK enum status topic_name_check(struct slice topic);
/* run:*, worker:*, fleet:*, runtime.*: no client may publish to these. */
bool topic_is_projection_owned(struct slice topic);

/* The name of a topic that is the only one of its kind. */
struct slice topic_name(enum topic_kind kind);
/* The name with id in the place of '*'. */
MUST_CHECK enum status topic_name_make(struct arena *arena, enum topic_kind kind, struct slice id,
                                       struct slice *name);
/* The topic that carries the events of one entity. */
MUST_CHECK enum status topic_name_of_entity(struct arena *arena, enum entity_kind kind,
                                            struct slice id, struct slice *name);

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
