#include "wire/http1_response.h"

#include <assert.h>
#include <http_parser.h>
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
