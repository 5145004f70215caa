/* The welcome: what a client that joins may read, and the watermarks of those topics.
 * Runs on a thread of the store pool, for a session that waits.
 * Appends to the caller's buffers, which are bounded; a token lists a bounded number of names.
 * The status is the store's or the buffers'.
 * Lists only what the principal may read: a name in its token that its scopes do not open is left
 * out. */
#ifndef DIALECT_PHOENIX_PHOENIX_H
#define DIALECT_PHOENIX_PHOENIX_H

#include "auth/principal.h"
#include "base/buffer.h"
#include "store/store.h"

/* ---- the welcome ---- */

/* topics: the JSON array of what the token grants, patterns among it; of a token without grants,
 * the topics its scopes open by name, or "*" for one that reads everything. watermarks: the JSON
 * array of {topic, watermark} of those that exist. */
MUST_CHECK enum status welcome_write(struct store_session *session,
                                     const struct principal *principal, struct buffer *topics,
                                     struct buffer *watermarks);

#endif
