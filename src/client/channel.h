/* All topics of a client over one WebSocket, in the Phoenix dialect.
 * Belongs to the thread of the client's loop. Events come from the loop only.
 * Owns its WebSocket and the requests that wait for a reply.
 * A status other than STATUS_OK of a call means that nothing was sent, for want of memory.
 * One WebSocket can carry many topics, refuse one of them, and take a new token. */
#ifndef CLIENT_CHANNEL_H
#define CLIENT_CHANNEL_H

#include <stdint.h>

#include "base/list.h"
#include "base/slice.h"
#include "client/follower.h"
#include "client/net/ws_client.h"

struct channel_events {
    void (*opened)(void *user);
    void (*joined)(void *user, uint64_t heartbeat_ms); /* 0: not told */
    void (*heard)(void *user);
    void (*expiring)(void *user);
    void (*refreshed)(void *user);
    void (*closed)(void *user, const struct client_error *error);
    /* The follower of a topic or stream id; NULL if there is none. */
    struct follower *(*find)(void *user, struct slice topic);
    struct follower *(*find_number)(void *user, uint64_t number);
    /* After each event: everything that the event caused was done. */
    void (*settle)(void *user);
};

struct channel_options {
    uv_loop_t *loop;
    struct socket_holds *holds;
    const struct socket_target *target;
    const char *client_build_id; /* NULL: none */
    struct slice token;
    const struct channel_events *events;
    void *user;
};

struct channel;

MUST_CHECK enum status channel_open(struct channel **channel,
                                    const struct channel_options *options);
/* NULL is allowed. No event follows, but the one that runs is completed. */
void channel_close(struct channel *channel);
MUST_CHECK enum status channel_join(struct channel *channel);
MUST_CHECK enum status channel_refresh(struct channel *channel, struct slice token);
/* False if an earlier request has been without a reply for too long. */
MUST_CHECK bool channel_heartbeat(struct channel *channel);
/* The follower is subscribed by the next channel_flush. */
void channel_want(struct channel *channel, struct follower *follower);
MUST_CHECK enum status channel_flush(struct channel *channel);
MUST_CHECK enum status channel_unsubscribe(struct channel *channel, struct follower *follower);

/* The requests of a channel that wait for their reply.
 * Belongs to the thread of the client's loop.
 * Owns the requests in the list; one that was made and not added belongs to its maker.
 * NULL of channel_push_make: no memory, or too many requests without a reply.
 * References ascend, so the first request of the list is the oldest. */

#define PUSH_REF_BYTES 24

enum push_kind { PUSH_JOIN, PUSH_REFRESH, PUSH_SUBSCRIBE, PUSH_UNSUBSCRIBE };

struct push {
    struct list_node node;
    char ref[PUSH_REF_BYTES];
    enum push_kind kind;
    uint64_t at_ms;
    size_t count;
    uint64_t numbers[]; /* of the followers that it subscribes; 0: settled */
};

struct push_list {
    struct list pushes;
    size_t count;
    uint64_t ref; /* the last one */
};

void channel_push_list_init(struct push_list *list);
void channel_push_list_clear(struct push_list *list);
/* The next reference as text. */
struct slice channel_push_next_ref(struct push_list *list, char ref[PUSH_REF_BYTES]);
/* With room for so many followers, and none yet. */
struct push *channel_push_make(struct push_list *list, enum push_kind kind, size_t count,
                               uint64_t now_ms);
void channel_push_add(struct push_list *list, struct push *push);
/* Removes the request with this reference, which the caller frees; NULL if there is none. */
struct push *channel_push_take(struct push_list *list, struct slice ref);
/* Whether a request has waited longer than that. */
bool channel_push_is_late(const struct push_list *list, uint64_t now_ms, uint64_t wait_ms_max);
bool channel_push_has(const struct push *push, uint64_t number);

/* Writes the payload of sync:subscribe for a group of followers.
 * Belongs to the thread of the client's loop.
 * Appends to the caller's buffer; allocates nothing else.
 * Errors: the buffer's own; the caller discards the buffer then.
 * All followers of a group have the replay and the start of the first. */

MUST_CHECK enum status subscribe_request_write(struct buffer *out, struct follower **group,
                                               size_t count);

#endif
