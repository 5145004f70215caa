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

/* The round trip tells that the server has the message. */
static natsStatus publish(struct nats *nats, const struct relay_message *message) {
    char *subject = NULL;
    char *id = strndup(message->id.data, message->id.size);
    natsMsg *made = NULL;
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
    natsMsg_Destroy(made);
    free(subject);
    free(id);
    return status;
}

static enum status nats_send(void *user, const struct relay_message *message, int stop_fd,
                             char error[RELAY_ERROR_BYTES_MAX]) {
    struct nats *nats = user;
    (void)stop_fd; /* a wait ends after the timeout at the latest */
    natsStatus status = nats->connection ? NATS_OK : connect_once(nats);
    if (status == NATS_OK)
        status = publish(nats, message);
    if (status == NATS_OK)
        return STATUS_OK;
    snprintf(error, RELAY_ERROR_BYTES_MAX, "%s", natsStatus_GetText(status));
    disconnect(nats);
    return status == NATS_MAX_PAYLOAD ? STATUS_INVALID_REQUEST : STATUS_SYSTEM_ERROR;
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
