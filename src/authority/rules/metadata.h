/* Metadata and its patches: JSON objects in canonical form, merged member by member; null in a
 * patch removes.
 * Any thread. The result goes to the caller's buffer, all or nothing.
 * STATUS_INTERNAL_ERROR when the base is not an object; the buffer's own errors.
 * Canonical in, canonical out; the cost is the size of both. */
#ifndef AUTHORITY_RULES_METADATA_H
#define AUTHORITY_RULES_METADATA_H

#include "base/buffer.h"

/* base with data NULL is an empty object. */
MUST_CHECK enum status metadata_merge(struct slice base, struct slice patch, struct buffer *out);

#endif
