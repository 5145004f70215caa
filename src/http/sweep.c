#include "http/sweep.h"

#include "base/clock.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "http/admit/admission.h"
#include "http/exchange.h"

static bool is_revoked(const struct sweep *sweep, const struct principal *principal) {
    return admission_is_revoked(sweep->walk.http, principal, sweep->now_ms);
}

/* An answer that has started cannot become an error. The connection is reset, so that the client
 * does not take the answer for complete. */
static void end_exchange(struct conn *conn) {
    struct exchange *exchange = conn->exchange;
    conn->keep_alive = false;
    if (exchange_is_answered(exchange)) {
        exchange_log_end(exchange, STATUS_TOKEN_REVOKED);
        conn_reset(conn);
    } else if (conn->state == CONN_READING) {
        exchange->refused = STATUS_TOKEN_REVOKED;
    } else {
        exchange_answer_status(exchange, STATUS_TOKEN_REVOKED);
    }
}

static bool sweep_conn(struct conn_walk *walk, struct conn *conn) {
    struct sweep *sweep = container_of(walk, struct sweep, walk);
    if (conn->exchange && is_revoked(sweep, conn->exchange->principal)) {
        end_exchange(conn);
        atomic_fetch_add(&sweep->request_count, 1);
    } else if (conn->session && is_revoked(sweep, conn->session->principal)) {
        if (session_is_open(conn->session))
            atomic_fetch_add(&sweep->session_count, 1);
        session_reset(conn->session, STATUS_TOKEN_REVOKED);
    }
    return true;
}

static void walk_done(struct conn_walk *walk) {
    struct sweep *sweep = container_of(walk, struct sweep, walk);
    sweep->done(sweep);
}

void sweep_post(struct sweep *sweep, struct http *http) {
    atomic_store(&sweep->session_count, 0);
    atomic_store(&sweep->request_count, 0);
    sweep->now_ms = clock_now().wall_ms;
    sweep->walk.http = http;
    sweep->walk.visit = sweep_conn;
    sweep->walk.done = walk_done;
    conn_walk_post(&sweep->walk);
}
