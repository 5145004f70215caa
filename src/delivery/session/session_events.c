#include "delivery/session/session_events.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_jobs.h"
#include "delivery/session/subscriber.h"

struct session *session_new(const struct session_options *options) {
    struct slab *sessions = &options->delivery->sessions;
    struct session *session = slab_take(sessions, sizeof(*session));
    bool is_named = session && uuid7_parse(options->name, &session->id) == STATUS_OK;
    assert(options->name.size <= SESSION_NAME_BYTES_MAX);
    /* Ids of the server's own take less memory than their text. */
    if (session && !is_named)
        session->given_name = strndup(options->name.data, options->name.size);
    if (!session || (!is_named && !session->given_name)) {
        if (session)
            slab_give(sessions, session);
        if (options->dialect->state_free)
            options->dialect->state_free(options->dialect_state);
        return NULL;
    }
    session->outlet = options->outlet;
    session->delivery = options->delivery;
    session->dialect = options->dialect;
    session->dialect_state = options->dialect_state;
    session->principal = options->principal ? principal_shared(options->principal) : NULL;
    buffer_init(&session->replies, SESSION_REPLIES_BYTES_MAX);
    session_count(session, METRIC_SYNC_SOCKET_CONNECTIONS);
    session_count(session, METRIC_SYNC_SOCKET_OPENED);
    if (buffer_append_slice(&session->replies, options->head) != STATUS_OK) {
        session_disconnected(session);
        session_free(session);
        return NULL;
    }
    if (session->dialect->heartbeat)
        io_loop_deadline(session->delivery->io, &session->heartbeat_deadline, DEADLINE_HEARTBEAT);
    session_arm_expiry(session);
    return session;
}

/* ---- the connection ---- */

void session_received(struct session *session, struct slice bytes) {
    (void)session_ends_with_token(session);
    if (session_is_connected(session) && session->framing)
        session->framing->table->received(session, bytes);
}

void session_writable(struct session *session) {
    session_flush(session);
    if (!session_is_open(session) || session_is_blocked(session))
        return;
    struct turn *turn = session_turn(session);
    if (turn)
        scheduler_unblock(&session->delivery->scheduler, turn);
    session_next_job(session);
    if (session->framing)
        session->framing->table->resume(session);
}

void session_drain(struct session *session) {
    if (!session_is_open(session))
        return;
    enum status status = STATUS_OK;
    session->close_code = CLOSE_RESTARTING;
    if (session->dialect->leaving)
        status = session->dialect->leaving(session, io_loop_backoff_ms(session->delivery->io),
                                           &session->replies);
    session_close_with(session, status);
}

/* ---- heartbeats and strikes ---- */

static void heartbeat_expired(struct deadline *deadline) {
    struct session *session = container_of(deadline, struct session, heartbeat_deadline);
    if (session_ends_with_token(session))
        return;
    io_loop_deadline(session->delivery->io, &session->heartbeat_deadline, DEADLINE_HEARTBEAT);
    session_arm_expiry(session);
    /* Frames that fill the socket are a sign of life too. */
    if (session_is_blocked(session))
        return;
    /* Positions move over hidden frames as far as the loop has handled all announcements. */
    for (struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber))
        subscription_skip_hidden(&subscriber->subscription);
    enum status status = session->dialect->heartbeat(session, &session->replies);
    /* The heartbeat covered every position. */
    for (struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber))
        if (subscriber_has_position(subscriber))
            subscription_sent(&subscriber->subscription, subscriber_position(subscriber));
    session_send(session, status);
}

static void strike_check_expired(struct deadline *deadline) {
    struct session_strikes *strikes = container_of(deadline, struct session_strikes, deadline);
    struct session *session = strikes->session;
    const struct delivery_options *options = &session->delivery->shared->options;
    struct strikes_sample seen = {
        .was_blocked = strikes->was_blocked,
        .is_blocked = session_is_blocked(session),
        .sent_bytes = strikes->sent_bytes - session->outlet->table->unsent_bytes(session->outlet),
        .lag_max = options->lag_max,
        .strikes_max = options->strikes_max,
    };
    for (struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber)) {
        if (subscriber_is_started(subscriber)) {
            const struct subscription *subscription = &subscriber->subscription;
            uint64_t lag = subscription_own_lag(subscription);
            uint64_t lag_max = policy_lag_max(subscription->topic->policy);
            /* A session is as patient as its most patient topic that is behind. */
            if (options->lag_follows_budgets && lag > 0 && lag_max > seen.lag_max)
                seen.lag_max = lag_max;
            seen.lag += lag;
        }
        /* A session whose peer does not read holds nothing but its push. */
        if (seen.is_blocked)
            subscription_idle(&subscriber->subscription);
    }
    uint64_t strikes_before = strikes->strikes.count;
    strikes->was_blocked = seen.is_blocked;
    bool is_over = strikes_check(&strikes->strikes, &seen);
    if (strikes->strikes.count > strikes_before)
        session_count(session, METRIC_SYNC_SLOW_CONSUMER_STRIKES);
    if (is_over) {
        struct cause_names names;
        struct cause cause = session_cause(session, session_furthest_behind(session), &names);
        enum status status = STATUS_OK;
        cause.close_code = session->close_code = CLOSE_SLOW_CONSUMER;
        telemetry_evicted(session->delivery->shared->telemetry, cause);
        if (session->dialect->slow)
            status = session->dialect->slow(session, &session->replies);
        session_close_with(session, status);
    } else if (seen.is_blocked || seen.was_blocked || strikes->strikes.count > 0) {
        io_loop_deadline(session->delivery->io, &strikes->deadline, DEADLINE_STRIKE_CHECK);
    } else {
        session->strikes = NULL;
        free(strikes);
    }
}

void session_expired(struct session *session, enum deadline_kind kind) {
    if (kind == DEADLINE_SILENCE && session_is_open(session))
        session_end(session, STATUS_WS_SILENT);
    else
        outlet_close(session->outlet);
}

static void expiry_expired(struct deadline *deadline) {
    session_expiry_near(container_of(deadline, struct session_expiry, deadline)->session);
}

void sessions_define_deadlines(struct delivery_loop *delivery) {
    struct deadline_queue *deadlines = &delivery->io->deadlines;
    const struct delivery_options *options = &delivery->shared->options;
    deadline_queue_define(deadlines, DEADLINE_HEARTBEAT, options->heartbeat_ms, heartbeat_expired);
    deadline_queue_define(deadlines, DEADLINE_STRIKE_CHECK, options->strike_check_ms,
                          strike_check_expired);
    deadline_queue_define(deadlines, DEADLINE_EXPIRY, 0, expiry_expired);
    deadline_queue_define(deadlines, DEADLINE_CONFLATE, 0, subscriber_conflate_expired);
}
