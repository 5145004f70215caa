/* Metadata and its patches: JSON objects in canonical form, merged member by member. A null in a
 * patch removes the member. The patch of a worker replaces members whole. That of a run is a JSON
 * merge patch (RFC 7386), which merges objects inside members too.
 * Thread: any.
 * Memory: the caller's buffer, all or nothing.
 * Errors: STATUS_INTERNAL_ERROR if the base is not an object; the buffer's own errors.
 * Invariant: canonical texts give a canonical text. */
#ifndef AUTHORITY_METADATA_H
#define AUTHORITY_METADATA_H

#include "base/buffer.h"

/* base with data NULL is an empty object. */
MUST_CHECK enum status metadata_merge(struct slice base, struct slice patch, struct buffer *out);
/* The same by RFC 7386. */
MUST_CHECK enum status metadata_patch(struct slice base, struct slice patch, struct buffer *out);

#endif
