#include "http/conn_accept.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/metrics.h"
#include "http/conn.h"

/* A loop keeps a connection while it has at most this part more than the loop with the fewest. So
 * few connections spread exactly, and of many few are handed on. */
#define SPREAD_PART 16

/* A socket that another loop has accepted. */
struct handed {
    struct loop_task task;
    struct http_loop *loop; /* the loop that takes over the socket */
    enum listener_kind kind;
    int fd;
    struct sockaddr_storage peer;
};

void conn_count_refusal(const struct conn *conn) {
    enum label_connection_limit limit = LABEL_CONNECTION_LIMIT_TOTAL;
    if (conn->ticket.rank == CONN_RANK_UNAUTHENTICATED)
        limit = LABEL_CONNECTION_LIMIT_UNAUTHENTICATED;
    else if (conn->refusal == STATUS_TOO_MANY_CONNECTIONS)
        limit = LABEL_CONNECTION_LIMIT_ADDRESS;
    metrics_add(METRIC_HTTP_CONNECTIONS_REFUSED, METRIC_LABELS(limit), 1);
}

static void close_refused(struct conn_ticket *ticket) {
    struct conn *closing = container_of(ticket, struct conn, ticket);
    conn_count_refusal(closing);
    conn_close(closing);
}

void conn_displace_asked(struct loop_task *task) {
    struct http_loop *loop = container_of(task, struct http_loop, displace);
    struct conn_ticket *ticket;
    /* Before the requests are read: a later one posts the task again. */
    atomic_store(&loop->displace_posted, false);
    while ((ticket = conn_tickets_asked(&loop->tickets)))
        close_refused(ticket);
}

/* A connection without a socket, in its loop's list. NULL: no memory. */
static struct conn *conn_new(struct http_loop *loop) {
    struct conn *conn = slab_take(&loop->conn_memory, sizeof(*conn));
    if (!conn)
        return NULL;
    conn->http = conn_http_new(&loop->limits);
    if (!conn->http) {
        slab_give(&loop->conn_memory, conn);
        return NULL;
    }
    conn->number = atomic_fetch_add(&loop->http->conn_number, 1) + 1;
    conn->since_ms = clock_wall_ms(&loop->io->clock);
    list_push_back(&loop->conns, &conn->node);
    io_loop_hold(loop->io);
    transport_init(&conn->transport, &loop->io->sockets, &conn_transport_events);
    return conn;
}

/* Closes the connection that must give way to the new one, or the new one: then false. */
static bool take_ticket(struct conn *conn, const struct sockaddr *peer) {
    struct http_loop *loop = conn_loop(conn);
    const struct conn_limits *limits = &loop->http->conn_limits;
    uint64_t now_ms = clock_mono_ms(&loop->io->clock);
    uint64_t held_count;
    bool is_allowed =
        conn->is_operators ||
        conn_share_take_address(&loop->http->conn_shares, &conn->address_share, peer) == STATUS_OK;
    conn->refusal = is_allowed ? STATUS_SERVER_FULL : STATUS_TOO_MANY_CONNECTIONS;
    struct conn_displaced displaced =
        is_allowed ? conn_ticket_take(&loop->tickets, &conn->ticket, conn->is_operators, now_ms)
                   : conn_ticket_reserve(&loop->tickets, &conn->ticket, now_ms);
    bool is_full =
        displaced.ticket || displaced.elsewhere || conn_ticket_is_reserved(&conn->ticket);
    if (is_full && log_gate_pass(&loop->refused_log, now_ms, &held_count))
        log_event(LOG_WARN, "accept.refused", log_str("code", status_code(conn->refusal)),
                  log_int("connections", (int64_t)conn_limits_count(limits)),
                  log_int("connections_max", (int64_t)limits->conn_max),
                  log_int("unauthenticated_max", (int64_t)limits->unauthenticated_max),
                  log_int("held_back", (int64_t)held_count));
    if (displaced.elsewhere) {
        struct http_loop *other = container_of(displaced.elsewhere, struct http_loop, tickets);
        enum status status = STATUS_OK;
        if (!atomic_exchange(&other->displace_posted, true))
            status = io_loop_post(other->io, &other->displace);
        /* A loop that has ended has no connections. */
        assert(status == STATUS_OK || status == STATUS_SHUTTING_DOWN);
        (void)status;
    }
    if (!displaced.ticket)
        return true;
    close_refused(displaced.ticket);
    return displaced.ticket != &conn->ticket;
}

/* The loop counts the connection already. */
static void conn_open(struct http_loop *loop, enum listener_kind kind, int fd,
                      const struct sockaddr *peer) {
    struct tls_context *tls = loop->http->tls;
    struct conn *conn = conn_new(loop);
    if (!conn) {
        uint64_t held_count;
        if (log_gate_pass(&loop->no_memory_log, clock_mono_ms(&loop->io->clock), &held_count))
            log_event(LOG_ERROR, "accept.no_memory",
                      log_int("connections", (int64_t)atomic_load(&loop->conn_count)),
                      log_int("held_back", (int64_t)held_count));
        metrics_add(METRIC_HTTP_CONNECTIONS_REFUSED, METRIC_LABELS(LABEL_CONNECTION_LIMIT_TOTAL),
                    1);
        close(fd);
        atomic_fetch_sub(&loop->conn_count, 1);
        return;
    }
    transport_open(&conn->transport, fd);
    metrics_add(METRIC_HTTP_CONNECTIONS_ACCEPTED, METRIC_PLAIN, 1);
    conn->is_operators = kind == LISTENER_OPERATOR;
    if (loop->peers_check.at_ms == 0 && loop->http->options.peer_timeout_ms > 0)
        io_loop_deadline(loop->io, &loop->peers_check, DEADLINE_PEERS_CHECK);
    /* The loop has known since its start whether it got a descriptor table of its own. */
    if (loop->io->has_own_descriptors)
        conn_tickets_own_table(&loop->tickets);
    if (!take_ticket(conn, peer))
        return;
    if (tls && transport_secure(&conn->transport, tls) != STATUS_OK)
        conn_close(conn);
    else
        conn_start(conn);
}

/* ---- the spread over the loops ---- */

/* The loop with the fewest connections, if it has clearly fewer than this one. Counts the new
 * connection. If another loop has counted one meanwhile, the choice is repeated: else both would
 * choose the same loop. */
static struct http_loop *loop_choose(struct http_loop *own) {
    const struct http *http = own->http;
    /* A descriptor means nothing in another descriptor table. */
    bool may_hand_over = !own->io->has_own_descriptors && !atomic_load(&http->is_draining);
    struct http_loop *chosen;
    size_t count;
    do {
        size_t own_count = atomic_load(&own->conn_count);
        size_t loop_count = may_hand_over ? atomic_load(&http->loops_started) : 0;
        chosen = own;
        count = own_count;
        for (size_t i = 0; i < loop_count; i++) {
            struct http_loop *other = http->loops[i]->owner;
            size_t other_count = atomic_load(&other->conn_count);
            if (other_count >= count || other->io->has_own_descriptors)
                continue;
            chosen = other;
            count = other_count;
        }
        if (own_count <= count + count / SPREAD_PART) {
            chosen = own;
            count = own_count;
        }
    } while (!atomic_compare_exchange_strong(&chosen->conn_count, &count, count + 1));
    return chosen;
}

/* On the loop that takes the socket over. If it drains since the post, it has closed its listener
 * with all sockets that waited there, and this one is like them. */
static void handed_run(struct loop_task *task) {
    struct handed *handed = container_of(task, struct handed, task);
    struct http_loop *loop = handed->loop;
    atomic_fetch_sub(&loop->http->handed_count, 1);
    if (loop->io->state == LOOP_SERVING) {
        conn_open(loop, handed->kind, handed->fd, (const struct sockaddr *)&handed->peer);
    } else {
        close(handed->fd);
        atomic_fetch_sub(&loop->conn_count, 1);
    }
    free(handed);
}

/* False: the caller keeps the socket. The loop may have ended, or too many sockets are under way:
 * they have no ticket, and a busy loop would let them pile up. */
static bool hand_over(struct http_loop *loop, enum listener_kind kind, int fd,
                      const struct sockaddr *peer) {
    atomic_size_t *under_way = &loop->http->handed_count;
    struct handed *handed = NULL;
    if (atomic_fetch_add(under_way, 1) < CONN_HANDED_MAX)
        handed = calloc(1, sizeof(*handed));
    if (handed) {
        *handed = (struct handed){.task = {.run = handed_run}, loop, kind, fd, .peer = {0}};
        memcpy(&handed->peer, peer,
               peer->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                           : sizeof(struct sockaddr_in));
        if (io_loop_post(loop->io, &handed->task) == STATUS_OK)
            return true;
    }
    free(handed);
    atomic_fetch_sub(under_way, 1);
    return false;
}

void conn_accept(struct io_loop *io, enum listener_kind kind, int fd, const struct sockaddr *peer) {
    struct http_loop *own = io->owner;
    struct http_loop *chosen = loop_choose(own);
    if (chosen != own) {
        if (hand_over(chosen, kind, fd, peer))
            return;
        atomic_fetch_add(&own->conn_count, 1);
        atomic_fetch_sub(&chosen->conn_count, 1);
    }
    conn_open(own, kind, fd, peer);
}
