/* Patterns of topic and stream names: literal text with at most one '*', which stands for any
 * run of bytes, also none.
 * Any thread. Reads the caller's bytes; allocates nothing; cannot fail.
 * The literal parts never overlap: "run:*:events" does not match "run:events". */
#ifndef TOPIC_TOPIC_PATTERN_H
#define TOPIC_TOPIC_PATTERN_H

#include "base/slice.h"

/* On a match, middle (may be NULL) becomes what '*' stands for; empty where there is none. */
bool topic_pattern_match(const char *pattern, struct slice name, struct slice *middle);

#endif
