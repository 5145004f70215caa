#include "delivery/session/session.h"

#include <assert.h>
#include <stdlib.h>

void session_set_state(struct session *session, enum session_state state) {
    /* Which state may follow which, one row for each state. */
    static const unsigned allowed[SESSION_STATE_COUNT] = {
        [SESSION_OPEN] = 1u << SESSION_CLOSING | 1u << SESSION_DISCONNECTED,
        [SESSION_CLOSING] = 1u << SESSION_ENDED | 1u << SESSION_DISCONNECTED,
        [SESSION_ENDED] = 1u << SESSION_DISCONNECTED,
        [SESSION_DISCONNECTED] = 1u << SESSION_RELEASED,
        [SESSION_RELEASED] = 0,
    };
    assert(state < SESSION_STATE_COUNT && allowed[session->state] & 1u << state);
    session->state = state;
}

static struct subscriber *subscriber_of(struct hlist_node *node) {
    return node ? container_of(node, struct subscriber, node) : NULL;
}

struct subscriber *session_first(const struct session *session) {
    return subscriber_of(session->subscribers.first);
}

struct subscriber *subscriber_next(const struct subscriber *subscriber) {
    return subscriber_of(subscriber->node.next);
}

struct turn *session_turn(const struct session *session) {
    struct subscriber *subscriber = session_first(session);
    while (subscriber && !subscriber->turn.lane)
        subscriber = subscriber_next(subscriber);
    return subscriber ? &subscriber->turn : NULL;
}

struct slice session_name(const struct session *session, char text[SESSION_NAME_BYTES_MAX]) {
    _Static_assert(UUID_TEXT_SIZE <= SESSION_NAME_BYTES_MAX, "an id fits");
    if (session->given_name)
        return slice_of(session->given_name);
    uuid_format(&session->id, text);
    return (struct slice){text, UUID_TEXT_SIZE};
}

void session_forget_expiry(struct session *session) {
    if (!session->expiry)
        return;
    deadline_drop(&session->expiry->deadline);
    free(session->expiry);
    session->expiry = NULL;
}

/* The socket is full: from now on it is checked whether the peer reads. */
static void begin_strikes(struct session *session) {
    struct session_strikes *strikes = calloc(1, sizeof(*strikes));
    session->strikes = strikes;
    if (!strikes) {
        outlet_close(session->outlet);
        return;
    }
    strikes->session = session;
    strikes->sent_bytes = session->has_sent;
    io_loop_deadline(session->delivery->io, &strikes->deadline, DEADLINE_STRIKE_CHECK);
}

/* Bytes were pushed with that result. */
static void pushed(struct session *session, enum outlet_result result, size_t size) {
    if (result == OUTLET_CLOSED)
        return;
    if (result == OUTLET_BLOCKED && !session->strikes && session_is_open(session))
        begin_strikes(session);
    session->has_sent = true;
    if (!session->strikes)
        return;
    session->strikes->sent_bytes += size;
    session->strikes->was_blocked |= result == OUTLET_BLOCKED;
}

/* Once: a peer that keeps sending must not get new time with each message. */
static void end(struct session *session) {
    if (session->state == SESSION_ENDED)
        return;
    session_set_state(session, SESSION_ENDED);
    if (session->framing)
        session->framing->table->ended(session);
    else
        session->outlet->table->linger(session->outlet);
}

void session_flush(struct session *session) {
    if (!session_is_connected(session) || session_is_blocked(session))
        return;
    if (session->replies.size > 0) {
        struct buffer replies = session->replies;
        buffer_init(&session->replies, replies.size_max);
        enum outlet_result result =
            session->outlet->table->push_bytes(session->outlet, buffer_slice(&replies));
        pushed(session, result, replies.size);
        buffer_release(&replies);
        if (result != OUTLET_SENT)
            return;
    }
    if (!session_is_open(session))
        end(session);
}

void session_push(struct session *session, struct push *push) {
    struct buffer replies = session->replies;
    size_t size = replies.size + push->size;
    buffer_init(&session->replies, replies.size_max);
    enum outlet_result result =
        session->outlet->table->push(session->outlet, buffer_slice(&replies), push);
    pushed(session, result, size);
    buffer_release(&replies);
}

void session_send(struct session *session, enum status status) {
    if (status == STATUS_OK)
        session_flush(session);
    else if (session_is_connected(session))
        outlet_close(session->outlet);
}
