#include "wire/http1_request.h"

#include "base/hex.h"
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

enum status http1_percent_encode(struct buffer *out, struct slice text) {
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (memchr(plain, byte, sizeof(plain) - 1))
            buffer_append_byte(out, (char)byte);
        else
            buffer_printf(out, "%%%02X", byte);
    }
    return buffer_status(out);
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

bool http1_request_split_target(struct http1_request *request) {
    static const struct slice schemes[] = {{"http://", 7}, {"https://", 8}};
    struct slice text = request->target;
    if (slice_equal(text, SLICE("*"))) {
        request->path = text;
        return request->method == HTTP1_METHOD_OPTIONS;
    }
    if (!slice_starts(text, SLICE("/"))) {
        size_t size = 0;
        for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]) && size == 0; i++)
            if (text.size >= schemes[i].size &&
                http1_equal_any_case((struct slice){text.data, schemes[i].size}, schemes[i]))
                size = schemes[i].size;
        if (size == 0)
            return false;
        text = slice_from(text, size);
        /* The authority of an absolute target is the host. The Host field must be equal, because a
         * proxy may have routed by either of them. */
        struct slice authority = {text.data, 0};
        while (authority.size < text.size && text.data[authority.size] != '/' &&
               text.data[authority.size] != '?')
            authority.size++;
        if (!http1_is_host(authority) ||
            (request->host.size > 0 && !http1_equal_any_case(request->host, authority)))
            return false;
        request->host = authority;
        text = slice_from(text, authority.size);
    }
    request->path = http1_split(&text, '?');
    request->query = text;
    if (request->path.size == 0)
        request->path = SLICE("/");
    return true;
}
