#include "http/http_loop.h"

#include <stdio.h>
#include <time.h>

#include "http/conn.h"
#include "http/conn_accept.h"

/* Long enough for an answer to arrive anywhere, short enough for a shutdown to wait for. */
#define LINGER_MS 2000
/* Work for a peer that is gone ends after about twice this time. */
#define PEER_CHECK_MS 250
/* The least time that lets the loop serve other connections first. */
#define TURN_MS 1

void http_loop_open(struct http_loop *loop, struct http *http, struct io_loop *io) {
    *loop = (struct http_loop){.http = http, .io = io, .limits = HTTP1_LIMITS_DEFAULT};
    loop->limits.line_bytes_max = http->options.request_line_bytes_max;
    loop->limits.head_bytes_max = http->options.request_head_bytes_max;
    list_init(&loop->conns);
    loop->displace.run = conn_displace_asked;
    conn_tickets_init(&loop->tickets, &http->conn_limits);
    struct deadline_queue *queue = &io->deadlines;
    const struct http_options *options = &http->options;
    uint64_t request_ms = options->request_timeout_ms;
    deadline_queue_define(queue, DEADLINE_FIRST, request_ms, conn_expired);
    deadline_queue_define(queue, DEADLINE_REQUEST, request_ms, conn_expired);
    deadline_queue_define(queue, DEADLINE_UNREAD, request_ms, conn_unread_expired);
    deadline_queue_define(queue, DEADLINE_IDLE, options->idle_timeout_ms, conn_expired);
    deadline_queue_define(queue, DEADLINE_LINGER, LINGER_MS, conn_expired);
    deadline_queue_define(queue, DEADLINE_PEER_CHECK, PEER_CHECK_MS, conn_peer_check);
    deadline_queue_define(queue, DEADLINE_PEERS_CHECK,
                          options->peer_timeout_ms / TRANSPORT_PEER_CHECKS, conn_peers_check);
    deadline_queue_define(queue, DEADLINE_DELAY, 0, conn_delayed);
    deadline_queue_define(queue, DEADLINE_TURN, TURN_MS, conn_turn);
    deadline_queue_define(queue, DEADLINE_SILENCE, options->silence_timeout_ms, conn_expired);
}

void http_loop_release(struct http_loop *loop) {
    slab_release(&loop->conn_memory);
}

void http_loop_drain(struct io_loop *io) {
    struct http_loop *loop = io->owner;
    for (struct list_node *node = list_first(&loop->conns), *next; node; node = next) {
        next = list_next(&loop->conns, node);
        conn_drain(container_of(node, struct conn, node));
    }
}

void http_loop_close_all(struct io_loop *io) {
    struct http_loop *loop = io->owner;
    struct list_node *node;
    while ((node = list_first(&loop->conns)))
        conn_close(container_of(node, struct conn, node));
}

/* Not strftime's names: those follow the locale. */
static const char days[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

struct slice http_date_at(struct http_date *date, uint64_t wall_ms) {
    uint64_t second = wall_ms / 1000;
    time_t time = (time_t)second;
    struct tm parts;
    if (date->second_after != second + 1 && gmtime_r(&time, &parts)) {
        snprintf(date->text, sizeof(date->text), "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT",
                 days + (size_t)(parts.tm_wday % 7) * 3, (unsigned)parts.tm_mday % 100,
                 months + (size_t)(parts.tm_mon % 12) * 3, (unsigned)(parts.tm_year + 1900) % 10000,
                 (unsigned)parts.tm_hour % 100, (unsigned)parts.tm_min % 100,
                 (unsigned)parts.tm_sec % 100);
        date->second_after = second + 1;
    }
    return (struct slice){date->text, HTTP_DATE_SIZE};
}
