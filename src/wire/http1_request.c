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

/* Takes one decoded byte off the front of the text; 0, which no text may hold, on a mistake. */
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

static bool decoded_size(struct slice text, size_t *size) {
    *size = 0;
    while (text.size > 0) {
        if (take_decoded(&text, ' ') == 0)
            return false;
        ++*size;
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
