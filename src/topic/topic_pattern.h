/* Patterns of topic names and stream ids: literal text with at most one '*'. The '*' stands for any
 * bytes, or for none.
 * Any thread. Reads the caller's bytes; allocates nothing; cannot fail.
 * The literal parts never overlap: "run:*:events" does not match "run:events".
 * A name made from a pattern matches it, with the same middle. */
#ifndef TOPIC_TOPIC_PATTERN_H
#define TOPIC_TOPIC_PATTERN_H

#include "base/slice.h"

/* On a match, middle (may be NULL) becomes the part in the place of '*'; empty without a '*'. */
bool topic_pattern_match(const char *pattern, struct slice name, struct slice *middle);
/* The bytes of the name with middle in the place of '*'. */
size_t topic_pattern_size(const char *pattern, struct slice middle);
/* Writes that name, topic_pattern_size bytes of it. */
void topic_pattern_fill(const char *pattern, struct slice middle, char *name);

#endif
