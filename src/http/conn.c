/* A connection is a state machine (set_state) over a transport:
 *
 *   READING ──request──▶ HANDLING ──answer──▶ WRITING ──written──▶ READING, or LINGERING ──▶ CLOSED
 *      │                    └──upgrade──▶ PUSHING (a session)
 *      └──ROUTE_STREAM──▶ STREAMING: the body and the answer in pieces, at the same time
 *
 * conn_consume passes input to the parser while the state wants bytes. What arrives meanwhile is
 * kept, up to CONN_UNREAD_BYTES_MAX, and consumed when the answer is written. Each state in which
 * the peer must act has a deadline; a state in which the server must act has none, but may watch
 * for the end of the peer. Closing is a state: the memory is freed when the transport has closed.
 */
#include "http/conn.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "base/metrics.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_events.h"

/* A peer that has closed its side gets this many checks, five seconds: it may still read. */
#define PEER_END_CHECKS_MAX 20
/* Every fourth check, once a second, sends bytes: a peer that is gone answers them with a reset. */
#define PEER_PROBE_CHECKS 4
/* Clients take chunk sizes of sixteen digits. Ours have at most eight. */
#define CHUNK_ZEROS_MAX 8

static void conn_consume(struct conn *conn, struct slice input);

/* Requests of one read that are answered at once; later ones wait for the next turn of the loop, so
 * that a peer that sends many requests ahead delays no other. */
#define REQUESTS_PER_TURN 8

/* ---- states ---- */

static void set_state(struct conn *conn, enum conn_state state) {
    /* The legal next states of each state. */
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
    /* A peer that has reset the connection reads no answer, so a large body that it left in the
     * kernel is dropped. */
    if ((conn->state == CONN_STREAMING) != (state == CONN_STREAMING) && state != CONN_CLOSED)
        transport_drop_at_reset(&conn->transport, state == CONN_STREAMING);
    conn->state = state;
}

static const struct conn_events *events_of(const struct conn *conn) {
    return conn_loop(conn)->http->conn_events;
}

static void set_deadline(struct conn *conn, enum deadline_kind kind) {
    io_loop_deadline(conn_io(conn), &conn->deadline, kind);
}

/* An unread answer gets a new deadline while the peer reads. */
static void set_unread_deadline(struct conn *conn) {
    conn->http->unread_bytes = transport_unread_bytes(&conn->transport);
    set_deadline(conn, DEADLINE_UNREAD);
}

static struct conn *conn_of(struct transport *transport) {
    return container_of(transport, struct conn, transport);
}

/* ---- memory for requests ---- */

struct conn_http *conn_http_new(const struct http1_limits *limits) {
    struct conn_http *http = calloc(1, sizeof(*http));
    if (!http)
        return NULL;
    http1_parser_init(&http->parser, limits);
    buffer_init(&http->unread, CONN_UNREAD_BYTES_MAX);
    buffer_init(&http->out, CONN_OUT_BYTES_MAX);
    return http;
}

/* No further request is read; the answer may still be sent. Does nothing for NULL. */
static void release_input(struct conn_http *http) {
    if (!http)
        return;
    http1_parser_release(&http->parser);
    buffer_release(&http->unread);
}

void conn_http_free(struct conn_http *http) {
    release_input(http);
    if (http)
        buffer_release(&http->out);
    free(http);
}

/* ---- closing ---- */

static void on_closed(struct transport *transport) {
    struct conn *conn = conn_of(transport);
    struct http_loop *loop = conn_loop(conn);
    conn_http_free(conn->http);
    if (conn->pushed)
        push_unref(conn->pushed);
    if (conn->session)
        session_free(conn->session);
    slab_give(&loop->conn_memory, conn);
    atomic_fetch_sub(&loop->conn_count, 1);
    io_loop_release(loop->io);
}

static void drop_exchange(struct conn *conn) {
    struct exchange *exchange = conn->exchange;
    conn->exchange = NULL;
    conn->watches_end = false;
    conn->peer_check_count = 0;
    if (exchange)
        events_of(conn)->detach(exchange);
}

void conn_close(struct conn *conn) {
    if (conn->state == CONN_CLOSED)
        return;
    drop_exchange(conn);
    if (conn->session)
        session_disconnected(conn->session);
    set_state(conn, CONN_CLOSED);
    transport_close(&conn->transport);
    deadline_drop(&conn->deadline);
    /* Another connection may have the descriptor now. */
    conn_ticket_return(&conn->ticket);
    conn_share_return_principal(&conn_loop(conn)->http->conn_shares, &conn->principal_share);
    conn_share_return(&conn_loop(conn)->http->conn_shares, &conn->address_share);
    list_remove(&conn->node);
    release_input(conn->http);
}

void conn_reset(struct conn *conn) {
    transport_reset_on_close(&conn->transport);
    conn_close(conn);
}

bool conn_has_unsent(const struct conn *conn) {
    return transport_has_unsent(&conn->transport);
}

/* Closing at once with bytes unread would make the kernel send a reset, which can overtake the
 * answer. So our side ends, and the connection reads until the peer closes too, the deadline
 * passes, or the peer has sent too much. */
void conn_linger(struct conn *conn) {
    set_state(conn, CONN_LINGERING);
    release_input(conn->http);
    if (transport_end(&conn->transport))
        set_deadline(conn, DEADLINE_LINGER);
    else
        conn_close(conn);
}

/* ---- writing ---- */

static void conn_consume_unread(struct conn *conn) {
    if (conn->is_consuming)
        return;
    struct buffer unread = conn->http->unread;
    buffer_init(&conn->http->unread, CONN_UNREAD_BYTES_MAX);
    conn_consume(conn, buffer_slice(&unread));
    buffer_release(&unread);
}

/* The whole answer is written. */
static void conn_written(struct conn *conn) {
    drop_exchange(conn);
    buffer_release(&conn->http->out);
    if (!conn->keep_alive) {
        conn_linger(conn);
        return;
    }
    set_state(conn, CONN_READING);
    http1_finish(&conn->http->parser);
    conn_consume_unread(conn);
}

static bool has_deadline(const struct conn *conn, enum deadline_kind kind) {
    return conn->deadline.at_ms != 0 && conn->deadline.kind == kind;
}

/* The deadline of a stream runs only while the peer must act: send its body, or read the answer.
 * While the body is read, the answer may wait: most clients read only after they have sent. A
 * deadline that runs already is kept. */
static void stream_deadline(struct conn *conn) {
    bool awaits_body = !conn->is_paused && !conn->is_body_done;
    enum deadline_kind kind = awaits_body ? DEADLINE_REQUEST : DEADLINE_UNREAD;
    if (!awaits_body && !conn->is_sending) {
        deadline_drop(&conn->deadline);
    } else if (!has_deadline(conn, kind)) {
        conn->http->fresh_body_bytes = 0;
        awaits_body ? set_deadline(conn, kind) : set_unread_deadline(conn);
    }
}

void conn_renew_deadline(struct conn *conn) {
    if (conn->state != CONN_STREAMING)
        return;
    if (has_deadline(conn, DEADLINE_REQUEST))
        deadline_drop(&conn->deadline);
    stream_deadline(conn);
}

/* The bytes of http->out are written. True when more of the answer may follow. */
static bool conn_sent(struct conn *conn) {
    conn->is_sending = false;
    conn->peer_check_count = 0;
    conn->http->chunk_zeros = 0;
    buffer_release(&conn->http->out);
    if (conn->is_last_piece) {
        conn_written(conn);
        return false;
    }
    stream_deadline(conn);
    return true;
}

static void on_written(struct transport *transport, int error) {
    struct conn *conn = conn_of(transport);
    if (error != 0)
        conn_close(conn);
    else if (conn->pushed) {
        push_unref(conn->pushed);
        conn->pushed = NULL;
        /* A connection that lingers has sent its last message. */
        if (conn->state == CONN_PUSHING)
            session_writable(conn->session);
    } else if (conn->state == CONN_WRITING)
        conn_written(conn);
    else if (conn_sent(conn)) {
        /* The socket was full, so the peer has read: it may read before it sends more. */
        conn_renew_deadline(conn);
        events_of(conn)->sent(conn);
    }
}

/* True when all of http->out was written at once; else on_written follows, or the connection is
 * closed. */
static bool conn_write(struct conn *conn) {
    struct slice whole = buffer_slice(&conn->http->out);
    conn->http->written_bytes += whole.size;
    conn->has_large_answer = conn->has_large_answer || whole.size > UNREAD_ANSWER_BYTES_MIN;
    ssize_t done = transport_try(&conn->transport, whole);
    if (transport_took_all(&conn->transport, done, whole.size))
        return true;
    if (done < 0) {
        conn_close(conn);
        return false;
    }
    /* The write shows whether the peer is gone. A half-closed peer gets its whole answer. */
    if (conn->watches_end)
        transport_read_stop(&conn->transport);
    conn->watches_end = false;
    if (!transport_write(&conn->transport, slice_from(whole, (size_t)done)))
        conn_close(conn);
    else if (conn->state == CONN_STREAMING)
        stream_deadline(conn);
    else
        set_unread_deadline(conn);
    return false;
}

void conn_answer(struct conn *conn) {
    set_state(conn, CONN_WRITING);
    if (conn_write(conn))
        conn_written(conn);
}

void conn_stream(struct conn *conn, bool is_chunked) {
    conn->is_chunked = is_chunked;
    if (conn->state == CONN_STREAMING)
        return;
    set_state(conn, CONN_STREAMING);
    conn->is_paused = conn->is_sending = conn->is_last_piece = false;
    conn->is_body_done = true;
}

bool conn_send(struct conn *conn) {
    assert(conn->state == CONN_STREAMING && !conn->is_sending);
    conn->is_sending = true;
    return conn_write(conn) && conn_sent(conn);
}

/* ---- reading ---- */

static bool conn_wants_bytes(const struct conn *conn) {
    return conn->state == CONN_READING || (conn->state == CONN_STREAMING && !conn->is_paused &&
                                           !conn->is_body_done && !conn->is_last_piece);
}

enum status conn_allow_body(struct conn *conn, uint64_t bytes_max) {
    return http1_allow_body(&conn->http->parser, bytes_max);
}

/* The socket is empty here, so it takes these few bytes unless the peer is gone. */
static void send_interim(struct conn *conn, struct slice interim) {
    if (transport_try(&conn->transport, interim) != (ssize_t)interim.size)
        conn_close(conn);
}

void conn_continue(struct conn *conn) {
    if (conn_wants_bytes(conn))
        send_interim(conn, SLICE("HTTP/1.1 100 Continue\r\n\r\n"));
}

void conn_set_handling(struct conn *conn) {
    set_state(conn, CONN_HANDLING);
}

void conn_delay(struct conn *conn, uint64_t delay_ms) {
    assert(conn->state == CONN_HANDLING);
    io_loop_deadline_in(conn_io(conn), &conn->deadline, DEADLINE_DELAY, delay_ms);
}

void conn_delayed(struct deadline *deadline) {
    struct conn *conn = container_of(deadline, struct conn, deadline);
    events_of(conn)->delayed(conn);
}

void conn_stream_body(struct conn *conn) {
    set_state(conn, CONN_STREAMING);
    conn->is_paused = conn->is_body_done = conn->is_sending = conn->is_last_piece = false;
    conn->is_chunked = false;
}

void conn_pause(struct conn *conn) {
    conn->is_paused = true;
    stream_deadline(conn);
}

void conn_resume(struct conn *conn) {
    if (!conn->is_paused)
        return;
    conn->is_paused = false;
    stream_deadline(conn);
    conn_consume_unread(conn);
}

/* The parser refused the request. It is answered if possible, and no more input is parsed. */
static void conn_refuse(struct conn *conn, enum status status) {
    conn->keep_alive = false;
    events_of(conn)->refused(conn, status);
}

static void conn_event(struct conn *conn, const struct http1_event *event) {
    bool is_stream = conn->state == CONN_STREAMING;
    switch (event->kind) {
    case HTTP1_EVENT_MORE:
        return;
    case HTTP1_EVENT_HEAD:
        conn->has_head = true;
        events_of(conn)->head(conn, http1_parser_request(&conn->http->parser));
        return;
    case HTTP1_EVENT_BODY:
        /* A body must arrive at a minimum rate: single bytes do not prolong its deadline. */
        if (is_stream) {
            conn->http->fresh_body_bytes += event->piece.size;
            if (conn->http->fresh_body_bytes >= CONN_BODY_BYTES_MIN)
                conn_renew_deadline(conn);
        }
        events_of(conn)->body(conn, event->piece);
        return;
    case HTTP1_EVENT_DONE:
        if (is_stream) {
            conn->is_body_done = true;
            stream_deadline(conn);
        } else {
            deadline_drop(&conn->deadline);
        }
        events_of(conn)->request(conn);
        return;
    }
}

/* The peer has closed its side while its answer is due, or there is no room to read on until its
 * end. Only checks can show now that it is gone. */
static void check_peer_later(struct conn *conn) {
    transport_read_stop(&conn->transport);
    if (conn->deadline.at_ms == 0)
        set_deadline(conn, DEADLINE_PEER_CHECK);
}

/* Between two chunks of an answer, a zero begins the size of the next one. */
void conn_probe_chunked(struct conn *conn) {
    bool is_between = conn->state == CONN_STREAMING && conn->is_chunked && !conn->is_sending &&
                      conn->http->out.size == 0;
    if (!is_between || conn->http->chunk_zeros == CHUNK_ZEROS_MAX ||
        transport_unread_bytes(&conn->transport) > 0)
        return;
    conn->http->chunk_zeros++;
    send_interim(conn, SLICE("0"));
}

/* A peer that has closed both sides answers bytes with a reset. Every HTTP/1.1 client accepts an
 * interim answer. Bytes that the peer has not confirmed are such a test already. */
static void probe_peer(struct conn *conn, enum transport_peer_state peer) {
    const struct http1_request *request = http1_parser_request(&conn->http->parser);
    if (conn->state == CONN_STREAMING && peer == TRANSPORT_PEER_ENDED)
        conn_probe_chunked(conn);
    else if (conn->state == CONN_HANDLING && request && request->version_minor > 0 &&
             transport_unread_bytes(&conn->transport) == 0)
        send_interim(conn, SLICE("HTTP/1.1 100 Continue\r\n\r\n"));
}

void conn_peer_check(struct deadline *deadline) {
    struct conn *conn = container_of(deadline, struct conn, deadline);
    bool is_due = conn->state == CONN_HANDLING || conn->state == CONN_STREAMING;
    if (!conn->watches_end || !is_due)
        return;
    enum transport_peer_state peer = transport_peer_state(&conn->transport);
    if (peer == TRANSPORT_PEER_PRESENT)
        conn->peer_check_count %= PEER_PROBE_CHECKS;
    if (peer == TRANSPORT_PEER_GONE || conn->peer_check_count >= PEER_END_CHECKS_MAX) {
        conn_close(conn);
        return;
    }
    if (conn->peer_check_count++ % PEER_PROBE_CHECKS == 0)
        probe_peer(conn, peer);
    if (conn->state != CONN_CLOSED)
        check_peer_later(conn);
}

/* The end of the peer comes after its bytes, so they are read too, while there is room. */
static void conn_keep_unread(struct conn *conn, struct slice input) {
    if (input.size > 0 && buffer_append_slice(&conn->http->unread, input) != STATUS_OK) {
        conn_close(conn);
        return;
    }
    size_t room = CONN_UNREAD_BYTES_MAX - conn->http->unread.size;
    if (!conn->watches_end)
        transport_read_stop(&conn->transport);
    else if (room < TRANSPORT_READ_BYTES_MIN ||
             !transport_read_start_within(&conn->transport, room))
        check_peer_later(conn);
}

void conn_watch_end(struct conn *conn) {
    conn->watches_end = true;
    if (!conn->is_consuming)
        conn_keep_unread(conn, (struct slice){NULL, 0});
}

static bool is_idle(const struct conn *conn) {
    return conn->state == CONN_READING && http1_parser_bytes(&conn->http->parser) == 0 &&
           conn->http->unread.size == 0 && transport_is_open(&conn->transport);
}

/* A server that drains does not wait long for a client that has not sent its request head. The
 * first head has one deadline from the start of the connection, whatever the peer sends of it. */
static enum deadline_kind await_kind(const struct conn *conn) {
    if (conn_io(conn)->state != LOOP_SERVING && !conn->exchange)
        return DEADLINE_LINGER;
    if (!conn->has_head)
        return DEADLINE_FIRST;
    if (!is_idle(conn))
        return DEADLINE_REQUEST;
    return conn->has_large_answer ? DEADLINE_UNREAD : DEADLINE_IDLE;
}

/* The deadline of a request runs from its first byte. Later bytes do not prolong it, so that a
 * client that sends one byte a second cannot hold a connection for ever. */
static void conn_await(struct conn *conn) {
    enum deadline_kind kind = await_kind(conn);
    bool is_over = is_idle(conn) && conn_io(conn)->state != LOOP_SERVING;
    if (is_over || !transport_read_start(&conn->transport))
        conn_close(conn);
    else if (conn->deadline.at_ms == 0 || conn->deadline.kind != kind)
        kind == DEADLINE_UNREAD ? set_unread_deadline(conn) : set_deadline(conn, kind);
}

/* Bytes after the request that opened a session belong to the session. */
static void session_read(struct conn *conn, struct slice input) {
    conn_http_free(conn->http);
    conn->http = NULL;
    bool is_reading = transport_read_start(&conn->transport);
    if (input.size > 0)
        session_received(conn->session, input);
    /* The peer has sent its last bytes. */
    if (!is_reading && conn->state == CONN_PUSHING)
        conn_close(conn);
}

void conn_handled_late(struct conn *conn) {
    if (conn->is_consuming || conn->state != CONN_PUSHING)
        return;
    struct buffer unread = conn->http->unread;
    buffer_init(&conn->http->unread, CONN_UNREAD_BYTES_MAX);
    session_read(conn, buffer_slice(&unread));
    buffer_release(&unread);
}

static void conn_consume(struct conn *conn, struct slice input) {
    struct http1_event event = {HTTP1_EVENT_BODY, {NULL, 0}};
    unsigned requests_left = REQUESTS_PER_TURN;
    conn->is_consuming = true;
    while (conn_wants_bytes(conn) && event.kind != HTTP1_EVENT_MORE && requests_left > 0) {
        enum status status = http1_next(&conn->http->parser, &input, &event);
        requests_left -= event.kind == HTTP1_EVENT_DONE;
        if (status != STATUS_OK)
            conn_refuse(conn, status);
        else
            conn_event(conn, &event);
    }
    conn->is_consuming = false;
    if (conn->state == CONN_READING && requests_left == 0 && input.size > 0) {
        conn_keep_unread(conn, input);
        if (conn->state == CONN_READING)
            set_deadline(conn, DEADLINE_TURN);
    } else if (conn_wants_bytes(conn))
        conn_await(conn);
    else if (conn->state == CONN_PUSHING)
        session_read(conn, input);
    else if (conn->state != CONN_LINGERING && conn->state != CONN_CLOSED)
        conn_keep_unread(conn, input);
}

static void on_received(struct transport *transport, struct slice input) {
    struct conn *conn = conn_of(transport);
    conn_ticket_touch(&conn->ticket, clock_mono_ms(&conn_io(conn)->clock));
    if (conn->state == CONN_PUSHING) {
        session_received(conn->session, input);
    } else if (conn->state != CONN_LINGERING) {
        conn_consume(conn, input);
    } else {
        conn->lingered_bytes += (uint32_t)input.size;
        if (conn->lingered_bytes > CONN_LINGER_BYTES_MAX)
            conn_close(conn);
    }
}

static void on_opened(struct transport *transport) {
    struct conn *conn = conn_of(transport);
    conn_ticket_touch(&conn->ticket, clock_mono_ms(&conn_io(conn)->clock));
    conn_await(conn);
}

static void on_ended(struct transport *transport) {
    struct conn *conn = conn_of(transport);
    bool is_due = conn->state == CONN_HANDLING || conn->state == CONN_STREAMING;
    if (conn->watches_end && is_due)
        check_peer_later(conn);
    else
        conn_close(conn);
}

static void on_lost(struct transport *transport) {
    conn_close(conn_of(transport));
}

static void on_handshake_failed(struct transport *transport) {
    conn_linger(conn_of(transport));
}

const struct transport_events conn_transport_events = {
    .opened = on_opened,
    .received = on_received,
    .written = on_written,
    .ended = on_ended,
    .lost = on_lost,
    .handshake_failed = on_handshake_failed,
    .closed = on_closed,
};

/* ---- sessions ---- */

void conn_start_session(struct conn *conn, struct session *session) {
    assert(!conn->session);
    drop_exchange(conn);
    set_state(conn, CONN_PUSHING);
    conn->session = session;
    deadline_drop(&conn->deadline);
    http1_parser_release(&conn->http->parser);
}

/* ---- the beginning ---- */

void conn_start(struct conn *conn) {
    conn_await(conn);
}

/* ---- time and the end ---- */

void conn_expired(struct deadline *deadline) {
    struct conn *conn = container_of(deadline, struct conn, deadline);
    if (conn->state == CONN_PUSHING) {
        session_expired(conn->session, conn->deadline.kind);
        return;
    }
    bool is_arriving =
        conn->state == CONN_STREAMING || (conn->state == CONN_READING && !is_idle(conn));
    /* Before the TLS handshake is complete the peer would not understand an answer. */
    if (is_arriving && transport_is_open(&conn->transport))
        conn_refuse(conn, STATUS_REQUEST_TIMEOUT);
    else
        conn_close(conn);
}

/* Closing alone would leave the bytes in the kernel, which tries to send them for minutes. */
void conn_end_unread(struct conn *conn) {
    metrics_add(METRIC_HTTP_ANSWERS_UNREAD, METRIC_PLAIN, 1);
    transport_reset_on_close(&conn->transport);
    if (conn->state == CONN_STREAMING)
        conn_refuse(conn, STATUS_REQUEST_TIMEOUT);
    conn_close(conn);
}

uint64_t conn_taken_bytes(const struct conn *conn) {
    uint64_t unread_bytes = transport_unread_bytes(&conn->transport);
    uint64_t written_bytes = conn->http->written_bytes;
    return written_bytes > unread_bytes ? written_bytes - unread_bytes : 0;
}

void conn_unread_expired(struct deadline *deadline) {
    struct conn *conn = container_of(deadline, struct conn, deadline);
    size_t unread_bytes = transport_unread_bytes(&conn->transport);
    conn->has_large_answer = unread_bytes > 0;
    if (is_idle(conn) && unread_bytes == 0) {
        conn_await(conn);
    } else if (unread_bytes + events_of(conn)->progress_min(conn) <= conn->http->unread_bytes) {
        set_unread_deadline(conn);
    } else {
        conn_end_unread(conn);
    }
}

void conn_peers_check(struct deadline *deadline) {
    struct http_loop *loop = container_of(deadline, struct http_loop, peers_check);
    for (struct list_node *node = list_first(&loop->conns), *next; node; node = next) {
        struct conn *conn = container_of(node, struct conn, node);
        next = list_next(&loop->conns, node);
        if (!transport_check_peer(&conn->transport, loop->http->options.peer_timeout_ms))
            continue;
        metrics_add(METRIC_HTTP_CONNECTIONS_VANISHED, METRIC_PLAIN, 1);
        conn_reset(conn);
    }
    if (!list_is_empty(&loop->conns))
        io_loop_deadline(loop->io, &loop->peers_check, DEADLINE_PEERS_CHECK);
}

void conn_turn(struct deadline *deadline) {
    conn_consume_unread(container_of(deadline, struct conn, deadline));
}

void conn_drain(struct conn *conn) {
    conn->keep_alive = false;
    if (has_deadline(conn, DEADLINE_TURN))
        return;
    bool is_open = transport_is_open(&conn->transport);
    /* A request that has reached the kernel is answered, even if no byte was read yet. */
    if ((is_idle(conn) && !transport_has_input(&conn->transport)) || !is_open)
        conn_close(conn);
    else if (conn->state == CONN_PUSHING)
        session_drain(conn->session);
    else if (conn->state == CONN_READING && !is_idle(conn))
        conn_await(conn);
    else if (conn->exchange)
        events_of(conn)->drain(conn);
}
