/* What may name a topic, and which names the projector alone writes.
 * Any thread. Reads the caller's bytes; allocates nothing.
 * A bad name is STATUS_INVALID_TOPIC.
 * Names are bytes: never trimmed, never normalised, compared exactly. */
#ifndef TOPIC_TOPIC_NAME_H
#define TOPIC_TOPIC_NAME_H

#include "base/slice.h"
#include "spec/codes.h"

#define TOPIC_NAME_BYTES_MAX 512

/* Non-empty, at most TOPIC_NAME_BYTES_MAX, UTF-8, no control character (C0, DEL, C1). */
MUST_CHECK enum status topic_name_check(struct slice topic);
/* run:*, worker:*, fleet:*, runtime.*: no client may publish to these. */
bool topic_is_projection_owned(struct slice topic);

#endif
