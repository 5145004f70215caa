/* Redis. Appends go to a stream: XADD in a pipeline, with the append-only file synced for each turn
 * of Redis's loop. With event ids, a script sets the id as a key if it is new, and appends only
 * then. Live subscribers use pub/sub, which stores nothing; clients that are behind read the stream
 * by XREAD. */
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

/* ---- delivery ---- */

#define PAGE     1000
#define ID_FIRST 10000000 /* ids of the stream are this plus the number, so all have one size */

static void delivery_start(struct peer_server *server, enum delivery_kind kind) {
    /* Clients have many addresses of the loopback network, which protected mode refuses. */
    static const char *const arguments[] = {
        "--save", "", "--maxclients", "15000", "--protected-mode", "no", NULL};
    (void)kind;
    if (!bench_service_start(&server->service, "redis", arguments))
        bench_fail("Redis is not installed");
    server->pid = server->service.pid;
    server->port = server->service.port;
    server->publisher_fd = bench_connect(server->port);
}

static void command_put(struct buffer *out, uint64_t number, bool is_live) {
    char event[PEER_EVENT_BYTES];
    if (is_live)
        peer_put_text(out, "*3\r\n$7\r\nPUBLISH\r\n$5\r\n" PEER_TOPIC "\r\n$300\r\n");
    else if (buffer_printf(out,
                           "*5\r\n$4\r\nXADD\r\n$5\r\n" PEER_TOPIC
                           "\r\n$10\r\n%llu-0\r\n$1\r\nd\r\n$300\r\n",
                           (unsigned long long)(ID_FIRST + number)) != STATUS_OK)
        bench_fail("out of memory");
    peer_event(event, number);
    peer_put(out, event, sizeof(event));
    peer_put_text(out, "\r\n");
}

/* Each PUBLISH is answered with the number of subscribers, each XADD with the id. */
static void publish(struct peer_server *server, unsigned events, unsigned subscribers) {
    static struct buffer request, replies;
    char expected[32];
    if (request.size_max == 0) {
        buffer_init(&request, (size_t)1 << 20);
        buffer_init(&replies, (size_t)1 << 20);
    }
    buffer_clear(&request);
    buffer_clear(&replies);
    for (unsigned i = 0; i < events; i++)
        command_put(&request, ++server->published, subscribers > 0);
    if (write(server->publisher_fd, request.data, request.size) != (ssize_t)request.size)
        bench_fail("Redis takes no request");
    int line = snprintf(expected, sizeof(expected), ":%u\r\n", subscribers);
    size_t each = subscribers > 0 ? (size_t)line : sizeof("$10\r\n10000000-0\r\n") - 1;
    while (replies.size < each * events) {
        char piece[4096];
        ssize_t got = read(server->publisher_fd, piece, sizeof(piece));
        if (got <= 0)
            bench_fail("Redis closed the connection");
        peer_put(&replies, piece, (size_t)got);
    }
    for (unsigned i = 0; i < events; i++)
        if (memcmp(replies.data + i * each, subscribers > 0 ? expected : "$10\r\n",
                   subscribers > 0 ? each : 5) != 0)
            bench_fail("Redis: %.*s", (int)each, replies.data + i * each);
}

static void subscribe(struct buffer *out, unsigned connection, uint64_t after) {
    (void)connection;
    (void)after;
    peer_put_text(out, "*2\r\n$9\r\nSUBSCRIBE\r\n$5\r\n" PEER_TOPIC "\r\n");
}

static void page_request(struct buffer *out, unsigned connection, uint64_t after) {
    (void)connection;
    if (buffer_printf(out, "XREAD COUNT %d STREAMS " PEER_TOPIC " %llu-0\r\n", PAGE,
                      (unsigned long long)(ID_FIRST + after)) != STATUS_OK)
        bench_fail("out of memory");
}

/* All frames of one kind have the same size, except for the head of a page. */
static size_t frame(struct slice data, struct receiver_frame *frame) {
    static const struct {
        struct slice begin;
        enum receiver_frame_kind kind;
    } forms[] = {
        {PEER_TEXT("*3\r\n$7\r\nmessage\r\n$5\r\n" PEER_TOPIC "\r\n$300\r\n"), FRAME_EVENT},
        {PEER_TEXT("*3\r\n$9\r\nsubscribe\r\n$5\r\n" PEER_TOPIC "\r\n:1\r\n"), FRAME_READY},
        {PEER_TEXT("*1\r\n*2\r\n$5\r\n" PEER_TOPIC "\r\n*"), FRAME_READY},
        {PEER_TEXT("*2\r\n$10\r\n"), FRAME_EVENT},
    };
    size_t id_bytes = sizeof("10000000-0\r\n*2\r\n$1\r\nd\r\n$300\r\n") - 1;
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        if (!slice_starts(data, forms[i].begin))
            continue;
        size_t head = forms[i].begin.size + (i == 3 ? id_bytes : 0);
        frame->kind = forms[i].kind;
        if (i == 2) {
            const char *end = memchr(data.data + head, '\n', data.size - head);
            return end ? (size_t)(end - data.data) + 1 : 0;
        }
        if (forms[i].kind == FRAME_READY)
            return head;
        if (data.size < head + PEER_EVENT_BYTES + 2)
            return 0;
        frame->number = strtoull(data.data + head + PEER_NUMBER_AT, NULL, 10);
        return head + PEER_EVENT_BYTES + 2;
    }
    if (data.size < 64 && *data.data == '*')
        return 0;
    frame->kind = FRAME_ERROR;
    return data.size;
}

static const struct receiver_peer live = {.request = subscribe, .frame = frame};
static const struct receiver_peer pages = {.request = page_request, .frame = frame, .page = PAGE};

static void delivery_check(struct peer_server *server) {
    if (stored(server) != server->published)
        bench_fail("the stream has not all events");
}

static void delivery_stop(struct peer_server *server) {
    close(server->publisher_fd);
    bench_service_stop(&server->service);
}

const struct peer_delivery delivery_redis = {
    .kinds =
        1U << DELIVERY_FANOUT | 1U << DELIVERY_IDLE | 1U << DELIVERY_REPLAY | 1U << DELIVERY_RETURN,
    .dialect = RECEIVER_PEER,
    .live = &live,
    .behind = &pages,
    .start = delivery_start,
    .publish = publish,
    .check = delivery_check,
    .stop = delivery_stop,
};
