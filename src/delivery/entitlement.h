/* Entitlement to a topic where the owner of a run or worker decides: the owner is loaded.
 * A thread of the store pool.
 * Memory: the caller's arena.
 * The status is the store's; a refusal is in the grant.
 * A run or worker that belongs to another takes the same reads as one that does not exist, and a
 * caller must answer both alike (grant_view_is_pending). */
#ifndef DELIVERY_ENTITLEMENT_H
#define DELIVERY_ENTITLEMENT_H

#include "auth/grant.h"
#include "store/store.h"

/* Finds out which frames of a topic the principal may read. GRANT_VIEW_PENDING: no such run or
 * worker exists. GRANT_VIEW_NONE: it belongs to another. A topic without a name (a stream that no
 * topic has) is only for principals that may read everything. */
MUST_CHECK enum status entitlement_load(struct store_session *session,
                                        const struct principal *principal, struct slice topic,
                                        struct arena *arena, struct grant *grant);

#endif
