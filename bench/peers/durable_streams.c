/* Durable Streams. Appends are arrays of JSON values, which the server acknowledges after the sync
 * of its write-ahead log. Live and returning clients read server-sent events from an offset.
 * Clients that fetch the whole stream use a plain GET, as the protocol advises. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "peer.h"

#define STREAM "/" PEER_TOPIC
/* An offset counts bytes of the stream, in which a comma follows each value. */
#define OFFSET_HEAD  "0000000000000000_"
#define STORED_BYTES (PEER_EVENT_BYTES + 1)

static void server_start(struct peer_server *server) {
    static const char *const arguments[] = {"--data-dir", ".", "--durability", "wal", NULL};
    struct buffer answer;
    buffer_init(&answer, 4096);
    if (!bench_service_start(&server->service, server->name, arguments))
        bench_fail("Durable Streams is not installed");
    server->pid = server->service.pid;
    server->port = server->service.port;
    server->publisher_fd = bench_connect(server->port);
    peer_ask(server->publisher_fd,
             "PUT " STREAM " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
             "Content-Length: 0\r\n\r\n",
             "\r\n\r\n", &answer);
    if (!slice_starts(buffer_slice(&answer), SLICE("HTTP/1.1 201")))
        bench_fail("Durable Streams: %.*s", (int)answer.size, answer.data);
    buffer_release(&answer);
}

static void start(struct peer_server *server, enum ingest_shape shape) {
    (void)shape;
    server_start(server);
}

/* Events of consecutive numbers in one array. */
static void append_put(struct buffer *out, uint64_t first, unsigned events) {
    char event[PEER_EVENT_BYTES];
    if (buffer_printf(out,
                      "POST " STREAM " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                      "Content-Type: application/json\r\nContent-Length: %u\r\n\r\n",
                      events * STORED_BYTES + 1) != STATUS_OK)
        bench_fail("out of memory");
    for (unsigned i = 0; i < events; i++) {
        peer_put_text(out, i == 0 ? "[" : ",");
        peer_event(event, first + i);
        peer_put(out, event, sizeof(event));
    }
    peer_put_text(out, "]");
}

/* The offset in an answer. */
static uint64_t tail_of(struct slice answer, const char *status) {
    if (!slice_starts(answer, slice_of(status)))
        bench_fail("Durable Streams: %.*s", (int)(answer.size < 200 ? answer.size : 200),
                   answer.data);
    return peer_number(answer, "stream-next-offset: " OFFSET_HEAD);
}

static void request(struct ingest *ingest, unsigned connection) {
    struct ingest_conn *conn = &ingest->conns[connection];
    append_put(&conn->request, conn->first, conn->events);
}

/* The server acknowledges a request as a whole, with the offset after it. */
static bool answer(struct ingest *ingest, unsigned connection, struct slice answer) {
    struct ingest_conn *conn = &ingest->conns[connection];
    if (!memmem(answer.data, answer.size, "\r\n\r\n", 4))
        return false;
    uint64_t before = tail_of(answer, "HTTP/1.1 204") - conn->events;
    for (unsigned i = 1; i <= conn->events; i++)
        ingest_ack(ingest, connection, before + i);
    return true;
}

static uint64_t stored(const struct peer_server *server) {
    struct buffer text;
    buffer_init(&text, 4096);
    int fd = bench_connect(server->port);
    peer_ask(fd, "HEAD " STREAM " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "\r\n\r\n", &text);
    uint64_t tail = tail_of(buffer_slice(&text), "HTTP/1.1 200");
    close(fd);
    buffer_release(&text);
    if (tail % STORED_BYTES != 0)
        bench_fail("the stream ends within an event");
    return tail / STORED_BYTES;
}

static void stop(struct peer_server *server) {
    close(server->publisher_fd);
    bench_service_stop(&server->service);
}

const struct peer_ingest ingest_durable_streams = {
    .shapes = 1U << INGEST_PLAIN,
    .start = start,
    .request = request,
    .answer = answer,
    .stored = stored,
    .stop = stop,
};

/* ---- delivery ---- */

static bool is_replay;

static void delivery_start(struct peer_server *server, enum delivery_kind kind) {
    is_replay = kind == DELIVERY_REPLAY;
    server_start(server);
}

static void publish(struct peer_server *server, unsigned events, unsigned subscribers) {
    static struct buffer request, answer;
    (void)subscribers;
    if (request.size_max == 0) {
        buffer_init(&request, (size_t)1 << 20);
        buffer_init(&answer, 4096);
    }
    buffer_clear(&request);
    append_put(&request, server->published + 1, events);
    peer_put(&request, "", 1);
    peer_ask(server->publisher_fd, request.data, "\r\n\r\n", &answer);
    server->published += events;
    if (tail_of(buffer_slice(&answer), "HTTP/1.1 204") != server->published * STORED_BYTES)
        bench_fail("the stream has not all events");
}

static void read_request(struct buffer *out, unsigned connection, uint64_t after) {
    (void)connection;
    if (buffer_printf(
            out,
            "GET " STREAM "?offset=" OFFSET_HEAD "%016llu%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            (unsigned long long)(after * STORED_BYTES), is_replay ? "" : "&live=sse") != STATUS_OK)
        bench_fail("out of memory");
}

/* The size of a chunk, an empty line, or the bracket before the values of a plain answer. */
static size_t filler(struct slice data, struct receiver_frame *frame) {
    size_t size = 0;
    while (size < data.size && (size == 0 || data.data[size - 1] != '\n') &&
           memchr("0123456789abcdef\r\n[", data.data[size], 19))
        size++;
    frame->kind = size > 0 ? FRAME_OTHER : FRAME_ERROR;
    return size > 0 ? size : data.size;
}

static size_t frame(struct slice data, struct receiver_frame *frame) {
    static const struct {
        struct slice begin;
        struct slice end;
        enum receiver_frame_kind kind;
    } forms[] = {
        {PEER_TEXT("{\"n\":\""), {NULL, 0}, FRAME_EVENT},
        {PEER_TEXT("event: data\ndata:["), PEER_TEXT("["), FRAME_OTHER},
        {PEER_TEXT("event: control\ndata:"), PEER_TEXT("\n\n"), FRAME_READY},
        {PEER_TEXT("HTTP/1.1 200 "), PEER_TEXT("\r\n\r\n"), FRAME_OTHER},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        struct slice begin = forms[i].begin;
        if (memcmp(data.data, begin.data, data.size < begin.size ? data.size : begin.size) != 0)
            continue;
        frame->kind = forms[i].kind;
        if (i == 0 && data.size > PEER_EVENT_BYTES)
            frame->number = strtoull(data.data + PEER_NUMBER_AT, NULL, 10);
        if (i == 0)
            return data.size > PEER_EVENT_BYTES ? STORED_BYTES : 0;
        /* A plain GET is no subscription; its head is all there is to wait for. */
        if (is_replay)
            frame->kind = FRAME_READY;
        const char *end = memmem(data.data, data.size, forms[i].end.data, forms[i].end.size);
        return end ? (size_t)(end - data.data) + forms[i].end.size : 0;
    }
    return filler(data, frame);
}

static const struct receiver_peer reader = {.request = read_request, .frame = frame};

static void delivery_check(struct peer_server *server) {
    if (stored(server) != server->published)
        bench_fail("the stream has not all events");
}

const struct peer_delivery delivery_durable_streams = {
    .kinds =
        1U << DELIVERY_FANOUT | 1U << DELIVERY_IDLE | 1U << DELIVERY_REPLAY | 1U << DELIVERY_RETURN,
    .dialect = RECEIVER_PEER,
    .live = &reader,
    .behind = &reader,
    .start = delivery_start,
    .publish = publish,
    .check = delivery_check,
    .stores_live = true,
    .reads_to_tail = true,
    .stop = stop,
};
