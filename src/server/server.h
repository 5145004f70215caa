/* The server's parts: store, keys, writer, store pool, hub, snapshots, retention, and the contexts
 * of http and api, started and stopped in order.
 * Thread: main opens and closes; loops only read the struct.
 * Memory: the struct outlives every thread.
 * Errors: server_open and server_run write the reason of a failure to message.
 * Invariant: parts stop in the reverse order of their start, after the loops that use them. After
 * SIGTERM or SIGINT the server is not ready. It drains after the delay, within the grace. A second
 * signal ends it at once. SIGHUP reloads the keys, the topics file and the certificate. When the
 * store has another epoch, the server drains and replaces itself by a new process image. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "api/api.h"
#include "cluster/fanout.h"
#include "cluster/nodes.h"
#include "delivery/delivery.h"
#include "delivery/telemetry.h"
#include "dialect/dialects.h"
#include "http/http.h"
#include "server/config.h"
#include "server/following.h"
#include "server/rebuild.h"
#include "server/sinks.h"
#include "server/topics.h"

#define SERVER_MESSAGE_MAX 1024

struct server {
    struct config config;
    struct http http;
    struct api api;
    struct telemetry telemetry;
    struct delivery delivery;
    struct dialect_settings dialects;
    struct io_backoff backoff;
    uint16_t port;          /* the bound port, also if the setting is 0 */
    uint16_t operator_port; /* the port of the operator's listener; 0: there is none */
    struct store *store;
    char epoch[STORE_EPOCH_SIZE + 1]; /* identifies the history in the store */
    char fanout_channel[32];          /* identifies the store among others on one server */
    uint64_t log_id;                  /* the last event at the start; 0: no event */
    uint64_t log_ms;                  /* time of the last event at the start; 0: no event */
    struct projector *projector;
    struct hub *hub;
    struct consumers *consumers;
    struct subscription_quota *subscription_quota;
    struct writer *writer;
    struct store_pool *store_pool;
    struct snapshot_service snapshot_service;
    struct retention *retention;
    struct sinks sinks;
    struct fanout *fanout;
    struct quota_table *quotas;
    struct nodes *nodes;
    uint8_t keys_digest[SHA256_BYTES]; /* of the ids of the signing keys */
    struct topics topics;
    struct revoked revoked;
    struct following following;
    struct rebuild *rebuild;          /* NULL: none is needed */
    char message[SERVER_MESSAGE_MAX]; /* why the server did not start, for people */
};

/* config is set. Opens all parts, for that many loops. */
MUST_CHECK enum status server_open(struct server *server, size_t loop_count);
/* Serves with its own listeners and loops until a signal ends it (run.c). config is set. on_ready
 * runs once, when connections are accepted. All threads and parts have ended when it returns. */
MUST_CHECK enum status server_run(struct server *server, void (*on_ready)(const struct server *));
/* Called after the loops have ended. Also closes a server that was opened in part. */
void server_close(struct server *server);
/* Writes the reason to message, and logs it if the log is JSON. Returns the status. */
__attribute__((format(printf, 3, 4))) enum status
server_refuse(struct server *server, enum status status, const char *format, ...);
/* Called once a second: checks the location of the store, and reads the file of keys if it changed.
 */
void server_check(struct server *server);
/* SIGHUP: reloads the keys, the topics file and the certificate. */
void server_reload(struct server *server);

#endif
