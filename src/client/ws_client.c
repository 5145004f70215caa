#include "client/ws_client.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "client/client_limits.h"
#include "client/http_call.h"
#include "wire/websocket/ws_decoder.h"
#include "wire/websocket/ws_handshake.h"

#define REQUEST_BYTES_MAX (64u << 10)
#define REFUSAL_BYTES_MAX (1u << 20)
#define CLOSE_NORMALLY    "\x03\xe8"

struct ws_client {
    struct ws_client_options options;
    struct outbound *outbound; /* NULL: none, or no more */
    struct buffer request;
    struct http_answer answer;
    struct ws_shared shared;
    struct ws_decoder decoder;
    char accept[WS_ACCEPT_CHARACTERS + 1];
    bool is_open;
    bool is_closed; /* the owner wants no more events */
    bool is_ended;
    bool is_busy; /* an event of the stream is being handled */
};

static void free_client(struct ws_client *client) {
    ws_decoder_release(&client->decoder);
    ws_shared_release(&client->shared);
    http1_answer_release(&client->answer.head);
    buffer_release(&client->answer.body);
    buffer_release(&client->request);
    free(client);
}

static void end(struct ws_client *client, unsigned close, const struct client_error *error) {
    if (client->is_ended || client->is_closed)
        return;
    client->is_ended = true;
    client->options.events->ended(client->options.user, close, error);
}

static void end_with(struct ws_client *client, const char *code, const char *message) {
    struct client_error error = client_error_make(CLIENT_POLICY_RETRY, code, message);
    end(client, 0, &error);
}

/* ---- frames ------------------------------------------------------------------------------- */

static enum status send_frame(struct ws_client *client, enum ws_opcode opcode,
                              struct slice payload) {
    struct buffer frame;
    uint8_t mask[4];
    if (getrandom(mask, sizeof(mask), 0) != sizeof(mask))
        return STATUS_SYSTEM_ERROR;
    buffer_init(&frame, CLIENT_OUT_BYTES_MAX);
    enum status status = ws_frame_write_masked(&frame, opcode, payload, mask);
    if (status == STATUS_OK)
        status = outbound_send(client->outbound, buffer_slice(&frame));
    buffer_release(&frame);
    return status;
}

static enum status on_message(void *user, enum ws_opcode opcode, struct slice message) {
    struct ws_client *client = user;
    if (client->is_closed || client->is_ended)
        return STATUS_OK;
    if (opcode == WS_TEXT)
        client->options.events->received(client->options.user, message);
    else
        end_with(client, "invalid_message", "The server sent a binary message.");
    return STATUS_OK;
}

static enum status on_ping(void *user, struct slice payload) {
    struct ws_client *client = user;
    return client->is_closed || !client->outbound ? STATUS_OK
                                                  : send_frame(client, WS_PONG, payload);
}

static enum status on_pong(void *user, struct slice payload) {
    (void)user;
    (void)payload;
    return STATUS_OK;
}

static enum status on_close(void *user, unsigned code, struct slice reason) {
    struct ws_client *client = user;
    struct client_error error = client_error_read((struct json_value){JSON_KIND_NULL, {"", 0}},
                                                  code == WS_CLOSE_CODE_ABSENT ? 0 : code, 0);
    (void)reason;
    end(client, code, &error);
    return STATUS_OK;
}

static const struct ws_handlers handlers = {on_message, on_ping, on_pong, on_close};

/* ---- the handshake ------------------------------------------------------------------------ */

static enum status write_request(struct ws_client *client) {
    unsigned char random[16];
    char key[WS_KEY_CHARACTERS + 1];
    const struct outbound_target *target = &client->options.net->target;
    bool is_bare = strchr(target->host, ':') == NULL;
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return STATUS_SYSTEM_ERROR;
    EVP_EncodeBlock((unsigned char *)key, random, sizeof(random));
    if (!ws_accept((struct slice){key, WS_KEY_CHARACTERS}, client->accept))
        return STATUS_SYSTEM_ERROR;
    return buffer_printf(&client->request,
                         "GET %.*s HTTP/1.1\r\nHost: %s%s%s:%u\r\nUpgrade: websocket\r\n"
                         "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                         "Sec-WebSocket-Key: %s\r\n\r\n",
                         (int)client->options.path.size, client->options.path.data,
                         is_bare ? "" : "[", target->host, is_bare ? "" : "]", target->port, key);
}

static void refuse(struct ws_client *client) {
    struct client_error error = client_error_of_answer(&client->answer);
    end(client, 0, &error);
}

static void read_answer(struct ws_client *client, struct slice *data) {
    struct http_answer *answer = &client->answer;
    enum status status = http1_answer_read(&answer->head, data, &answer->body);
    if (status != STATUS_OK) {
        end_with(client, "bad_gateway", "The server's answer is not HTTP.");
    } else if (!http1_answer_is_done(&answer->head)) {
        return;
    } else if (!answer->head.is_upgrade) {
        refuse(client);
    } else if (!slice_equal(http_answer_field(answer, SLICE("sec-websocket-accept")),
                            slice_of(client->accept))) {
        end_with(client, "bad_gateway", "The answer belongs to another handshake.");
    } else {
        client->is_open = true;
        client->options.events->opened(client->options.user);
    }
}

static void on_received(void *user, struct slice data) {
    struct ws_client *client = user;
    client->is_busy = true;
    if (!client->is_open)
        read_answer(client, &data);
    if (client->is_open && !client->is_closed && !client->is_ended &&
        ws_feed(&client->decoder, data) != STATUS_OK)
        end_with(client, "invalid_message", "The server sent a frame that is not valid.");
    client->is_busy = false;
    if (client->is_closed)
        free_client(client);
}

static void on_opened(void *user) {
    struct ws_client *client = user;
    client->is_busy = true;
    if (outbound_send(client->outbound, buffer_slice(&client->request)) != STATUS_OK)
        end_with(client, "out_of_memory", "There is no memory for the request.");
    buffer_release(&client->request);
    client->is_busy = false;
    if (client->is_closed)
        free_client(client);
}

static void on_lost(void *user, const char *reason) {
    struct ws_client *client = user;
    client->outbound = NULL;
    client->is_busy = true;
    if (!client->is_open && client->answer.head.has_head &&
        http1_answer_end(&client->answer.head) == STATUS_OK)
        refuse(client);
    else
        end_with(client, client->is_open ? "closed_1006" : "connect_failed", reason);
    client->is_busy = false;
    if (client->is_closed)
        free_client(client);
}

static const struct outbound_events events = {on_opened, on_received, on_lost, NULL};

enum status ws_client_open(struct ws_client **client, const struct ws_client_options *options) {
    struct ws_client *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->options = *options;
    buffer_init(&made->request, REQUEST_BYTES_MAX);
    http1_answer_init(&made->answer.head, &http_answer_peer);
    buffer_init(&made->answer.body, REFUSAL_BYTES_MAX);
    ws_shared_init(&made->shared);
    ws_decoder_init(&made->decoder, &made->shared, &handlers, made, CLIENT_MESSAGE_BYTES_MAX,
                    false);
    ws_decoder_from_server(&made->decoder);
    enum status status = write_request(made);
    if (status == STATUS_OK)
        status = client_net_connect(options->net, &made->outbound, &events, made);
    made->options.path = (struct slice){NULL, 0};
    if (status == STATUS_OK)
        *client = made;
    else
        free_client(made);
    return status;
}

enum status ws_client_send(struct ws_client *client, struct slice text) {
    return client->is_open && client->outbound ? send_frame(client, WS_TEXT, text)
                                               : STATUS_SYSTEM_ERROR;
}

void ws_client_close(struct ws_client *client) {
    if (!client)
        return;
    client->is_closed = true;
    /* The end of the connection says the same if this frame cannot be sent. */
    if (client->is_open && !client->is_ended && client->outbound)
        (void)send_frame(client, WS_CLOSE, SLICE(CLOSE_NORMALLY));
    outbound_close(client->outbound);
    client->outbound = NULL;
    if (!client->is_busy)
        free_client(client);
}
