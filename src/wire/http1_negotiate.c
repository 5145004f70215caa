#include "wire/http1_negotiate.h"

#include "wire/http1_syntax.h"

#define WEIGHT_MAX 1000

/* In thousandths: 0 to 1 with up to three decimals. A malformed weight counts as absent. */
static int weight_read(struct slice text) {
    int weight = 0;
    if (text.size == 0 || text.size > 5 || (text.data[0] != '0' && text.data[0] != '1') ||
        (text.size > 1 && text.data[1] != '.'))
        return 0;
    for (size_t i = 0, unit = WEIGHT_MAX; i < 5; i++) {
        if (i == 1)
            continue;
        char digit = i < text.size ? text.data[i] : '0';
        if (digit < '0' || digit > '9')
            return 0;
        weight += (digit - '0') * (int)unit;
        unit /= 10;
    }
    return weight <= WEIGHT_MAX ? weight : 0;
}

/* The weight of a coding that the list mentions for the first time; 1 without a parameter q. */
static void note_weight(int *weight, struct slice parameters) {
    if (*weight >= 0)
        return;
    *weight = WEIGHT_MAX;
    while (parameters.size > 0) {
        struct slice value = http1_trim(http1_split(&parameters, ';'));
        struct slice name = http1_trim(http1_split(&value, '='));
        if (!http1_equal_any_case(name, SLICE("q")))
            continue;
        *weight = weight_read(http1_trim(value));
        return;
    }
}

bool http1_accepts_gzip(const struct http1_request *request) {
    int gzip = -1, identity = -1, any = -1; /* not mentioned */
    for (size_t i = 0; i < request->header_count; i++) {
        if (!http1_equal_any_case(request->headers[i].name, SLICE("accept-encoding")))
            continue;
        struct slice list = request->headers[i].value;
        while (list.size > 0) {
            struct slice parameters = http1_split(&list, ',');
            struct slice coding = http1_trim(http1_split(&parameters, ';'));
            if (http1_equal_any_case(coding, SLICE("gzip")) ||
                http1_equal_any_case(coding, SLICE("x-gzip")))
                note_weight(&gzip, parameters);
            else if (http1_equal_any_case(coding, SLICE("identity")))
                note_weight(&identity, parameters);
            else if (slice_equal(coding, SLICE("*")))
                note_weight(&any, parameters);
        }
    }
    int wanted = gzip >= 0 ? gzip : any;
    return wanted > 0 && wanted >= identity;
}

/* Removes the first tag and the comma after it. Tags may hold commas. */
static bool take_tag(struct slice *list, struct slice *tag) {
    *list = http1_trim(*list);
    /* Weak and strong tags compare alike here. */
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
