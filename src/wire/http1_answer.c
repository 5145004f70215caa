#include "wire/http1_answer.h"

#include <assert.h>

#include "base/decimal.h"
#include "base/hex.h"
#include "wire/http1_syntax.h"

#define CHUNK_DIGITS_MAX 15

void http1_answer_init(struct http1_answer *answer) {
    *answer = (struct http1_answer){.part = HTTP1_ANSWER_HEAD, .failure = STATUS_OK};
    buffer_init(&answer->head, HTTP1_ANSWER_HEAD_BYTES_MAX);
}

void http1_answer_release(struct http1_answer *answer) {
    buffer_release(&answer->head);
    http1_answer_init(answer);
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

/* ---- the head ---- */

/* Readers disagree about a repeated field of this kind. */
static bool is_repeated(const struct http1_answer *answer, struct slice name) {
    size_t count = 0;
    for (size_t i = 0; i < answer->header_count; i++)
        count += http1_equal_any_case(answer->headers[i].name, name);
    return count > 1;
}

static bool has_no_body(const struct http1_answer *answer) {
    return answer->http_status == 204 || answer->http_status == 304;
}

static enum status read_framing(struct http1_answer *answer) {
    struct slice length, encoding, connection;
    if (is_repeated(answer, SLICE("content-length")) ||
        is_repeated(answer, SLICE("transfer-encoding")) || is_repeated(answer, SLICE("connection")))
        return STATUS_BAD_REQUEST;
    bool has_length = http1_answer_find(answer, SLICE("content-length"), &length);
    answer->chunked = http1_answer_find(answer, SLICE("transfer-encoding"), &encoding);
    bool is_ended = !has_length && !answer->chunked && has_no_body(answer);
    if (has_length == answer->chunked && !is_ended)
        return STATUS_BAD_REQUEST;
    if (has_no_body(answer) && !is_ended)
        return STATUS_BAD_REQUEST;
    if (has_length && !decimal_parse_u64(length, &answer->content_length))
        return STATUS_BAD_REQUEST;
    if (answer->chunked && !http1_equal_any_case(encoding, SLICE("chunked")))
        return STATUS_BAD_REQUEST;
    answer->keep_alive = !http1_answer_find(answer, SLICE("connection"), &connection) ||
                         http1_equal_any_case(connection, SLICE("keep-alive"));
    return STATUS_OK;
}

static enum status read_head(struct http1_answer *answer) {
    struct slice text = buffer_slice(&answer->head);
    bool is_first = true;
    answer->header_count = 0;
    /* Each line ends with CRLF, and the last one is empty. */
    for (text.size -= 2; text.size > 0; is_first = false) {
        const char *end = memchr(text.data, '\n', text.size);
        size_t size = end ? (size_t)(end - text.data) : 0;
        if (size < 2 || text.data[size - 1] != '\r')
            return STATUS_BAD_REQUEST;
        struct slice line = {text.data, size - 1};
        text = slice_from(text, size + 1);
        if (is_first) {
            uint64_t number;
            struct slice version = http1_split(&line, ' ');
            struct slice code = http1_split(&line, ' ');
            if (!slice_equal(version, SLICE("HTTP/1.1")) || code.size != 3 ||
                !decimal_parse_u64(code, &number) || number < 100 || number > 599 ||
                !http1_is_field_text(line))
                return STATUS_BAD_REQUEST;
            answer->http_status = (unsigned)number;
            continue;
        }
        enum status status = http1_check_field_line(line);
        if (status != STATUS_OK)
            return status;
        if (answer->header_count == HTTP1_ANSWER_HEADERS_MAX)
            return STATUS_HEADERS_TOO_LARGE;
        struct slice name = http1_split(&line, ':');
        answer->headers[answer->header_count++] = (struct http1_header){name, http1_trim(line)};
    }
    return is_first ? STATUS_BAD_REQUEST : STATUS_OK;
}

/* Takes one line, or the beginning of one. The blank line ends the head. */
static enum status take_head(struct http1_answer *answer, struct slice *input) {
    const char *end = memchr(input->data, '\n', input->size);
    size_t taken = end ? (size_t)(end - input->data) + 1 : input->size;
    if (taken > HTTP1_ANSWER_HEAD_BYTES_MAX - answer->head.size)
        return STATUS_HEADERS_TOO_LARGE;
    enum status status = buffer_append(&answer->head, input->data, taken);
    if (status != STATUS_OK)
        return status;
    *input = slice_from(*input, taken);
    struct slice head = buffer_slice(&answer->head);
    if (!end || !(slice_ends(head, SLICE("\r\n\r\n")) || slice_equal(head, SLICE("\r\n"))))
        return STATUS_OK;
    status = read_head(answer);
    if (status == STATUS_OK && answer->http_status < 200) {
        /* A protocol switch was not requested. */
        if (answer->http_status == 101)
            return STATUS_BAD_REQUEST;
        answer->is_continued = answer->is_continued || answer->http_status == 100;
        buffer_clear(&answer->head);
        return STATUS_OK;
    }
    if (status == STATUS_OK)
        status = read_framing(answer);
    if (status != STATUS_OK)
        return status;
    answer->has_head = true;
    answer->bytes_left = answer->content_length;
    answer->part = answer->chunked           ? HTTP1_ANSWER_CHUNK_SIZE
                   : answer->bytes_left == 0 ? HTTP1_ANSWER_DONE
                                             : HTTP1_ANSWER_BODY;
    return STATUS_OK;
}

/* ---- the body ---- */

/* The next byte must be this one; then the next part begins. */
static enum status expect(struct http1_answer *answer, char byte, char expected,
                          enum http1_answer_part next) {
    answer->part = next;
    return byte == expected ? STATUS_OK : STATUS_BAD_REQUEST;
}

/* Extensions and trailers are refused: no khala server sends them. */
static enum status take_framing_byte(struct http1_answer *answer, char byte) {
    int digit = hex_value(byte);
    switch (answer->part) {
    case HTTP1_ANSWER_CHUNK_SIZE:
        if (digit >= 0) {
            answer->bytes_left = answer->bytes_left << 4 | (unsigned)digit;
            return ++answer->digit_count <= CHUNK_DIGITS_MAX ? STATUS_OK : STATUS_BAD_REQUEST;
        }
        if (answer->digit_count == 0)
            return STATUS_BAD_REQUEST;
        return expect(answer, byte, '\r', HTTP1_ANSWER_CHUNK_SIZE_LF);
    case HTTP1_ANSWER_CHUNK_SIZE_LF:
        return expect(answer, byte, '\n',
                      answer->bytes_left > 0 ? HTTP1_ANSWER_CHUNK_DATA : HTTP1_ANSWER_LAST_CR);
    case HTTP1_ANSWER_CHUNK_CR:
        return expect(answer, byte, '\r', HTTP1_ANSWER_CHUNK_LF);
    case HTTP1_ANSWER_CHUNK_LF:
        answer->digit_count = 0;
        return expect(answer, byte, '\n', HTTP1_ANSWER_CHUNK_SIZE);
    case HTTP1_ANSWER_LAST_CR:
        return expect(answer, byte, '\r', HTTP1_ANSWER_LAST_LF);
    case HTTP1_ANSWER_LAST_LF:
        return expect(answer, byte, '\n', HTTP1_ANSWER_DONE);
    case HTTP1_ANSWER_HEAD:
    case HTTP1_ANSWER_BODY:
    case HTTP1_ANSWER_CHUNK_DATA:
    case HTTP1_ANSWER_DONE:
    case HTTP1_ANSWER_FAILED:
        break;
    }
    assert(false && "not a byte of the framing");
    return STATUS_INTERNAL_ERROR;
}

enum status http1_answer_read(struct http1_answer *answer, struct slice *input,
                              struct buffer *body) {
    if (answer->part == HTTP1_ANSWER_FAILED)
        return answer->failure;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && input->size > 0 && answer->part != HTTP1_ANSWER_DONE) {
        if (answer->part == HTTP1_ANSWER_HEAD) {
            status = take_head(answer, input);
        } else if (answer->part == HTTP1_ANSWER_BODY || answer->part == HTTP1_ANSWER_CHUNK_DATA) {
            size_t size =
                input->size < answer->bytes_left ? input->size : (size_t)answer->bytes_left;
            status = buffer_append(body, input->data, size);
            if (status != STATUS_OK)
                break;
            *input = slice_from(*input, size);
            answer->bytes_left -= size;
            if (answer->bytes_left == 0)
                answer->part = answer->chunked ? HTTP1_ANSWER_CHUNK_CR : HTTP1_ANSWER_DONE;
        } else {
            char byte = input->data[0];
            *input = slice_from(*input, 1);
            status = take_framing_byte(answer, byte);
        }
    }
    if (status == STATUS_OK)
        return STATUS_OK;
    answer->part = HTTP1_ANSWER_FAILED;
    answer->failure = status;
    return status;
}
