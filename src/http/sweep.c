#include "http/sweep.h"

#include <assert.h>

#include "delivery/session/session_token.h"
#include "http/exchange.h"

static bool is_revoked(const struct sweep *sweep, const struct principal *principal) {
    return principal && revocations_has(sweep->http->gate.revocations, principal);
}

/* An answer that has started cannot become an error. The connection is reset, so that the client
 * does not take the answer for complete. */
static void end_exchange(struct conn *conn) {
    struct exchange *exchange = conn->exchange;
    conn->keep_alive = false;
    if (exchange->answered) {
        exchange_log_end(exchange, STATUS_TOKEN_REVOKED);
        conn_reset(conn);
    } else if (conn->state == CONN_READING) {
        exchange->refused = STATUS_TOKEN_REVOKED;
    } else {
        exchange_answer_status(exchange, STATUS_TOKEN_REVOKED);
    }
}

static void sweep_conn(struct sweep *sweep, struct conn *conn) {
    if (conn->exchange && is_revoked(sweep, conn->exchange->principal)) {
        end_exchange(conn);
        atomic_fetch_add(&sweep->request_count, 1);
    } else if (conn->session && is_revoked(sweep, conn->session->principal)) {
        if (session_is_open(conn->session))
            atomic_fetch_add(&sweep->session_count, 1);
        session_reset(conn->session, STATUS_TOKEN_REVOKED);
    }
}

static void count_down(struct sweep *sweep) {
    if (atomic_fetch_sub(&sweep->loops_left, 1) == 1)
        sweep->done(sweep);
}

static void part_run(struct loop_task *task) {
    const struct sweep_part *part = container_of(task, struct sweep_part, task);
    struct list *conns = &((struct http_loop *)part->loop->owner)->conns;
    for (struct list_node *node = list_first(conns), *next; node; node = next) {
        next = list_next(conns, node);
        sweep_conn(part->sweep, container_of(node, struct conn, node));
    }
    count_down(part->sweep);
}

void sweep_post(struct sweep *sweep) {
    struct http *http = sweep->http;
    size_t count = http->loop_count;
    atomic_store(&sweep->session_count, 0);
    atomic_store(&sweep->request_count, 0);
    /* One more, so that done does not run before all tasks are posted. */
    atomic_store(&sweep->loops_left, count + 1);
    for (size_t i = 0; i < count; i++) {
        struct sweep_part *part = &sweep->parts[i];
        *part = (struct sweep_part){{.run = part_run}, sweep, http->loops[i]};
        enum status status = io_loop_post(part->loop, &part->task);
        assert(status == STATUS_OK || status == STATUS_SHUTTING_DOWN);
        if (status != STATUS_OK)
            count_down(sweep);
    }
    count_down(sweep);
}
