#include "http/conn_walk.h"

#include <assert.h>

#include "base/clock.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "http/admit/admission.h"
#include "http/exchange.h"

static void count_down(struct conn_walk *walk) {
    if (atomic_fetch_sub(&walk->loops_left, 1) == 1)
        walk->done(walk);
}

static void part_run(struct loop_task *task) {
    const struct conn_walk_part *part = container_of(task, struct conn_walk_part, task);
    struct list *conns = &((struct http_loop *)part->loop->owner)->conns;
    bool goes_on = true;
    for (struct list_node *node = list_first(conns), *next; goes_on && node; node = next) {
        next = list_next(conns, node);
        goes_on = part->walk->visit(part->walk, container_of(node, struct conn, node));
    }
    count_down(part->walk);
}

void conn_walk_post(struct conn_walk *walk) {
    struct http *http = walk->http;
    size_t count = http->loop_count;
    /* One more, so that done does not run before all tasks are posted. */
    atomic_store(&walk->loops_left, count + 1);
    for (size_t i = 0; i < count; i++) {
        struct conn_walk_part *part = &walk->parts[i];
        *part = (struct conn_walk_part){{.run = part_run}, walk, http->loops[i]};
        enum status status = io_loop_post(part->loop, &part->task);
        assert(status == STATUS_OK || status == STATUS_SHUTTING_DOWN);
        if (status != STATUS_OK)
            count_down(walk);
    }
    count_down(walk);
}

/* ---- the sweep ---------------------------------------------------------------------------- */

static bool is_revoked(const struct sweep *sweep, const struct principal *principal) {
    return admission_is_revoked(sweep->walk.http, principal, sweep->now_ms);
}

static bool sweep_conn(struct conn_walk *walk, struct conn *conn) {
    struct sweep *sweep = container_of(walk, struct sweep, walk);
    struct exchange *exchange = conn->exchange;
    if (exchange && is_revoked(sweep, exchange->principal)) {
        conn->keep_alive = false;
        if (exchange_is_answered(exchange)) {
            /* An answer that has started cannot become an error. The connection is reset, so that
             * the client does not take the answer for complete. */
            exchange_log_end(exchange, STATUS_TOKEN_REVOKED);
            conn_reset(conn);
        } else if (conn->state == CONN_READING) {
            exchange->refused = STATUS_TOKEN_REVOKED;
        } else {
            exchange_answer_status(exchange, STATUS_TOKEN_REVOKED);
        }
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
