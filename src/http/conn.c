#include "http/conn.h"

#include <assert.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/metrics.h"
#include "delivery/session.h"
#include "delivery/telemetry.h"
#include "http/admit/entitle.h"
#include "http/admit/open_once.h"
#include "http/admit/operator_key.h"
#include "http/admit/version_gate.h"
#include "http/route.h"
#include "server/server.h"

#define UNREAD_BYTES_MAX LOOP_READ_BYTES
/* One page of a streamed answer, or the largest event there can be. */
#define OUT_BYTES_MAX (64 << 20)
/* What a peer may still send while its last answer travels. */
#define LINGER_BYTES_MAX (4u << 20)
#define OPERATOR_PLACES  64

static void conn_consume(struct conn *conn, struct slice input);

static void set_state(struct conn *conn, enum conn_state state) {
    /* Which state may follow which, one row a state. */
    static const unsigned allowed[] = {
        [CONN_READING] = 1u << CONN_HANDLING | 1u << CONN_WRITING | 1u << CONN_STREAMING |
                         1u << CONN_LINGERING | 1u << CONN_CLOSED,
        [CONN_HANDLING] =
            1u << CONN_WRITING | 1u << CONN_STREAMING | 1u << CONN_PUSHING | 1u << CONN_CLOSED,
        [CONN_STREAMING] = 1u << CONN_READING | 1u << CONN_HANDLING | 1u << CONN_WRITING |
                           1u << CONN_LINGERING | 1u << CONN_CLOSED,
        [CONN_WRITING] = 1u << CONN_READING | 1u << CONN_LINGERING | 1u << CONN_CLOSED,
        [CONN_PUSHING] = 1u << CONN_LINGERING | 1u << CONN_CLOSED,
        [CONN_LINGERING] = 1u << CONN_CLOSED,
        [CONN_CLOSED] = 0,
    };
    assert(allowed[conn->state] & 1u << state);
    (void)allowed;
    conn->state = state;
}

static void on_closed(uv_handle_t *handle) {
    struct conn *conn = handle->data;
    struct io_loop *loop = conn->loop;
    if (conn->has_place)
        atomic_fetch_sub(&loop->server->conn_count, 1);
    /* Not before: a write under way reads it until libuv has cancelled the write. */
    buffer_release(&conn->out);
    transport_release(conn);
    if (conn->pushed)
        push_unref(conn->pushed);
    if (conn->session)
        session_free(conn->session);
    free(conn);
    io_loop_conn_closed(loop);
}

static void drop_exchange(struct conn *conn) {
    exchange_detach(conn->exchange);
    conn->exchange = NULL;
    conn->watches_end = false;
}

void conn_close(struct conn *conn) {
    if (conn->state == CONN_CLOSED)
        return;
    drop_exchange(conn);
    if (conn->session)
        session_disconnected(conn->session);
    set_state(conn, CONN_CLOSED);
    transport_close(conn);
    deadline_drop(&conn->deadline);
    if (conn->next)
        conn->next->previous = conn->previous;
    *(conn->previous ? &conn->previous->next : &conn->loop->conns) = conn->next;
    http1_parser_release(&conn->parser);
    buffer_release(&conn->unread);
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
}

/* Closing at once with bytes unread would make the kernel send a reset, which can overtake the
 * answer. So: end our side, and read on until the peer ends too, its time is up, or it has sent
 * more than anybody who listens would. */
void conn_linger(struct conn *conn) {
    set_state(conn, CONN_LINGERING);
    http1_parser_release(&conn->parser);
    buffer_release(&conn->unread);
    if (transport_end(conn))
        io_loop_deadline(conn->loop, &conn->deadline, DEADLINE_LINGER);
    else
        conn_close(conn);
}

static void conn_lingers(struct conn *conn, size_t size) {
    conn->lingered_bytes += size;
    if (conn->lingered_bytes > LINGER_BYTES_MAX)
        conn_close(conn);
}

static void conn_consume_unread(struct conn *conn) {
    if (conn->consuming)
        return;
    struct buffer unread = conn->unread;
    buffer_init(&conn->unread, UNREAD_BYTES_MAX);
    conn_consume(conn, buffer_slice(&unread));
    buffer_release(&unread);
}

/* The whole answer is out. */
static void conn_written(struct conn *conn) {
    drop_exchange(conn);
    buffer_release(&conn->out);
    if (!conn->keep_alive) {
        conn_linger(conn);
        return;
    }
    set_state(conn, CONN_READING);
    http1_finish(&conn->parser);
    conn_consume_unread(conn);
}

/* A stream's time runs only while the peer owes something: bytes of its body, or room for ours. A
 * piece's time runs from its beginning: who does not read cannot prolong it by sending. */
static void stream_deadline(struct conn *conn) {
    if (conn->sending)
        return;
    if (!conn->paused && !conn->body_done)
        io_loop_deadline(conn->loop, &conn->deadline, DEADLINE_REQUEST);
    else
        deadline_drop(&conn->deadline);
}

/* What was in conn->out is out; true when more of the answer may come. */
static bool conn_sent(struct conn *conn) {
    conn->sending = false;
    buffer_release(&conn->out);
    if (conn->ending) {
        conn_written(conn);
        return false;
    }
    stream_deadline(conn);
    return true;
}

static void conn_pushed(struct conn *conn) {
    push_unref(conn->pushed);
    conn->pushed = NULL;
    /* One that lingers has said its last words. */
    if (conn->state == CONN_PUSHING)
        session_writable(conn->session);
}

void conn_output_done(struct conn *conn, int error) {
    if (error != 0)
        conn_close(conn);
    else if (conn->pushed)
        conn_pushed(conn);
    else if (conn->state == CONN_WRITING)
        conn_written(conn);
    else if (conn_sent(conn))
        conn->exchange->stream->sent(conn->exchange);
}

static bool is_sent(const struct conn *conn, ssize_t done, size_t size) {
    return done == (ssize_t)size && transport_is_clear(conn);
}

/* True when all of conn->out went at once; else conn_output_done follows, or the connection is
 * closed. */
static bool conn_write(struct conn *conn) {
    struct slice whole = buffer_slice(&conn->out);
    ssize_t done = transport_try(conn, whole);
    if (is_sent(conn, done, whole.size))
        return true;
    if (done < 0) {
        conn_close(conn);
        return false;
    }
    io_loop_deadline(conn->loop, &conn->deadline, DEADLINE_REQUEST);
    if (!transport_write(conn, slice_from(whole, (size_t)done)))
        conn_close(conn);
    return false;
}

/* ---- sessions ---- */

/* A socket takes no more than this ahead of what the network has: a topic that floods would
 * otherwise put megabytes before the next frame of a quiet one. */
#define UNSENT_BYTES_MAX (256 << 10)

static void set_unsent_max(struct conn *conn, unsigned bytes) {
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)&conn->tcp, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes));
}

void conn_attach(struct conn *conn, struct session *session) {
    assert(!conn->session);
    drop_exchange(conn);
    set_state(conn, CONN_PUSHING);
    conn->session = session;
    deadline_drop(&conn->deadline);
    http1_parser_release(&conn->parser);
    set_unsent_max(conn, UNSENT_BYTES_MAX);
}

bool conn_has_unsent(const struct conn *conn) {
    int unsent = 0;
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&conn->tcp, &fd) == 0)
        (void)ioctl(fd, SIOCOUTQNSD, &unsent);
    return unsent > 0 || transport_unsent_bytes(conn) > 0;
}

void conn_reset(struct conn *conn) {
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&conn->tcp, &fd) == 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    conn_close(conn);
}

static struct conn *conn_of(struct outlet *outlet) {
    return (struct conn *)((char *)outlet - offsetof(struct conn, outlet));
}

static const struct conn *const_conn_of(const struct outlet *outlet) {
    return (const struct conn *)((const char *)outlet - offsetof(struct conn, outlet));
}

static enum outlet_result push_rest(struct conn *conn, struct push *push, size_t done) {
    conn->pushed = push;
    if (transport_write(conn, slice_from((struct slice){push->data, push->size}, done)))
        return OUTLET_BLOCKED;
    conn_close(conn);
    return OUTLET_CLOSED;
}

/* How many bytes were taken; negative: the peer is gone, and the connection is closed. */
static ssize_t push_now(struct conn *conn, struct slice bytes) {
    assert(conn->state == CONN_PUSHING && !conn->pushed);
    ssize_t done = transport_try(conn, bytes);
    if (done < 0)
        conn_close(conn);
    return done;
}

static enum outlet_result outlet_push(struct outlet *outlet, struct push *push) {
    struct conn *conn = conn_of(outlet);
    ssize_t done = push_now(conn, (struct slice){push->data, push->size});
    if (done >= 0 && !is_sent(conn, done, push->size))
        return push_rest(conn, push, (size_t)done);
    push_unref(push);
    return done < 0 ? OUTLET_CLOSED : OUTLET_SENT;
}

static enum outlet_result outlet_push_bytes(struct outlet *outlet, struct slice bytes) {
    struct conn *conn = conn_of(outlet);
    struct push *rest;
    ssize_t done = push_now(conn, bytes);
    if (done < 0)
        return OUTLET_CLOSED;
    if (is_sent(conn, done, bytes.size))
        return OUTLET_SENT;
    if (push_make(&rest, slice_from(bytes, (size_t)done)) == STATUS_OK)
        return push_rest(conn, rest, 0);
    conn_close(conn);
    return OUTLET_CLOSED;
}

static bool outlet_has_push(const struct outlet *outlet) {
    return const_conn_of(outlet)->pushed != NULL;
}

static size_t outlet_unsent_bytes(const struct outlet *outlet) {
    return transport_unsent_bytes(const_conn_of(outlet));
}

static bool outlet_has_unsent(const struct outlet *outlet) {
    return conn_has_unsent(const_conn_of(outlet));
}

static void outlet_lift_unsent_limit(struct outlet *outlet) {
    set_unsent_max(conn_of(outlet), UINT32_MAX);
}

static void outlet_pause_reading(struct outlet *outlet) {
    transport_read_stop(conn_of(outlet));
}

static void outlet_resume_reading(struct outlet *outlet) {
    struct conn *conn = conn_of(outlet);
    if (conn->state == CONN_PUSHING && !transport_read_start(conn))
        conn_close(conn);
}

static void outlet_set_deadline(struct outlet *outlet, enum deadline_kind kind) {
    struct conn *conn = conn_of(outlet);
    io_loop_deadline(conn->loop, &conn->deadline, kind);
}

static void outlet_linger(struct outlet *outlet) {
    conn_linger(conn_of(outlet));
}

static void outlet_close_conn(struct outlet *outlet) {
    conn_close(conn_of(outlet));
}

static void outlet_reset(struct outlet *outlet) {
    conn_reset(conn_of(outlet));
}

static struct slice outlet_peer(const struct outlet *outlet, char text[OUTLET_PEER_BYTES_MAX]) {
    _Static_assert(OUTLET_PEER_BYTES_MAX >= TRANSPORT_PEER_BYTES_MAX, "an address fits");
    return transport_peer(const_conn_of(outlet), text);
}

static const struct outlet_table conn_outlet = {
    .push = outlet_push,
    .push_bytes = outlet_push_bytes,
    .is_blocked = outlet_has_push,
    .unsent_bytes = outlet_unsent_bytes,
    .has_unsent = outlet_has_unsent,
    .lift_unsent_limit = outlet_lift_unsent_limit,
    .pause_reading = outlet_pause_reading,
    .resume_reading = outlet_resume_reading,
    .set_deadline = outlet_set_deadline,
    .linger = outlet_linger,
    .close = outlet_close_conn,
    .reset = outlet_reset,
    .peer = outlet_peer,
};

void conn_answered(struct conn *conn) {
    set_state(conn, CONN_WRITING);
    if (conn_write(conn))
        conn_written(conn);
}

void conn_stream(struct conn *conn) {
    if (conn->state == CONN_STREAMING)
        return;
    set_state(conn, CONN_STREAMING);
    conn->paused = conn->sending = conn->ending = false;
    conn->body_done = true;
}

bool conn_send(struct conn *conn) {
    assert(conn->state == CONN_STREAMING && !conn->sending);
    conn->sending = true;
    return conn_write(conn) && conn_sent(conn);
}

void conn_pause(struct conn *conn) {
    conn->paused = true;
    stream_deadline(conn);
}

void conn_resume(struct conn *conn) {
    if (!conn->paused)
        return;
    conn->paused = false;
    stream_deadline(conn);
    conn_consume_unread(conn);
}

static void answer_refused(struct exchange *exchange, enum status status) {
    if (version_gate_refuses(status))
        version_gate_answer(exchange, status);
    else
        exchange_answer_status(exchange, status);
}

/* The parser refused: answer what can be answered, interpret nothing more. */
static void conn_refuse(struct conn *conn, enum status status) {
    conn->keep_alive = false;
    if (!conn->exchange)
        conn->exchange = exchange_new(conn, NULL);
    /* An answer that has begun cannot turn into an error: it breaks off instead. */
    if (conn->exchange && conn->exchange->answered)
        telemetry_exchange_ended(conn->exchange, status);
    if (!conn->exchange || conn->exchange->answered) {
        conn_close(conn);
        return;
    }
    set_state(conn, CONN_HANDLING);
    answer_refused(conn->exchange, status);
}

static bool conn_wants_bytes(const struct conn *conn) {
    return conn->state == CONN_READING ||
           (conn->state == CONN_STREAMING && !conn->paused && !conn->body_done && !conn->ending);
}

static void answer_continue(struct conn *conn) {
    struct slice interim = SLICE("HTTP/1.1 100 Continue\r\n\r\n");
    /* 25 bytes into an empty socket; if even that is refused the peer is gone. */
    if (transport_try(conn, interim) != (ssize_t)interim.size)
        conn_close(conn);
}

/* The handler sees the head alone, and may refuse it; the body then comes in pieces. */
static void conn_begin_streaming(struct conn *conn) {
    set_state(conn, CONN_STREAMING);
    conn->paused = conn->body_done = conn->sending = conn->ending = false;
    conn->exchange->route->handle(conn->exchange);
}

/* A compressed batch would otherwise be as many bad items as it happens to have line ends. */
static bool is_encoded(const struct http1_request *request) {
    struct slice encoding;
    return http1_header_find(request, SLICE("content-encoding"), &encoding) &&
           !(encoding.size == strlen("identity") &&
             strncasecmp(encoding.data, "identity", encoding.size) == 0);
}

/* A chunked body does not say how long it is: where none is taken, it is refused by its being. */
static enum status conn_allow_body(struct conn *conn, const struct http1_request *request) {
    const struct route *route = conn->exchange->route;
    uint64_t body_bytes_max =
        route->flags & ROUTE_APPEND ? conn->loop->server->body_bytes_max : route->body_bytes_max;
    if (request->has_body && body_bytes_max == 0)
        return STATUS_PAYLOAD_TOO_LARGE;
    if (request->has_body && is_encoded(request))
        return STATUS_UNSUPPORTED_MEDIA_TYPE;
    return http1_allow_body(&conn->parser, body_bytes_max);
}

/* The operator key is the operator's own: in the header, never as a token nor beside one, and not
 * where the public comes in once operators have a listener of their own. */
static bool is_operator(const struct conn *conn, const struct http1_request *request) {
    const struct server *server = conn->loop->server;
    unsigned flags = conn->exchange->route->flags;
    bool is_taken_here = conn->is_operators || !*server->config.operator_bind.host;
    /* Who brings a token is who the token says. */
    return flags & ROUTE_TOKEN_OR_OPERATOR && is_taken_here && !gate_has_token(request) &&
           operator_key_check(&server->operator_key, request) == STATUS_OK;
}

static enum status admit_reader(struct conn *conn, const struct http1_request *request) {
    struct gate *gate = &conn->loop->server->gate;
    struct exchange *exchange = conn->exchange;
    if (is_operator(conn, request)) {
        exchange->principal = &principal_operator;
        return STATUS_OK;
    }
    struct token_bearer bearer = {0};
    enum status status = gate_check_origin(gate, request);
    if (status == STATUS_OK)
        status = gate_admit(gate, request, clock_wall_ms(&conn->loop->clock), &exchange->principal,
                            &bearer);
    if (bearer.size > 0)
        exchange->bearer = strndup(bearer.name, bearer.size);
    return status;
}

/* The operator's own tools are no clients that could be too old. */
static bool has_versions(const struct exchange *exchange) {
    unsigned flags = exchange->route->flags;
    return flags & (ROUTE_TOKEN | ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOKEN_IN_FIRST_MESSAGE) &&
           !(flags & ROUTE_VERSION_AT_JOIN) && exchange->principal != &principal_operator;
}

static enum status conn_admit(struct conn *conn, const struct http1_request *request) {
    unsigned flags = conn->exchange->route->flags;
    if (flags & ROUTE_OPERATOR && !(conn->is_operators && flags & ROUTE_KEYLESS))
        return operator_key_check(&conn->loop->server->operator_key, request);
    enum status status = STATUS_OK;
    if (flags & (ROUTE_TOKEN | ROUTE_TOKEN_OR_OPERATOR))
        status = admit_reader(conn, request);
    else if (flags & ROUTE_TOKEN_IN_FIRST_MESSAGE)
        status = gate_check_origin(&conn->loop->server->gate, request);
    return status == STATUS_OK && has_versions(conn->exchange) ? version_gate_check(conn->exchange)
                                                               : status;
}

/* Finds the route before any of the body is taken. */
static void conn_head(struct conn *conn) {
    const struct http1_request *request = http1_parser_request(&conn->parser);
    conn->exchange = exchange_new(conn, request);
    if (!conn->exchange) {
        conn_close(conn);
        return;
    }
    conn->keep_alive = request->keep_alive && !atomic_load(&conn->loop->server->draining);
    enum status status = route_find(conn->exchange);
    if (status == STATUS_OK)
        status = conn_admit(conn, request);
    if (status == STATUS_OK)
        status = conn_allow_body(conn, request);
    if (status == STATUS_OK) {
        bool expects = request->expect_continue;
        if (conn->exchange->route->flags & ROUTE_STREAM)
            conn_begin_streaming(conn);
        if (expects && conn_wants_bytes(conn))
            answer_continue(conn);
        return;
    }
    /* A body nobody wants is not read: the connection ends instead. */
    if (request->has_body)
        conn_refuse(conn, status);
    else
        conn->exchange->refused = status;
}

/* Skew lets a token in a little after its end, which is no use to what would end with it. */
static bool opens_too_late(const struct exchange *exchange) {
    return exchange->route->flags & ROUTE_STAYS_OPEN &&
           principal_is_expired(exchange->principal, clock_wall_ms(&exchange->loop->clock));
}

/* Who may not read what the route reads does not come as far as its handler. */
static void conn_dispatch(struct exchange *exchange) {
    const struct route *route = exchange->route;
    bool is_once = route->flags & ROUTE_STAYS_OPEN && exchange->loop->config->token_single_use;
    void (*handle)(struct exchange *) = is_once ? open_once : route->handle;
    if (opens_too_late(exchange))
        exchange_answer_status(exchange, STATUS_TOKEN_EXPIRED);
    else if (route->flags & ROUTE_AUDIT)
        entitle(exchange, topic_name(TOPIC_AUDIT), handle);
    else if (!(route->flags & ROUTE_TOPIC))
        handle(exchange);
    else if (topic_name_check(exchange->parameters[0]) == STATUS_OK)
        entitle(exchange, exchange->parameters[0], handle);
    else
        exchange_answer_status(exchange, STATUS_INVALID_TOPIC);
}

static void conn_request_done(struct conn *conn) {
    struct exchange *exchange = conn->exchange;
    deadline_drop(&conn->deadline);
    set_state(conn, CONN_HANDLING);
    if (exchange->refused != STATUS_OK)
        answer_refused(exchange, exchange->refused);
    else
        conn_dispatch(exchange);
}

static void stream_event(struct conn *conn, const struct http1_event *event) {
    struct exchange *exchange = conn->exchange;
    if (event->kind == HTTP1_EVENT_BODY) {
        stream_deadline(conn);
        exchange->stream->body(exchange, event->piece);
    } else if (event->kind == HTTP1_EVENT_DONE) {
        conn->body_done = true;
        stream_deadline(conn);
        exchange->stream->body_end(exchange);
    }
}

static void conn_event(struct conn *conn, const struct http1_event *event) {
    if (conn->state == CONN_STREAMING) {
        stream_event(conn, event);
        return;
    }
    switch (event->kind) {
    case HTTP1_EVENT_MORE:
        return;
    case HTTP1_EVENT_HEAD:
        conn_head(conn);
        return;
    case HTTP1_EVENT_BODY: {
        enum status status = buffer_append_slice(&conn->exchange->body, event->piece);
        if (status != STATUS_OK)
            conn_refuse(conn, status);
        return;
    }
    case HTTP1_EVENT_DONE:
        conn_request_done(conn);
        return;
    }
}

static void conn_keep_unread(struct conn *conn, struct slice input) {
    if (conn->watches_end && input.size == 0 && conn->unread.size == 0) {
        if (!transport_read_start(conn))
            conn_close(conn);
        return;
    }
    transport_read_stop(conn);
    if (input.size > 0 && buffer_append_slice(&conn->unread, input) != STATUS_OK)
        conn_close(conn);
}

void conn_watch_end(struct conn *conn) {
    conn->watches_end = true;
    if (!conn->consuming)
        conn_keep_unread(conn, (struct slice){NULL, 0});
}

static bool is_idle(const struct conn *conn) {
    return conn->state == CONN_READING && http1_parser_bytes(&conn->parser) == 0 &&
           transport_is_open(conn);
}

/* A server that ends does not wait long for who has not even said what it wants. */
static enum deadline_kind await_kind(const struct conn *conn) {
    if (is_idle(conn))
        return DEADLINE_IDLE;
    return conn->loop->state == LOOP_SERVING || conn->exchange ? DEADLINE_REQUEST : DEADLINE_LINGER;
}

/* A request's time begins with its first byte and is not prolonged by the next ones, so that one
 * byte a second does not hold a connection for ever. */
static void conn_await(struct conn *conn) {
    enum deadline_kind kind = await_kind(conn);
    bool is_over = kind == DEADLINE_IDLE && conn->loop->state != LOOP_SERVING;
    if (is_over || !transport_read_start(conn))
        conn_close(conn);
    else if (conn->deadline.at_ms == 0 || conn->deadline.kind != kind)
        io_loop_deadline(conn->loop, &conn->deadline, kind);
}

/* What came behind the request is the session's already. */
static void conn_pushing(struct conn *conn, struct slice input) {
    if (!transport_read_start(conn))
        conn_close(conn);
    else if (input.size > 0)
        session_received(conn->session, input);
}

/* Reading stopped when the request had to wait; a session reads on, from what came meanwhile. */
void conn_handle(struct exchange *exchange, void (*handle)(struct exchange *exchange)) {
    struct conn *conn = exchange->conn;
    handle(exchange);
    if (conn->consuming || conn->state != CONN_PUSHING)
        return;
    struct buffer unread = conn->unread;
    buffer_init(&conn->unread, UNREAD_BYTES_MAX);
    conn_pushing(conn, buffer_slice(&unread));
    buffer_release(&unread);
}

static void conn_consume(struct conn *conn, struct slice input) {
    struct http1_event event = {HTTP1_EVENT_BODY, {NULL, 0}};
    conn->consuming = true;
    while (conn_wants_bytes(conn) && event.kind != HTTP1_EVENT_MORE) {
        enum status status = http1_next(&conn->parser, &input, &event);
        if (status != STATUS_OK)
            conn_refuse(conn, status);
        else
            conn_event(conn, &event);
    }
    conn->consuming = false;
    if (conn_wants_bytes(conn))
        conn_await(conn);
    else if (conn->state == CONN_PUSHING)
        conn_pushing(conn, input);
    else if (conn->state != CONN_LINGERING && conn->state != CONN_CLOSED)
        conn_keep_unread(conn, input);
}

void conn_received(struct conn *conn, struct slice input) {
    if (conn->state == CONN_LINGERING)
        conn_lingers(conn, input.size);
    else if (conn->state == CONN_PUSHING)
        session_received(conn->session, input);
    else
        conn_consume(conn, input);
}

void conn_opened(struct conn *conn) {
    conn_await(conn);
}

/* Counts first, so that loops that accept at the same time cannot exceed the maximum together. */
static bool take_place(struct io_loop *loop, bool is_operators) {
    struct server *server = loop->server;
    size_t count_max = server->config.connections_max + (is_operators ? OPERATOR_PLACES : 0);
    bool taken = atomic_fetch_add(&server->conn_count, 1) < count_max;
    metrics_add(taken ? METRIC_HTTP_CONNECTIONS_ACCEPTED : METRIC_HTTP_CONNECTIONS_REFUSED,
                METRIC_PLAIN, 1);
    if (!taken)
        atomic_fetch_sub(&server->conn_count, 1);
    /* One line for a flood of them. */
    if (!taken && !loop->refusing)
        log_event(LOG_WARN, "accept.refused",
                  log_int("connections_max", (int64_t)server->config.connections_max));
    loop->refusing = !taken;
    return taken;
}

static void accept_from(struct io_loop *loop, uv_tcp_t *listener, bool *owed) {
    struct conn *conn = calloc(1, sizeof(*conn));
    *owed = conn == NULL;
    if (!conn) {
        log_event(LOG_ERROR, "accept.no_memory", log_int("connections", (int64_t)loop->conn_count));
        return;
    }
    conn->loop = loop;
    conn->outlet.table = &conn_outlet;
    conn->next = loop->conns;
    if (loop->conns)
        loop->conns->previous = conn;
    loop->conns = conn;
    loop->conn_count++;
    conn->is_operators = listener == &loop->operator_listener;
    conn->has_place = take_place(loop, conn->is_operators);
    http1_parser_init(&conn->parser, &loop->limits);
    buffer_init(&conn->unread, UNREAD_BYTES_MAX);
    buffer_init(&conn->out, OUT_BYTES_MAX);
    uv_tcp_init(&loop->uv, &conn->tcp);
    conn->tcp.data = conn;
    if (uv_accept((uv_stream_t *)listener, (uv_stream_t *)&conn->tcp) != 0 || !conn->has_place ||
        (loop->server->tls && transport_secure(conn, loop->server->tls) != STATUS_OK)) {
        conn_close(conn);
        return;
    }
    uv_tcp_nodelay(&conn->tcp, 1);
    conn_await(conn);
}

void conn_accept(struct io_loop *loop) {
    accept_from(loop, &loop->listener, &loop->accept_owed);
}

void conn_accept_operator(struct io_loop *loop) {
    accept_from(loop, &loop->operator_listener, &loop->operator_accept_owed);
}

struct conn *conn_of_deadline(struct deadline *deadline) {
    return (struct conn *)((char *)deadline - offsetof(struct conn, deadline));
}

void conn_expired(struct conn *conn) {
    if (conn->state == CONN_PUSHING) {
        session_expired(conn->session, conn->deadline.kind);
        return;
    }
    bool arriving =
        conn->state == CONN_STREAMING || (conn->state == CONN_READING && !is_idle(conn));
    /* Who has not got as far as TLS would not understand. */
    if (arriving && transport_is_open(conn))
        conn_refuse(conn, STATUS_REQUEST_TIMEOUT);
    else
        conn_close(conn);
}

/* A request that has come as far as this machine is under way, read or not. */
static bool has_unread(const struct conn *conn) {
    int bytes = 0;
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&conn->tcp, &fd) == 0)
        (void)ioctl(fd, FIONREAD, &bytes);
    return bytes > 0;
}

void conn_drain_all(struct io_loop *loop) {
    for (struct conn *conn = loop->conns, *next; conn; conn = next) {
        next = conn->next;
        conn->keep_alive = false;
        if ((is_idle(conn) && !has_unread(conn)) || !transport_is_open(conn))
            conn_close(conn);
        else if (conn->state == CONN_PUSHING)
            session_drain(conn->session);
        else if (conn->exchange && conn->exchange->drain)
            conn->exchange->drain(conn->exchange);
        else if (conn->state == CONN_READING && !is_idle(conn))
            conn_await(conn);
    }
}

void conn_close_all(struct io_loop *loop) {
    while (loop->conns)
        conn_close(loop->conns);
}
