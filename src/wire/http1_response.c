#include "wire/http1_response.h"

#include <assert.h>
#include <stdio.h>

#include "base/decimal.h"
#include "wire/http1_syntax.h"

#define HEAD_BYTES_USUAL 256

#define PARTS(...)                                                                                 \
    (const struct slice[]){__VA_ARGS__},                                                           \
        sizeof((struct slice[]){__VA_ARGS__}) / sizeof(struct slice)

/* The size of a chunk that is not known yet. */
#define CHUNK_SIZE_DIGITS 8
#define CHUNK_HEAD        "00000000\r\n"

/* Appends all parts or none. */
static enum status append_parts(struct buffer *buffer, const struct slice *parts, size_t count) {
    size_t size = 0;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        status = parts[i].size > SIZE_MAX - size ? STATUS_PAYLOAD_TOO_LARGE : STATUS_OK;
        size += parts[i].size;
    }
    if (status == STATUS_OK)
        status = buffer_reserve(buffer, size);
    buffer_note(buffer, status);
    for (size_t i = 0; i < count; i++)
        buffer_append_slice(buffer, parts[i]);
    return buffer_status(buffer);
}

static struct slice number_text(char digits[DECIMAL_U64_SIZE_MAX], uint64_t number) {
    return (struct slice){digits, (size_t)(decimal_write_u64(digits, number) - digits)};
}

enum status http1_response_begin(struct buffer *buffer, unsigned http_status, bool keep_alive) {
    assert(http_status >= 100 && http_status <= 599);
    char digits[DECIMAL_U64_SIZE_MAX];
    struct slice connection = SLICE("");
    /* HTTP/1.0 peers keep a connection only if the answer says so; 101 says Connection: Upgrade. */
    if (http_status >= 200)
        connection =
            keep_alive ? SLICE("Connection: keep-alive\r\n") : SLICE("Connection: close\r\n");
    return append_parts(buffer,
                        PARTS(SLICE("HTTP/1.1 "), number_text(digits, http_status), SLICE(" "),
                              slice_of(http_status_str((enum http_status)http_status)),
                              SLICE("\r\n"), connection));
}

enum status http1_response_header(struct buffer *buffer, struct slice name, struct slice value) {
    assert(http1_is_token(name));
    if (!http1_is_field_text(value))
        return buffer_note(buffer, STATUS_INTERNAL_ERROR);
    return append_parts(buffer, PARTS(name, SLICE(": "), value, SLICE("\r\n")));
}

enum status http1_response_end_length(struct buffer *buffer, uint64_t content_length) {
    char digits[DECIMAL_U64_SIZE_MAX];
    return append_parts(buffer, PARTS(SLICE("Content-Length: "),
                                      number_text(digits, content_length), SLICE("\r\n\r\n")));
}

enum status http1_response_end_chunked(struct buffer *buffer) {
    return buffer_append_slice(buffer, SLICE("Transfer-Encoding: chunked\r\n\r\n"));
}

enum status http1_response_end_bare(struct buffer *buffer) {
    return buffer_append_slice(buffer, SLICE("\r\n"));
}

enum status http1_chunk(struct buffer *buffer, struct slice piece) {
    char number[24];
    if (piece.size == 0)
        return STATUS_OK;
    snprintf(number, sizeof(number), "%zx", piece.size);
    size_t begin = buffer->size;
    append_parts(buffer, PARTS(slice_of(number), SLICE("\r\n"), piece, SLICE("\r\n")));
    return buffer_end(buffer, begin);
}

enum status http1_chunk_begin(struct buffer *buffer) {
    return buffer_append_slice(buffer, SLICE(CHUNK_HEAD));
}

enum status http1_chunk_close(struct buffer *buffer, size_t begin) {
    static const char digits[] = "0123456789abcdef";
    char *at = buffer->data + begin + CHUNK_SIZE_DIGITS;
    size_t size = buffer->size - begin - strlen(CHUNK_HEAD);
    assert(size <= UINT32_MAX);
    if (size == 0) {
        buffer_truncate(buffer, begin);
        return STATUS_OK;
    }
    for (size_t i = 0; i < CHUNK_SIZE_DIGITS; i++, size >>= 4)
        *--at = digits[size & 0xf];
    return buffer_append_slice(buffer, SLICE("\r\n"));
}

enum status http1_chunk_end(struct buffer *buffer) {
    return buffer_append_slice(buffer, SLICE("0\r\n\r\n"));
}

enum status http1_response_write(struct buffer *buffer, const struct http1_response *response) {
    size_t begin = buffer->size;
    bool may_have_body = response->http_status >= 200 && response->http_status != 204 &&
                         response->http_status != 304;
    bool has_body = may_have_body && !response->to_head;
    /* All at once: the parts would enlarge the buffer several times. A longer head still does. */
    enum status status =
        buffer_reserve(buffer, HEAD_BYTES_USUAL + (has_body ? response->body.size : 0));
    if (status != STATUS_OK && status != STATUS_PAYLOAD_TOO_LARGE)
        return status;
    http1_response_begin(buffer, response->http_status, response->keep_alive);
    if (response->date.size > 0)
        http1_response_header(buffer, SLICE("Date"), response->date);
    for (size_t i = 0; i < response->header_count; i++)
        http1_response_header(buffer, response->headers[i].name, response->headers[i].value);
    if (may_have_body && response->content_type.size > 0)
        http1_response_header(buffer, SLICE("Content-Type"), response->content_type);
    if (may_have_body)
        http1_response_end_length(buffer, response->body.size);
    else
        http1_response_end_bare(buffer);
    if (has_body)
        buffer_append_slice(buffer, response->body);
    return buffer_end(buffer, begin);
}

/* ---- reading ---- */

void http1_answer_init(struct http1_answer *answer, const struct http1_peer *peer) {
    *answer = (struct http1_answer){.peer = peer, .failure = STATUS_OK};
    http_parser_init(&answer->parser, HTTP_RESPONSE);
    buffer_init(&answer->head, HTTP1_ANSWER_HEAD_BYTES_MAX);
}

void http1_answer_release(struct http1_answer *answer) {
    buffer_release(&answer->head);
    http1_answer_init(answer, answer->peer);
}

bool http1_answer_find(const struct http1_answer *answer, struct slice name, struct slice *value) {
    for (size_t i = 0; i < answer->header_count; i++) {
        if (!http1_equal_any_case(answer->headers[i].name, name))
            continue;
        *value = answer->headers[i].value;
        return true;
    }
    return false;
}

/* Ends the call of the parser, for which 1 means an answer without a body. */
static int fail(struct http1_answer *answer, enum status status) {
    answer->failure = status;
    return -1;
}

/* The head is allocated once, so that its slices stay valid. */
static int append_to_head(struct http1_answer *answer, const char *data, size_t size) {
    bool fits = size <= answer->head.size_max - answer->head.size;
    enum status status =
        fits ? buffer_reserve(&answer->head, answer->head.size_max - answer->head.size)
             : STATUS_HEADERS_TOO_LARGE;
    if (status != STATUS_OK)
        return fail(answer, status);
    buffer_append(&answer->head, data, size);
    return 0;
}

static int on_name(http_parser *parser, const char *data, size_t size) {
    struct http1_answer *answer = parser->data;
    if (answer->has_head)
        return 0; /* of a trailer */
    if (answer->is_value)
        answer->name_begin = answer->head.size;
    answer->is_value = false;
    return append_to_head(answer, data, size);
}

static bool is_kept(const struct http1_answer *answer, struct slice name) {
    bool is_named = answer->peer->is_node;
    for (size_t i = 0; i < answer->peer->name_count && !is_named; i++)
        is_named = http1_equal_any_case(name, answer->peer->names[i]);
    return is_named && (answer->peer->is_node || answer->header_count < HTTP1_ANSWER_HEADERS_MAX);
}

static int on_value(http_parser *parser, const char *data, size_t size) {
    struct http1_answer *answer = parser->data;
    if (answer->has_head)
        return 0;
    if (!answer->is_value) {
        struct slice name = slice_from(buffer_slice(&answer->head), answer->name_begin);
        answer->is_value = true;
        answer->is_skipped = !is_kept(answer, name);
        if (answer->is_skipped)
            buffer_truncate(&answer->head, answer->name_begin);
        else if (answer->header_count == HTTP1_ANSWER_HEADERS_MAX)
            return fail(answer, STATUS_HEADERS_TOO_LARGE);
        else
            answer->headers[answer->header_count++] =
                (struct http1_header){name, {name.data + name.size, 0}};
    }
    if (answer->is_skipped)
        return 0;
    answer->headers[answer->header_count - 1].value.size += size;
    return append_to_head(answer, data, size);
}

static size_t count_fields(const struct http1_answer *answer, struct slice name) {
    size_t count = 0;
    for (size_t i = 0; i < answer->header_count; i++)
        count += http1_equal_any_case(answer->headers[i].name, name);
    return count;
}

/* Readers disagree about a repeated field of this kind, and about a length beside chunks. */
static bool is_framed(const struct http1_answer *answer) {
    struct slice encoding;
    size_t lengths = count_fields(answer, SLICE("content-length"));
    size_t encodings = count_fields(answer, SLICE("transfer-encoding"));
    bool has_body = answer->http_status != 204 && answer->http_status != 304;
    if (http1_answer_find(answer, SLICE("transfer-encoding"), &encoding) &&
        !http1_equal_any_case(encoding, SLICE("chunked")))
        return false;
    return lengths + encodings == (has_body ? 1 : 0) &&
           count_fields(answer, SLICE("connection")) <= 1 && answer->parser.http_major == 1 &&
           answer->parser.http_minor == 1;
}

static int on_head(http_parser *parser) {
    struct http1_answer *answer = parser->data;
    unsigned http_status = parser->status_code;
    if (http_status < 100 || http_status > 599 || (http_status == 101 && answer->peer->is_node))
        return fail(answer, STATUS_BAD_REQUEST);
    for (size_t i = 0; i < answer->header_count; i++) {
        struct http1_header *header = &answer->headers[i];
        header->value = http1_trim(header->value);
        if (!http1_is_token(header->name) || !http1_is_field_text(header->value))
            return fail(answer, STATUS_BAD_REQUEST);
    }
    answer->http_status = http_status;
    if (http_status < 200 && http_status != 101)
        return 0;
    if (answer->peer->is_node && !is_framed(answer))
        return fail(answer, STATUS_BAD_REQUEST);
    answer->has_head = true;
    answer->part = HTTP1_ANSWER_BODY;
    answer->chunked = parser->flags & F_CHUNKED;
    bool is_known = !answer->chunked && parser->content_length != UINT64_MAX;
    answer->content_length = is_known ? parser->content_length : 0;
    return 0;
}

static int on_body(http_parser *parser, const char *data, size_t size) {
    struct http1_answer *answer = parser->data;
    /* An interim answer has no body. */
    enum status status =
        answer->has_head ? buffer_append(answer->body, data, size) : STATUS_BAD_REQUEST;
    return status == STATUS_OK ? 0 : fail(answer, status);
}

static int on_end(http_parser *parser) {
    struct http1_answer *answer = parser->data;
    if (!answer->has_head) {
        answer->is_continued = answer->is_continued || parser->status_code == 100;
        buffer_clear(&answer->head);
        answer->header_count = answer->name_begin = 0;
        answer->is_value = false;
        return 0;
    }
    answer->part = HTTP1_ANSWER_DONE;
    answer->is_upgrade = parser->upgrade && parser->status_code == 101;
    answer->keep_alive = http_should_keep_alive(parser);
    http_parser_pause(parser, 1);
    return 0;
}

/* Each line of a node's head ends with CRLF and has no second line. http-parser also takes others,
 * which a proxy between two nodes may read in another way. */
static bool is_line_strict(const struct http1_answer *answer, struct slice part) {
    char before = part.size > 1 ? part.data[part.size - 2] : answer->last;
    bool is_first = answer->last == '\0' && *part.data == '\r';
    bool is_folded = answer->last == '\n' && (*part.data == ' ' || *part.data == '\t');
    bool is_bare = part.data[part.size - 1] == '\n' && before != '\r';
    return !answer->peer->is_node || (!is_first && !is_folded && !is_bare);
}

enum status http1_answer_read(struct http1_answer *answer, struct slice *input,
                              struct buffer *body) {
    static const http_parser_settings settings = {.on_header_field = on_name,
                                                  .on_header_value = on_value,
                                                  .on_headers_complete = on_head,
                                                  .on_body = on_body,
                                                  .on_message_complete = on_end};
    if (answer->part == HTTP1_ANSWER_DONE || answer->part == HTTP1_ANSWER_FAILED)
        return answer->failure;
    answer->parser.data = answer;
    answer->body = body;
    bool is_whole;
    do {
        /* The parser gets one line of the head at a time, so that each line is checked. No bytes
         * are the end of the connection. */
        struct slice part = *input;
        bool is_head = !answer->has_head && part.size > 0;
        const char *end = is_head ? memchr(part.data, '\n', part.size) : NULL;
        if (end)
            part.size = (size_t)(end - part.data) + 1;
        is_whole = !is_head || is_line_strict(answer, part);
        if (!is_whole)
            break;
        if (is_head)
            answer->last = part.data[part.size - 1];
        size_t used = http_parser_execute(&answer->parser, &settings, part.data, part.size);
        is_whole = used == part.size && HTTP_PARSER_ERRNO(&answer->parser) == HPE_OK;
        *input = slice_from(*input, used);
    } while (is_whole && input->size > 0 && answer->part != HTTP1_ANSWER_DONE);
    answer->body = NULL;
    if (answer->part == HTTP1_ANSWER_DONE || (is_whole && input->size == 0))
        return STATUS_OK;
    answer->part = HTTP1_ANSWER_FAILED;
    if (answer->failure == STATUS_OK)
        answer->failure = HTTP_PARSER_ERRNO(&answer->parser) == HPE_HEADER_OVERFLOW
                              ? STATUS_HEADERS_TOO_LARGE
                              : STATUS_BAD_REQUEST;
    return answer->failure;
}

enum status http1_answer_end(struct http1_answer *answer) {
    struct slice nothing = SLICE("");
    enum status status = http1_answer_read(answer, &nothing, NULL);
    return status == STATUS_OK && answer->part != HTTP1_ANSWER_DONE ? STATUS_BAD_REQUEST : status;
}
