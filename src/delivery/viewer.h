/* A viewer: which stored events a principal may read, for lists, exports and plans. A subscription
 * decides the same for frames.
 * Belongs to the thread of its session.
 * Memory: the owners of some entities.
 * Errors: the store's.
 * The owner of an event is decided in one function (frame_owner), live or from the store. */
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
/* entity_ref: the entity that the frame belongs to; for an event of the log, the event's entity. */
MUST_CHECK enum status viewer_check(struct viewer *viewer, uint64_t entity_ref,
                                    const struct store_event *event, bool *may_read);

#endif
