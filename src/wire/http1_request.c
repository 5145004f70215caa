#include "wire/http1_request.h"

#include "wire/http1_syntax.h"

bool http1_header_find(const struct http1_request *request, struct slice name,
                       struct slice *value) {
    for (size_t i = 0; i < request->header_count; i++) {
        if (!http1_equal_any_case(request->headers[i].name, name))
            continue;
        *value = request->headers[i].value;
        return true;
    }
    return false;
}

bool http1_header_has_token(const struct http1_request *request, struct slice name,
                            struct slice token) {
    for (size_t i = 0; i < request->header_count; i++) {
        if (!http1_equal_any_case(request->headers[i].name, name))
            continue;
        struct slice list = request->headers[i].value;
        while (list.size > 0)
            if (http1_equal_any_case(http1_trim(http1_split(&list, ',')), token))
                return true;
    }
    return false;
}

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    char lower = (char)(digit | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Removes one decoded byte from the front of the text. 0, which no text may hold, for an error. */
static char take_decoded(struct slice *text, char space) {
    char byte = text->data[0];
    size_t taken = 1;
    if (byte == '%') {
        if (text->size < 3)
            return 0;
        int high = hex_value(text->data[1]);
        int low = hex_value(text->data[2]);
        if (high < 0 || low < 0)
            return 0;
        byte = (char)(high * 16 + low);
        taken = 3;
    } else if (byte == space) {
        byte = ' ';
    }
    *text = slice_from(*text, taken);
    return byte;
}

/* A query is checked once for each parameter, and may hold a long token, so only the bytes behind a
 * percent sign are looked at one by one. */
static bool decoded_size(struct slice text, size_t *size) {
    *size = text.size;
    if (text.size > 0 && memchr(text.data, 0, text.size))
        return false;
    for (const char *sign; text.size > 0 && (sign = memchr(text.data, '%', text.size));) {
        text = slice_from(text, (size_t)(sign - text.data));
        if (take_decoded(&text, ' ') == 0)
            return false;
        *size -= 2;
    }
    return true;
}

static enum status decode(struct slice text, char space, struct buffer *decoded) {
    size_t size;
    if (!decoded_size(text, &size))
        return STATUS_BAD_REQUEST;
    enum status status = buffer_reserve(decoded, size);
    if (status != STATUS_OK)
        return status;
    while (text.size > 0)
        decoded->data[decoded->size++] = take_decoded(&text, space);
    return STATUS_OK;
}

enum status http1_percent_decode(struct slice text, struct buffer *decoded) {
    return decode(text, ' ', decoded);
}

static bool decodes_to(struct slice text, struct slice expected) {
    while (text.size > 0 && expected.size > 0) {
        if (take_decoded(&text, '+') != expected.data[0])
            return false;
        expected = slice_from(expected, 1);
    }
    return text.size == 0 && expected.size == 0;
}

enum status http1_query_find(struct slice query, struct slice name, struct buffer *value,
                             bool *found) {
    size_t size;
    struct slice match = {NULL, 0};
    *found = false;
    if (!decoded_size(query, &size))
        return STATUS_BAD_REQUEST;
    while (query.size > 0) {
        struct slice pair = http1_split(&query, '&');
        if (pair.size == 0 || !decodes_to(http1_split(&pair, '='), name))
            continue;
        if (*found) {
            *found = false;
            return STATUS_BAD_REQUEST;
        }
        *found = true;
        match = pair;
    }
    return *found ? decode(match, '+', value) : STATUS_OK;
}

enum status http1_query_next(struct slice *query, struct buffer *name, bool *found) {
    *found = false;
    while (query->size > 0) {
        struct slice pair = http1_split(query, '&');
        if (pair.size == 0)
            continue;
        *found = true;
        enum status status = decode(http1_split(&pair, '='), '+', name);
        return status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_BAD_REQUEST : status;
    }
    return STATUS_OK;
}

static bool take_scheme(struct slice *text) {
    static const struct slice schemes[] = {{"http://", 7}, {"https://", 8}};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        struct slice start = {text->data, schemes[i].size};
        if (text->size < schemes[i].size || !http1_equal_any_case(start, schemes[i]))
            continue;
        *text = slice_from(*text, schemes[i].size);
        return true;
    }
    return false;
}

/* The authority of an absolute target is the host. The Host field must be equal, because a proxy
 * may have routed by either of them. */
static bool take_authority(struct slice *text, struct http1_request *request) {
    size_t size = 0;
    while (size < text->size && text->data[size] != '/' && text->data[size] != '?')
        size++;
    struct slice authority = {text->data, size};
    if (!http1_is_host(authority))
        return false;
    if (request->host.size > 0 && !http1_equal_any_case(request->host, authority))
        return false;
    request->host = authority;
    *text = slice_from(*text, size);
    return true;
}

bool http1_request_split_target(struct http1_request *request) {
    struct slice text = request->target;
    if (slice_equal(text, SLICE("*"))) {
        request->path = text;
        return request->method == HTTP1_METHOD_OPTIONS;
    }
    if (!slice_starts(text, SLICE("/"))) {
        if (!take_scheme(&text) || !take_authority(&text, request))
            return false;
    }
    request->path = http1_split(&text, '?');
    request->query = text;
    if (request->path.size == 0)
        request->path = SLICE("/");
    return true;
}
