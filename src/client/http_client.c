#include "client/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <http_parser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buffer.h"
#include "client/net/tls_stream.h"
#include "wire/http1_response.h"

#define SILENCE_MS_MAX 60000
#define CONNECT_MS_MAX 10000
#define READ_BYTES     65536
#define HEAD_BYTES_MAX 65536
#define OUT_BYTES_MAX  (4u << 20)
#define MESSAGE_MAX    512

struct http_client {
    char host[256];
    char port[8];
    bool is_secure; /* https */
    const char *ca_file;
    int socket;             /* -1: not connected */
    struct tls_stream *tls; /* NULL: not connected, or plain */
    http_parser parser;
    const struct http_client_request *request;
    enum status callback_status;
    struct buffer out; /* bytes to be sent */
    size_t out_sent;
    bool source_over;
    bool complete;
    bool keep_alive;
    bool receiving; /* something of the answer has come */
    char message[MESSAGE_MAX];
};

__attribute__((format(printf, 2, 3))) static enum status fail(struct http_client *client,
                                                              const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(client->message, sizeof(client->message), format, arguments);
    va_end(arguments);
    return STATUS_SYSTEM_ERROR;
}

const char *http_client_error(const struct http_client *client) {
    return client->message;
}

/* ---- opening ------------------------------------------------------------------------------ */

static bool read_url(struct http_client *client, const char *url) {
    struct http_parser_url parts;
    http_parser_url_init(&parts);
    if (http_parser_parse_url(url, strlen(url), 0, &parts) != 0 ||
        !(parts.field_set & (1 << UF_SCHEMA)) || !(parts.field_set & (1 << UF_HOST)))
        return false;
    size_t host_size = parts.field_data[UF_HOST].len;
    size_t scheme_size = parts.field_data[UF_SCHEMA].len;
    bool plain = scheme_size == 4 && strncmp(url, "http", 4) == 0;
    bool root = !(parts.field_set & (1 << UF_PATH)) || parts.field_data[UF_PATH].len == 1;
    bool extra = parts.field_set & (1 << UF_QUERY | 1 << UF_FRAGMENT | 1 << UF_USERINFO);
    client->is_secure = scheme_size == 5 && strncmp(url, "https", 5) == 0;
    if ((!plain && !client->is_secure) || !root || extra || host_size >= sizeof(client->host))
        return false;
    memcpy(client->host, url + parts.field_data[UF_HOST].off, host_size);
    client->host[host_size] = '\0';
    unsigned port = parts.field_set & (1 << UF_PORT) ? parts.port : client->is_secure ? 443 : 80;
    snprintf(client->port, sizeof(client->port), "%u", port % 65536);
    return true;
}

enum status http_client_open(struct http_client **client, const char *url) {
    struct http_client *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->socket = -1;
    buffer_init(&made->out, OUT_BYTES_MAX);
    if (!read_url(made, url)) {
        http_client_close(made);
        return STATUS_INVALID_REQUEST;
    }
    *client = made;
    return STATUS_OK;
}

void http_client_trust(struct http_client *client, const char *ca_file) {
    client->ca_file = ca_file;
}

static void disconnect(struct http_client *client) {
    tls_stream_close(client->tls);
    client->tls = NULL;
    if (client->socket >= 0)
        close(client->socket);
    client->socket = -1;
}

void http_client_close(struct http_client *client) {
    if (!client)
        return;
    disconnect(client);
    buffer_release(&client->out);
    free(client);
}

/* Waits for a connect under way; errno says why it failed. */
static bool connected(int socket) {
    struct pollfd wait = {socket, POLLOUT, 0};
    int error = ETIMEDOUT;
    socklen_t size = sizeof(error);
    if (poll(&wait, 1, CONNECT_MS_MAX) == 1)
        getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    return error == 0;
}

static int connect_address(const struct addrinfo *address) {
    int fd = socket(address->ai_family, address->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0 ||
        (errno == EINPROGRESS && connected(fd)))
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static enum status secure_client(struct http_client *client) {
    struct tls_stream_message message = {""};
    const struct tls_stream_options options = {.socket = client->socket,
                                               .host = client->host,
                                               .ca_file = client->ca_file,
                                               .timeout_ms = CONNECT_MS_MAX};
    enum status status = tls_stream_open(&client->tls, &options, &message);
    return status == STATUS_OK ? STATUS_OK : fail(client, "%s", message.text);
}

static enum status connect_client(struct http_client *client) {
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    int error = getaddrinfo(client->host, client->port, &wanted, &addresses);
    if (error != 0)
        return fail(client, "%s: %s", client->host, gai_strerror(error));
    errno = 0;
    for (struct addrinfo *address = addresses; address && client->socket < 0;
         address = address->ai_next)
        client->socket = connect_address(address);
    freeaddrinfo(addresses);
    if (client->socket < 0)
        return fail(client, "cannot connect to %s port %s: %s; does the server run there?",
                    client->host, client->port, strerror(errno));
    return client->is_secure ? secure_client(client) : STATUS_OK;
}

/* ---- the answer --------------------------------------------------------------------------- */

static int on_body(http_parser *parser, const char *data, size_t size) {
    struct http_client *client = parser->data;
    client->callback_status = client->request->on_body(client->request->user, parser->status_code,
                                                       (struct slice){data, size});
    return client->callback_status == STATUS_OK ? 0 : 1;
}

static int on_headers_complete(http_parser *parser) {
    const struct http_client *client = parser->data;
    /* http-parser takes 1 for "no body follows". */
    return strcmp(client->request->method, "HEAD") == 0 ? 1 : 0;
}

static int on_message_complete(http_parser *parser) {
    struct http_client *client = parser->data;
    if (parser->status_code >= 200) {
        client->complete = true;
        client->keep_alive = http_should_keep_alive(parser) != 0;
        http_parser_pause(parser, 1);
    }
    return 0;
}

static enum status feed(struct http_client *client, const char *data, size_t size) {
    http_parser_settings settings;
    http_parser_settings_init(&settings);
    settings.on_headers_complete = on_headers_complete;
    settings.on_body = on_body;
    settings.on_message_complete = on_message_complete;
    size_t used = http_parser_execute(&client->parser, &settings, data, size);
    if (client->callback_status != STATUS_OK)
        return client->callback_status;
    if (client->complete || (used == size && HTTP_PARSER_ERRNO(&client->parser) == HPE_OK))
        return STATUS_OK;
    return fail(client, "the server's answer is not HTTP: %s",
                http_errno_description(HTTP_PARSER_ERRNO(&client->parser)));
}

static enum status receive(struct http_client *client) {
    char memory[READ_BYTES];
    ssize_t size = client->tls ? tls_stream_recv(client->tls, memory, sizeof(memory))
                               : recv(client->socket, memory, sizeof(memory), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return STATUS_OK;
    if (size < 0)
        return fail(client, "the connection broke: %s", strerror(errno));
    client->receiving = client->receiving || size > 0;
    /* The end of the connection may be the end of the answer. */
    enum status status = feed(client, memory, (size_t)size);
    if (size == 0 && !client->complete && client->callback_status == STATUS_OK)
        status = fail(client, client->receiving ? "the server broke off its answer"
                                                : "the server closed the connection");
    return status;
}

/* ---- the request -------------------------------------------------------------------------- */

static enum status write_head(struct http_client *client) {
    const struct http_client_request *request = client->request;
    bool bare = strchr(client->host, ':') == NULL;
    struct buffer *out = &client->out;
    enum status status = buffer_printf(
        out, "%s %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nUser-Agent: khala\r\n", request->method,
        request->target, bare ? "" : "[", client->host, bare ? "" : "]", client->port);
    if (status == STATUS_OK && request->key)
        status = buffer_printf(out, "Authorization: Bearer %s\r\n", request->key);
    if (status == STATUS_OK && request->content_type)
        status = buffer_printf(out, "Content-Type: %s\r\n", request->content_type);
    if (status == STATUS_OK && request->source)
        status = buffer_append_slice(out, SLICE("Transfer-Encoding: chunked\r\n\r\n"));
    else if (status == STATUS_OK && request->content_type)
        status = buffer_printf(out, "Content-Length: %zu\r\n\r\n", request->body.size);
    else if (status == STATUS_OK)
        status = buffer_append_slice(out, SLICE("\r\n"));
    if (status == STATUS_OK && request->content_type && !request->source)
        status = buffer_append_slice(out, request->body);
    return status;
}

static enum status take_piece(struct http_client *client, bool idle) {
    const struct http_client_source *source = client->request->source;
    struct slice piece = {NULL, 0};
    enum status status = source->next(source->user, idle, &piece, &client->source_over);
    if (status == STATUS_OK)
        status = http1_chunk(&client->out, piece);
    if (status == STATUS_OK && client->source_over)
        status = http1_chunk_end(&client->out);
    return status;
}

static enum status send_some(struct http_client *client) {
    struct slice unsent = slice_from(buffer_slice(&client->out), client->out_sent);
    ssize_t size = client->tls ? tls_stream_send(client->tls, unsent.data, unsent.size)
                               : send(client->socket, unsent.data, unsent.size, MSG_NOSIGNAL);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return STATUS_OK;
    /* A server that refuses early has answered, and that answer may still be read. */
    if (size < 0 && (errno == EPIPE || errno == ECONNRESET)) {
        client->source_over = true;
        client->out_sent = client->out.size;
        return STATUS_OK;
    }
    if (size < 0)
        return fail(client, "the connection broke: %s", strerror(errno));
    client->out_sent += (size_t)size;
    if (client->out_sent == client->out.size) {
        buffer_clear(&client->out);
        client->out_sent = 0;
    }
    return STATUS_OK;
}

/* One turn of sending and receiving, whichever can be done. */
static enum status turn(struct http_client *client) {
    const struct http_client_source *source = client->request->source;
    bool unsent = client->out.size > client->out_sent;
    bool wants_piece = source && !client->source_over && !unsent;
    bool watches_idle = wants_piece && source->idle_ms_max >= 0;
    int stop_fd = client->request->stop_fd;
    struct pollfd wait[3] = {{client->socket, (short)(unsent ? POLLIN | POLLOUT : POLLIN), 0},
                             {wants_piece ? source->fd : -1, POLLIN, 0},
                             {stop_fd > 0 ? stop_fd : -1, POLLIN, 0}};
    int timeout_ms = wants_piece ? (watches_idle ? source->idle_ms_max : -1) : SILENCE_MS_MAX;
    int ready = poll(wait, 3, timeout_ms);
    if (ready < 0)
        return errno == EINTR ? STATUS_OK : fail(client, "poll: %s", strerror(errno));
    if (ready == 0 && !watches_idle)
        return fail(client, "the server said nothing for %d s", SILENCE_MS_MAX / 1000);
    if (wait[2].revents)
        return STATUS_SHUTTING_DOWN;
    enum status status = STATUS_OK;
    if (wait[0].revents & POLLOUT)
        status = send_some(client);
    if (status == STATUS_OK && wants_piece && (ready == 0 || wait[1].revents))
        status = take_piece(client, ready == 0);
    if (status == STATUS_OK && wait[0].revents & (POLLIN | POLLHUP | POLLERR))
        status = receive(client);
    return status;
}

static enum status exchange_once(struct http_client *client) {
    client->complete = client->source_over = client->receiving = false;
    client->callback_status = STATUS_OK;
    client->out_sent = 0;
    buffer_clear(&client->out);
    http_parser_init(&client->parser, HTTP_RESPONSE);
    client->parser.data = client;
    enum status status = write_head(client);
    while (status == STATUS_OK && !client->complete)
        status = turn(client);
    return status;
}

enum status http_client_exchange(struct http_client *client,
                                 const struct http_client_request *request, unsigned *http_status) {
    enum status status = STATUS_OK;
    client->request = request;
    client->message[0] = '\0';
    if (client->socket < 0)
        status = connect_client(client);
    if (status == STATUS_OK)
        status = exchange_once(client);
    *http_status = client->parser.status_code;
    bool sent = client->out.size == client->out_sent && (!request->source || client->source_over);
    if (status != STATUS_OK || !client->keep_alive || !sent)
        disconnect(client);
    buffer_release(&client->out);
    return status;
}
