#include "client/net/socket_stream.h"

#include <errno.h>
#include <http_parser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buffer.h"
#include "client/client_limits.h"
#include "client/net/tls_stream.h"

/* A turn of the loop reads no more often than that from a plain socket; other handles follow. */
#define READS_MAX    32
#define REASON_BYTES 512

enum stream_state { STREAM_LOOKUP, STREAM_CONNECT, STREAM_HANDSHAKE, STREAM_OPEN, STREAM_ENDED };

struct socket_stream {
    uv_loop_t *loop;
    struct socket_holds *holds;
    const struct socket_target *target;
    const struct socket_events *events;
    void *user;
    enum stream_state state;
    bool is_closed;
    bool is_looking_up;
    bool is_polling;
    uv_getaddrinfo_t lookup;
    struct addrinfo *addresses;
    const struct addrinfo *next;
    uv_poll_t poll;
    int fd;
    struct tls_stream *tls;
    struct buffer out;
    size_t out_sent;
    bool wants_room;
    char reason[REASON_BYTES];
};

/* ---- the target --------------------------------------------------------------------------- */

static bool scheme_is(struct slice scheme, const char *text) {
    return slice_equal(scheme, slice_of(text));
}

bool socket_target_read(struct socket_target *target, const char *url) {
    struct http_parser_url parts;
    http_parser_url_init(&parts);
    if (http_parser_parse_url(url, strlen(url), 0, &parts) != 0 ||
        !(parts.field_set & (1 << UF_SCHEMA)) || !(parts.field_set & (1 << UF_HOST)))
        return false;
    struct slice scheme = {url + parts.field_data[UF_SCHEMA].off, parts.field_data[UF_SCHEMA].len};
    size_t host_size = parts.field_data[UF_HOST].len;
    bool is_plain = scheme_is(scheme, "http") || scheme_is(scheme, "ws");
    bool is_root = !(parts.field_set & (1 << UF_PATH)) || parts.field_data[UF_PATH].len == 1;
    bool has_more = parts.field_set & (1 << UF_QUERY | 1 << UF_FRAGMENT | 1 << UF_USERINFO);
    target->is_secure = scheme_is(scheme, "https") || scheme_is(scheme, "wss");
    if ((!is_plain && !target->is_secure) || !is_root || has_more ||
        host_size >= sizeof(target->host))
        return false;
    memcpy(target->host, url + parts.field_data[UF_HOST].off, host_size);
    target->host[host_size] = '\0';
    unsigned port = parts.field_set & (1 << UF_PORT) ? parts.port : target->is_secure ? 443 : 80;
    snprintf(target->port, sizeof(target->port), "%u", port % 65536);
    return true;
}

void socket_hold(struct socket_holds *holds) {
    holds->count++;
}

void socket_let_go(struct socket_holds *holds) {
    if (--holds->count == 0)
        holds->emptied(holds->user);
}

/* ---- the end ------------------------------------------------------------------------------ */

static void free_unused(struct socket_stream *stream) {
    struct socket_holds *holds = stream->holds;
    if (!stream->is_closed || stream->is_looking_up || stream->is_polling)
        return;
    uv_freeaddrinfo(stream->addresses);
    buffer_release(&stream->out);
    free(stream);
    socket_let_go(holds);
}

static void end(struct socket_stream *stream, const char *reason) {
    if (stream->is_closed || stream->state == STREAM_ENDED)
        return;
    stream->state = STREAM_ENDED;
    if (stream->is_polling)
        uv_poll_stop(&stream->poll);
    stream->events->ended(stream->user, reason);
}

static void shut_socket(struct socket_stream *stream) {
    tls_stream_close(stream->tls);
    stream->tls = NULL;
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
}

static void on_poll_closed(uv_handle_t *handle) {
    struct socket_stream *stream = handle->data;
    stream->is_polling = false;
    shut_socket(stream);
    free_unused(stream);
}

/* ---- bytes -------------------------------------------------------------------------------- */

static void on_ready(uv_poll_t *poll, int error, int events);

static void watch(struct socket_stream *stream, int events) {
    if (uv_poll_start(&stream->poll, events, on_ready) != 0)
        end(stream, "the loop cannot watch the socket");
}

static void watch_open(struct socket_stream *stream) {
    bool has_unsent = stream->out.size > stream->out_sent;
    watch(stream, has_unsent || stream->wants_room ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

/* False: the connection broke. */
static bool send_some(struct socket_stream *stream) {
    while (stream->out_sent < stream->out.size) {
        struct slice unsent = slice_from(buffer_slice(&stream->out), stream->out_sent);
        ssize_t size = stream->tls ? tls_stream_send(stream->tls, unsent.data, unsent.size)
                                   : send(stream->fd, unsent.data, unsent.size, MSG_NOSIGNAL);
        if (size < 0)
            return errno == EAGAIN || errno == EINTR;
        stream->out_sent += (size_t)size;
    }
    buffer_clear(&stream->out);
    stream->out_sent = 0;
    return true;
}

static void receive(struct socket_stream *stream) {
    char memory[CLIENT_READ_BYTES];
    for (int reads = 0; stream->tls || reads < READS_MAX; reads++) {
        ssize_t size = stream->tls ? tls_stream_recv(stream->tls, memory, sizeof(memory))
                                   : recv(stream->fd, memory, sizeof(memory), 0);
        if (size < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (size <= 0) {
            snprintf(stream->reason, sizeof(stream->reason), "the connection ended%s%s",
                     size < 0 ? ": " : "", size < 0 ? strerror(errno) : "");
            end(stream, stream->reason);
            return;
        }
        stream->events->received(stream->user, (struct slice){memory, (size_t)size});
        if (stream->is_closed || stream->state != STREAM_OPEN)
            return;
    }
}

enum status socket_stream_send(struct socket_stream *stream, struct slice data) {
    if (stream->state != STREAM_OPEN)
        return STATUS_SYSTEM_ERROR;
    enum status status = buffer_append_slice(&stream->out, data);
    if (status != STATUS_OK)
        return status;
    /* A broken connection shows when it is read, so that its end is an event of the loop. */
    (void)send_some(stream);
    watch_open(stream);
    return STATUS_OK;
}

void socket_stream_want_room(struct socket_stream *stream) {
    stream->wants_room = true;
    if (stream->state == STREAM_OPEN)
        watch_open(stream);
}

bool socket_stream_is_idle(const struct socket_stream *stream) {
    return stream->state == STREAM_OPEN && stream->out.size == stream->out_sent;
}

void socket_stream_hand_over(struct socket_stream *stream, const struct socket_events *events,
                             void *user) {
    stream->events = events;
    stream->user = user;
    stream->wants_room = false;
}

/* ---- connecting --------------------------------------------------------------------------- */

static void connect_next(struct socket_stream *stream);

static void opened(struct socket_stream *stream) {
    stream->state = STREAM_OPEN;
    watch_open(stream);
    if (stream->state == STREAM_OPEN)
        stream->events->opened(stream->user);
}

static void shake_hands(struct socket_stream *stream) {
    struct tls_stream_message message = {""};
    switch (tls_stream_step(stream->tls, stream->target->host, &message)) {
    case TLS_STEP_DONE:
        opened(stream);
        break;
    case TLS_STEP_READ:
        watch(stream, UV_READABLE);
        break;
    case TLS_STEP_WRITE:
        watch(stream, UV_WRITABLE);
        break;
    case TLS_STEP_FAILED:
        snprintf(stream->reason, sizeof(stream->reason), "%s", message.text);
        end(stream, stream->reason);
        break;
    }
}

static void secure(struct socket_stream *stream) {
    struct tls_stream_message message = {""};
    const struct tls_stream_options options = {
        .socket = stream->fd, .host = stream->target->host, .ca_file = stream->target->ca_file};
    stream->state = STREAM_HANDSHAKE;
    if (tls_stream_begin(&stream->tls, &options, &message) == STATUS_OK) {
        shake_hands(stream);
        return;
    }
    snprintf(stream->reason, sizeof(stream->reason), "%s", message.text);
    end(stream, stream->reason);
}

static void on_attempt_closed(uv_handle_t *handle) {
    struct socket_stream *stream = handle->data;
    stream->is_polling = false;
    shut_socket(stream);
    if (stream->is_closed)
        free_unused(stream);
    else
        connect_next(stream);
}

static void connected(struct socket_stream *stream) {
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        snprintf(stream->reason, sizeof(stream->reason),
                 "cannot connect to %s port %s: %s; does the server run there?",
                 stream->target->host, stream->target->port, strerror(error));
        uv_close((uv_handle_t *)&stream->poll, on_attempt_closed);
    } else if (stream->target->is_secure) {
        secure(stream);
    } else {
        opened(stream);
    }
}

static void write_ready(struct socket_stream *stream) {
    (void)send_some(stream);
    bool has_room = stream->wants_room && stream->out.size == stream->out_sent;
    if (has_room)
        stream->wants_room = false;
    watch_open(stream);
    if (has_room && stream->state == STREAM_OPEN)
        stream->events->has_room(stream->user);
}

static void on_ready(uv_poll_t *poll, int error, int events) {
    struct socket_stream *stream = poll->data;
    if (stream->is_closed || stream->state == STREAM_ENDED)
        return;
    if (stream->state == STREAM_CONNECT) {
        connected(stream);
    } else if (stream->state == STREAM_HANDSHAKE) {
        shake_hands(stream);
    } else {
        if (events & UV_WRITABLE)
            write_ready(stream);
        if ((error != 0 || events & UV_READABLE) && stream->state == STREAM_OPEN &&
            !stream->is_closed)
            receive(stream);
    }
}

/* The socket of the next address, or -1. */
static int begin_connect(struct socket_stream *stream) {
    const struct addrinfo *address = stream->next;
    int on = 1;
    stream->next = address->ai_next;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS)
        return fd;
    snprintf(stream->reason, sizeof(stream->reason),
             "cannot connect to %s port %s: %s; does the server run there?", stream->target->host,
             stream->target->port, strerror(errno));
    close(fd);
    return -1;
}

static void connect_next(struct socket_stream *stream) {
    stream->fd = -1;
    stream->state = STREAM_CONNECT;
    while (stream->next && stream->fd < 0)
        stream->fd = begin_connect(stream);
    if (stream->fd < 0) {
        end(stream, stream->reason);
        return;
    }
    stream->poll.data = stream;
    if (uv_poll_init(stream->loop, &stream->poll, stream->fd) != 0) {
        end(stream, "the loop cannot watch the socket");
        return;
    }
    stream->is_polling = true;
    watch(stream, UV_WRITABLE);
}

static void on_lookup(uv_getaddrinfo_t *lookup, int error, struct addrinfo *addresses) {
    struct socket_stream *stream = lookup->data;
    stream->is_looking_up = false;
    stream->addresses = addresses;
    if (stream->is_closed) {
        free_unused(stream);
    } else if (error != 0) {
        snprintf(stream->reason, sizeof(stream->reason), "%s: %s", stream->target->host,
                 uv_strerror(error));
        end(stream, stream->reason);
    } else {
        stream->next = addresses;
        connect_next(stream);
    }
}

enum status socket_stream_open(struct socket_stream **stream, uv_loop_t *loop,
                               struct socket_holds *holds, const struct socket_target *target,
                               const struct socket_events *events, void *user) {
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct socket_stream *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->loop = loop;
    made->holds = holds;
    made->target = target;
    made->events = events;
    made->user = user;
    made->fd = -1;
    made->lookup.data = made;
    snprintf(made->reason, sizeof(made->reason), "%s has no address", target->host);
    buffer_init(&made->out, CLIENT_OUT_BYTES_MAX);
    if (uv_getaddrinfo(loop, &made->lookup, on_lookup, target->host, target->port, &wanted) != 0) {
        free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    made->is_looking_up = true;
    socket_hold(holds);
    *stream = made;
    return STATUS_OK;
}

void socket_stream_close(struct socket_stream *stream) {
    if (!stream)
        return;
    stream->is_closed = true;
    if (stream->is_looking_up)
        uv_cancel((uv_req_t *)&stream->lookup);
    if (stream->is_polling && !uv_is_closing((uv_handle_t *)&stream->poll))
        uv_close((uv_handle_t *)&stream->poll, on_poll_closed);
    else if (!stream->is_polling)
        free_unused(stream);
}
