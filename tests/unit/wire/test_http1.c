#include "vectors.h"

#include "http1_transcript.h"

#define HOST "Host: a\r\n"
#define POST "POST / HTTP/1.1\r\n" HOST

static const struct http1_limits limits = {8192, 16384, 64};

static size_t cut_one(void *user) {
    (void)user;
    return 1;
}

static size_t cut_random(void *user) {
    return 1 + test_random(user) % 17;
}

static void run_one(struct http1_run *run, struct slice input, size_t (*cut)(void *), void *user) {
    *run = (struct http1_run){
        .input = input, .limits = &limits, .body_bytes_max = 1000, .cut = cut, .user = user};
    http1_run(run);
}

/* In one piece, byte by byte and at random cuts; answers the run in one piece. */
static struct http1_run run_all_cuts(struct slice input) {
    struct http1_run whole, other;
    uint64_t seed = input.size;
    run_one(&whole, input, NULL, NULL);
    run_one(&other, input, cut_one, NULL);
    assert_int_equal(other.text.size, whole.text.size);
    assert_memory_equal(other.text.data, whole.text.data, whole.text.size);
    buffer_release(&other.text);
    for (int i = 0; i < 20; i++) {
        run_one(&other, input, cut_random, &seed);
        assert_int_equal(other.text.size, whole.text.size);
        assert_memory_equal(other.text.data, whole.text.data, whole.text.size);
        buffer_release(&other.text);
    }
    return whole;
}

#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static void check_refused(const char *group, json_t *row) {
    struct buffer request = vector_latin1(json_object_get(row, "request"));
    struct http1_run run = run_all_cuts(buffer_slice(&request));
    const char *why = vector_text(row, "why").data;
    if (run.status != vector_status(row))
        fail_msg("%s, %s: %s", group, why, status_code(run.status));
    if (run.request_count != 0)
        fail_msg("%s, %s: was read to its end", group, why);
    buffer_release(&run.text);
    buffer_release(&request);
}

static void the_refused_requests_of_the_vectors_are_refused(void **state) {
    (void)state;
    json_t *vectors = vectors_load("http_refused");
    json_t *groups = json_object_get(vectors, "refused");
    const char *group;
    json_t *rows, *row;
    size_t index;
    assert_true(json_object_size(groups) > 0);
    json_object_foreach(groups, group, rows) {
        assert_true(json_array_size(rows) > 0);
        json_array_foreach(rows, index, row) check_refused(group, row);
    }
    json_decref(vectors);
}

static void check_text(json_t *row, const char *what, struct slice actual, json_t *expected) {
    struct buffer bytes = vector_latin1(expected);
    if (!slice_equal(actual, buffer_slice(&bytes)))
        fail_msg("%s: %s is '%.*s'", vector_text(row, "why").data, what, (int)actual.size,
                 actual.data ? actual.data : "");
    buffer_release(&bytes);
}

static void check_flag(json_t *row, const char *what, bool actual) {
    if (actual != vector_flag(row, what))
        fail_msg("%s: %s is %d", vector_text(row, "why").data, what, actual);
}

static enum http1_method method_of(struct slice name) {
    static const char *const routed[] = {"GET",   "HEAD",   "POST",   "PUT",
                                         "PATCH", "DELETE", "OPTIONS"};
    int method = 0;
    while (method < HTTP1_METHOD_OTHER && !slice_equal(slice_of(routed[method]), name))
        method++;
    return (enum http1_method)method;
}

static void check_head(json_t *row, const struct http1_request *request) {
    json_t *host = json_object_get(row, "host");
    json_t *headers = json_object_get(row, "headers");
    json_t *header;
    size_t index;
    assert_int_equal(request->method, method_of(vector_text(row, "method")));
    assert_int_equal(request->version_minor, json_object_get(row, "version") ? 0 : 1);
    assert_int_equal(request->content_length,
                     request->chunked ? 0 : json_string_length(json_object_get(row, "body")));
    check_text(row, "path", request->path, json_object_get(row, "path"));
    check_text(row, "query", request->query, json_object_get(row, "query"));
    check_flag(row, "keep_alive", request->keep_alive);
    check_flag(row, "chunked", request->chunked);
    check_flag(row, "upgrade", request->upgrade);
    check_flag(row, "expect_continue", request->expect_continue);
    if (host)
        check_text(row, "host", request->host, host);
    if (headers)
        assert_int_equal(request->header_count, json_array_size(headers));
    json_array_foreach(headers, index, header) {
        check_text(row, "a name", request->headers[index].name, json_array_get(header, 0));
        check_text(row, "a value", request->headers[index].value, json_array_get(header, 1));
    }
}

static void read_body(struct http1_parser *parser, struct slice *input, struct buffer *body) {
    struct http1_event event;
    assert_ok(http1_allow_body(parser, 1000));
    for (;;) {
        assert_ok(http1_next(parser, input, &event));
        if (event.kind == HTTP1_EVENT_DONE)
            return;
        assert_int_equal(event.kind, HTTP1_EVENT_BODY);
        assert_ok(buffer_append_slice(body, event.piece));
    }
}

static void check_request(json_t *row, struct slice input) {
    struct http1_parser parser;
    struct http1_event event;
    struct buffer body;
    json_t *rest = json_object_get(row, "rest");
    http1_parser_init(&parser, &limits);
    buffer_init(&body, 1000);
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_HEAD);
    check_head(row, http1_parser_request(&parser));
    if (!vector_flag(row, "upgrade"))
        read_body(&parser, &input, &body);
    check_text(row, "body", buffer_slice(&body), json_object_get(row, "body"));
    if (rest)
        check_text(row, "rest", input, rest);
    else
        assert_int_equal(input.size, 0);
    buffer_release(&body);
    http1_parser_release(&parser);
}

static void the_requests_of_the_vectors_are_read(void **state) {
    (void)state;
    json_t *vectors = vectors_load("http_requests");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "requests"), index, row) {
        struct buffer request = vector_latin1(json_object_get(row, "request"));
        struct http1_run run = run_all_cuts(buffer_slice(&request));
        if (run.status != STATUS_OK)
            fail_msg("%s: %s", vector_text(row, "why").data, status_code(run.status));
        assert_int_equal(run.request_count, vector_flag(row, "upgrade") ? 0 : 1);
        check_request(row, buffer_slice(&request));
        buffer_release(&run.text);
        buffer_release(&request);
    }
    json_decref(vectors);
}

static void blank_lines_are_counted_anew_for_each_request(void **state) {
    (void)state;
    struct http1_run run = run_all_cuts(SLICE("\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n"
                                              "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n\r\n\r\n"));
    assert_ok(run.status);
    assert_int_equal(run.request_count, 2);
    buffer_release(&run.text);
}

static void three_pipelined_requests_come_one_at_a_time(void **state) {
    (void)state;
    const struct slice stream = SLICE(POST "Content-Length: 3\r\n\r\nabc"
                                           "GET /2 HTTP/1.1\r\n" HOST "\r\n"
                                           "\r\n" CHUNKED "1\r\nz\r\n0\r\n\r\n");
    struct http1_run run = run_all_cuts(stream);
    assert_ok(run.status);
    assert_int_equal(run.request_count, 3);
    buffer_release(&run.text);

    struct http1_parser parser;
    struct http1_event event;
    struct slice input = stream;
    http1_parser_init(&parser, &limits);
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_HEAD);
    assert_true(slice_starts(input, SLICE("abcGET")));
    assert_ok(http1_allow_body(&parser, 3));
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_BODY);
    assert_slice(event.piece, "abc");
    assert_ptr_equal(event.piece.data + 3, input.data);
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_DONE);
    assert_true(slice_starts(input, SLICE("GET /2")));
    /* Until the first is answered its head is there, and the second is not touched. */
    assert_slice(http1_parser_request(&parser)->path, "/");
    http1_finish(&parser);
    assert_null(http1_parser_request(&parser));
    assert_int_equal(http1_parser_bytes(&parser), 0);
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_HEAD);
    assert_slice(http1_parser_request(&parser)->path, "/2");
    http1_parser_release(&parser);
}

static void a_failure_ends_the_stream(void **state) {
    (void)state;
    struct http1_run run = run_all_cuts(SLICE(
        "GET /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n" HOST "\r\n"));
    assert_int_equal(run.status, STATUS_BAD_REQUEST);
    assert_int_equal(run.request_count, 1);
    buffer_release(&run.text);
}

static void a_body_comes_only_where_it_is_allowed(void **state) {
    (void)state;
    struct http1_parser parser;
    struct http1_event event;
    http1_parser_init(&parser, &limits);
    struct slice input = SLICE(POST "Content-Length: 5\r\n\r\nabcde");
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(http1_next(&parser, &input, &event), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(input.size, 5);
    assert_non_null(http1_parser_request(&parser));
    http1_parser_release(&parser);

    input = SLICE(POST "Content-Length: 5\r\n\r\nabcde");
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(http1_allow_body(&parser, 4), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(http1_next(&parser, &input, &event), STATUS_PAYLOAD_TOO_LARGE);
    http1_parser_release(&parser);

    input = SLICE(CHUNKED "4\r\nabcd\r\n1\r\ne\r\n");
    assert_ok(http1_next(&parser, &input, &event));
    assert_ok(http1_allow_body(&parser, 4));
    assert_ok(http1_next(&parser, &input, &event));
    assert_slice(event.piece, "abcd");
    assert_int_equal(http1_next(&parser, &input, &event), STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(input, "e\r\n");
    http1_parser_release(&parser);
}

/* Feeds text repeated until the parser answers; says how many bytes that took. */
static enum status flood(struct http1_parser *parser, const char *start, const char *repeated,
                         size_t *fed) {
    struct http1_event event;
    struct slice input = slice_of(start);
    enum status status = http1_next(parser, &input, &event);
    for (*fed = strlen(start); status == STATUS_OK && *fed < 1000000; *fed += strlen(repeated)) {
        input = slice_of(repeated);
        status = http1_next(parser, &input, &event);
        assert_true(http1_parser_bytes(parser) <=
                    parser->limits->head_bytes_max + 1024 +
                        parser->limits->header_count_max * sizeof(struct http1_header));
    }
    return status;
}

static void endless_input_fails_at_its_limit(void **state) {
    (void)state;
    static const struct http1_limits small = {100, 300, 5};
    static const struct {
        const char *start;
        const char *repeated;
        size_t fed;
        enum status status;
    } rows[] = {
        {"", "a", 102, STATUS_URI_TOO_LONG},
        {"GET /", "a", 102, STATUS_URI_TOO_LONG},
        {"GET / HTTP/1.1\r\n", "a", 16 + 102, STATUS_HEADERS_TOO_LARGE},
        {"GET / HTTP/1.1\r\nA: ", "a", 16 + 102, STATUS_HEADERS_TOO_LARGE},
        {"GET / HTTP/1.1\r\n", "A:b\r\n", 16 + 6 * 5, STATUS_HEADERS_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http1_parser parser;
        size_t fed;
        http1_parser_init(&parser, &small);
        assert_int_equal(flood(&parser, rows[i].start, rows[i].repeated, &fed), rows[i].status);
        assert_int_equal(fed, rows[i].fed);
        assert_int_equal(http1_parser_bytes(&parser), 0);
        http1_parser_release(&parser);
    }
}

static enum status parse_with(const struct http1_limits *tight, struct slice input,
                              size_t *memory_bytes) {
    struct http1_run runs[2];
    for (int i = 0; i < 2; i++) {
        runs[i] = (struct http1_run){.input = input, .limits = tight, .body_bytes_max = 10};
        runs[i].cut = i == 0 ? NULL : cut_one;
        http1_run(&runs[i]);
        buffer_release(&runs[i].text);
    }
    assert_int_equal(runs[0].status, runs[1].status);
    *memory_bytes = runs[1].memory_bytes_max;
    return runs[0].status;
}

static void limits_hold_exactly(void **state) {
    (void)state;
    size_t memory;
    const struct slice request = SLICE("GET /abcdefgh HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\n");
    struct http1_limits tight = {22, request.size, 2};
    assert_ok(parse_with(&tight, request, &memory));
    assert_true(memory <= request.size + 1024);
    tight.line_bytes_max = 21;
    assert_int_equal(parse_with(&tight, request, &memory), STATUS_URI_TOO_LONG);
    tight = (struct http1_limits){22, request.size - 1, 2};
    assert_int_equal(parse_with(&tight, request, &memory), STATUS_HEADERS_TOO_LARGE);
    tight = (struct http1_limits){22, request.size, 1};
    assert_int_equal(parse_with(&tight, request, &memory), STATUS_HEADERS_TOO_LARGE);
    tight = (struct http1_limits){100, 23, 2};
    assert_int_equal(parse_with(&tight, request, &memory), STATUS_URI_TOO_LONG);
    const struct slice wide = SLICE("GET / HTTP/1.1\r\nHost: a\r\nB: 6789012345\r\n\r\n");
    tight = (struct http1_limits){14, wide.size, 2};
    assert_int_equal(parse_with(&tight, wide, &memory), STATUS_OK);
    tight.line_bytes_max = 13;
    assert_int_equal(parse_with(&tight, wide, &memory), STATUS_URI_TOO_LONG);
    const struct slice wider = SLICE("GET / HTTP/1.1\r\nHost: a\r\nB: 67890123456\r\nC: d\r\n\r\n");
    tight.line_bytes_max = 14;
    tight.head_bytes_max = wider.size;
    assert_ok(parse_with(&tight, wide, &memory));
    assert_int_equal(parse_with(&tight, wider, &memory), STATUS_HEADERS_TOO_LARGE);
}

static void an_idle_parser_is_small_and_holds_nothing(void **state) {
    (void)state;
    struct http1_parser parser;
    struct http1_event event;
    struct slice input = SLICE("\r\n");
    assert_true(sizeof(parser) <= 32);
    http1_parser_init(&parser, &limits);
    assert_int_equal(http1_parser_bytes(&parser), 0);
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(http1_parser_bytes(&parser), 0);
    input = (struct slice){NULL, 0};
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_MORE);
    http1_parser_release(&parser);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_refused_requests_of_the_vectors_are_refused),
        cmocka_unit_test(the_requests_of_the_vectors_are_read),
        cmocka_unit_test(blank_lines_are_counted_anew_for_each_request),
        cmocka_unit_test(three_pipelined_requests_come_one_at_a_time),
        cmocka_unit_test(a_failure_ends_the_stream),
        cmocka_unit_test(a_body_comes_only_where_it_is_allowed),
        cmocka_unit_test(endless_input_fails_at_its_limit),
        cmocka_unit_test(limits_hold_exactly),
        cmocka_unit_test(an_idle_parser_is_small_and_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
