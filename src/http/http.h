/* HTTP contexts: struct http is shared by all connections, struct http_loop by those of a loop.
 * Thread: struct http is filled before the loops start, and is then read-only except for its
 * atomics. struct http_loop belongs to its loop.
 * Memory: both outlive every connection.
 * Invariant: the limits of connections hold over all loops. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/log.h"
#include "base/rate_table.h"
#include "base/slab.h"
#include "delivery/telemetry.h"
#include "http/admit/conn_shares.h"
#include "http/admit/conn_tickets.h"
#include "http/admit/gate.h"
#include "http/admit/operator_key.h"
#include "http/admit/operator_keys.h"
#include "http/admit/single_use.h"
#include "http/route.h"
#include "http/unread_answers.h"
#include "net/listen.h"
#include "net/loop.h"
#include "store/store_pool.h"
#include "wire/http1.h"

struct api;
struct conn_events;
struct delivery_loop;
struct forwards;
struct writer;

#define HTTP_LOOPS_MAX LISTEN_SOCKETS_MAX

struct http_options {
    uint64_t request_head_bytes_max;
    uint64_t request_line_bytes_max;
    uint64_t append_bytes_max; /* the largest body of a single append */
    uint64_t request_timeout_ms;
    uint64_t peer_timeout_ms; /* 0: peers are not checked */
    uint64_t idle_timeout_ms;
    uint64_t silence_timeout_ms; /* a WebSocket may be silent for so long */
    bool has_operator_listener;  /* operator routes are on a listener of their own */
    bool token_single_use;
    bool legacy_cursors; /* requests may have cursors of the legacy form */
};

struct http {
    struct http_options options;
    struct route_table routes;
    const struct conn_events *conn_events; /* the layer that answers the requests */
    struct gate gate;
    struct operator_key operator_key;
    struct operator_key mint_key; /* mints tokens, and nothing else */
    bool has_mint_key;
    struct operator_keys *operator_keys; /* the ones with names */
    struct tls_context *tls;             /* NULL: plain bytes, on every listener */
    struct telemetry *telemetry;
    struct store_pool *store_pool;
    struct unread_answers unread_answers;
    struct writer *writer;
    struct single_uses single_uses;
    struct api *api; /* for the handlers of api/ */
    struct io_loop **loops;
    size_t loop_count;
    atomic_size_t loops_started;    /* requests may arrive before the last loop has started */
    atomic_bool is_draining;        /* no connection is accepted any more */
    struct conn_limits conn_limits; /* over all loops, like the next one */
    struct conn_shares conn_shares;
    struct rate_table auth_failures;  /* wrong keys and tokens of each address */
    atomic_uint_fast64_t conn_number; /* the number of the last connection that was accepted */
    atomic_size_t handed_count;       /* sockets on their way to another loop */
};

#define HTTP_DATE_SIZE 29

/* The Date field of answers. A struct of zeroes has no text yet. */
struct http_date {
    uint64_t second_after; /* the second after that of the text; 0: no text */
    char text[HTTP_DATE_SIZE + 1];
};

struct http_loop {
    struct http *http;
    struct io_loop *io;
    struct delivery_loop *delivery; /* the dialects use it */
    struct forwards *forwards;      /* requests passed to the writer; NULL: one node alone */
    struct http1_limits limits;
    struct http_date date;
    struct list conns; /* in the order of their numbers */
    struct slab conn_memory;
    atomic_size_t conn_count; /* also sockets on their way to this loop */
    struct conn_tickets tickets;
    struct loop_task displace;   /* other loops ask this one to close connections */
    atomic_bool displace_posted; /* it is in the mailbox */
    struct deadline peers_check; /* runs while there are connections */
    struct log_gate refused_log;
    struct log_gate no_memory_log;
};

#endif
