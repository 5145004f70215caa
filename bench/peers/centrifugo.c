/* Centrifugo with its memory engine, which keeps a history of each channel and stores nothing on
 * disk. Events are published over its HTTP API, with event ids as idempotency keys. Subscribers use
 * its JSON protocol over WebSocket; clients that come back recover from the history. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "peer.h"

#define REQUEST_BYTES_MAX ((size_t)8 << 20)
#define EPOCH_BYTES_MAX   64

static char epoch[EPOCH_BYTES_MAX]; /* of the history, which a client names to recover */

static void server_start(struct peer_server *server) {
    static const char *const arguments[] = {"--api_insecure", "--log_level", "none", NULL};
    static const char *const settings[][2] = {
        {"CENTRIFUGO_USAGE_STATS_DISABLE", "true"},
        {"CENTRIFUGO_HISTORY_SIZE", "1000000"},
        {"CENTRIFUGO_HISTORY_TTL", "3600s"},
        {"CENTRIFUGO_FORCE_RECOVERY", "true"},
        {"CENTRIFUGO_ALLOW_ANONYMOUS_CONNECT_WITHOUT_TOKEN", "true"},
        {"CENTRIFUGO_ALLOW_SUBSCRIBE_FOR_CLIENT", "true"},
        {"CENTRIFUGO_ALLOW_SUBSCRIBE_FOR_ANONYMOUS", "true"},
        {"CENTRIFUGO_SHUTDOWN_TIMEOUT", "100ms"},
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
        if (setenv(settings[i][0], settings[i][1], 1) != 0)
            bench_fail("out of memory");
    if (!bench_service_start(&server->service, server->name, arguments))
        bench_fail("Centrifugo is not installed");
    server->pid = server->service.pid;
    server->port = server->service.port;
    server->publisher_fd = bench_connect(server->port);
}

static void start(struct peer_server *server, enum ingest_shape shape) {
    (void)shape;
    server_start(server);
}

static void post_put(struct buffer *out, const char *path, struct slice body) {
    if (buffer_printf(out,
                      "POST /api/%s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                      "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                      path, body.size) != STATUS_OK)
        bench_fail("out of memory");
    peer_put(out, body.data, body.size);
}

/* The parameters of one publication; with_ids: NULL, or the load that has ids. */
static void publication_put(struct buffer *out, uint64_t number, struct ingest *with_ids) {
    char event[PEER_EVENT_BYTES], id[UUID_TEXT_SIZE];
    peer_put_text(out, "{\"channel\":\"" PEER_TOPIC "\",");
    if (with_ids) {
        struct uuid uuid = ingest_id(with_ids);
        uuid_format(&uuid, id);
        peer_put_text(out, "\"idempotency_key\":\"");
        peer_put(out, id, sizeof(id));
        peer_put_text(out, "\",");
    }
    peer_put_text(out, "\"data\":");
    peer_event(event, number);
    peer_put(out, event, sizeof(event));
    peer_put_text(out, "}");
}

/* One event is a plain publish, several are a batch of commands, which runs in order. */
static void publish_put(struct buffer *out, uint64_t first, unsigned events,
                        struct ingest *with_ids) {
    static struct buffer body;
    if (body.size_max == 0)
        buffer_init(&body, REQUEST_BYTES_MAX);
    buffer_clear(&body);
    if (events > 1)
        peer_put_text(&body, "{\"commands\":[");
    for (unsigned i = 0; i < events; i++) {
        if (events > 1)
            peer_put_text(&body, i == 0 ? "{\"publish\":" : ",{\"publish\":");
        publication_put(&body, first + i, with_ids);
        if (events > 1)
            peer_put_text(&body, "}");
    }
    if (events > 1)
        peer_put_text(&body, "]}");
    post_put(out, events > 1 ? "batch" : "publish", buffer_slice(&body));
}

static void request(struct ingest *ingest, unsigned connection) {
    struct ingest_conn *conn = &ingest->conns[connection];
    publish_put(&conn->request, conn->first, conn->events,
                ingest->shape == INGEST_IDS ? ingest : NULL);
}

/* Finds the next position from at on; returns NULL if there is none. */
static const char *offset_next(const char *at, const char *end, uint64_t *offset) {
    at = memmem(at, (size_t)(end - at), "\"offset\":", 9);
    if (at)
        *offset = strtoull(at + 9, NULL, 10);
    return at ? at + 9 : NULL;
}

static void answer_check(struct slice answer) {
    if (!slice_starts(answer, SLICE("HTTP/1.1 200")) ||
        memmem(answer.data, answer.size, "\"error\"", 7))
        bench_fail("Centrifugo: %.*s", (int)(answer.size < 300 ? answer.size : 300), answer.data);
}

static bool answer(struct ingest *ingest, unsigned connection, struct slice answer) {
    struct ingest_conn *conn = &ingest->conns[connection];
    const char *at = answer.data, *end = at + answer.size;
    uint64_t offset;
    if (!bench_answer_complete(answer))
        return false;
    answer_check(answer);
    while ((at = offset_next(at, end, &offset)))
        ingest_ack(ingest, connection, offset);
    if (conn->acked != conn->events)
        bench_fail("Centrifugo took %u of %u events", conn->acked, conn->events);
    return true;
}

/* The history is contiguous, so its first and last positions tell how many events it has. */
static uint64_t stored(const struct peer_server *server) {
    struct buffer request, answer;
    uint64_t first = 0, last = 0;
    buffer_init(&request, 4096);
    buffer_init(&answer, 65536);
    post_put(&request, "history", SLICE("{\"channel\":\"" PEER_TOPIC "\",\"limit\":1}"));
    int fd = bench_connect(server->port);
    bench_ask(fd, buffer_slice(&request), &answer);
    close(fd);
    answer_check(buffer_slice(&answer));
    const char *end = answer.data + answer.size;
    const char *at = offset_next(answer.data, end, &first);
    if (!at || !offset_next(at, end, &last))
        bench_fail("Centrifugo: no history in %.*s", (int)answer.size, answer.data);
    buffer_release(&request);
    buffer_release(&answer);
    return last + 1 - first;
}

static void stop(struct peer_server *server) {
    close(server->publisher_fd);
    bench_service_stop(&server->service);
}

const struct peer_ingest ingest_centrifugo = {
    .shapes = 1U << INGEST_PLAIN | 1U << INGEST_IDS,
    .start = start,
    .request = request,
    .answer = answer,
    .stored = stored,
    .stop = stop,
};

/* ---- delivery ---- */

static void delivery_start(struct peer_server *server, enum delivery_kind kind) {
    (void)kind;
    server_start(server);
}

static void publish(struct peer_server *server, unsigned events, unsigned subscribers) {
    static struct buffer request, answer;
    unsigned taken = 0;
    uint64_t offset;
    (void)subscribers;
    if (request.size_max == 0) {
        buffer_init(&request, REQUEST_BYTES_MAX);
        buffer_init(&answer, REQUEST_BYTES_MAX);
    }
    buffer_clear(&request);
    publish_put(&request, server->published + 1, events, NULL);
    bench_ask(server->publisher_fd, buffer_slice(&request), &answer);
    answer_check(buffer_slice(&answer));
    const char *at = answer.data, *end = at + answer.size;
    for (; (at = offset_next(at, end, &offset)); taken++)
        if (offset != server->published + taken + 1)
            bench_fail("Centrifugo: event %llu has offset %llu",
                       (unsigned long long)(server->published + taken + 1),
                       (unsigned long long)offset);
    if (taken != events)
        bench_fail("Centrifugo took %u of %u events", taken, events);
    server->published += events;
    peer_put(&answer, "", 1);
    const char *name = strstr(answer.data, "\"epoch\":\"");
    if (!name || sscanf(name, "\"epoch\":\"%63[^\"]", epoch) != 1)
        bench_fail("Centrifugo: no epoch");
}

static void upgrade(struct buffer *out, unsigned connection, uint64_t after) {
    (void)connection;
    (void)after;
    peer_put_text(out, "GET /connection/websocket HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                       "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                       "Sec-WebSocket-Key: a2hhbGEtYmVuY2gtbG9hZA==\r\n\r\n");
}

/* A masked text frame; a mask of zero leaves the text unchanged. */
static void join(struct buffer *out, uint64_t after) {
    char text[400], recovery[160] = "";
    if (after > 0)
        snprintf(recovery, sizeof(recovery), ",\"recover\":true,\"offset\":%llu,\"epoch\":\"%s\"",
                 (unsigned long long)after, epoch);
    int size = snprintf(text, sizeof(text),
                        "{\"id\":1,\"connect\":{}}\n"
                        "{\"id\":2,\"subscribe\":{\"channel\":\"" PEER_TOPIC "\"%s}}",
                        recovery);
    const char small[6] = {(char)0x81, (char)(0x80 | size)};
    const char large[8] = {(char)0x81, (char)(0x80 | 126), (char)(size >> 8), (char)size};
    if (size < 126)
        peer_put(out, small, sizeof(small));
    else
        peer_put(out, large, sizeof(large));
    peer_put(out, text, (size_t)size);
}

/* The head of a WebSocket frame. Its payload is lines of JSON, which are taken one by one. */
static size_t frame_head(struct slice data) {
    int length = data.size > 1 ? data.data[1] & 127 : 0;
    size_t size = length == 127 ? 10 : length == 126 ? 4 : 2;
    return data.size < size ? 0 : size;
}

struct form {
    struct slice begin;
    struct slice end;
    enum receiver_frame_kind kind;
};

/* The answer to a client that recovers lists the events that it missed. Then they are taken one by
 * one, and so is the rest of the answer. */
static const struct form forms[] = {
    {PEER_TEXT("{\"push\":{\"channel\":\"" PEER_TOPIC "\",\"pub\":{\"data\":"), PEER_TEXT("}}}"),
     FRAME_EVENT},
    {PEER_TEXT("{\"data\":"), PEER_TEXT("}"), FRAME_EVENT},
    {PEER_TEXT(","), PEER_TEXT(","), FRAME_OTHER},
    {PEER_TEXT("\n"), PEER_TEXT("\n"), FRAME_OTHER},
    {PEER_TEXT("],\"recovered\":true"), PEER_TEXT("}}"), FRAME_OTHER},
    {PEER_TEXT("{\"id\":1,\"connect\":"), PEER_TEXT("}}"), FRAME_OTHER},
    {PEER_TEXT("{\"id\":2,\"subscribe\":"), PEER_TEXT("}}"), FRAME_READY},
    {PEER_TEXT("{}"), PEER_TEXT("}"), FRAME_PING},
    {PEER_TEXT("HTTP/1.1 101 "), PEER_TEXT("\r\n\r\n"), FRAME_GREETING},
};

static size_t form_take(const struct form *form, struct slice data, struct receiver_frame *frame) {
    size_t skipped = 0;
    frame->kind = form->kind;
    if (form->kind == FRAME_EVENT) {
        skipped = form->begin.size + PEER_EVENT_BYTES;
        if (data.size <= skipped)
            return 0;
        frame->number = strtoull(data.data + form->begin.size + PEER_NUMBER_AT, NULL, 10);
    }
    const char *end =
        memmem(data.data + skipped, data.size - skipped, form->end.data, form->end.size);
    const char *list =
        form->kind == FRAME_READY ? memmem(data.data, data.size, "\"publications\":[", 16) : NULL;
    if (list && (!end || list < end))
        return (size_t)(list - data.data) + 16;
    return end ? (size_t)(end - data.data) + form->end.size : 0;
}

static size_t frame(struct slice data, struct receiver_frame *frame) {
    frame->kind = FRAME_OTHER;
    if ((uint8_t)data.data[0] == 0x81)
        return frame_head(data);
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        struct slice begin = forms[i].begin;
        if (memcmp(data.data, begin.data, data.size < begin.size ? data.size : begin.size) == 0)
            return data.size < begin.size ? 0 : form_take(&forms[i], data, frame);
    }
    frame->kind = FRAME_ERROR;
    return data.size;
}

static const struct receiver_peer subscriber = {
    .request = upgrade, .join = join, .frame = frame, .pong = PEER_TEXT("\x81\x82\0\0\0\0{}")};

static void delivery_check(struct peer_server *server) {
    if (stored(server) != server->published)
        bench_fail("the history has not all events");
}

const struct peer_delivery delivery_centrifugo = {
    .kinds = 1U << DELIVERY_FANOUT | 1U << DELIVERY_IDLE | 1U << DELIVERY_RETURN,
    .dialect = RECEIVER_PEER,
    .live = &subscriber,
    .behind = &subscriber,
    .start = delivery_start,
    .publish = publish,
    .check = delivery_check,
    .stores_live = true,
    .stop = stop,
};
