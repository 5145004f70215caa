/* A viewer: which stored events a principal gets, for lists, exports and plans, as a subscription
 * decides for frames.
 * Belongs to the thread of its session. Memory: some entities' owners.
 * The store's errors.
 * Whose an event is, is said in one place (frame_owner), live or read again. */
#ifndef DELIVERY_VIEWER_H
#define DELIVERY_VIEWER_H

#include "auth/grant.h"
#include "delivery/owners.h"

struct viewer {
    const struct principal *principal;
    enum grant_view view;
    struct owners owners;
};

/* The principal and the session outlive it. */
void viewer_init(struct viewer *viewer, struct store_session *session,
                 const struct principal *principal, enum grant_view view);
void viewer_release(struct viewer *viewer);
/* entity_ref: whose frame it is; of an event of the log, the event's own. */
MUST_CHECK enum status viewer_look(struct viewer *viewer, uint64_t entity_ref,
                                   const struct store_event *event, bool *may_read);

#endif
