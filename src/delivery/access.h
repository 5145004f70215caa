/* Access: the topic that a client's address means, and which of its events a principal may read.
 * Thread: a thread of the store pool.
 * Memory: texts live in the caller's arena, or are the address itself; owners are a cache of at
 * most OWNERS_MAX entities.
 * Errors: the store's; STATUS_INVALID_TOPIC for a text that cannot be an address;
 * STATUS_STREAM_ID_CONFLICT for the name of a topic that cannot exist, because another topic has
 * its stream id. A refusal is in the grant, not in the status.
 * Invariant: a topic and its stream id give the same answer. A run or worker that belongs to
 * another takes the same reads as one that does not exist, and a caller answers both alike
 * (grant_view_is_pending). The owner of an event is decided in one function (frame_owner). */
#ifndef DELIVERY_ACCESS_H
#define DELIVERY_ACCESS_H

#include "auth/grant.h"
#include "base/arena.h"
#include "base/limits.h"
#include "store/store.h"
#include "topic/stream_id.h"

/* ---- addresses ---- */

struct topic_address {
    struct slice topic; /* data NULL: no topic has the stream id yet, and several names could */
    struct slice stream_id;
    bool exists;
    struct store_topic row; /* if it exists */
};

MUST_CHECK enum status topic_address_find(struct store_session *session, struct slice address,
                                          struct arena *arena, struct topic_address *found);
/* The same as if the topic did not exist: its names follow from the address. */
MUST_CHECK enum status topic_address_absent(struct slice address, struct arena *arena,
                                            struct topic_address *found);

/* ---- entitlement ---- */

/* Finds out which frames of a topic the principal may read. GRANT_VIEW_PENDING: no such run or
 * worker exists. GRANT_VIEW_NONE: it belongs to another. A topic without a name (a stream that no
 * topic has) is only for principals that may read everything. */
MUST_CHECK enum status entitlement_load(struct store_session *session,
                                        const struct principal *principal, struct slice topic,
                                        struct arena *arena, struct grant *grant);

/* ---- owners ---- */

struct owners_slot {
    uint64_t entity_ref; /* 0: none */
    struct owner owner;
};

struct owners {
    struct store_session *session;
    struct arena arena;
    struct owners_slot slots[OWNERS_MAX]; /* an entity has one slot, by its ref */
};

/* The session outlives it. */
void owners_init(struct owners *owners, struct store_session *session);
void owners_release(struct owners *owners);
/* The owner is valid until the next call. */
MUST_CHECK enum status owners_find(struct owners *owners, uint64_t entity_ref,
                                   const struct owner **owner);

/* ---- viewers ---- */

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
