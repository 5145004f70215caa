#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "delivery/relay/relay.h"

#define TIMEOUT_MS 5000

struct nats {
    natsConnection *connection; /* NULL: not connected */
    const char *url;
    const char *prefix;
};

static void disconnect(struct nats *nats) {
    natsConnection_Destroy(nats->connection);
    nats->connection = NULL;
}

/* The relay tries again by itself, so that it knows whether the target has a message. */
static natsStatus connect_once(struct nats *nats) {
    natsOptions *options = NULL;
    natsStatus status = natsOptions_Create(&options);
    if (status == NATS_OK)
        status = natsOptions_SetURL(options, nats->url);
    if (status == NATS_OK)
        status = natsOptions_SetName(options, "khala");
    if (status == NATS_OK)
        status = natsOptions_SetTimeout(options, TIMEOUT_MS);
    if (status == NATS_OK)
        status = natsOptions_SetAllowReconnect(options, false);
    if (status == NATS_OK)
        status = natsConnection_Connect(&nats->connection, options);
    natsOptions_Destroy(options);
    return status;
}

/* A round trip: the server answers in order, so an error of this message arrives before the answer
 * to the flush. The library only notes such an error, as with a subject that the user may not
 * publish to. */
static natsStatus publish(struct nats *nats, const struct relay_message *message) {
    char *subject = NULL;
    char *id = strndup(message->id.data, message->id.size);
    natsMsg *made = NULL;
    const char *text = NULL;
    natsStatus status = NATS_NO_MEMORY;
    if (id && asprintf(&subject, "%s.%.*s", nats->prefix, (int)message->topic.size,
                       message->topic.data) >= 0)
        status = natsMsg_Create(&made, subject, NULL, message->text.data, (int)message->text.size);
    else
        subject = NULL;
    if (status == NATS_OK)
        status = natsMsgHeader_Set(made, "Nats-Msg-Id", id);
    if (status == NATS_OK)
        status = natsConnection_PublishMsg(nats->connection, made);
    if (status == NATS_OK)
        status = natsConnection_FlushTimeout(nats->connection, TIMEOUT_MS);
    if (status == NATS_OK)
        status = natsConnection_GetLastError(nats->connection, &text);
    natsMsg_Destroy(made);
    free(subject);
    free(id);
    return status;
}

/* A refusal ends the connection too, because the library keeps the error as long as that lasts. */
static enum relay_answer nats_send(void *user, const struct relay_message *message, int stop_fd,
                                   char error[RELAY_ERROR_BYTES_MAX]) {
    struct nats *nats = user;
    (void)stop_fd; /* a wait ends after the timeout at the latest */
    natsStatus connected = nats->connection ? NATS_OK : connect_once(nats);
    natsStatus status = connected == NATS_OK ? publish(nats, message) : connected;
    if (status == NATS_OK)
        return RELAY_TAKEN;
    const char *text = NULL;
    if (nats->connection)
        (void)natsConnection_GetLastError(nats->connection, &text);
    snprintf(error, RELAY_ERROR_BYTES_MAX, "%s", text && *text ? text : natsStatus_GetText(status));
    disconnect(nats);
    bool is_refused =
        connected == NATS_OK && (status == NATS_MAX_PAYLOAD || status == NATS_NOT_PERMITTED);
    return is_refused ? RELAY_REFUSED : RELAY_UNREACHABLE;
}

static void nats_close(void *user) {
    struct nats *nats = user;
    disconnect(nats);
    free(nats);
}

enum status relay_nats_open(struct relay_target *target, const char *url, const char *prefix) {
    struct nats *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->url = url;
    made->prefix = prefix;
    *target = (struct relay_target){LABEL_SINK_NATS, made, nats_send, nats_close};
    return STATUS_OK;
}
