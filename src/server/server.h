/* The server: its settings, store, writer, readers and loops, and their orderly start and end.
 * server_run belongs to the main thread, which watches for signals; loops only read the struct.
 * Process lifetime: the struct outlives every thread.
 * What could not be had (the address, the store, the key) is said in message, and logged.
 * SIGTERM or SIGINT ends readiness, after the delay drains within the grace; a second one ends at
 * once. SIGHUP reads the keys and the certificate again. Loops end first, since they use the rest;
 * then the keeper, the writer, the readers, the store. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdatomic.h>

#include "authority/writer.h"
#include "delivery/causes.h"
#include "delivery/consumers.h"
#include "delivery/snapshot/snapshot_service.h"
#include "delivery/topic_activity.h"
#include "http/admit/gate.h"
#include "http/admit/operator_key.h"
#include "hub/hub.h"
#include "io/loop.h"
#include "io/store_pool.h"
#include "io/tls.h"
#include "projector/projector.h"
#include "retention/retention.h"
#include "server/config.h"
#include "server/watchdog.h"

#define SERVER_MESSAGE_MAX 1024

struct server {
    struct config config;
    struct io_loop *loops;
    size_t loop_count;
    atomic_size_t loops_started; /* a request may come before the last has */
    uint64_t body_bytes_max;     /* of a single append */
    uint64_t item_bytes_max;     /* of an item of a batch */
    uint16_t port;               /* the one in force, also when 0 was asked for */
    uint16_t operator_port;      /* the same of the operator's listener; 0: there is none */
    struct operator_key operator_key;
    struct gate gate;
    struct tls_context *tls; /* NULL: bytes go as they are, on both addresses */
    struct store *store;
    char epoch[STORE_EPOCH_SIZE + 1]; /* of the store: which history it holds */
    uint64_t log_ms;                  /* when its last event was stored, as of the start; 0: none */
    struct projector *projector;
    struct hub *hub;
    struct consumers *consumers;
    struct causes *causes;
    atomic_uint_fast64_t decisions_unlogged; /* about clients, since it was last said */
    struct topic_activity *activity;
    struct clock_reading started;
    struct writer *writer;
    atomic_size_t batches_bytes; /* that batches hold, over all loops */
    struct store_pool *store_pool;
    struct snapshot_service snapshot_service;
    atomic_size_t snapshot_gzip_count; /* answers that are being compressed */
    struct retention *retention;
    /* When an append last found the store unwritable, by the monotonic clock; 0: it works. */
    atomic_uint_fast64_t store_failed_at_ms;
    atomic_bool is_store_moved; /* its files are not where they were */
    atomic_bool ending;         /* was told to: readiness says so */
    atomic_bool draining;       /* takes nothing new */
    /* Over how long clients come back, each at a time of its own. */
    atomic_uint_fast64_t return_spread_ms;
    atomic_size_t loops_running;
    atomic_size_t conn_count; /* over all loops, never more than connections_max stay */
    /* The main thread's own loop: signals, the grace, and word of loops that ended. */
    uv_loop_t control;
    uv_signal_t terminate;
    uv_signal_t interrupt;
    uv_signal_t hang_up;
    uv_timer_t grace; /* before that, the delay */
    uv_timer_t look;  /* at files that may have changed */
    uv_async_t loop_ended;
    struct watchdog watchdog;
    char message[SERVER_MESSAGE_MAX]; /* for people: why it did not start */
};

/* Serves until a signal ends it. on_ready runs once, when connections are accepted. */
MUST_CHECK enum status server_run(struct server *server, void (*on_ready)(const struct server *));

/* Any thread: a loop's thread is about to end. */
void server_loop_ended_post(struct server *server);

/* Any thread: how an append went, which is how we know whether the store takes any. */
void server_append_seen(struct server *server, enum status status, uint64_t mono_ms);
/* Any thread: whether appends are worth trying. */
bool server_store_works(const struct server *server, uint64_t mono_ms);
/* Any thread: why they are not. */
enum reason server_store_reason(const struct server *server);

#endif
