/* NATS, as Debian packages it and a current one. Appends go to a JetStream stream in a file, each
 * with an acknowledgement; with event ids as message ids. Live subscribers use plain subjects,
 * which store nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "peer.h"

#define HEADERS_BYTES 63 /* with a message id */

static void greet(unsigned connection, int fd) {
    char text[256];
    struct buffer answer;
    buffer_init(&answer, 65536);
    snprintf(text, sizeof(text),
             "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}\r\n"
             "SUB _INBOX.%u 1\r\nPING\r\n",
             connection);
    peer_ask(fd, text, "PONG\r\n", &answer);
    buffer_release(&answer);
}

/* Asks the API of JetStream with a JSON text, which may be empty. */
static void api(const struct peer_server *server, const char *subject, const char *json,
                struct buffer *answer) {
    char text[512];
    int fd = bench_connect(server->port);
    greet(0, fd);
    snprintf(text, sizeof(text), "PUB $JS.API.%s _INBOX.0 %zu\r\n%s\r\n", subject, strlen(json),
             json);
    peer_ask(fd, text, "}\r\n", answer);
    close(fd);
}

static void start(struct peer_server *server, enum ingest_shape shape) {
    static const char *const arguments[] = {"-js", "-sd", ".", NULL};
    struct buffer answer;
    (void)shape;
    buffer_init(&answer, 65536);
    if (!bench_service_start(&server->service, server->name, arguments))
        bench_fail("NATS is not installed");
    server->pid = server->service.pid;
    server->port = server->service.port;
    api(server, "STREAM.CREATE." PEER_TOPIC,
        "{\"name\":\"" PEER_TOPIC "\",\"subjects\":[\"" PEER_TOPIC "\"],\"storage\":\"file\","
        "\"duplicate_window\":120000000000}",
        &answer);
    if (memmem(answer.data, answer.size, "\"error\"", 7))
        bench_fail("NATS: %.*s", (int)answer.size, answer.data);
    buffer_release(&answer);
}

static void request(struct ingest *ingest, unsigned connection) {
    struct ingest_conn *conn = &ingest->conns[connection];
    char head[160], event[PEER_EVENT_BYTES];
    bool has_id = ingest->shape == INGEST_IDS;
    if (has_id)
        snprintf(head, sizeof(head),
                 "HPUB " PEER_TOPIC " _INBOX.%u %d %d\r\nNATS/1.0\r\nNats-Msg-Id: ", connection,
                 HEADERS_BYTES, HEADERS_BYTES + PEER_EVENT_BYTES);
    else
        snprintf(head, sizeof(head), "PUB " PEER_TOPIC " _INBOX.%u %d\r\n", connection,
                 PEER_EVENT_BYTES);
    for (unsigned i = 0; i < conn->events; i++) {
        peer_put_text(&conn->request, head);
        if (has_id) {
            char id[UUID_TEXT_SIZE];
            struct uuid uuid = ingest_id(ingest);
            uuid_format(&uuid, id);
            peer_put(&conn->request, id, sizeof(id));
            peer_put_text(&conn->request, "\r\n\r\n");
        }
        peer_event(event, conn->first + i);
        peer_put(&conn->request, event, sizeof(event));
        peer_put_text(&conn->request, "\r\n");
    }
}

/* Each answer is a line MSG and a line of JSON with the position. A ping needs no answer: the
 * server waits minutes for it. */
static bool answer(struct ingest *ingest, unsigned connection, struct slice answer) {
    struct ingest_conn *conn = &ingest->conns[connection];
    const char *end = answer.data + answer.size, *line;
    while ((line = answer.data + conn->scanned) < end) {
        const char *line_end = memchr(line, '\n', (size_t)(end - line));
        if (!line_end)
            break;
        conn->scanned = (size_t)(line_end + 1 - answer.data);
        struct slice text = {line, (size_t)(line_end - line)};
        if (slice_starts(text, SLICE("MSG ")) || slice_starts(text, SLICE("PING")))
            continue;
        if (!slice_starts(text, SLICE("{\"stream\"")))
            bench_fail("NATS: %.*s", (int)text.size, text.data);
        ingest_ack(ingest, connection, peer_number(text, "\"seq\":"));
    }
    return conn->acked == conn->events;
}

static uint64_t stored(const struct peer_server *server) {
    struct buffer text;
    buffer_init(&text, 65536);
    api(server, "STREAM.INFO." PEER_TOPIC, "", &text);
    uint64_t count = peer_number(buffer_slice(&text), "\"messages\":");
    buffer_release(&text);
    return count;
}

static void stop(struct peer_server *server) {
    bench_service_stop(&server->service);
}

const struct peer_ingest ingest_nats = {
    .shapes = 1U << INGEST_PLAIN | 1U << INGEST_IDS,
    .start = start,
    .greet = greet,
    .request = request,
    .answer = answer,
    .stored = stored,
    .stop = stop,
};

/* ---- delivery ---- */

static void delivery_start(struct peer_server *server, enum delivery_kind kind) {
    static const char *const arguments[] = {NULL};
    (void)kind;
    if (!bench_service_start(&server->service, server->name, arguments))
        bench_fail("NATS is not installed");
    server->pid = server->service.pid;
    server->port = server->service.port;
    server->publisher_fd = bench_connect(server->port);
    greet(0, server->publisher_fd);
}

static void publish(struct peer_server *server, unsigned events, unsigned subscribers) {
    static struct buffer text, answer;
    char event[PEER_EVENT_BYTES];
    (void)subscribers;
    if (text.size_max == 0) {
        buffer_init(&text, (size_t)1 << 20);
        buffer_init(&answer, 65536);
    }
    buffer_clear(&text);
    for (unsigned i = 0; i < events; i++) {
        peer_event(event, ++server->published);
        peer_put_text(&text, "PUB " PEER_TOPIC " 300\r\n");
        peer_put(&text, event, sizeof(event));
        peer_put_text(&text, "\r\n");
    }
    peer_put(&text, "PING\r\n", sizeof("PING\r\n"));
    peer_ask(server->publisher_fd, text.data, "PONG\r\n", &answer);
}

static void subscribe(struct buffer *out, unsigned connection, uint64_t after) {
    (void)connection;
    (void)after;
    peer_put_text(out, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB " PEER_TOPIC
                       " 1\r\nPING\r\n");
}

static size_t frame(struct slice data, struct receiver_frame *frame) {
    static const struct slice head = PEER_TEXT("MSG " PEER_TOPIC " 1 300\r\n");
    if (slice_starts(data, head)) {
        size_t size = head.size + PEER_EVENT_BYTES + 2;
        frame->kind = FRAME_EVENT;
        if (data.size < size)
            return 0;
        frame->number = strtoull(data.data + head.size + PEER_NUMBER_AT, NULL, 10);
        return size;
    }
    const char *end = memchr(data.data, '\n', data.size);
    if (!end)
        return 0;
    frame->kind = slice_starts(data, SLICE("PONG"))   ? FRAME_READY
                  : slice_starts(data, SLICE("PING")) ? FRAME_PING
                  : slice_starts(data, SLICE("INFO")) ? FRAME_OTHER
                                                      : FRAME_ERROR;
    return (size_t)(end - data.data) + 1;
}

static const struct receiver_peer live = {
    .request = subscribe, .frame = frame, .pong = PEER_TEXT("PONG\r\n")};

static void delivery_stop(struct peer_server *server) {
    close(server->publisher_fd);
    bench_service_stop(&server->service);
}

const struct peer_delivery delivery_nats = {
    .kinds = 1U << DELIVERY_FANOUT | 1U << DELIVERY_IDLE,
    .dialect = RECEIVER_PEER,
    .live = &live,
    .start = delivery_start,
    .publish = publish,
    .stop = delivery_stop,
};
