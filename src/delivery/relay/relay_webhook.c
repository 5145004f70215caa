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

/* The receiver will not take the message when it is sent again. The others may pass: a missing
 * route or key is a mistake of the set-up, 408, 425 and 429 ask for another attempt. */
static bool is_final(unsigned http_status) {
    static const unsigned may_pass[] = {401, 403, 404, 405, 408, 425, 429};
    if (http_status < 400 || http_status >= 500)
        return false;
    for (size_t i = 0; i < sizeof(may_pass) / sizeof(may_pass[0]); i++)
        if (http_status == may_pass[i])
            return false;
    return true;
}

static enum status webhook_send(void *user, const struct relay_message *message, int stop_fd,
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
        return STATUS_SYSTEM_ERROR;
    }
    if (http_status >= 200 && http_status < 300)
        return STATUS_OK;
    snprintf(error, RELAY_ERROR_BYTES_MAX, "the receiver answered %u", http_status);
    return is_final(http_status) ? STATUS_INVALID_REQUEST : STATUS_SYSTEM_ERROR;
}

static void webhook_close(void *user) {
    struct webhook *webhook = user;
    blocking_http_close(webhook->client);
    free(webhook->target);
    free(webhook);
}

/* Where the path begins: the end of the text if there is none. */
static const char *path_of(const char *url) {
    const char *mark = strstr(url, "://");
    const char *host = mark ? mark + 3 : url;
    return host + strcspn(host, "/?");
}

enum status relay_webhook_open(struct relay_target *target, const char *url, const char *key) {
    const char *path = path_of(url);
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
