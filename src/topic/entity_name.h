/* Names that a client may give to a new run, worker or topic, and to an owner.
 * Any thread; pure; allocates nothing.
 * entity_name_problem returns a static sentence, or NULL for a good name.
 * A good name is no wildcard of a grant, no step of a path, and is displayed as it is.
 * Only creations are checked: a store may hold older names, which stay readable. */
#ifndef TOPIC_ENTITY_NAME_H
#define TOPIC_ENTITY_NAME_H

#include "base/slice.h"

/* The name is valid UTF-8 within its size limit, as the parsers of requests have checked. */
const char *entity_name_problem(struct slice name);

#endif
