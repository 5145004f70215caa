/* A stream of requests, in one piece and in pieces whose sizes the first bytes choose: the same
 * transcript, within the memory the limits name. Each head that was accepted, written out anew
 * from what the parser said it is, reads the same again. */
#include "../unit/wire/http1_transcript.h"
#include "fuzz.h"
#include "wire/http1_response.h"

#define CUT_BYTES    4
#define OPTION_BYTES (CUT_BYTES + 1)

static const struct http1_limits limits_wide = {8192, 16384, 64};
static const struct http1_limits limits_tight = {48, 160, 4};

struct cutter {
    const uint8_t *sizes;
    size_t index;
};

static size_t cut_next(void *user) {
    struct cutter *cutter = user;
    return 1 + (size_t)cutter->sizes[cutter->index++ % CUT_BYTES] % 64;
}

static struct http1_run run_cut(struct slice input, const struct http1_limits *limits,
                                struct cutter *cutter) {
    struct http1_run run = {.input = input, .limits = limits, .body_bytes_max = 300};
    if (cutter) {
        run.cut = cut_next;
        run.user = cutter;
    }
    http1_run(&run);
    HTTP1_REQUIRE(run.memory_bytes_max <=
                  limits->head_bytes_max + 1024 +
                      limits->header_count_max * sizeof(struct http1_header));
    return run;
}

static void require_ok(enum status status) {
    HTTP1_REQUIRE(status == STATUS_OK);
}

/* The method's text is the one thing the parser does not hand out; it starts the line. */
static void write_head(struct buffer *out, struct slice stream,
                       const struct http1_request *request) {
    while (slice_starts(stream, SLICE("\r\n")))
        stream = slice_from(stream, 2);
    const char *blank = memchr(stream.data, ' ', stream.size);
    HTTP1_REQUIRE(blank != NULL);
    require_ok(buffer_append(out, stream.data, (size_t)(blank - stream.data) + 1));
    require_ok(buffer_append_slice(out, request->target));
    require_ok(buffer_printf(out, " HTTP/1.%u\r\n", request->version_minor));
    for (size_t i = 0; i < request->header_count; i++)
        require_ok(http1_response_header(out, request->headers[i].name, request->headers[i].value));
    require_ok(buffer_append(out, "\r\n", 2));
}

static void check_same_request(const struct http1_request *a, const struct http1_request *b) {
    HTTP1_REQUIRE(b != NULL);
    HTTP1_REQUIRE(a->method == b->method && a->version_minor == b->version_minor);
    HTTP1_REQUIRE(slice_equal(a->target, b->target) && slice_equal(a->host, b->host));
    HTTP1_REQUIRE(slice_equal(a->path, b->path) && slice_equal(a->query, b->query));
    HTTP1_REQUIRE(a->content_length == b->content_length && a->chunked == b->chunked);
    HTTP1_REQUIRE(a->keep_alive == b->keep_alive && a->upgrade == b->upgrade);
    HTTP1_REQUIRE(a->expect_continue == b->expect_continue && a->has_body == b->has_body);
    HTTP1_REQUIRE(a->header_count == b->header_count);
    for (size_t i = 0; i < a->header_count; i++) {
        HTTP1_REQUIRE(slice_equal(a->headers[i].name, b->headers[i].name));
        HTTP1_REQUIRE(slice_equal(a->headers[i].value, b->headers[i].value));
    }
}

/* Each parameter takes at least one byte of the query. */
static void check_names(struct slice query, struct buffer *name) {
    bool found = true;
    for (size_t left = query.size + 1; found; left--) {
        HTTP1_REQUIRE(left > 0);
        buffer_clear(name);
        enum status status = http1_query_next(&query, name, &found);
        HTTP1_REQUIRE(status == STATUS_OK || (status == STATUS_BAD_REQUEST && name->size == 0));
    }
}

static void check_lookups(const struct http1_request *request) {
    struct buffer out;
    bool found;
    buffer_init(&out, 1 << 16);
    if (http1_percent_decode(request->path, &out) == STATUS_OK)
        HTTP1_REQUIRE(out.size <= request->path.size && !memchr(out.data, 0, out.size));
    buffer_clear(&out);
    if (http1_query_find(request->query, SLICE("a"), &out, &found) == STATUS_OK)
        HTTP1_REQUIRE((found || out.size == 0) && out.size <= request->query.size);
    else
        HTTP1_REQUIRE(out.size == 0);
    check_names(request->query, &out);
    buffer_release(&out);
}

static void check_first_head(struct slice stream) {
    struct http1_parser parser, again;
    struct http1_event event;
    struct slice input = stream;
    http1_parser_init(&parser, &limits_wide);
    http1_parser_init(&again, &limits_wide);
    if (http1_next(&parser, &input, &event) == STATUS_OK && event.kind == HTTP1_EVENT_HEAD) {
        const struct http1_request *request = http1_parser_request(&parser);
        struct buffer copy;
        buffer_init(&copy, 1 << 17);
        write_head(&copy, stream, request);
        input = buffer_slice(&copy);
        enum status status = http1_next(&again, &input, &event);
        /* Blanks are normalised, so a head at its limit may grow past it; nothing else may. */
        if (status != STATUS_HEADERS_TOO_LARGE) {
            HTTP1_REQUIRE(status == STATUS_OK && input.size == 0);
            check_same_request(request, http1_parser_request(&again));
        }
        check_lookups(request);
        buffer_release(&copy);
    }
    http1_parser_release(&parser);
    http1_parser_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < OPTION_BYTES)
        return 0;
    struct cutter cutter = {data, 0};
    const struct http1_limits *limits = data[CUT_BYTES] & 1 ? &limits_tight : &limits_wide;
    struct slice stream = {(const char *)data + OPTION_BYTES, size - OPTION_BYTES};
    struct http1_run whole = run_cut(stream, limits, NULL);
    struct http1_run pieces = run_cut(stream, limits, &cutter);
    HTTP1_REQUIRE(whole.status == pieces.status);
    HTTP1_REQUIRE(slice_equal(buffer_slice(&whole.text), buffer_slice(&pieces.text)));
    buffer_release(&whole.text);
    buffer_release(&pieces.text);
    check_first_head(stream);
    return 0;
}
