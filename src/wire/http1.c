/* Parsing of a request.
 *
 * The head is gathered line by line in a bounded buffer. Each complete line is checked by the rules
 * of http1_syntax. At the blank line http-parser reads the whole head in one piece. A head that the
 * two parsers understand differently is refused.
 *
 * We check ourselves because the library as Debian builds it (HTTP_PARSER_STRICT=0) accepts much
 * that RFC 9112 forbids: lines ended by LF alone, folded lines, blanks before the colon or more
 * than one between the parts of the request line, "5 junk" as a chunk size, any byte for the LF
 * after it, and any two bytes for the CRLF after a chunk's data. The library is stricter than the
 * RFC in two points, which we keep: it refuses a tab after the number of Content-Length or after
 * "chunked", and unknown methods.
 *
 * The body is never copied. The framing of a chunked body is checked byte by byte before it goes to
 * http-parser. The library reads the chunk sizes, and passes the data on in bulk. Extensions and
 * trailers are skipped before the library, which therefore cannot read them in another way. */
#include "wire/http1.h"

#include <assert.h>
#include <http_parser.h>
#include <stdlib.h>

#include "base/hex.h"
#include "base/limits.h"
#include "wire/http1_syntax.h"

#define BLANK_LINES_MAX  2
#define CHUNK_DIGITS_MAX 16

enum chunk_part {
    CHUNK_SIZE,
    CHUNK_BLANK, /* behind the size: an extension must follow */
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_LAST_CR, /* or a trailer begins */
    CHUNK_LAST_LF,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
};

struct http1_message {
    http_parser engine;
    struct http1_request request;
    struct buffer head;
    size_t line_start; /* offset in head of the line under way */
    size_t field_count;
    uint64_t body_bytes_max;
    uint64_t body_bytes_announced; /* announced by Content-Length, or by the chunks so far */
    uint64_t piece_bytes_left;     /* rest of the body, or of the current chunk */
    struct slice piece;
    enum chunk_part chunk_part;
    unsigned chunk_digit_count;
    size_t skipped_bytes; /* extensions of this chunk, and trailers */
    bool head_is_whole;
    bool complete;
};

static int engine_url(http_parser *engine, const char *at, size_t size) {
    struct http1_message *message = engine->data;
    message->request.target = (struct slice){at, size};
    return 0;
}

static int engine_field_name(http_parser *engine, const char *at, size_t size) {
    struct http1_message *message = engine->data;
    struct http1_request *request = &message->request;
    if (request->header_count == message->field_count)
        return 1;
    request->headers[request->header_count].name = (struct slice){at, size};
    return 0;
}

static int engine_field_value(http_parser *engine, const char *at, size_t size) {
    struct http1_message *message = engine->data;
    struct http1_request *request = &message->request;
    if (request->header_count == message->field_count)
        return 1;
    request->headers[request->header_count++].value = http1_trim((struct slice){at, size});
    return 0;
}

static int engine_headers_complete(http_parser *engine) {
    struct http1_message *message = engine->data;
    struct http1_request *request = &message->request;
    message->head_is_whole = true;
    request->chunked = engine->flags & F_CHUNKED;
    request->content_length = engine->flags & F_CONTENTLENGTH ? engine->content_length : 0;
    return 0;
}

static int engine_chunk_header(http_parser *engine) {
    struct http1_message *message = engine->data;
    uint64_t size = engine->content_length;
    message->piece_bytes_left = size;
    if (size > UINT64_MAX - message->body_bytes_announced)
        message->body_bytes_announced = UINT64_MAX;
    else
        message->body_bytes_announced += size;
    return 0;
}

static int engine_body(http_parser *engine, const char *at, size_t size) {
    struct http1_message *message = engine->data;
    message->piece = (struct slice){at, size};
    return 0;
}

static int engine_message_complete(http_parser *engine) {
    struct http1_message *message = engine->data;
    message->complete = true;
    return 0;
}

static const http_parser_settings engine_settings = {
    .on_url = engine_url,
    .on_header_field = engine_field_name,
    .on_header_value = engine_field_value,
    .on_headers_complete = engine_headers_complete,
    .on_body = engine_body,
    .on_message_complete = engine_message_complete,
    .on_chunk_header = engine_chunk_header,
};

static enum status engine_feed(struct http1_message *message, struct slice data) {
    message->engine.data = message;
    size_t used = http_parser_execute(&message->engine, &engine_settings, data.data, data.size);
    if (used != data.size || HTTP_PARSER_ERRNO(&message->engine) != HPE_OK)
        return STATUS_BAD_REQUEST;
    return STATUS_OK;
}

void http1_parser_init(struct http1_parser *parser, const struct http1_limits *limits) {
    assert(limits->line_bytes_max > 0);
    assert(limits->head_bytes_max > 0 && limits->head_bytes_max <= HTTP1_HEAD_BYTES_LIMIT);
    static_assert(HTTP1_HEAD_BYTES_LIMIT <= HTTP_MAX_HEADER_SIZE, "the library counts too");
    *parser = (struct http1_parser){.limits = limits};
}

static void drop_message(struct http1_parser *parser) {
    struct http1_message *message = parser->message;
    if (!message)
        return;
    buffer_release(&message->head);
    free(message->request.headers);
    free(message);
    parser->message = NULL;
}

void http1_parser_release(struct http1_parser *parser) {
    drop_message(parser);
    http1_parser_init(parser, parser->limits);
}

static enum status fail(struct http1_parser *parser, enum status status) {
    assert(status != STATUS_OK && parser->state != HTTP1_FAILED);
    /* After the head, the caller may still need the request for its error answer. */
    if (parser->state == HTTP1_READS_HEAD)
        drop_message(parser);
    parser->state = HTTP1_FAILED;
    parser->failure = status;
    return status;
}

/* Appends input to the head up to the end of a line; line stays empty without an end. A line that
 * would exceed a limit is refused before it is stored. */
static enum status gather_line(struct http1_parser *parser, struct slice *input,
                               struct slice *line) {
    const struct http1_limits *limits = parser->limits;
    struct http1_message *message = parser->message;
    struct buffer *head = &message->head;
    size_t room = limits->head_bytes_max - head->size;
    size_t line_room = limits->line_bytes_max + 2 - (head->size - message->line_start);
    if (room > line_room)
        room = line_room;
    size_t window = input->size < room ? input->size : room;
    const char *newline = memchr(input->data, '\n', window);
    if (!newline && window == room)
        return message->line_start == 0 ? STATUS_URI_TOO_LONG : STATUS_HEADERS_TOO_LARGE;
    size_t taken = newline ? (size_t)(newline - input->data) + 1 : window;
    enum status status = buffer_append(head, input->data, taken);
    if (status != STATUS_OK)
        return status;
    *input = slice_from(*input, taken);
    *line = (struct slice){NULL, 0};
    if (newline)
        *line = slice_from(buffer_slice(head), message->line_start);
    return STATUS_OK;
}

static enum status accept_line(struct http1_parser *parser, struct slice line, bool *head_ends) {
    struct http1_message *message = parser->message;
    enum status status;
    if (!slice_ends(line, SLICE("\r\n")))
        return STATUS_BAD_REQUEST;
    line.size -= 2;
    *head_ends = line.size == 0 && message->line_start > 0;
    if (*head_ends)
        return STATUS_OK;
    if (line.size == 0) {
        /* Some clients send an extra CRLF after a body. */
        if (parser->blank_line_count == BLANK_LINES_MAX)
            return STATUS_BAD_REQUEST;
        parser->blank_line_count++;
        drop_message(parser);
        return STATUS_OK;
    }
    if (message->line_start == 0) {
        status = http1_check_request_line(line);
    } else {
        if (message->field_count == parser->limits->header_count_max)
            return STATUS_HEADERS_TOO_LARGE;
        message->field_count++;
        status = http1_check_field_line(line);
    }
    message->line_start = message->head.size;
    return status;
}

static enum status read_method(struct http1_message *message) {
    static const struct {
        enum http_method theirs;
        enum http1_method ours;
    } methods[] = {
        {HTTP_GET, HTTP1_METHOD_GET},         {HTTP_HEAD, HTTP1_METHOD_HEAD},
        {HTTP_POST, HTTP1_METHOD_POST},       {HTTP_PUT, HTTP1_METHOD_PUT},
        {HTTP_PATCH, HTTP1_METHOD_PATCH},     {HTTP_DELETE, HTTP1_METHOD_DELETE},
        {HTTP_OPTIONS, HTTP1_METHOD_OPTIONS},
    };
    /* After a CONNECT http-parser sees no body, whatever the fields announce. */
    if (message->engine.method == HTTP_CONNECT)
        return STATUS_METHOD_NOT_ALLOWED;
    message->request.method = HTTP1_METHOD_OTHER;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (message->engine.method == (unsigned)methods[i].theirs)
            message->request.method = methods[i].ours;
    return STATUS_OK;
}

/* Fields for framing, routing and identity. Parsers disagree about a repeated one. */
static bool single_fields_are_single(const struct http1_request *request) {
    static const struct slice single_fields[] = {
        {"authorization", 13}, {"content-length", 14}, {"content-type", 12},     {"expect", 6},
        {"host", 4},           {"origin", 6},          {"transfer-encoding", 17}};
    unsigned seen = 0;
    for (size_t i = 0; i < request->header_count; i++) {
        for (size_t j = 0; j < sizeof(single_fields) / sizeof(single_fields[0]); j++) {
            if (!http1_equal_any_case(request->headers[i].name, single_fields[j]))
                continue;
            if (seen & (1u << j))
                return false;
            seen |= 1u << j;
        }
    }
    return true;
}

static enum status read_framing(struct http1_request *request) {
    struct slice length, encoding;
    bool has_length = http1_header_find(request, SLICE("content-length"), &length);
    bool has_encoding = http1_header_find(request, SLICE("transfer-encoding"), &encoding);
    if (has_length && (has_encoding || !http1_is_digits(length)))
        return STATUS_BAD_REQUEST;
    if (has_encoding) {
        if (request->version_minor == 0)
            return STATUS_BAD_REQUEST;
        enum status status = http1_check_transfer_encoding(encoding);
        if (status != STATUS_OK)
            return status;
    }
    if (request->chunked != has_encoding || (!has_length && request->content_length > 0))
        return STATUS_BAD_REQUEST;
    request->has_body = request->chunked || request->content_length > 0;
    return STATUS_OK;
}

static enum status read_request(struct http1_message *message) {
    struct http1_request *request = &message->request;
    struct slice expectation, protocol, connection = SLICE("connection");
    request->version_minor = message->engine.http_minor > 0;
    enum status status = read_method(message);
    if (status == STATUS_OK && !single_fields_are_single(request))
        status = STATUS_BAD_REQUEST;
    if (status == STATUS_OK)
        status = read_framing(request);
    if (status != STATUS_OK)
        return status;
    bool has_host = http1_header_find(request, SLICE("host"), &request->host);
    if (has_host ? !http1_is_host(request->host) : request->version_minor > 0)
        return STATUS_BAD_REQUEST;
    if (!http1_request_split_target(request))
        return STATUS_BAD_REQUEST;
    if (http1_header_find(request, SLICE("expect"), &expectation)) {
        if (!http1_equal_any_case(expectation, SLICE("100-continue")))
            return STATUS_EXPECTATION_FAILED;
        /* An HTTP/1.0 client would take the interim answer for the final one. */
        request->expect_continue = request->version_minor > 0 && request->has_body;
    }
    /* http-parser would read Proxy-Connection as Connection. */
    bool close = http1_header_has_token(request, connection, SLICE("close"));
    bool keep = http1_header_has_token(request, connection, SLICE("keep-alive"));
    request->keep_alive = !close && (request->version_minor > 0 || keep);
    request->upgrade = request->version_minor > 0 && !request->has_body &&
                       http1_header_find(request, SLICE("upgrade"), &protocol) &&
                       http1_header_has_token(request, connection, SLICE("upgrade"));
    /* Both parsers must agree on the end of this request. */
    return message->complete == !request->has_body ? STATUS_OK : STATUS_BAD_REQUEST;
}

static enum status read_head(struct http1_parser *parser) {
    struct http1_message *message = parser->message;
    struct http1_request *request = &message->request;
    if (message->field_count > 0) {
        request->headers = calloc(message->field_count, sizeof(request->headers[0]));
        if (!request->headers)
            return STATUS_OUT_OF_MEMORY;
    }
    http_parser_init(&message->engine, HTTP_REQUEST);
    enum status status = engine_feed(message, buffer_slice(&message->head));
    if (status != STATUS_OK)
        return status;
    if (!message->head_is_whole || request->header_count != message->field_count)
        return STATUS_BAD_REQUEST;
    status = read_request(message);
    if (status != STATUS_OK)
        return status;
    message->body_bytes_announced = request->content_length;
    message->piece_bytes_left = request->content_length;
    parser->blank_line_count = 0;
    parser->state = HTTP1_READS_BODY;
    return STATUS_OK;
}

/* Extensions and trailers are checked and skipped: no rule of this server depends on one. A CR or
 * LF inside them is refused, because other parsers may end a line there. */
static enum status skip_byte(struct http1_message *message, char byte) {
    struct slice text = {&byte, 1};
    bool fits = false;
    if (++message->skipped_bytes > HTTP1_SKIPPED_BYTES_MAX)
        return STATUS_HEADERS_TOO_LARGE;
    switch (message->chunk_part) {
    case CHUNK_BLANK:
        fits = byte == ';' || byte == ' ' || byte == '\t';
        if (byte == ';')
            message->chunk_part = CHUNK_EXTENSION;
        break;
    case CHUNK_EXTENSION:
        fits = http1_is_field_text(text);
        break;
    case TRAILER_NAME:
        fits = byte == ':' || http1_is_token(text);
        if (byte == ':')
            message->chunk_part = TRAILER_VALUE;
        break;
    case TRAILER_VALUE:
        fits = byte == '\r' || http1_is_field_text(text);
        if (byte == '\r')
            message->chunk_part = TRAILER_LF;
        break;
    case TRAILER_LF:
        fits = byte == '\n';
        message->chunk_part = CHUNK_LAST_CR;
        break;
    case CHUNK_SIZE:
    case CHUNK_SIZE_LF:
    case CHUNK_DATA:
    case CHUNK_DATA_CR:
    case CHUNK_DATA_LF:
    case CHUNK_LAST_CR:
    case CHUNK_LAST_LF:
        break;
    }
    return fits ? STATUS_OK : STATUS_BAD_REQUEST;
}

/* The bytes that http-parser gets: sizes and line ends, without extensions and trailers. */
static enum status chunk_byte(struct http1_message *message, char byte, bool *is_skipped) {
    *is_skipped = false;
    switch (message->chunk_part) {
    case CHUNK_SIZE:
        if (hex_value(byte) >= 0)
            return ++message->chunk_digit_count <= CHUNK_DIGITS_MAX ? STATUS_OK
                                                                    : STATUS_BAD_REQUEST;
        *is_skipped = byte != '\r';
        if (message->chunk_digit_count == 0 ||
            (byte != '\r' && byte != ';' && byte != ' ' && byte != '\t'))
            return STATUS_BAD_REQUEST;
        message->chunk_part = byte == '\r'  ? CHUNK_SIZE_LF
                              : byte == ';' ? CHUNK_EXTENSION
                                            : CHUNK_BLANK;
        return STATUS_OK;
    case CHUNK_EXTENSION:
        if (byte != '\r')
            break;
        message->chunk_part = CHUNK_SIZE_LF;
        return STATUS_OK;
    case CHUNK_SIZE_LF:
    case CHUNK_DATA_LF:
    case CHUNK_LAST_LF:
        return byte == '\n' ? STATUS_OK : STATUS_BAD_REQUEST;
    case CHUNK_DATA_CR:
        message->chunk_part = CHUNK_DATA_LF;
        return byte == '\r' ? STATUS_OK : STATUS_BAD_REQUEST;
    case CHUNK_LAST_CR:
        message->chunk_part = byte == '\r' ? CHUNK_LAST_LF : TRAILER_NAME;
        if (byte == '\r')
            return STATUS_OK;
        /* A name has at least one byte. */
        if (byte == ':')
            return STATUS_BAD_REQUEST;
        break;
    case CHUNK_BLANK:
    case TRAILER_NAME:
    case TRAILER_VALUE:
    case TRAILER_LF:
    case CHUNK_DATA:
        break;
    }
    assert(message->chunk_part != CHUNK_DATA);
    *is_skipped = true;
    return skip_byte(message, byte);
}

static enum status next_of_body(struct http1_parser *parser, struct slice *input,
                                struct http1_event *event) {
    struct http1_message *message = parser->message;
    if (message->body_bytes_announced > message->body_bytes_max)
        return STATUS_PAYLOAD_TOO_LARGE;
    while (input->size > 0 && !message->complete) {
        enum chunk_part before = message->chunk_part;
        enum status status;
        if (!message->request.chunked || before == CHUNK_DATA) {
            struct slice piece = *input;
            if (piece.size > message->piece_bytes_left)
                piece.size = (size_t)message->piece_bytes_left;
            message->piece = (struct slice){NULL, 0};
            status = engine_feed(message, piece);
            if (status != STATUS_OK)
                return status;
            assert(message->piece.data == piece.data && message->piece.size == piece.size);
            *input = slice_from(*input, piece.size);
            message->piece_bytes_left -= piece.size;
            if (message->piece_bytes_left == 0 && message->request.chunked)
                message->chunk_part = CHUNK_DATA_CR;
            *event = (struct http1_event){HTTP1_EVENT_BODY, message->piece};
            return STATUS_OK;
        }
        bool is_skipped;
        status = chunk_byte(message, input->data[0], &is_skipped);
        if (status == STATUS_OK && !is_skipped)
            status = engine_feed(message, (struct slice){input->data, 1});
        if (status != STATUS_OK)
            return status;
        *input = slice_from(*input, 1);
        if (before == CHUNK_SIZE_LF) {
            message->chunk_part = message->piece_bytes_left > 0 ? CHUNK_DATA : CHUNK_LAST_CR;
            if (message->body_bytes_announced > message->body_bytes_max)
                return STATUS_PAYLOAD_TOO_LARGE;
        } else if (before == CHUNK_DATA_LF) {
            message->chunk_part = CHUNK_SIZE;
            message->chunk_digit_count = 0;
            message->skipped_bytes = 0;
        }
    }
    if (message->complete) {
        parser->state = HTTP1_IS_DONE;
        event->kind = HTTP1_EVENT_DONE;
    }
    return STATUS_OK;
}

enum status http1_next(struct http1_parser *parser, struct slice *input,
                       struct http1_event *event) {
    /* The answer comes first: the next request waits for http1_finish. */
    assert(parser->state != HTTP1_IS_DONE);
    enum status status = STATUS_OK;
    bool head_ends = false;
    *event = (struct http1_event){.kind = HTTP1_EVENT_MORE};
    switch (parser->state) {
    case HTTP1_READS_HEAD:
        while (status == STATUS_OK && !head_ends && input->size > 0) {
            struct slice line = {NULL, 0};
            if (!parser->message) {
                parser->message = calloc(1, sizeof(*parser->message));
                if (!parser->message)
                    return fail(parser, STATUS_OUT_OF_MEMORY);
                buffer_init(&parser->message->head, parser->limits->head_bytes_max);
            }
            status = gather_line(parser, input, &line);
            if (status == STATUS_OK && line.size > 0)
                status = accept_line(parser, line, &head_ends);
        }
        if (status == STATUS_OK && head_ends)
            status = read_head(parser);
        if (status == STATUS_OK && head_ends)
            event->kind = HTTP1_EVENT_HEAD;
        break;
    case HTTP1_READS_BODY:
        status = next_of_body(parser, input, event);
        break;
    case HTTP1_FAILED:
        return parser->failure;
    case HTTP1_IS_DONE:
        break;
    }
    return status == STATUS_OK ? STATUS_OK : fail(parser, status);
}

const struct http1_request *http1_parser_request(const struct http1_parser *parser) {
    if (!parser->message || parser->state == HTTP1_READS_HEAD)
        return NULL;
    return &parser->message->request;
}

enum status http1_allow_body(struct http1_parser *parser, uint64_t body_bytes_max) {
    assert(parser->state == HTTP1_READS_BODY);
    struct http1_message *message = parser->message;
    message->body_bytes_max = body_bytes_max;
    if (message->body_bytes_announced > body_bytes_max)
        return fail(parser, STATUS_PAYLOAD_TOO_LARGE);
    return STATUS_OK;
}

void http1_finish(struct http1_parser *parser) {
    assert(parser->state == HTTP1_IS_DONE);
    drop_message(parser);
    parser->state = HTTP1_READS_HEAD;
}

size_t http1_parser_bytes(const struct http1_parser *parser) {
    const struct http1_message *message = parser->message;
    if (!message)
        return 0;
    size_t array_bytes =
        message->request.headers ? message->field_count * sizeof(message->request.headers[0]) : 0;
    return sizeof(*message) + message->head.capacity + array_bytes;
}
