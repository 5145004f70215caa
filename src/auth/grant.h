/* Who may read what: one table from kinds of topics to scopes and ownership.
 * Any thread; pure; allocates nothing. What a token lists is read as it stands in the principal.
 * Refusals: STATUS_FORBIDDEN_TOPIC (its grants do not name the topic, or it needs one),
 * STATUS_MISSING_SCOPE, STATUS_OWNER_MISMATCH, looked for in that order.
 * A run or worker that is unknown answers like somebody else's: nobody learns what exists.
 *
 * A granted name is exact, or has one '*' as a whole part behind a ':' or '.' and before one or the
 * end (run:*:events, room:7:*), for one or more characters. Grants, once there are any, narrow: a
 * topic must match one of them. An exact grant, by topic or stream id, also stands in for owning a
 * run, a worker or a fleet; a '*' never does, or one grant would read every tenant. On topics that
 * tenants share, no grant lifts the filter. */
#ifndef AUTH_GRANT_H
#define AUTH_GRANT_H

#include "auth/principal.h"

/* Which frames of a topic the principal gets. */
enum grant_view {
    GRANT_VIEW_NONE,
    GRANT_VIEW_OWN,            /* what is its own */
    GRANT_VIEW_OWN_OR_UNOWNED, /* its own, and what belongs to nobody: application topics */
    GRANT_VIEW_ALL,
};

struct grant {
    enum status status;
    enum grant_view view; /* GRANT_VIEW_NONE unless STATUS_OK */
};

/* The entity whose owner decides about the topic, or ENTITY_NONE. The caller loads it where
 * grant_check without an owner answers STATUS_OWNER_MISMATCH. */
enum entity_kind grant_entity_of(struct slice topic, struct slice *id);
/* owner is the run's or worker's; NULL: not looked up, or there is no such. */
struct grant grant_check(const struct principal *principal, struct slice topic,
                         const struct owner *owner);
/* At delivery, for each frame. */
bool grant_may_read(const struct principal *principal, enum grant_view view,
                    const struct owner *owner);

#endif
