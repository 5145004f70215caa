/* ws_echo [PORT]: a WebSocket server that sends every message back. It runs the server's own codec
 * (src/wire/http1.c and src/wire/websocket), so that conformance suites can test it: Autobahn's
 * fuzzing client needs an echo, which no dialect of the server is. It prints its port and ends at
 * the end of its standard input. One thread for each connection, with blocking calls. */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/http1.h"
#include "wire/websocket/ws_decoder.h"
#include "wire/websocket/ws_handshake.h"

#define MESSAGE_BYTES_MAX (64u << 20)
#define OUT_BYTES_MAX     (256u << 20)
#define READ_BYTES        65536
#define LINGER_MS         2000

struct echo {
    int socket;
    struct ws_shared shared;
    struct ws_decoder decoder;
    struct ws_deflater deflater;
    struct ws_agreement agreement;
    struct buffer out;
    bool is_closed; /* the peer's close was answered */
};

static void require(bool holds, const char *what) {
    if (holds)
        return;
    perror(what);
    exit(1);
}

static bool flush(struct echo *echo) {
    size_t sent = 0;
    while (sent < echo->out.size) {
        ssize_t size =
            send(echo->socket, echo->out.data + sent, echo->out.size - sent, MSG_NOSIGNAL);
        if (size <= 0)
            break;
        sent += (size_t)size;
    }
    bool is_whole = sent == echo->out.size;
    buffer_release(&echo->out);
    return is_whole;
}

/* ---- frames ---- */

static enum status on_message(void *user, enum ws_opcode opcode, struct slice message) {
    struct echo *echo = user;
    struct buffer packed;
    if (!echo->agreement.deflate ||
        !ws_deflate_fits(message.size, echo->agreement.server_window_bits))
        return ws_frame_write(&echo->out, opcode, false, message);
    buffer_init(&packed, message.size + message.size / 8 + 1024);
    enum status status = ws_deflate(&echo->deflater, &packed, message);
    if (status == STATUS_OK)
        status = ws_frame_write(&echo->out, opcode, true, buffer_slice(&packed));
    buffer_release(&packed);
    return status;
}

static enum status on_ping(void *user, struct slice payload) {
    struct echo *echo = user;
    return ws_frame_write(&echo->out, WS_PONG, false, payload);
}

static enum status on_pong(void *user, struct slice payload) {
    (void)user, (void)payload;
    return STATUS_OK;
}

static enum status on_close(void *user, unsigned code, struct slice reason) {
    struct echo *echo = user;
    (void)reason;
    echo->is_closed = true;
    return ws_close_write(&echo->out, code, (struct slice){NULL, 0});
}

static const struct ws_handlers handlers = {on_message, on_ping, on_pong, on_close};

static void serve_frames(struct echo *echo, struct slice rest) {
    char bytes[READ_BYTES];
    ws_shared_init(&echo->shared);
    ws_decoder_init(&echo->decoder, &echo->shared, &handlers, echo, MESSAGE_BYTES_MAX,
                    echo->agreement.deflate);
    if (ws_deflater_init(&echo->deflater, 1) != STATUS_OK)
        abort();
    struct slice input = rest;
    for (bool is_open = true; is_open;) {
        enum status status = ws_feed(&echo->decoder, input);
        if (status != STATUS_OK)
            is_open = ws_close_write(&echo->out, (unsigned)ws_close_code(status),
                                     (struct slice){NULL, 0}) == STATUS_OK;
        is_open = flush(echo) && status == STATUS_OK && !echo->is_closed;
        ssize_t size = is_open ? recv(echo->socket, bytes, sizeof(bytes), 0) : 0;
        is_open = size > 0;
        input = (struct slice){bytes, is_open ? (size_t)size : 0};
    }
    ws_deflater_release(&echo->deflater);
    ws_decoder_release(&echo->decoder);
    ws_shared_release(&echo->shared);
}

/* ---- connections ---- */

static bool accept_handshake(struct echo *echo, const struct http1_request *http) {
    const struct ws_policy policy = {.deflate = true};
    struct ws_request request;
    struct buffer joined;
    buffer_init(&joined, HTTP1_HEAD_BYTES_LIMIT);
    bool is_accepted = ws_request_read(http, &joined, &request) == STATUS_OK &&
                       ws_handshake(&echo->out, &request, &policy, &echo->agreement) == STATUS_OK;
    if (!is_accepted)
        is_accepted =
            buffer_append_slice(&echo->out,
                                SLICE("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")) !=
            STATUS_OK;
    buffer_release(&joined);
    return flush(echo) && is_accepted;
}

static void serve_connection(struct echo *echo) {
    const struct http1_limits limits = HTTP1_LIMITS_DEFAULT;
    struct http1_parser parser;
    struct http1_event event = {.kind = HTTP1_EVENT_MORE};
    char bytes[READ_BYTES];
    struct slice input = {NULL, 0};
    http1_parser_init(&parser, &limits);
    while (event.kind == HTTP1_EVENT_MORE) {
        ssize_t size = recv(echo->socket, bytes, sizeof(bytes), 0);
        input = (struct slice){bytes, size > 0 ? (size_t)size : 0};
        if (size <= 0 || http1_next(&parser, &input, &event) != STATUS_OK)
            break;
    }
    bool is_open =
        event.kind == HTTP1_EVENT_HEAD && accept_handshake(echo, http1_parser_request(&parser));
    http1_parser_release(&parser);
    if (is_open)
        serve_frames(echo, input);
}

/* The side of the server ends, and the peer has some time to end its own: a reset could overtake
 * the close frame. */
static void linger(int socket) {
    char bytes[READ_BYTES];
    struct pollfd peer = {.fd = socket, .events = POLLIN};
    shutdown(socket, SHUT_WR);
    while (poll(&peer, 1, LINGER_MS) > 0 && recv(socket, bytes, sizeof(bytes), 0) > 0) {
    }
    close(socket);
}

static void *run(void *argument) {
    struct echo *echo = argument;
    buffer_init(&echo->out, OUT_BYTES_MAX);
    serve_connection(echo);
    buffer_release(&echo->out);
    linger(echo->socket);
    free(echo);
    return NULL;
}

static void accept_one(int listener) {
    pthread_t thread;
    int socket = accept(listener, NULL, NULL);
    struct echo *echo = calloc(1, sizeof(*echo));
    require(socket >= 0 && echo, "accept");
    echo->socket = socket;
    require(pthread_create(&thread, NULL, run, echo) == 0, "pthread_create");
    pthread_detach(thread);
}

int main(int argument_count, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int yes = 1;
    if (argument_count > 1)
        address.sin_port = htons((uint16_t)strtoul(arguments[1], NULL, 10));
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    require(listener >= 0, "socket");
    require(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0, "setsockopt");
    require(bind(listener, (struct sockaddr *)&address, size) == 0, "bind");
    require(listen(listener, 64) == 0, "listen");
    require(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "getsockname");
    printf("listens on %d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct pollfd sources[] = {{.fd = listener, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    while (poll(sources, 2, -1) > 0 && sources[1].revents == 0)
        accept_one(listener);
    return 0;
}
