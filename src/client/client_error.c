#include "client/client_error.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/decimal.h"
#include "client/client_limits.h"
#include "client/http_call.h"

enum client_policy client_policy_of(const char *code) {
    for (const struct client_policy_row *row = client_policies; row->code; row++)
        if (strcmp(row->code, code) == 0)
            return row->policy;
    return CLIENT_POLICY_RETRY;
}

static bool is_known(const char *code) {
    for (const struct client_policy_row *row = client_policies; row->code; row++)
        if (strcmp(row->code, code) == 0)
            return true;
    return false;
}

struct client_error client_error_make(enum client_policy policy, const char *code,
                                      const char *message) {
    struct client_error error = {.policy = policy, .retry_after_ms = -1};
    snprintf(error.code, sizeof(error.code), "%s", code);
    snprintf(error.message, sizeof(error.message), "%s", message);
    return error;
}

/* Decodes a string; "" for any other value. */
static void read_text(struct json_value value, char *text, size_t size) {
    struct buffer out = buffer_over(text, size - 1);
    struct slice plain;
    if (value.kind == JSON_KIND_STRING && json_string_decode(value, &out) != STATUS_OK &&
        json_string_slice(value, &plain)) {
        out.size = plain.size < size - 1 ? plain.size : size - 1;
        memcpy(text, plain.data, out.size);
    }
    text[value.kind == JSON_KIND_STRING ? out.size : 0] = '\0';
}

/* A hint in milliseconds, which may have a fraction. */
static int64_t read_hint(const struct json_field *field) {
    char text[32];
    if (!field->present || field->value.kind != JSON_KIND_NUMBER ||
        field->value.raw.size >= sizeof(text))
        return -1;
    memcpy(text, field->value.raw.data, field->value.raw.size);
    text[field->value.raw.size] = '\0';
    double number = strtod(text, NULL);
    if (!(number >= 0))
        return -1;
    return number < CLIENT_HINT_MS_MAX ? (int64_t)number : CLIENT_HINT_MS_MAX;
}

static int64_t hint_of(struct json_value object) {
    struct json_field fields[] = {{.name = SLICE("reconnect_after_ms")},
                                  {.name = SLICE("retry_after_ms")}};
    if (object.kind != JSON_KIND_OBJECT || json_read_members(object, fields, 2) != STATUS_OK)
        return -1;
    int64_t hint = read_hint(&fields[0]);
    return hint >= 0 ? hint : read_hint(&fields[1]);
}

struct client_error client_error_read(struct json_value body, unsigned close,
                                      unsigned http_status) {
    enum { REASON_CODE, CODE, ERROR, MESSAGE, REQUEST_ID, DETAILS, COUNT };
    struct json_field fields[COUNT] = {{.name = SLICE("reason_code")}, {.name = SLICE("code")},
                                       {.name = SLICE("error")},       {.name = SLICE("message")},
                                       {.name = SLICE("request_id")},  {.name = SLICE("details")}};
    struct client_error error = {.retry_after_ms = -1, .http_status = http_status};
    char numbers[2][16], code[CLIENT_CODE_BYTES_MAX];
    const char *deciding = NULL;
    snprintf(numbers[0], sizeof(numbers[0]), "%u", http_status);
    snprintf(numbers[1], sizeof(numbers[1]), "%u", close);
    if (body.kind == JSON_KIND_OBJECT && json_read_members(body, fields, COUNT) == STATUS_OK) {
        for (int i = REASON_CODE; i <= ERROR; i++) {
            read_text(fields[i].value, code, sizeof(code));
            if (!fields[i].present || !*code)
                continue;
            if (!*error.code)
                memcpy(error.code, code, sizeof(code));
            if (!deciding && is_known(code)) {
                error.policy = client_policy_of(code);
                deciding = error.code;
            }
        }
        if (fields[MESSAGE].present)
            read_text(fields[MESSAGE].value, error.message, sizeof(error.message));
        read_text(fields[REQUEST_ID].value, error.request_id, sizeof(error.request_id));
        error.retry_after_ms = hint_of(body);
        if (error.retry_after_ms < 0 && fields[DETAILS].present)
            error.retry_after_ms = hint_of(fields[DETAILS].value);
        /* In the Phoenix dialect the details are members of the body. */
        bool is_flat = fields[CODE].present && !fields[DETAILS].present;
        struct json_value details = is_flat ? body : fields[DETAILS].value;
        if (details.kind == JSON_KIND_OBJECT && details.raw.size < sizeof(error.details))
            memcpy(error.details, details.raw.data, details.raw.size);
    }
    for (int i = 0; i < 2 && !deciding; i++)
        if (is_known(numbers[i])) {
            deciding = numbers[i];
            error.policy = client_policy_of(deciding);
        }
    if (!*error.code && close + http_status == 0)
        snprintf(error.code, sizeof(error.code), "closed_early");
    else if (!*error.code)
        snprintf(error.code, sizeof(error.code), "closed_%u", close ? close : http_status);
    if (!*error.message)
        snprintf(error.message, sizeof(error.message), "The server ended the connection (%s).",
                 error.code);
    return error;
}

struct client_error client_error_of_body(unsigned http_status, struct slice text) {
    const struct json_limits limits = {CLIENT_ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field own[] = {{.name = SLICE("error")}, {.name = SLICE("request_id")}};
    struct json_value body;
    struct client_error error;
    bool is_own = json_parse(text, &limits, &body) == STATUS_OK && body.kind == JSON_KIND_OBJECT &&
                  json_read_members(body, own, 2) == STATUS_OK && own[0].present &&
                  own[0].value.kind == JSON_KIND_STRING && own[1].present &&
                  own[1].value.kind == JSON_KIND_STRING;
    if (is_own) {
        error = client_error_read(body, 0, http_status);
    } else {
        char message[64];
        snprintf(message, sizeof(message), "An answer %u that is not the server's.", http_status);
        error = client_error_make(CLIENT_POLICY_RETRY, "bad_gateway", message);
        error.http_status = http_status;
    }
    return error;
}

void client_error_first_reason(struct json_value reasons, char reason[CLIENT_CODE_BYTES_MAX]) {
    struct json_value first;
    struct slice text;
    reason[0] = '\0';
    if (reasons.kind != JSON_KIND_ARRAY)
        return;
    struct json_iterator iterator = json_iterate(reasons);
    if (json_next_element(&iterator, &first) && json_string_slice(first, &text))
        snprintf(reason, CLIENT_CODE_BYTES_MAX, "%.*s", (int)text.size, text.data);
}

void client_error_set_request(struct client_error *error, const char *id) {
    snprintf(error->request_id, sizeof(error->request_id), "%s", id);
}

struct client_error client_error_of_answer(const struct http_answer *answer) {
    struct client_error error =
        client_error_of_body(answer->head.http_status, buffer_slice(&answer->body));
    struct slice after = http_answer_field(answer, SLICE("retry-after"));
    struct slice id = http_answer_field(answer, SLICE("x-request-id"));
    uint64_t seconds = 0;
    if (error.retry_after_ms < 0 && decimal_parse_u64(after, &seconds))
        error.retry_after_ms =
            seconds < CLIENT_HINT_MS_MAX / 1000 ? (int64_t)seconds * 1000 : CLIENT_HINT_MS_MAX;
    if (!*error.request_id)
        snprintf(error.request_id, sizeof(error.request_id), "%.*s", (int)id.size, id.data);
    return error;
}

struct khala_error client_error_shown(const struct client_error *error, const char *topic) {
    return (struct khala_error){.code = error->code,
                                .message = error->message,
                                .topic = topic && *topic ? topic : NULL,
                                .http_status = error->http_status,
                                .is_final = error->policy == CLIENT_POLICY_FINAL ||
                                            error->policy == CLIENT_POLICY_TOPIC_FINAL,
                                .details = *error->details ? error->details : NULL,
                                .request_id = *error->request_id ? error->request_id : NULL};
}
