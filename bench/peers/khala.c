/* Khala: appends over HTTP, as any application does them, and its three dialects of delivery. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "peer.h"

#define REQUEST_BYTES_MAX ((size_t)4 << 20)

struct runs {
    const struct bench_server *server;
    unsigned next;
    struct buffer requests[PEER_CONNECTIONS_MAX];
};

static bool next_run(void *user, unsigned connection, struct slice *request) {
    struct runs *runs = user;
    struct buffer *out = &runs->requests[connection];
    char body[64];
    if (runs->next == PEER_RUNS)
        return false;
    if (out->size_max == 0)
        buffer_init(out, 4096);
    buffer_clear(out);
    snprintf(body, sizeof(body), "{\"run_id\":\"run-%u\"}", runs->next++);
    bench_post(out, runs->server, "/internal/v1/runs", "application/json", slice_of(body));
    *request = buffer_slice(out);
    return true;
}

static void start(struct peer_server *server, enum ingest_shape shape) {
    static struct runs runs;
    bench_server_start(&server->khala);
    server->pid = server->khala.pid;
    server->port = server->khala.port;
    if (shape == INGEST_RUNS) {
        runs.server = &server->khala;
        bench_drive(&server->khala, 16, &runs, next_run);
        server->events_before = PEER_RUNS;
    }
}

static void event_put(struct ingest *ingest, struct buffer *body, uint64_t number) {
    char event[PEER_EVENT_BYTES];
    if (ingest->batch == 1)
        peer_put_text(body, "{");
    else if (ingest->shape != INGEST_RUNS)
        peer_put_text(body, "{\"topic\":\"" PEER_TOPIC "\",");
    else if (buffer_printf(body, "{\"run_id\":\"run-%llu\",",
                           (unsigned long long)(number % PEER_RUNS)) != STATUS_OK)
        bench_fail("out of memory");
    if (ingest->shape == INGEST_IDS) {
        char text[UUID_TEXT_SIZE];
        struct uuid id = ingest_id(ingest);
        uuid_format(&id, text);
        peer_put_text(body, "\"event_id\":\"");
        peer_put(body, text, sizeof(text));
        peer_put_text(body, "\",");
    }
    peer_event(event, number);
    peer_put_text(body, "\"event_type\":\"tick\",\"payload\":");
    peer_put(body, event, sizeof(event));
    peer_put_text(body, "}\n");
}

static void request(struct ingest *ingest, unsigned connection) {
    static struct buffer body;
    struct ingest_conn *conn = &ingest->conns[connection];
    char path[64] = "/internal/v1/events:batch";
    if (body.size_max == 0)
        buffer_init(&body, REQUEST_BYTES_MAX);
    buffer_clear(&body);
    for (unsigned i = 0; i < conn->events; i++)
        event_put(ingest, &body, conn->first + i);
    if (ingest->batch == 1 && ingest->shape == INGEST_RUNS)
        snprintf(path, sizeof(path), "/internal/v1/runs/run-%llu/events",
                 (unsigned long long)(conn->first % PEER_RUNS));
    else if (ingest->batch == 1)
        snprintf(path, sizeof(path), "/internal/v1/topics/%s/events", PEER_TOPIC);
    bench_post(&conn->request, &ingest->server->khala, path,
               ingest->batch == 1 ? "application/json" : "application/x-ndjson",
               buffer_slice(&body));
}

static bool answer(struct ingest *ingest, unsigned connection, struct slice answer) {
    struct ingest_conn *conn = &ingest->conns[connection];
    if (!bench_answer_complete(answer))
        return false;
    if (memcmp(answer.data, "HTTP/1.1 200", 12) != 0)
        bench_fail("answer: %.*s", (int)(answer.size < 400 ? answer.size : 400), answer.data);
    const char *at = answer.data, *end = at + answer.size;
    while ((at = memmem(at, (size_t)(end - at), "\"seq\":", 6))) {
        at += 6;
        ingest_ack(ingest, connection, strtoull(at, NULL, 10));
    }
    if (conn->acked != conn->events)
        bench_fail("the server took %u of %u events", conn->acked, conn->events);
    return true;
}

/* Checks the whole log, and counts it. */
static uint64_t stored(const struct peer_server *server) {
    char binary[512], command[700], line[256];
    bench_binary(binary);
    snprintf(command, sizeof(command), "'%s' verify --data-dir '%s' 2>/dev/null", binary,
             server->khala.folder);
    peer_line(command, line);
    if (!strstr(line, "every hash, link, sequence and cursor holds"))
        bench_fail("khala verify: %s", line);
    return strtoull(line, NULL, 10);
}

static void stop(struct peer_server *server) {
    bench_server_stop(&server->khala);
}

const struct peer_ingest ingest_khala = {
    .shapes = 1U << INGEST_PLAIN | 1U << INGEST_IDS | 1U << INGEST_RUNS,
    .start = start,
    .request = request,
    .answer = answer,
    .stored = stored,
    .stop = stop,
};

/* ---- delivery ---- */

static void delivery_start(struct peer_server *server, enum delivery_kind kind) {
    /* Clients may fetch as much as the topic has; the default ends their resume after some events.
     */
    static const struct bench_setting settings[] = {
        {"RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS", "100000000"}, {NULL, NULL}};
    (void)kind;
    server->khala.settings = settings;
    bench_server_start(&server->khala);
    server->pid = server->khala.pid;
    server->port = server->khala.port;
    buffer_init(&server->token, 8192);
    bench_token(&server->khala, PEER_TOPIC, &server->token);
}

static void delivery_publish(struct peer_server *server, unsigned events, unsigned subscribers) {
    (void)subscribers;
    /* The server closes a new connection without a request, and subscribers may need long to join.
     */
    if (server->published == 0)
        publisher_open(&server->publisher, &server->khala, PEER_TOPIC, PEER_EVENT_BYTES);
    publisher_send(&server->publisher, events);
    server->published = server->publisher.published;
}

static void delivery_check(struct peer_server *server) {
    /* The record of the token is an event too. */
    uint64_t count = stored(server) - 1;
    if (count != server->published)
        bench_fail("%llu events were acknowledged and %llu stored",
                   (unsigned long long)server->published, (unsigned long long)count);
}

static void delivery_stop(struct peer_server *server) {
    if (server->published > 0)
        publisher_close(&server->publisher);
    buffer_release(&server->token);
    bench_server_stop(&server->khala);
}

#define DELIVERY(dialect_)                                                                         \
    {                                                                                              \
        .kinds = 1U << DELIVERY_FANOUT | 1U << DELIVERY_IDLE | 1U << DELIVERY_REPLAY |             \
                 1U << DELIVERY_RETURN,                                                            \
        .dialect = (dialect_), .start = delivery_start, .publish = delivery_publish,               \
        .check = delivery_check, .stores_live = true, .stop = delivery_stop                        \
    }

const struct peer_delivery delivery_khala_ws = DELIVERY(RECEIVER_TOPIC_WS);
const struct peer_delivery delivery_khala_phoenix = DELIVERY(RECEIVER_PHOENIX);
const struct peer_delivery delivery_khala_sse = DELIVERY(RECEIVER_SSE);
