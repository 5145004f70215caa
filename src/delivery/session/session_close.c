#include "delivery/session/session_close.h"

#include <assert.h>
#include <stdlib.h>

#include "delivery/session/dialect.h"
#include "delivery/session/session_log.h"
#include "delivery/session/subscriber.h"

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

/* Work that waits for a job is given up; work under way comes back with it. */
static void drop_waiting(struct session *session) {
    struct session_work *work = session->work;
    if (work->opening && work->job != SESSION_JOB_OPEN) {
        if (session->dialect->opening_gone)
            session->dialect->opening_gone(work->opening);
        free(work->opening);
        work->opening = NULL;
    }
    if (work->lookup && work->job != SESSION_JOB_LOOKUP) {
        work->lookup->free(work->lookup);
        work->lookup = NULL;
    }
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
    if (session->work)
        drop_waiting(session);
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
