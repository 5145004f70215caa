#include "client/client_options.h"

#include <stdlib.h>
#include <string.h>

#include "client/client_limits.h"

size_t client_text_size(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

const char *client_text_copy(char **at, const char *text) {
    char *copy = *at;
    if (!text)
        return NULL;
    memcpy(copy, text, client_text_size(text));
    *at += client_text_size(text);
    return copy;
}

bool client_options_copy(struct khala_options *own, char **texts,
                         const struct khala_options *options) {
    char *at = malloc(1 + client_text_size(options->url) + client_text_size(options->ca_file) +
                      client_text_size(options->client_build_id) +
                      client_text_size(options->outbox) + client_text_size(options->append_path));
    if (!at)
        return false;
    *texts = at;
    *own = *options;
    own->url = client_text_copy(&at, options->url);
    own->ca_file = client_text_copy(&at, options->ca_file);
    own->client_build_id = client_text_copy(&at, options->client_build_id);
    own->outbox = client_text_copy(&at, options->outbox);
    own->append_path = client_text_copy(&at, options->append_path);
    const struct {
        unsigned *value;
        unsigned fallback;
    } numbers[] = {
        {&own->back_off_base_ms, CLIENT_BACK_OFF_BASE_MS},
        {&own->back_off_max_ms, CLIENT_BACK_OFF_MAX_MS},
        {&own->token_timeout_ms, CLIENT_TOKEN_MS},
        {&own->connect_timeout_ms, CLIENT_CONNECT_MS},
        {&own->queue_frames_max, CLIENT_QUEUE_FRAMES_MAX},
        {&own->append_items_max, CLIENT_APPEND_ITEMS_MAX},
        {&own->append_bytes_max, CLIENT_APPEND_BYTES_MAX},
        {&own->batch_items_max, CLIENT_BATCH_ITEMS_MAX},
        {&own->batch_bytes_max, CLIENT_BATCH_BYTES_MAX},
        {&own->batch_ms, CLIENT_BATCH_MS},
        {&own->append_requests_max, CLIENT_APPEND_REQUESTS_MAX},
        {&own->close_timeout_ms, CLIENT_CLOSE_MS},
        {&own->request_timeout_ms, CLIENT_REQUEST_MS},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (*numbers[i].value == 0)
            *numbers[i].value = numbers[i].fallback;
    if (own->batch_items_max > CLIENT_BATCH_ITEMS_MAX)
        own->batch_items_max = CLIENT_BATCH_ITEMS_MAX;
    if (own->batch_bytes_max > CLIENT_BATCH_BYTES_MAX)
        own->batch_bytes_max = CLIENT_BATCH_BYTES_MAX;
    if (own->append_requests_max > CLIENT_APPEND_REQUESTS_MAX)
        own->append_requests_max = CLIENT_APPEND_REQUESTS_MAX;
    return true;
}
