#include "wire/http1_negotiate.h"

#include "wire/http1_syntax.h"

/* A weight of 0 to 1 with up to three decimals; true when it is above 0. */
static bool is_wanted(struct slice parameters) {
    while (parameters.size > 0) {
        struct slice value = http1_trim(http1_split(&parameters, ';'));
        struct slice name = http1_trim(http1_split(&value, '='));
        if (!http1_equal_any_case(name, SLICE("q")))
            continue;
        value = http1_trim(value);
        bool above = false;
        if (value.size == 0 || value.size > 5 || (value.data[0] != '0' && value.data[0] != '1') ||
            (value.size > 1 && value.data[1] != '.'))
            return false;
        for (size_t i = 0; i < value.size; i++) {
            if (i != 1 && (value.data[i] < '0' || value.data[i] > '9'))
                return false;
            above = above || (i != 1 && value.data[i] != '0');
        }
        return above;
    }
    return true;
}

bool http1_accepts_gzip(const struct http1_request *request) {
    bool any = false;
    for (size_t i = 0; i < request->header_count; i++) {
        if (!http1_equal_any_case(request->headers[i].name, SLICE("accept-encoding")))
            continue;
        struct slice list = request->headers[i].value;
        while (list.size > 0) {
            struct slice parameters = http1_split(&list, ',');
            struct slice coding = http1_trim(http1_split(&parameters, ';'));
            if (http1_equal_any_case(coding, SLICE("gzip")))
                return is_wanted(parameters);
            any = any || (slice_equal(coding, SLICE("*")) && is_wanted(parameters));
        }
    }
    return any;
}

/* Takes a tag and the comma behind it off the front; tags may hold commas. */
static bool take_tag(struct slice *list, struct slice *tag) {
    *list = http1_trim(*list);
    /* Weak and strong ones compare alike here. */
    if (slice_starts(*list, SLICE("W/")))
        *list = slice_from(*list, 2);
    if (!slice_starts(*list, SLICE("\"")))
        return false;
    const char *end = memchr(list->data + 1, '"', list->size - 1);
    if (!end)
        return false;
    *tag = (struct slice){list->data, (size_t)(end + 1 - list->data)};
    *list = http1_trim(slice_from(*list, tag->size));
    if (list->size > 0 && list->data[0] != ',')
        return false;
    if (list->size > 0)
        *list = slice_from(*list, 1);
    return true;
}

bool http1_has_match(const struct http1_request *request, struct slice etag) {
    for (size_t i = 0; i < request->header_count; i++) {
        if (!http1_equal_any_case(request->headers[i].name, SLICE("if-none-match")))
            continue;
        struct slice list = http1_trim(request->headers[i].value);
        struct slice tag;
        if (slice_equal(list, SLICE("*")))
            return true;
        while (list.size > 0 && take_tag(&list, &tag))
            if (slice_equal(tag, etag))
                return true;
    }
    return false;
}
