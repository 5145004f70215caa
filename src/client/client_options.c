#include "client/client_options.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64url.h"
#include "client/client_limits.h"
#include "wire/json.h"

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

#define CLAIMS_BYTES_MAX 8192
#define SECONDS_MAX      (UINT64_C(1) << 40)

bool token_life_ms(struct slice token, uint64_t wall_ms, uint64_t *life_ms) {
    const struct json_limits limits = {CLAIMS_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("iat")}, {.name = SLICE("exp")}};
    char claims[CLAIMS_BYTES_MAX];
    size_t size = 0;
    uint64_t iat, exp;
    const char *first = token.size > 0 ? memchr(token.data, '.', token.size) : NULL;
    if (!first)
        return false;
    struct slice rest = slice_from(token, (size_t)(first - token.data) + 1);
    const char *second = rest.size > 0 ? memchr(rest.data, '.', rest.size) : NULL;
    if (second)
        rest.size = (size_t)(second - rest.data);
    if (base64url_decode(rest, claims, sizeof(claims), &size) != STATUS_OK ||
        json_read_object((struct slice){claims, size}, &limits, fields, 2) != STATUS_OK ||
        !fields[0].present || !json_u64(fields[0].value, SECONDS_MAX, &iat) || !fields[1].present ||
        !json_u64(fields[1].value, SECONDS_MAX, &exp) || exp <= iat)
        return false;
    uint64_t whole_ms = (exp - iat) * 1000;
    bool is_left = exp * 1000 > wall_ms && exp * 1000 - wall_ms <= whole_ms;
    *life_ms = is_left ? exp * 1000 - wall_ms : whole_ms;
    return true;
}
