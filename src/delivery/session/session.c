#include "delivery/session/session.h"

#include <assert.h>
#include <stdlib.h>

#include "hub/frame.h"

/* ---- strikes ---- */

bool strikes_check(struct strikes *strikes, const struct strikes_sample *sample) {
    bool took_nothing = sample->sent_bytes == strikes->sent_bytes;
    /* The first check has no lag to compare with. */
    bool catches_up = !strikes->has_sample || sample->lag < strikes->lag;
    bool falls_behind =
        sample->lag > sample->lag_max && !catches_up && (sample->was_blocked || sample->is_blocked);
    bool is_strike = (sample->is_blocked && took_nothing) || falls_behind;
    strikes->count = is_strike ? strikes->count + 1 : 0;
    strikes->sent_bytes = sample->sent_bytes;
    strikes->lag = sample->lag;
    strikes->has_sample = true;
    return strikes->count > 0 && strikes->count >= sample->strikes_max;
}

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

/* Bytes were pushed with that result. */
static void pushed(struct session *session, enum outlet_result result, size_t size) {
    if (result == OUTLET_CLOSED)
        return;
    /* The socket is full: from now on it is checked whether the peer reads. */
    if (result == OUTLET_BLOCKED && !session->strikes && session_is_open(session)) {
        session->strikes = calloc(1, sizeof(*session->strikes));
        if (!session->strikes) {
            outlet_close(session->outlet);
            session->has_sent = true;
            return;
        }
        session->strikes->session = session;
        session->strikes->sent_bytes = session->has_sent;
        io_loop_deadline(session->delivery->io, &session->strikes->deadline, DEADLINE_STRIKE_CHECK);
    }
    session->has_sent = true;
    if (!session->strikes)
        return;
    session->strikes->sent_bytes += size;
    session->strikes->was_blocked |= result == OUTLET_BLOCKED;
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
    /* Once: a peer that keeps sending must not get new time with each message. */
    if (session->state != SESSION_CLOSING)
        return;
    session_set_state(session, SESSION_ENDED);
    if (session->framing)
        session->framing->table->ended(session);
    else
        session->outlet->table->linger(session->outlet);
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

/* ---- log ---- */

void session_count(const struct session *session, enum metric metric) {
    metrics_add(metric, METRIC_LABELS(session->dialect->label), 1);
}

struct cause session_cause(const struct session *session, const struct subscriber *subscriber,
                           struct cause_names *names) {
    struct slice principal = {NULL, 0};
    struct slice peer = {NULL, 0};
    struct slice topic =
        subscriber ? subscriber->subscription.topic->name : (struct slice){NULL, 0};
    if (session->principal)
        principal =
            (struct slice){names->principal, principal_name(session->principal, names->principal)};
    else if (session->bearer)
        principal = slice_of(session->bearer);
    if (session_is_connected(session))
        peer = session->outlet->table->peer(session->outlet, names->peer);
    return (struct cause){
        .connection = session_name(session, names->connection),
        .principal = principal,
        .peer = peer,
        .rule = session->token_rule,
        /* Operators know the whole log by its URL. */
        .topic = subscriber && topic_is_log(topic) ? SLICE("/api/events") : topic,
        .dialect = session->dialect->label,
    };
}

void session_log_end(struct session *session, enum status status, unsigned close_code) {
    struct cause_names names;
    struct cause cause = session_cause(session, NULL, &names);
    session->close_code = (uint16_t)close_code;
    cause.status = status;
    cause.close_code = close_code;
    telemetry_disconnected(session->delivery->shared->telemetry, cause);
}

void session_log_stale(const struct subscriber *subscriber) {
    struct cause_names names;
    telemetry_stale(subscriber->session->delivery->shared->telemetry,
                    session_cause(subscriber->session, subscriber, &names),
                    subscription_continuity(&subscriber->subscription));
}

void session_log_refused(struct session *session, struct slice topic, enum status status) {
    struct cause_names names;
    struct cause cause = session_cause(session, NULL, &names);
    cause.topic = topic;
    telemetry_refused(session->delivery->shared->telemetry, cause, status);
}

void session_log_incompatible(struct session *session, const struct compatibility_claim *claim,
                              enum status status) {
    struct cause_names names;
    struct cause cause = session_cause(session, NULL, &names);
    cause.client = telemetry_client(claim);
    telemetry_refused(session->delivery->shared->telemetry, cause, status);
}

void session_log_error(const struct session *session, enum status status) {
    metrics_add(METRIC_SYNC_SOCKET_ERRORS, METRIC_LABELS(session->dialect->label, status), 1);
}
