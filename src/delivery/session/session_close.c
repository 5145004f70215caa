#include "delivery/session/session_close.h"

#include <assert.h>
#include <stdlib.h>

#include "delivery/session/session.h"
#include "delivery/session/subscriber.h"
#include "hub/frame.h"

static void drop_deadlines(struct session *session) {
    deadline_drop(&session->heartbeat_deadline);
    if (session->strikes)
        deadline_drop(&session->strikes->deadline);
    session_forget_expiry(session);
}

void session_close(struct session *session) {
    if (!session_is_open(session))
        return;
    session_set_state(session, SESSION_CLOSING);
    drop_deadlines(session);
    subscriber_drop_all(session);
    session->outlet->table->lift_unsent_limit(session->outlet);
    /* A peer that does not read its last messages is closed without them. */
    session->outlet->table->set_deadline(session->outlet, DEADLINE_LINGER);
    session_flush(session);
}

void session_close_with(struct session *session, enum status status) {
    if (status == STATUS_OK)
        session_close(session);
    else if (session_is_connected(session))
        outlet_close(session->outlet);
}

void session_end(struct session *session, enum status reason) {
    enum status status = STATUS_OK;
    session_log_end(session, reason, (unsigned)ws_close_code(reason));
    if (session->dialect->failed)
        status = session->dialect->failed(session, reason, &session->replies);
    session_close_with(session, status);
}

void session_disconnected(struct session *session) {
    if (!session_is_connected(session))
        return;
    session_set_state(session, SESSION_DISCONNECTED);
    session->outlet = NULL;
    metrics_sub(METRIC_SYNC_SOCKET_CONNECTIONS, METRIC_LABELS(session->dialect->label), 1);
    metrics_add(METRIC_SYNC_SOCKET_CLOSED,
                METRIC_LABELS(session->dialect->label, label_close_code(session->close_code)), 1);
    drop_deadlines(session);
    if (session_job(session) != SESSION_JOB_NONE)
        call_cancel(&session->work->call);
    /* Work that waits for a job is given up; work under way comes back with it. */
    struct session_work *work = session->work;
    if (work && work->opening && work->job != SESSION_JOB_OPEN) {
        if (session->dialect->opening_gone)
            session->dialect->opening_gone(work->opening);
        free(work->opening);
        work->opening = NULL;
    }
    if (work && work->lookup && work->job != SESSION_JOB_LOOKUP) {
        work->lookup->free(work->lookup);
        work->lookup = NULL;
    }
    subscriber_drop_all(session);
}

void session_free(struct session *session) {
    if (session->state != SESSION_RELEASED)
        session_set_state(session, SESSION_RELEASED);
    if (session_job(session) != SESSION_JOB_NONE)
        return;
    assert(!session_first(session) && !session_is_opening(session));
    assert(session->subscriptions.count == 0);
    if (session->dialect->state_free)
        session->dialect->state_free(session->dialect_state);
    principal_unref(session->principal);
    free(session->bearer);
    session_forget_expiry(session);
    free(session->strikes);
    free(session->work);
    if (session->framing)
        session->framing->table->free(session->framing);
    buffer_release(&session->replies);
    free(session->given_name);
    slab_give(&session->delivery->sessions, session);
}

/* ---- the token ---- */

/* How long before the expiry of its token a client is warned. */
#define REAUTH_MS 30000

bool session_is_expired(const struct session *session) {
    return session->principal &&
           principal_is_expired(session->principal, clock_wall_ms(&session->delivery->io->clock));
}

void session_reset(struct session *session, enum status reason) {
    if (!session->outlet->table->has_unsent(session->outlet)) {
        if (session_is_open(session))
            session_end(session, reason);
        return;
    }
    if (session_is_open(session))
        session_log_end(session, reason, (unsigned)ws_close_code(reason));
    session->outlet->table->reset(session->outlet);
}

bool session_ends_with_token(struct session *session) {
    if (!session_is_open(session) || !session_is_expired(session))
        return false;
    session_reset(session, STATUS_TOKEN_EXPIRED);
    return true;
}

/* Only an end before the next heartbeat gets a deadline: the wall clock, which decides when a token
 * ends, may step until then. */
void session_arm_expiry(struct session *session) {
    uint64_t now_ms = clock_wall_ms(&session->delivery->io->clock);
    uint64_t end_ms = session->principal ? session->principal->expires_at_ms : 0;
    if (end_ms == 0)
        return;
    uint64_t next_ms = end_ms;
    if (!session->has_reauth_notice && session->dialect->reauth)
        next_ms = end_ms > REAUTH_MS ? end_ms - REAUTH_MS : 0;
    uint64_t delay_ms = next_ms > now_ms ? next_ms - now_ms : 0;
    if (delay_ms > session->delivery->shared->options.heartbeat_ms)
        return;
    if (!session->expiry)
        session->expiry = calloc(1, sizeof(*session->expiry));
    /* Without memory for it, the next heartbeat tries again. */
    if (!session->expiry)
        return;
    session->expiry->session = session;
    io_loop_deadline_in(session->delivery->io, &session->expiry->deadline, DEADLINE_EXPIRY,
                        delay_ms);
}

void session_expiry_near(struct session *session) {
    uint64_t now_ms = clock_wall_ms(&session->delivery->io->clock);
    if (session_ends_with_token(session))
        return;
    if (!session->has_reauth_notice && session->dialect->reauth) {
        session->has_reauth_notice = true;
        session_send(session,
                     session->dialect->reauth(session, session->principal->expires_at_ms - now_ms,
                                              &session->replies));
    }
    if (session_is_open(session))
        session_arm_expiry(session);
}

enum status session_admit(struct session *session, const struct principal *principal) {
    assert(!session->principal);
    session->principal = principal;
    session_arm_expiry(session);
    return session->outlet->table->admit(session->outlet, principal);
}

/* ---- a fresh token ---- */

static bool same_text(struct slice a, struct slice b) {
    return a.data && b.data ? slice_equal(a, b) : a.data == b.data;
}

static bool is_same(const struct principal *a, const struct principal *b) {
    return same_text(a->identity.user_id, b->identity.user_id) &&
           same_text(a->identity.guest_scope, b->identity.guest_scope) &&
           same_text(a->identity.org_id, b->identity.org_id) && a->read_all == b->read_all;
}

/* Owners of runs and workers were read when the subscriber began, and do not change. */
static enum status check_still_entitled(const struct subscriber *subscriber,
                                        const struct principal *principal) {
    const struct subscription *subscription = &subscriber->subscription;
    struct slice name = subscription->topic->name;
    struct slice topic = topic_is_log(name) ? topic_name(TOPIC_AUDIT) : name;
    struct grant before = grant_check(subscription->principal, topic, NULL);
    struct grant after = grant_check(principal, topic, NULL);
    if (after.status != before.status ||
        (after.status == STATUS_OK && after.view != (enum grant_view)subscription->view))
        return STATUS_FORBIDDEN_TOPIC;
    if (subscription->replay_all && !principal_may_replay_all(principal))
        return STATUS_MISSING_SCOPE;
    return STATUS_OK;
}

enum status session_refresh(struct session *session, const struct principal *principal) {
    if (!is_same(session->principal, principal))
        return STATUS_OWNER_MISMATCH;
    if (principal_is_expired(principal, clock_wall_ms(&session->delivery->io->clock)))
        return STATUS_TOKEN_EXPIRED;
    for (const struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber)) {
        enum status status = check_still_entitled(subscriber, principal);
        if (status != STATUS_OK)
            return status;
    }
    /* Tokens without a user, guest or organisation may differ in what limits go by. */
    struct subscription_quota *quota = session->delivery->shared->subscription_quota;
    size_t count = session->subscriptions.count;
    enum status admitted =
        subscription_quota_set(quota, &session->subscriptions, principal, count, NULL);
    if (admitted != STATUS_OK)
        return admitted;
    admitted = session->outlet->table->admit(session->outlet, principal);
    if (admitted != STATUS_OK) {
        enum status back =
            subscription_quota_set(quota, &session->subscriptions, session->principal, count, NULL);
        return back == STATUS_OK ? admitted : back;
    }
    principal_unref(session->principal);
    session->principal = principal_shared(principal);
    for (struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber))
        subscriber->subscription.principal = session->principal;
    session->has_reauth_notice = false;
    session_forget_expiry(session);
    session_arm_expiry(session);
    return STATUS_OK;
}
