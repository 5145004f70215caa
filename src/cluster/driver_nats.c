/* Core NATS: a subject for the channel, without persistence. The library has threads of its own and
 * calls back from them, also shortly after a connection is destroyed. So the struct is shared: each
 * of the callbacks that come last holds a reference. */
#include <errno.h>
#include <nats/nats.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "cluster/driver.h"

struct nats {
    natsConnection *connection;
    natsSubscription *subscription;
    const struct fanout_port *port;
    pthread_mutex_t lock;
    bool is_open; /* under lock, as the next; false: port may be gone */
    unsigned references;
};

static void unref(struct nats *nats) {
    pthread_mutex_lock(&nats->lock);
    bool is_last = --nats->references == 0;
    pthread_mutex_unlock(&nats->lock);
    if (!is_last)
        return;
    pthread_mutex_destroy(&nats->lock);
    free(nats);
}

static void ref(struct nats *nats) {
    pthread_mutex_lock(&nats->lock);
    nats->references++;
    pthread_mutex_unlock(&nats->lock);
}

/* Takes a ref back. The caller has another reference. */
static void undo_ref(struct nats *nats) {
    pthread_mutex_lock(&nats->lock);
    nats->references--;
    pthread_mutex_unlock(&nats->lock);
}

/* The lock is held meanwhile, so that closing waits for the call. */
static void on_message(natsConnection *connection, natsSubscription *subscription, natsMsg *message,
                       void *user) {
    struct nats *nats = user;
    (void)connection;
    (void)subscription;
    struct slice text = {natsMsg_GetData(message), (size_t)natsMsg_GetDataLength(message)};
    pthread_mutex_lock(&nats->lock);
    if (nats->is_open)
        nats->port->on_text(nats->port->user, text);
    pthread_mutex_unlock(&nats->lock);
    natsMsg_Destroy(message);
}

static void on_delivery_end(void *user) {
    unref(user);
}

static void on_closed(natsConnection *connection, void *user) {
    struct nats *nats = user;
    (void)connection;
    pthread_mutex_lock(&nats->lock);
    if (nats->is_open)
        nats->port->wake(nats->port->user);
    pthread_mutex_unlock(&nats->lock);
    unref(nats);
}

/* The library would print to standard error. */
static void on_error(natsConnection *connection, natsSubscription *subscription, natsStatus error,
                     void *user) {
    struct nats *nats = user;
    (void)connection;
    (void)subscription;
    pthread_mutex_lock(&nats->lock);
    if (nats->is_open && error == NATS_SLOW_CONSUMER)
        nats->port->on_loss(nats->port->user);
    pthread_mutex_unlock(&nats->lock);
}

static enum status fail(char error[FANOUT_ERROR_BYTES_MAX], natsStatus status) {
    snprintf(error, FANOUT_ERROR_BYTES_MAX, "%s", natsStatus_GetText(status));
    return STATUS_SYSTEM_ERROR;
}

static const char plain[] = "nats://";
static const char secure[] = "tls://";

static bool has_scheme(const char *url, const char *scheme) {
    return strncmp(url, scheme, strlen(scheme)) == 0 && url[strlen(scheme)] != '\0';
}

/* The library checks the rest when it connects. */
static const char *nats_check_url(const char *url) {
    return has_scheme(url, plain) || has_scheme(url, secure)
               ? NULL
               : "is no URL like nats://127.0.0.1:4222 or tls://nats.example:4222";
}

/* The thread of the fanout connects again by itself, so that there is one backoff for all drivers.
 */
static natsStatus set_options(natsOptions *options, struct nats *nats) {
    natsStatus status = natsOptions_SetURL(options, nats->port->url);
    if (status == NATS_OK)
        status = natsOptions_SetName(options, "khala-fanout");
    if (status == NATS_OK && has_scheme(nats->port->url, secure))
        status = natsOptions_SetSecure(options, true);
    if (status == NATS_OK)
        status = natsOptions_SetTimeout(options, FANOUT_TIMEOUT_MS);
    if (status == NATS_OK)
        status = natsOptions_SetAllowReconnect(options, false);
    if (status == NATS_OK)
        status = natsOptions_SetNoEcho(options, true);
    if (status == NATS_OK)
        status = natsOptions_SetErrorHandler(options, on_error, nats);
    if (status == NATS_OK)
        status = natsOptions_SetClosedCB(options, on_closed, nats);
    return status;
}

static natsStatus subscribe(struct nats *nats) {
    natsStatus status = natsConnection_Subscribe(&nats->subscription, nats->connection,
                                                 nats->port->channel, on_message, nats);
    if (status != NATS_OK)
        return status;
    ref(nats);
    status = natsSubscription_SetOnCompleteCB(nats->subscription, on_delivery_end, nats);
    if (status != NATS_OK)
        undo_ref(nats);
    if (status == NATS_OK)
        status = natsSubscription_SetPendingLimits(nats->subscription, FANOUT_QUEUE_MAX,
                                                   FANOUT_QUEUE_BYTES_MAX);
    /* The round trip tells that the server has the subscription. */
    return status == NATS_OK ? natsConnection_FlushTimeout(nats->connection, FANOUT_TIMEOUT_MS)
                             : status;
}

static void nats_close(void *connection) {
    struct nats *nats = connection;
    pthread_mutex_lock(&nats->lock);
    nats->is_open = false;
    pthread_mutex_unlock(&nats->lock);
    natsSubscription_Destroy(nats->subscription);
    natsConnection_Destroy(nats->connection);
    unref(nats);
}

static enum status nats_connect(void **connection, const struct fanout_port *port,
                                char error[FANOUT_ERROR_BYTES_MAX]) {
    struct nats *nats = calloc(1, sizeof(*nats));
    natsOptions *options = NULL;
    if (!nats)
        return fail(error, NATS_NO_MEMORY);
    nats->port = port;
    nats->is_open = true;
    nats->references = 1;
    pthread_mutex_init(&nats->lock, NULL);
    natsStatus status = natsOptions_Create(&options);
    if (status == NATS_OK)
        status = set_options(options, nats);
    if (status == NATS_OK) {
        ref(nats); /* of on_closed, which comes once for each connection made */
        status = natsConnection_Connect(&nats->connection, options);
        if (status != NATS_OK)
            undo_ref(nats);
    }
    natsOptions_Destroy(options);
    if (status == NATS_OK)
        status = subscribe(nats);
    if (status == NATS_OK) {
        *connection = nats;
        return STATUS_OK;
    }
    nats_close(nats);
    return fail(error, status);
}

static enum status nats_ping(void *connection, char error[FANOUT_ERROR_BYTES_MAX]) {
    struct nats *nats = connection;
    natsStatus status = natsConnection_FlushTimeout(nats->connection, FANOUT_TIMEOUT_MS);
    return status == NATS_OK ? STATUS_OK : fail(error, status);
}

static enum status nats_send(void *connection, struct slice text,
                             char error[FANOUT_ERROR_BYTES_MAX]) {
    struct nats *nats = connection;
    natsStatus status =
        natsConnection_Publish(nats->connection, nats->port->channel, text.data, (int)text.size);
    return status == NATS_OK ? nats_ping(connection, error) : fail(error, status);
}

/* Messages come by on_message. */
static enum status nats_wait(void *connection, int timeout_ms, char error[FANOUT_ERROR_BYTES_MAX]) {
    struct nats *nats = connection;
    struct pollfd wait = {.fd = nats->port->wake_fd, .events = POLLIN};
    if (natsConnection_IsClosed(nats->connection))
        return fail(error, NATS_CONNECTION_CLOSED);
    if (poll(&wait, 1, timeout_ms) < 0 && errno != EINTR)
        return fail(error, NATS_IO_ERROR);
    return STATUS_OK;
}

const struct fanout_driver fanout_driver_nats = {
    .name = "nats",
    .check_url = nats_check_url,
    .connect = nats_connect,
    .send = nats_send,
    .ping = nats_ping,
    .wait = nats_wait,
    .close = nats_close,
};
