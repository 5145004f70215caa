/* Appends to a Redis stream: XADD in a pipeline, with the append-only file synced for each turn of
 * Redis's loop. With event ids, a script sets the id as a key if it is new, and appends only
 * then. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "peer.h"

#define DEDUPLICATION_SECONDS "120" /* the window of NATS */

static const char script[] = "if redis.call('SET',KEYS[2],'','NX','EX'," DEDUPLICATION_SECONDS
                             ") then return redis.call('XADD',KEYS[1],'*','d',ARGV[1]) end "
                             "return redis.error_reply('duplicate')";
static char script_hash[41];

static void start(struct peer_server *server, enum ingest_shape shape) {
    static const char *const arguments[] = {"--save",
                                            "",
                                            "--appendonly",
                                            "yes",
                                            "--appendfsync",
                                            "always",
                                            "--auto-aof-rewrite-percentage",
                                            "0",
                                            NULL};
    char load[512];
    struct buffer text;
    (void)shape;
    buffer_init(&text, 4096);
    if (!bench_service_start(&server->service, "redis", arguments))
        bench_fail("Redis is not installed");
    server->pid = server->service.pid;
    server->port = server->service.port;
    snprintf(load, sizeof(load), "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n",
             sizeof(script) - 1, script);
    int fd = bench_connect(server->port);
    peer_ask(fd, load, "\r\n", &text);
    close(fd);
    if (text.size < 45 || memcmp(text.data, "$40\r\n", 5) != 0)
        bench_fail("Redis: %.*s", (int)text.size, text.data);
    memcpy(script_hash, text.data + 5, 40);
    buffer_release(&text);
}

static void request(struct ingest *ingest, unsigned connection) {
    struct ingest_conn *conn = &ingest->conns[connection];
    char event[PEER_EVENT_BYTES];
    for (unsigned i = 0; i < conn->events; i++) {
        if (ingest->shape == INGEST_IDS) {
            char id[UUID_TEXT_SIZE];
            struct uuid uuid = ingest_id(ingest);
            uuid_format(&uuid, id);
            peer_put_text(&conn->request, "*6\r\n$7\r\nEVALSHA\r\n$40\r\n");
            peer_put(&conn->request, script_hash, 40);
            peer_put_text(&conn->request, "\r\n$1\r\n2\r\n$5\r\n" PEER_TOPIC "\r\n$36\r\n");
            peer_put(&conn->request, id, sizeof(id));
            peer_put_text(&conn->request, "\r\n$300\r\n");
        } else {
            peer_put_text(&conn->request, "*5\r\n$4\r\nXADD\r\n$5\r\n" PEER_TOPIC
                                          "\r\n$1\r\n*\r\n$1\r\nd\r\n$300\r\n");
        }
        peer_event(event, conn->first + i);
        peer_put(&conn->request, event, sizeof(event));
        peer_put_text(&conn->request, "\r\n");
    }
}

/* Each answer is an id such as 1794831459911-7, as a string of two lines. */
static bool answer(struct ingest *ingest, unsigned connection, struct slice answer) {
    struct ingest_conn *conn = &ingest->conns[connection];
    const char *end = answer.data + answer.size;
    for (;;) {
        char *rest;
        const char *at = answer.data + conn->scanned;
        const char *first = memchr(at, '\n', (size_t)(end - at));
        const char *second = first ? memchr(first + 1, '\n', (size_t)(end - first - 1)) : NULL;
        if (end > at && *at != '$')
            bench_fail("Redis: %.*s", (int)(end - at < 200 ? end - at : 200), at);
        if (!second)
            return conn->acked == conn->events;
        uint64_t time_ms = strtoull(first + 1, &rest, 10);
        ingest_ack(ingest, connection, time_ms << 20 | strtoull(rest + 1, NULL, 10));
        conn->scanned = (size_t)(second + 1 - answer.data);
    }
}

static uint64_t stored(const struct peer_server *server) {
    struct buffer text;
    buffer_init(&text, 4096);
    int fd = bench_connect(server->port);
    peer_ask(fd, "XLEN " PEER_TOPIC "\r\n", "\r\n", &text);
    uint64_t count = peer_number(buffer_slice(&text), ":");
    close(fd);
    buffer_release(&text);
    return count;
}

static void stop(struct peer_server *server) {
    bench_service_stop(&server->service);
}

const struct peer_ingest ingest_redis = {
    .shapes = 1U << INGEST_PLAIN | 1U << INGEST_IDS,
    .start = start,
    .request = request,
    .answer = answer,
    .stored = stored,
    .stop = stop,
};
