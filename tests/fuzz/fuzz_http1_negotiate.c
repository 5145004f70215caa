/* Any two field values: only what is really in them is taken for said. Input: the size of the
 * first value, then both. */
#include "fuzz.h"
#include "wire/http1_negotiate.h"

static bool contains(struct slice text, struct slice part) {
    return memmem(text.data, text.size, part.data, part.size) != NULL;
}

static bool has_gzip_or_star(struct slice text) {
    char lower[4096];
    size_t size = text.size < sizeof(lower) ? text.size : sizeof(lower);
    for (size_t i = 0; i < size; i++)
        lower[i] =
            text.data[i] >= 'A' && text.data[i] <= 'Z' ? (char)(text.data[i] | 0x20) : text.data[i];
    struct slice folded = {lower, size};
    return contains(folded, SLICE("gzip")) || contains(folded, SLICE("*"));
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 4096)
        return 0;
    struct slice input = {(const char *)data + 1, size - 1};
    size_t first = data[0] < input.size ? data[0] : input.size;
    struct slice values[] = {{input.data, first}, slice_from(input, first)};
    struct http1_header accepts[] = {{SLICE("Accept-Encoding"), values[0]},
                                     {SLICE("Accept-Encoding"), values[1]}};
    struct http1_header matches[] = {{SLICE("If-None-Match"), values[0]},
                                     {SLICE("If-None-Match"), values[1]}};
    struct http1_request request = {.headers = accepts, .header_count = 2};
    bool taken = http1_accepts_gzip(&request);
    require(!taken || has_gzip_or_star(values[0]) || has_gzip_or_star(values[1]));
    /* One more that nobody names changes nothing. */
    struct http1_header further[] = {
        accepts[0], accepts[1], {SLICE("Accept-Encoding"), SLICE("br")}};
    request = (struct http1_request){.headers = further, .header_count = 3};
    require(http1_accepts_gzip(&request) == taken);
    const struct slice etag = SLICE("\"e-7-all\"");
    request = (struct http1_request){.headers = matches, .header_count = 2};
    bool found = http1_has_match(&request, etag);
    require(!found || contains(values[0], etag) || contains(values[1], etag) ||
            contains(values[0], SLICE("*")) || contains(values[1], SLICE("*")));
    struct http1_header exact[] = {matches[0], matches[1], {SLICE("If-None-Match"), etag}};
    request = (struct http1_request){.headers = exact, .header_count = 3};
    require(http1_has_match(&request, etag));
    return 0;
}
