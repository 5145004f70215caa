#include "io/transport.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/metrics.h"
#include "http/conn.h"
#include "server/server.h"

/* So that what comes out of one read, with a record that was begun before, is no more than a plain
 * connection would hand on. */
#define SECURE_READ_BYTES (LOOP_READ_BYTES - TLS_RECORD_BYTES)

struct secure {
    struct tls tls;
    struct buffer sending; /* ciphertext the socket is taking */
    struct slice rest;     /* plaintext behind it */
    size_t batch_bytes;    /* plaintext in sending, at most */
    bool is_owed;          /* conn_output_done, when all of that is out */
    bool is_ending;        /* our side, when all of that is out */
    bool is_reading;
    bool has_ended; /* the peer said that it sends no more */
    bool has_begun; /* the peer sent something */
    bool was_open;  /* the handshake was counted */
};

static void on_secure_write(uv_write_t *request, int error);
static bool shut(struct conn *conn);

static uv_stream_t *stream_of(struct conn *conn) {
    return (uv_stream_t *)&conn->tcp;
}

/* Straight to the socket, unless something waits in libuv: its write() costs 4 % more of the CPU of
 * a small frame. */
static ssize_t socket_try(struct conn *conn, struct slice bytes) {
    uv_os_fd_t fd;
    ssize_t written;
    if (uv_fileno((uv_handle_t *)&conn->tcp, &fd) != 0)
        return -1;
    if (uv_stream_get_write_queue_size(stream_of(conn)) > 0)
        return 0;
    do
        written = send(fd, bytes.data, bytes.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (written < 0 && errno == EINTR);
    return written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : written;
}

/* A request lives until its callback, which libuv calls in any case: so that a connection whose
 * socket takes everything at once does not pay for one. */
static bool socket_write(struct conn *conn, struct slice bytes, uv_write_cb done) {
    uv_buf_t rest = uv_buf_init((char *)bytes.data, (unsigned)bytes.size);
    uv_write_t *request = malloc(sizeof(*request));
    if (!request)
        return false;
    request->data = conn;
    if (uv_write(request, stream_of(conn), &rest, 1, done) == 0)
        return true;
    free(request);
    return false;
}

/* ---- life ---- */

enum status transport_secure(struct conn *conn, struct tls_context *context) {
    struct secure *secure = calloc(1, sizeof(*secure));
    if (!secure)
        return STATUS_OUT_OF_MEMORY;
    buffer_init(&secure->sending, TLS_OUT_BYTES_MAX);
    enum status status = tls_init(&secure->tls, context);
    if (status != STATUS_OK) {
        tls_release(&secure->tls);
        free(secure);
        return status;
    }
    conn->secure = secure;
    return STATUS_OK;
}

static void count_handshake(enum label_outcome outcome) {
    metrics_add(METRIC_TLS_HANDSHAKES, METRIC_LABELS(outcome), 1);
}

void transport_close(struct conn *conn) {
    struct secure *secure = conn->secure;
    if (!secure)
        return;
    if (!secure->was_open && secure->has_begun)
        count_handshake(LABEL_OUTCOME_FAILED);
    /* Behind a batch that is half out it would be noise. */
    if (!transport_is_clear(conn))
        return;
    tls_end(&secure->tls);
    if (secure->tls.out.size > 0)
        (void)socket_try(conn, buffer_slice(&secure->tls.out));
}

void transport_release(struct conn *conn) {
    struct secure *secure = conn->secure;
    if (!secure)
        return;
    tls_release(&secure->tls);
    buffer_release(&secure->sending);
    free(secure);
    conn->secure = NULL;
}

struct slice transport_peer(const struct conn *conn, char text[TRANSPORT_PEER_BYTES_MAX]) {
    struct sockaddr_storage address;
    int size = sizeof(address);
    text[0] = '\0';
    if (uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&address, &size) == 0)
        (void)uv_ip_name((const struct sockaddr *)&address, text, TRANSPORT_PEER_BYTES_MAX);
    return slice_of(text);
}

bool transport_is_open(const struct conn *conn) {
    return !conn->secure || conn->secure->was_open;
}

/* ---- writing ---- */

bool transport_is_clear(const struct conn *conn) {
    const struct secure *secure = conn->secure;
    return !secure || (secure->sending.size == 0 && secure->tls.out.size == 0);
}

/* Hands on what was encrypted. False: the peer is gone. */
static bool flush(struct conn *conn) {
    struct secure *secure = conn->secure;
    struct buffer *out = &secure->tls.out;
    if (secure->sending.size > 0 || out->size == 0)
        return true;
    ssize_t done = socket_try(conn, buffer_slice(out));
    if (done < 0)
        return false;
    if ((size_t)done == out->size) {
        buffer_release(out);
        return true;
    }
    secure->sending = *out;
    buffer_init(out, TLS_OUT_BYTES_MAX);
    return socket_write(conn, slice_from(buffer_slice(&secure->sending), (size_t)done),
                        on_secure_write);
}

/* Encrypts a batch, hands it on, and goes on while the socket takes them. False: the peer is
 * gone. */
static bool pump(struct conn *conn) {
    struct secure *secure = conn->secure;
    if (!flush(conn))
        return false;
    while (transport_is_clear(conn) && secure->rest.size > 0) {
        size_t size = secure->rest.size;
        if (size > TLS_BATCH_BYTES_MAX)
            size = TLS_BATCH_BYTES_MAX;
        if (tls_send(&secure->tls, (struct slice){secure->rest.data, size}) != STATUS_OK)
            return false;
        secure->rest = slice_from(secure->rest, size);
        secure->batch_bytes = size;
        if (!flush(conn))
            return false;
    }
    return true;
}

static void on_secure_write(uv_write_t *request, int error) {
    struct conn *conn = request->data;
    free(request);
    struct secure *secure = conn->secure;
    if (conn->state == CONN_CLOSED)
        return;
    clock_tick(&conn->loop->clock);
    buffer_release(&secure->sending);
    if (error != 0 || !pump(conn)) {
        conn_close(conn);
        return;
    }
    if (!transport_is_clear(conn))
        return;
    bool is_owed = secure->is_owed;
    secure->is_owed = false;
    if (is_owed)
        conn_output_done(conn, 0);
    if (conn->state == CONN_LINGERING && secure->is_ending) {
        secure->is_ending = false;
        if (!shut(conn))
            conn_close(conn);
    }
}

static void on_plain_write(uv_write_t *request, int error) {
    struct conn *conn = request->data;
    free(request);
    if (conn->state == CONN_CLOSED)
        return;
    clock_tick(&conn->loop->clock);
    conn_output_done(conn, error);
}

ssize_t transport_try(struct conn *conn, struct slice bytes) {
    struct secure *secure = conn->secure;
    if (!secure)
        return socket_try(conn, bytes);
    if (!transport_is_clear(conn))
        return 0;
    assert(secure->rest.size == 0 && !secure->is_owed);
    secure->rest = bytes;
    bool is_there = pump(conn);
    size_t taken = bytes.size - secure->rest.size;
    secure->rest = (struct slice){NULL, 0};
    return is_there ? (ssize_t)taken : -1;
}

bool transport_write(struct conn *conn, struct slice rest) {
    struct secure *secure = conn->secure;
    if (!secure)
        return socket_write(conn, rest, on_plain_write);
    assert(!transport_is_clear(conn));
    secure->rest = rest;
    secure->is_owed = true;
    return true;
}

size_t transport_unsent_bytes(const struct conn *conn) {
    const struct secure *secure = conn->secure;
    size_t queued = uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp);
    if (!secure)
        return queued;
    /* What TLS adds is nothing the session sent. */
    return secure->rest.size + (queued < secure->batch_bytes ? queued : secure->batch_bytes);
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *memory) {
    const struct conn *conn = handle->data;
    (void)suggested;
    *memory =
        uv_buf_init(conn->loop->read_memory, conn->secure ? SECURE_READ_BYTES : LOOP_READ_BYTES);
}

/* What was said in clear, or not in a TLS that we take, ends with the alert that says so. */
static void handshake_failed(struct conn *conn) {
    log_event(LOG_DEBUG, "tls.handshake_failed", log_str("reason", tls_failure()));
    conn_linger(conn);
}

static void ended(struct conn *conn) {
    struct secure *secure = conn->secure;
    secure->has_ended = true;
    /* Who asks for nothing more may still wait for an answer. */
    if (secure->is_reading && conn->state != CONN_LINGERING)
        conn_close(conn);
}

static void on_secure_read(struct conn *conn, struct slice input) {
    struct secure *secure = conn->secure;
    char *memory = conn->loop->plain_memory;
    size_t size;
    secure->has_begun = true;
    enum tls_step step = tls_receive(&secure->tls, input, memory, LOOP_READ_BYTES, &size);
    if (!flush(conn)) {
        conn_close(conn);
        return;
    }
    if (!secure->was_open && tls_is_open(&secure->tls)) {
        secure->was_open = true;
        count_handshake(LABEL_OUTCOME_OK);
        conn_opened(conn);
    }
    if (size > 0 && conn->state != CONN_CLOSED)
        conn_received(conn, (struct slice){memory, size});
    if (conn->state == CONN_CLOSED || step == TLS_STEP_MORE)
        return;
    if (step == TLS_STEP_ENDED)
        ended(conn);
    else if (secure->was_open)
        conn_close(conn);
    else
        handshake_failed(conn);
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *memory) {
    struct conn *conn = stream->data;
    if (size == 0)
        return;
    clock_tick(&conn->loop->clock);
    struct slice input = {memory->base, size > 0 ? (size_t)size : 0};
    if (size < 0)
        conn_close(conn);
    else if (conn->secure && conn->state != CONN_LINGERING)
        on_secure_read(conn, input);
    else
        conn_received(conn, input);
}

static bool read_start(struct conn *conn) {
    int error = uv_read_start(stream_of(conn), on_alloc, on_read);
    return error == 0 || error == UV_EALREADY;
}

bool transport_read_start(struct conn *conn) {
    if (!conn->secure)
        return read_start(conn);
    conn->secure->is_reading = true;
    return !conn->secure->has_ended && read_start(conn);
}

void transport_read_stop(struct conn *conn) {
    uv_read_stop(stream_of(conn));
    if (conn->secure)
        conn->secure->is_reading = false;
}

/* ---- the end ---- */

static void on_shutdown(uv_shutdown_t *request, int error) {
    struct conn *conn = request->data;
    free(request);
    if (error != 0)
        conn_close(conn);
}

static bool shut(struct conn *conn) {
    if (conn->secure) {
        tls_end(&conn->secure->tls);
        if (!flush(conn))
            return false;
    }
    uv_shutdown_t *request = malloc(sizeof(*request));
    if (!request)
        return false;
    request->data = conn;
    if (uv_shutdown(request, stream_of(conn), on_shutdown) == 0)
        return true;
    free(request);
    return false;
}

bool transport_end(struct conn *conn) {
    bool is_clear = transport_is_clear(conn);
    /* libuv lets nothing follow a shutdown, and does not know of what is not encrypted yet. */
    if (!is_clear)
        conn->secure->is_ending = true;
    return (!is_clear || shut(conn)) && read_start(conn);
}
