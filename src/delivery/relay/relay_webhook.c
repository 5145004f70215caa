#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/blocking_http.h"
#include "delivery/relay/relay.h"

struct webhook {
    struct blocking_http *client;
    char *target; /* path and query of the URL */
    const char *key;
};

static enum relay_answer webhook_send(void *user, const struct relay_message *message, int stop_fd,
                                      char error[RELAY_ERROR_BYTES_MAX]) {
    struct webhook *webhook = user;
    unsigned http_status = 0;
    const struct blocking_request request = {
        .target = webhook->target,
        .key = webhook->key,
        .content_type = "application/json",
        .body = message->text,
        .stop_fd = stop_fd,
    };
    enum status status = blocking_http_run(webhook->client, &request, &http_status);
    if (status != STATUS_OK) {
        snprintf(error, RELAY_ERROR_BYTES_MAX, "%s", blocking_http_error(webhook->client));
        return RELAY_UNREACHABLE;
    }
    snprintf(error, RELAY_ERROR_BYTES_MAX, "the receiver answered %u", http_status);
    if (http_status >= 200 && http_status < 300)
        return RELAY_TAKEN;
    bool may_pass = http_status < 400 || http_status >= 500 || http_status == 408 ||
                    http_status == 425 || http_status == 429;
    return may_pass ? RELAY_FAILED : RELAY_REFUSED;
}

static void webhook_close(void *user) {
    struct webhook *webhook = user;
    blocking_http_close(webhook->client);
    free(webhook->target);
    free(webhook);
}

enum status relay_webhook_open(struct relay_target *target, const char *url, const char *key) {
    const char *mark = strstr(url, "://");
    const char *path = mark ? mark + 3 : url;
    path += strcspn(path, "/?");
    char *server = strndup(url, (size_t)(path - url));
    struct webhook *made = calloc(1, sizeof(*made));
    enum status status = server && made ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    if (status == STATUS_OK) {
        made->key = *key ? key : NULL;
        if (asprintf(&made->target, "%s%s", *path == '/' ? "" : "/", path) < 0) {
            made->target = NULL;
            status = STATUS_OUT_OF_MEMORY;
        }
    }
    if (status == STATUS_OK)
        status = blocking_http_open(&made->client, server, NULL);
    free(server);
    if (status != STATUS_OK) {
        if (made)
            free(made->target);
        free(made);
        return status;
    }
    *target = (struct relay_target){LABEL_SINK_WEBHOOK, made, webhook_send, webhook_close};
    return STATUS_OK;
}
