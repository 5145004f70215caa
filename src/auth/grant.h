/* Grants: which topics a principal may read, by the table of topics.
 * A granted name is exact or has one '*'. The '*' is a whole part: it follows ':' or '.', and
 * stands before ':' or '.' or at the end (run:*:events, room:7:*). It matches one or more
 * characters. A name with '*' is never exact: it does not open an entity named '*' of an older
 * store. A whole stream id may stand among the topics too. Grants narrow: with any grant, a
 * topic must match one of them. An exact grant, by topic or by stream id, replaces ownership of a
 * run, a worker or a fleet. A '*' does not, because one grant would open every tenant. On shared
 * topics no grant lifts the filter by owner.
 * Thread: any.
 * Errors: refusals in this order: STATUS_FORBIDDEN_TOPIC (no grant names the topic),
 * STATUS_MISSING_SCOPE, STATUS_OWNER_MISMATCH.
 * Invariant: a run or worker of another owner looks like one that does not exist, so that a caller
 * cannot learn which ids exist. Only a fleet is refused as STATUS_OWNER_MISMATCH (grant_subscribe).
 */
#ifndef AUTH_GRANT_H
#define AUTH_GRANT_H

#include "auth/principal.h"

/* The frames of a topic that the principal gets. */
enum grant_view {
    GRANT_VIEW_NONE,    /* if the status is STATUS_OK: the run or worker belongs to another */
    GRANT_VIEW_PENDING, /* the run or worker may not exist, and may belong to another */
    GRANT_VIEW_OWN,     /* frames of its own */
    GRANT_VIEW_OWN_OR_UNOWNED, /* its own and those without an owner: application topics */
    GRANT_VIEW_ALL,
};

struct grant {
    enum status status;
    enum grant_view view; /* GRANT_VIEW_NONE unless STATUS_OK */
};

/* The topic exists for the principal only later, or never. */
static inline bool grant_view_is_pending(enum grant_view view) {
    return view == GRANT_VIEW_NONE || view == GRANT_VIEW_PENDING;
}

/* The entity whose owner decides about the topic, or ENTITY_NONE. The caller loads it if
 * grant_check without an owner answers STATUS_OWNER_MISMATCH. */
enum entity_kind grant_entity_of(struct slice topic, struct slice *id);
/* owner is the owner of the run or worker; NULL: not loaded, or no such entity exists. topic may be
 * a stream id of the kind ADDRESS_STORED_STREAM that no topic has yet: the answer then says whether
 * the principal may wait for the topic. */
struct grant grant_check(const struct principal *principal, struct slice topic,
                         const struct owner *owner);
/* The same for a subscription, by the token alone. Where the owner of a run or worker decides, the
 * subscription waits with GRANT_VIEW_PENDING until the owner is known. */
struct grant grant_subscribe(const struct principal *principal, struct slice topic);
/* What the refusal of grant_check says to the client: the message of the status, with the scopes of
 * which the token needs one. */
const char *grant_message(enum status refusal, struct slice topic,
                          char text[SCOPES_NEEDED_BYTES_MAX]);
/* Whether a producer may append to the entity of the topic: it owns the run or worker, or the token
 * names its topic exactly; an application topic matches a grant; of notifications each has its own
 * owner. read_all does not help. STATUS_FORBIDDEN_TOPIC depends on the token alone,
 * STATUS_OWNER_MISMATCH on the owner, which is NULL if no such entity exists. */
MUST_CHECK enum status grant_check_append(const struct principal *principal, struct slice topic,
                                          const struct owner *owner);
/* Whether a granted name, exact or with '*', could open a topic to the principal as a reader. */
bool grant_opens(const struct principal *principal, struct slice topic);
/* Whether any topic could be open to the principal, with frames that it may read or to append to.
 * True in doubt: a name with '*' may match topics of several kinds. */
bool grant_opens_any(const struct principal *principal);
/* Whether a frame may be delivered. Called for each frame. */
bool grant_may_read(const struct principal *principal, enum grant_view view,
                    const struct owner *owner);

#endif
