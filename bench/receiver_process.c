#include "receiver_process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/websocket/ws_deflate.h"
#include "wire/websocket/ws_frame.h"

#define MEMORY_BYTES   ((size_t)32 << 20)
#define OPENING_MAX    128 /* connections that are not subscribed yet; bounds the accept queue */
#define PORTS_PER_HOST 20000
#define PORT_FIRST     2000
#define TICK_MS        100
#define HEAD_BYTES     512 /* of a message; its range is in them */
#define CACHE_COUNT    8
#define COUNT_EVERY    16 /* one of so many connections counts its updates individually */

enum conn_state { CONN_SHAKING, CONN_JOINING, CONN_READY, CONN_ENDED };

struct conn {
    int fd;
    enum conn_state state;
    unsigned replies;
    size_t raw_bytes;
    uint64_t last_seq;
    char *carry; /* an incomplete frame */
    size_t carry_bytes;
};

/* Compressed messages have the same bytes for all connections, so each is inflated once. */
struct inflated {
    struct buffer packed;
    struct buffer plain;
};

struct worker {
    const struct receiver_options *options;
    struct receiver_shared *shared;
    unsigned count;
    int reached;
    int epoll;
    struct conn *conns;
    unsigned opened;
    unsigned settled; /* ready or ended */
    unsigned next_heartbeat;
    unsigned next_port;
    uint64_t notified; /* the value of expected at the last notification */
    uint64_t now_ns;   /* when the current bytes arrived */
    char *memory;
    struct buffer handshake;
    struct buffer join;
    struct buffer heartbeat;
    struct ws_inflater inflater;
    struct inflated cache[CACHE_COUNT];
    unsigned cache_next;
};

__attribute__((format(printf, 2, 3))) static _Noreturn void worker_fail(struct worker *worker,
                                                                        const char *format, ...) {
    uint64_t token = 1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(worker->shared->problem, sizeof(worker->shared->problem), format, arguments);
    va_end(arguments);
    _exit(write(worker->reached, &token, sizeof(token)) < 0 ? 2 : 1);
}

static void must(struct worker *worker, enum status status) {
    if (status != STATUS_OK)
        worker_fail(worker, "out of memory");
}

/* ---- sending ------------------------------------------------------------------------------- */

/* A mask of zero is allowed and leaves the payload unchanged. */
static void frame_append(struct worker *worker, struct buffer *out, int opcode,
                         struct slice payload) {
    char header[8] = {(char)(0x80 | opcode)};
    size_t size = payload.size < 126 ? 6 : 8;
    header[1] = (char)(0x80 | (payload.size < 126 ? payload.size : 126));
    if (size == 8) {
        header[2] = (char)(payload.size >> 8);
        header[3] = (char)payload.size;
    }
    if (size == 8)
        memset(header + 4, 0, 4);
    must(worker, buffer_append(out, header, size));
    must(worker, buffer_append_slice(out, payload));
}

static void handshake_prepare(struct worker *worker, const char *token) {
    static const char upgrade[] =
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: a2hhbGEtYmVuY2gtbG9hZA==\r\n";
    const struct receiver_options *options = worker->options;
    struct buffer *out = &worker->handshake;
    buffer_clear(out);
    unsigned long long after_seq = options->after_seq;
    const char *form = options->lean ? "lean" : "full";
    if (options->dialect == RECEIVER_SSE)
        must(worker, buffer_printf(out, "GET /v1/topics/%s/sse?after_seq=%llu&form=%s&token=%s",
                                   options->topic, after_seq, form, token));
    else if (options->dialect == RECEIVER_TOPIC_WS)
        must(worker, buffer_printf(out, "GET /v1/topics/%s/ws?after_seq=%llu&form=%s&token=%s",
                                   options->topic, after_seq, form, token));
    else
        must(worker, buffer_printf(out, "GET /socket/websocket?vsn=2.0.0&token=%s", token));
    must(worker,
         buffer_printf(out, " HTTP/1.1\r\nHost: 127.0.0.1\r\n%s%s\r\n",
                       options->dialect == RECEIVER_SSE ? "" : upgrade,
                       options->deflate ? "Sec-WebSocket-Extensions: permessage-deflate\r\n" : ""));
}

static void join_prepare(struct worker *worker) {
    const struct receiver_options *options = worker->options;
    char batch[64] = "";
    struct buffer text;
    buffer_init(&text, 2048);
    frame_append(worker, &worker->join, WS_TEXT,
                 SLICE("[\"1\",\"1\",\"sync:v1\",\"phx_join\",{}]"));
    if (options->replay_batch > 0)
        snprintf(batch, sizeof(batch), ",\"replay_batch_size\":%u", options->replay_batch);
    must(worker,
         buffer_printf(&text,
                       "[\"1\",\"2\",\"sync:v1\",\"sync:subscribe\",{\"topics\":[\"%s\"],"
                       "\"resume_after\":{\"%s\":%llu}%s%s}]",
                       options->topic, options->topic, (unsigned long long)options->after_seq,
                       batch, options->lean ? ",\"form\":\"lean\"" : ""));
    frame_append(worker, &worker->join, WS_TEXT, buffer_slice(&text));
    buffer_release(&text);
    frame_append(worker, &worker->heartbeat, WS_TEXT,
                 SLICE("[null,\"3\",\"phoenix\",\"heartbeat\",{}]"));
}

/* Messages are small and sockets nearly empty, so a send is never partial. */
static void conn_send(struct worker *worker, struct conn *conn, struct slice bytes) {
    if (send(conn->fd, bytes.data, bytes.size, MSG_NOSIGNAL) != (ssize_t)bytes.size &&
        !worker->options->may_end)
        worker_fail(worker, "send: %s", strerror(errno));
}

/* ---- receiving ----------------------------------------------------------------------------- */

static void conn_settle(struct worker *worker, struct conn *conn, enum conn_state state) {
    worker->settled += conn->state < CONN_READY;
    conn->state = state;
    if (state == CONN_READY)
        worker->shared->ready++;
    if (state == CONN_READY && worker->options->stuck)
        epoll_ctl(worker->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
}

static void conn_end(struct worker *worker, struct conn *conn, const char *why) {
    if (!worker->options->may_end)
        worker_fail(worker, "a connection ended after seq %llu: %s",
                    (unsigned long long)conn->last_seq, why);
    close(conn->fd);
    free(conn->carry);
    conn->carry = NULL;
    conn->carry_bytes = 0;
    conn_settle(worker, conn, CONN_ENDED);
    worker->shared->ended++;
}

static void expected_check(struct worker *worker) {
    uint64_t token = 1;
    uint64_t expected = worker->shared->expected;
    if (expected == 0 || expected == worker->notified || worker->shared->updates < expected)
        return;
    worker->notified = expected;
    worker->shared->reached_ns = bench_nanoseconds();
    if (write(worker->reached, &token, sizeof(token)) < 0)
        worker_fail(worker, "cannot notify the benchmark: %s", strerror(errno));
}

/* The connection received (after_seq, through_seq]. */
static void conn_advance(struct worker *worker, struct conn *conn, uint64_t after_seq,
                         uint64_t through_seq) {
    const struct receiver_options *options = worker->options;
    if (options->is_faulty && after_seq == options->after_seq)
        after_seq++;
    if (after_seq > conn->last_seq)
        worker_fail(worker, "a gap: after seq %llu came (%llu, %llu]",
                    (unsigned long long)conn->last_seq, (unsigned long long)after_seq,
                    (unsigned long long)through_seq);
    if (after_seq < conn->last_seq && through_seq > after_seq)
        worker_fail(worker, "after seq %llu came (%llu, %llu]: some events came twice",
                    (unsigned long long)conn->last_seq, (unsigned long long)after_seq,
                    (unsigned long long)through_seq);
    if (through_seq <= conn->last_seq)
        return;
    if (options->due_ns)
        for (uint64_t seq = conn->last_seq + 1; seq <= through_seq && seq < options->due_count;
             seq++)
            histogram_add(&worker->shared->latency, worker->now_ns > options->due_ns[seq]
                                                        ? worker->now_ns - options->due_ns[seq]
                                                        : 0);
    worker->shared->updates += through_seq - conn->last_seq;
    conn->last_seq = through_seq;
    expected_check(worker);
}

static bool number_find(struct slice text, const char *name, uint64_t *number) {
    size_t within = text.size < HEAD_BYTES ? text.size : HEAD_BYTES;
    const char *found = memmem(text.data, within, name, strlen(name));
    if (found)
        *number = strtoull(found + strlen(name), NULL, 10);
    return found;
}

static bool head_has(struct slice text, const char *word) {
    return memmem(text.data, text.size < 128 ? text.size : 128, word, strlen(word));
}

static uint64_t word_count(struct slice text, const char *word) {
    uint64_t count = 0;
    size_t size = strlen(word);
    const char *at = text.data, *end = text.data + text.size;
    while ((at = memmem(at, (size_t)(end - at), word, size))) {
        count++;
        at += size;
    }
    return count;
}

static void on_phoenix(struct worker *worker, struct conn *conn, struct slice text,
                       size_t wire_bytes) {
    uint64_t after = 0, through = 0;
    if (head_has(text, "update_batch")) {
        if (!number_find(text, "\"after\":", &after) ||
            !number_find(text, "\"through\":", &through))
            worker_fail(worker, "a message without a range: %.200s", text.data);
        /* Tenants of a shared topic do not see every frame of a range. */
        if (!worker->options->tokens &&
            (worker->options->count_all || (conn - worker->conns) % COUNT_EVERY == 0) &&
            word_count(text, "\"event_id\":") != through - after)
            worker_fail(worker, "(%llu, %llu] has a wrong number of updates",
                        (unsigned long long)after, (unsigned long long)through);
        worker->shared->messages++;
        worker->shared->bytes += wire_bytes;
        conn_advance(worker, conn, after, through);
        if (conn->state == CONN_JOINING && conn->replies == 2)
            conn_settle(worker, conn, CONN_READY);
    } else if (conn->state == CONN_JOINING && head_has(text, "phx_reply")) {
        if (!memmem(text.data, text.size, "\"status\":\"ok\"", 13))
            worker_fail(worker, "refused: %.*s", (int)(text.size < 400 ? text.size : 400),
                        text.data);
        conn->replies++;
    } else if (head_has(text, "phx_error") || head_has(text, "sync:error")) {
        if (!worker->options->may_end)
            worker_fail(worker, "%.*s", (int)(text.size < 400 ? text.size : 400), text.data);
    }
}

static void on_topic_ws(struct worker *worker, struct conn *conn, struct slice text,
                        size_t wire_bytes) {
    uint64_t seq = 0;
    if (head_has(text, "\"hello\"")) {
        conn_settle(worker, conn, CONN_READY);
    } else if (head_has(text, "\"message\"") && number_find(text, "\"seq\":", &seq)) {
        worker->shared->messages++;
        worker->shared->bytes += wire_bytes;
        conn_advance(worker, conn, seq - 1, seq);
    } else if (head_has(text, "\"error\"") || head_has(text, "\"stale_cursor\"")) {
        worker_fail(worker, "%.*s", (int)(text.size < 400 ? text.size : 400), text.data);
    }
}

static struct slice inflate_shared(struct worker *worker, struct slice packed) {
    for (unsigned i = 0; i < CACHE_COUNT; i++)
        if (slice_equal(buffer_slice(&worker->cache[i].packed), packed))
            return buffer_slice(&worker->cache[i].plain);
    struct inflated *entry = &worker->cache[worker->cache_next++ % CACHE_COUNT];
    buffer_clear(&entry->packed);
    buffer_clear(&entry->plain);
    must(worker, buffer_append_slice(&entry->packed, packed));
    if (ws_inflate(&worker->inflater, &entry->plain, packed) != STATUS_OK)
        worker_fail(worker, "a message cannot be inflated");
    return buffer_slice(&entry->plain);
}

static void on_frame(struct worker *worker, struct conn *conn, uint8_t head, struct slice payload) {
    size_t wire_bytes = payload.size + (payload.size < 126 ? 2 : payload.size < 65536 ? 4 : 10);
    int opcode = head & 15;
    if (!(head & 0x80))
        worker_fail(worker, "a message in several frames");
    if (opcode == WS_CLOSE) {
        char why[160];
        unsigned code = payload.size < 2
                            ? WS_CLOSE_CODE_ABSENT
                            : (unsigned)(uint8_t)payload.data[0] << 8 | (uint8_t)payload.data[1];
        int size = payload.size < 2 ? 0 : (int)payload.size - 2;
        snprintf(why, sizeof(why), "%u %.*s", code, size, payload.data + 2);
        conn_end(worker, conn, why);
    } else if (opcode == WS_PING) {
        struct buffer pong;
        buffer_init(&pong, 256);
        frame_append(worker, &pong, WS_PONG, payload);
        conn_send(worker, conn, buffer_slice(&pong));
        buffer_release(&pong);
    } else if (opcode == WS_TEXT) {
        if (head & 0x40)
            payload = inflate_shared(worker, payload);
        if (worker->options->dialect == RECEIVER_PHOENIX)
            on_phoenix(worker, conn, payload, wire_bytes);
        else
            on_topic_ws(worker, conn, payload, wire_bytes);
    }
}

/* Takes one complete frame; returns its size, or 0 if more bytes are needed. */
static size_t frame_take(struct worker *worker, struct conn *conn, struct slice data) {
    const uint8_t *bytes = (const uint8_t *)data.data;
    if (data.size < 2)
        return 0;
    size_t header = 2;
    uint64_t size = bytes[1] & 127;
    size_t wide = size == 126 ? 2 : size == 127 ? 8 : 0;
    if (data.size < header + wide)
        return 0;
    if (wide > 0)
        size = 0;
    for (size_t i = 0; i < wide; i++)
        size = size << 8 | bytes[header + i];
    header += wide;
    if (header + size > MEMORY_BYTES / 2)
        worker_fail(worker, "a frame of %llu bytes", (unsigned long long)size);
    if (data.size < header + size)
        return 0;
    on_frame(worker, conn, bytes[0], (struct slice){data.data + header, size});
    return header + size;
}

/* Takes one complete line. The size lines of chunks are lines too, and are ignored. */
static size_t line_take(struct worker *worker, struct conn *conn, struct slice data) {
    const char *end = memchr(data.data, '\n', data.size);
    if (!end)
        return 0;
    struct slice line = {data.data, (size_t)(end - data.data) + 1};
    worker->shared->bytes += line.size;
    if (slice_starts(line, SLICE("id: "))) {
        uint64_t seq = strtoull(line.data + 4, NULL, 10);
        worker->shared->messages++;
        conn_advance(worker, conn, seq - 1, seq);
    } else if (slice_starts(line, SLICE("retry: "))) {
        conn_settle(worker, conn, CONN_READY);
    } else if (slice_starts(line, SLICE("event: stale_cursor"))) {
        worker_fail(worker, "the cursor is stale");
    }
    return line.size;
}

static size_t handshake_take(struct worker *worker, struct conn *conn, struct slice data) {
    const char *end = memmem(data.data, data.size, "\r\n\r\n", 4);
    if (!end)
        return 0;
    if (memcmp(data.data,
               worker->options->dialect == RECEIVER_SSE ? "HTTP/1.1 200" : "HTTP/1.1 101", 12) != 0)
        worker_fail(worker, "refused: %.*s", (int)(data.size < 400 ? data.size : 400), data.data);
    conn->state = CONN_JOINING;
    if (worker->shared->begun_ns == 0)
        worker->shared->begun_ns = bench_nanoseconds();
    if (worker->options->dialect == RECEIVER_PHOENIX)
        conn_send(worker, conn, buffer_slice(&worker->join));
    return (size_t)(end - data.data) + 4;
}

static size_t raw_take(struct worker *worker, struct conn *conn, struct slice data) {
    size_t frame_bytes = worker->shared->frame_bytes;
    conn->raw_bytes += data.size;
    uint64_t fresh = conn->raw_bytes / frame_bytes;
    conn->raw_bytes %= frame_bytes;
    worker->shared->bytes += data.size;
    conn_advance(worker, conn, conn->last_seq, conn->last_seq + fresh);
    return data.size;
}

static void peer_request(struct worker *worker, struct conn *conn) {
    buffer_clear(&worker->handshake);
    worker->options->peer->request(&worker->handshake, (unsigned)(conn - worker->conns),
                                   conn->last_seq);
    conn_send(worker, conn, buffer_slice(&worker->handshake));
}

static size_t peer_take(struct worker *worker, struct conn *conn, struct slice data) {
    const struct receiver_options *options = worker->options;
    struct receiver_frame frame = {FRAME_OTHER, 0};
    size_t size = options->peer->frame(data, &frame);
    if (size == 0)
        return 0;
    if (frame.kind == FRAME_ERROR)
        worker_fail(worker, "%.*s", (int)(data.size < 200 ? data.size : 200), data.data);
    if (frame.kind == FRAME_GREETING) {
        buffer_clear(&worker->handshake);
        options->peer->join(&worker->handshake, conn->last_seq);
        conn_send(worker, conn, buffer_slice(&worker->handshake));
    }
    if (frame.kind == FRAME_PING)
        conn_send(worker, conn, options->peer->pong);
    if (frame.kind == FRAME_READY && conn->state == CONN_SHAKING)
        conn_settle(worker, conn, CONN_READY);
    if (frame.kind == FRAME_EVENT) {
        uint64_t received = frame.number - options->after_seq;
        if (frame.number <= conn->last_seq)
            worker_fail(worker, "event %llu came after %llu", (unsigned long long)frame.number,
                        (unsigned long long)conn->last_seq);
        worker->shared->messages++;
        worker->shared->bytes += size;
        conn_advance(worker, conn, frame.number - 1, frame.number);
        if (options->peer->page > 0 && received % options->peer->page == 0 &&
            received < options->expected)
            peer_request(worker, conn);
    }
    return size;
}

static size_t conn_take(struct worker *worker, struct conn *conn, struct slice data) {
    if (worker->options->dialect == RECEIVER_RAW)
        return raw_take(worker, conn, data);
    if (worker->options->dialect == RECEIVER_PEER)
        return peer_take(worker, conn, data);
    if (conn->state == CONN_SHAKING)
        return handshake_take(worker, conn, data);
    if (worker->options->dialect == RECEIVER_SSE)
        return line_take(worker, conn, data);
    return frame_take(worker, conn, data);
}

static void carry_keep(struct worker *worker, struct conn *conn, struct slice rest) {
    if (rest.size > conn->carry_bytes || rest.size == 0) {
        free(conn->carry);
        conn->carry = rest.size > 0 ? malloc(rest.size) : NULL;
        if (rest.size > 0 && !conn->carry)
            worker_fail(worker, "out of memory");
    }
    if (rest.size > 0)
        memcpy(conn->carry, rest.data, rest.size);
    conn->carry_bytes = rest.size;
}

static void conn_readable(struct worker *worker, struct conn *conn) {
    size_t size = conn->carry_bytes;
    if (conn->state == CONN_ENDED)
        return;
    if (size > 0)
        memcpy(worker->memory, conn->carry, size);
    ssize_t got = recv(conn->fd, worker->memory + size, MEMORY_BYTES - size, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        conn_end(worker, conn, got == 0 ? "no close frame" : strerror(errno));
        return;
    }
    worker->now_ns = worker->options->due_ns ? bench_nanoseconds() : 0;
    struct slice rest = {worker->memory, size + (size_t)got};
    size_t taken;
    while (rest.size > 0 && conn->state != CONN_ENDED &&
           (taken = conn_take(worker, conn, rest)) > 0)
        rest = slice_from(rest, taken);
    if (conn->state != CONN_ENDED)
        carry_keep(worker, conn, rest);
}

/* ---- the process --------------------------------------------------------------------------- */

/* Each process binds addresses of its own network, so that no two use the same address and port. It
 * skips a port on which another program listens at every address. */
static void socket_bind(struct worker *worker, int fd) {
    unsigned pid = (unsigned)getpid();
    struct sockaddr_in from = {.sin_family = AF_INET};
    for (int tries = 0; tries < 100; tries++) {
        unsigned index = worker->next_port++;
        from.sin_addr.s_addr = htonl(127U << 24 | (1 + pid / 250 % 250) << 16 |
                                     (1 + pid % 250) << 8 | (1 + index / PORTS_PER_HOST));
        from.sin_port = htons((uint16_t)(PORT_FIRST + index % PORTS_PER_HOST));
        if (bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0)
            return;
    }
    worker_fail(worker, "cannot bind: %s", strerror(errno));
}

static int socket_connect(struct worker *worker) {
    int on = 1, small = 4096;
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(worker->options->port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        worker_fail(worker, "cannot open a socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (worker->options->stuck)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    socket_bind(worker, fd);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        worker_fail(worker, "cannot connect: %s", strerror(errno));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void conn_open(struct worker *worker) {
    unsigned index = worker->opened++;
    struct conn *conn = &worker->conns[index];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
    conn->fd = socket_connect(worker);
    conn->last_seq = worker->options->after_seq;
    epoll_ctl(worker->epoll, EPOLL_CTL_ADD, conn->fd, &event);
    if (worker->options->tokens)
        handshake_prepare(worker, worker->options->tokens[index]);
    if (worker->options->dialect == RECEIVER_RAW)
        conn_settle(worker, conn, CONN_READY);
    else if (worker->options->dialect == RECEIVER_PEER)
        peer_request(worker, conn);
    else
        conn_send(worker, conn, buffer_slice(&worker->handshake));
}

/* Sends as many heartbeats as needed for one per client and period. On a busy machine the process
 * may come late. */
static void heartbeats(struct worker *worker, double passed_s) {
    unsigned due = (unsigned)(worker->count * passed_s * 1e3 / worker->options->heartbeat_ms) + 1;
    for (unsigned i = 0; i < due && i < worker->opened; i++) {
        struct conn *conn = &worker->conns[worker->next_heartbeat++ % worker->opened];
        if (conn->state == CONN_READY)
            conn_send(worker, conn, buffer_slice(&worker->heartbeat));
    }
}

static void worker_init(struct worker *worker) {
    worker->epoll = epoll_create1(0);
    worker->conns = calloc(worker->count, sizeof(struct conn));
    worker->memory = malloc(MEMORY_BYTES);
    if (worker->epoll < 0 || !worker->conns || !worker->memory)
        worker_fail(worker, "out of memory");
    buffer_init(&worker->handshake, 16384);
    buffer_init(&worker->join, 4096);
    buffer_init(&worker->heartbeat, 256);
    ws_inflater_init(&worker->inflater);
    for (unsigned i = 0; i < CACHE_COUNT; i++) {
        buffer_init(&worker->cache[i].packed, MEMORY_BYTES);
        buffer_init(&worker->cache[i].plain, MEMORY_BYTES);
    }
    if (worker->options->dialect != RECEIVER_RAW && worker->options->dialect != RECEIVER_PEER) {
        if (!worker->options->tokens)
            handshake_prepare(worker, worker->options->token);
        join_prepare(worker);
    }
}

void receiver_process(const struct receiver_options *options, struct receiver_shared *shared,
                      unsigned count, int reached) {
    struct worker worker = {
        .options = options, .shared = shared, .count = count, .reached = reached};
    struct epoll_event events[256];
    double end = bench_seconds() + BENCH_SECONDS_MAX, tick = bench_seconds();
    worker_init(&worker);
    while (bench_seconds() < end) {
        while (worker.opened < count && worker.opened - worker.settled < OPENING_MAX)
            conn_open(&worker);
        int ready = epoll_wait(worker.epoll, events, 256, TICK_MS);
        for (int i = 0; i < ready; i++)
            conn_readable(&worker, &worker.conns[events[i].data.u32]);
        if (options->dialect == RECEIVER_PHOENIX && options->heartbeat_ms > 0 &&
            bench_seconds() - tick > TICK_MS / 1e3) {
            double now = bench_seconds();
            heartbeats(&worker, now - tick);
            tick = now;
        }
    }
    worker_fail(&worker, "timeout");
}
