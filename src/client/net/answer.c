#include "client/net/answer.h"

#include <strings.h>

static const char *const names[ANSWER_HEADER_COUNT] = {
    [ANSWER_RETRY_AFTER] = "retry-after",
    [ANSWER_REQUEST_ID] = "x-request-id",
    [ANSWER_CONTENT_TYPE] = "content-type",
    [ANSWER_WS_ACCEPT] = "sec-websocket-accept",
};

static int on_field(http_parser *parser, const char *data, size_t size) {
    struct answer *answer = parser->data;
    if (answer->is_value)
        answer->field.size = 0;
    answer->is_value = false;
    for (size_t i = 0; i < size && answer->field.size + 1 < ANSWER_HEADER_BYTES_MAX; i++)
        answer->field.text[answer->field.size++] = data[i];
    answer->field.text[answer->field.size] = '\0';
    answer->named = 0;
    while (answer->named < ANSWER_HEADER_COUNT &&
           strcasecmp(answer->field.text, names[answer->named]) != 0)
        answer->named++;
    return 0;
}

static int on_value(http_parser *parser, const char *data, size_t size) {
    struct answer *answer = parser->data;
    answer->is_value = true;
    if (answer->named == ANSWER_OTHER)
        return 0;
    size_t *length = &answer->headers[answer->named].size;
    char *text = answer->headers[answer->named].text;
    for (size_t i = 0; i < size && *length + 1 < ANSWER_HEADER_BYTES_MAX; i++)
        text[(*length)++] = data[i];
    text[*length] = '\0';
    return 0;
}

static int on_body(http_parser *parser, const char *data, size_t size) {
    struct answer *answer = parser->data;
    answer->failure = answer->piece ? answer->piece(answer->user, (struct slice){data, size})
                                    : buffer_append(&answer->body, data, size);
    return answer->failure == STATUS_OK ? 0 : 1;
}

static int on_complete(http_parser *parser) {
    struct answer *answer = parser->data;
    /* 100 Continue and the like come before the answer. 101 is one. */
    if (parser->status_code >= 200 || parser->status_code == 101) {
        answer->is_complete = true;
        answer->keeps_connection = http_should_keep_alive(parser) != 0;
        http_parser_pause(parser, 1);
    }
    return 0;
}

void answer_init(struct answer *answer, size_t body_bytes_max) {
    *answer = (struct answer){.failure = STATUS_OK, .named = ANSWER_OTHER};
    http_parser_init(&answer->parser, HTTP_RESPONSE);
    answer->parser.data = answer;
    buffer_init(&answer->body, body_bytes_max);
}

void answer_release(struct answer *answer) {
    buffer_release(&answer->body);
}

enum status answer_feed(struct answer *answer, struct slice data, size_t *used) {
    http_parser_settings settings;
    http_parser_settings_init(&settings);
    settings.on_header_field = on_field;
    settings.on_header_value = on_value;
    settings.on_body = on_body;
    settings.on_message_complete = on_complete;
    answer->parser.data = answer;
    *used = 0;
    if (answer->is_complete)
        return STATUS_OK;
    *used = http_parser_execute(&answer->parser, &settings, data.data, data.size);
    if (answer->failure != STATUS_OK)
        return answer->failure;
    if (answer->is_complete)
        return STATUS_OK;
    if (*used == data.size && HTTP_PARSER_ERRNO(&answer->parser) == HPE_OK)
        return STATUS_OK;
    answer->failure = STATUS_INVALID_MESSAGE;
    return answer->failure;
}

enum status answer_end(struct answer *answer) {
    size_t used;
    enum status status = answer_feed(answer, (struct slice){"", 0}, &used);
    if (status == STATUS_OK && !answer->is_complete)
        status = STATUS_INVALID_MESSAGE;
    return status;
}

unsigned answer_status(const struct answer *answer) {
    return answer->parser.status_code;
}

bool answer_is_upgrade(const struct answer *answer) {
    return answer->parser.upgrade != 0 && answer->parser.status_code == 101;
}

const char *answer_header(const struct answer *answer, enum answer_header header) {
    return answer->headers[header].text;
}
