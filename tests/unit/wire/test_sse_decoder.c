#include "wire/sse.h"

#include "../test.h"

struct seen {
    char text[1024]; /* "event|id|data;" of each */
    size_t size;
    uint64_t retry_ms;
    enum status answer;
};

static enum status on_message(void *user, const struct sse_message *message) {
    struct seen *seen = user;
    seen->size += (size_t)snprintf(seen->text + seen->size, sizeof(seen->text) - seen->size,
                                   "%.*s|%.*s|%.*s;", (int)message->event.size, message->event.data,
                                   (int)message->id.size, message->id.data, (int)message->data.size,
                                   message->data.data);
    return seen->answer;
}

static void on_retry(void *user, uint64_t delay_ms) {
    ((struct seen *)user)->retry_ms = delay_ms;
}

static const struct sse_handlers handlers = {on_message, on_retry};

static void check(const char *stream, const char *expected) {
    for (size_t piece = 1; piece <= strlen(stream); piece++) {
        struct seen seen = {.answer = STATUS_OK};
        struct sse_decoder decoder;
        struct slice rest = slice_of(stream);
        sse_decoder_init(&decoder, &handlers, &seen, 1000);
        while (rest.size > 0) {
            size_t size = piece < rest.size ? piece : rest.size;
            assert_ok(sse_decoder_feed(&decoder, (struct slice){rest.data, size}));
            rest = slice_from(rest, size);
        }
        assert_string_equal(seen.text, expected);
        sse_decoder_release(&decoder);
    }
}

static void events_are_read_whatever_the_pieces(void **state) {
    (void)state;
    check("data: x\n\n", "message||x;");
    check("data:x\r\ndata:  y\r\n\r\n", "message||x\n y;");
    check("id: 7\revent: stale\rdata: a\r\rdata: b\r\r", "stale|7|a;message|7|b;");
    check("\xef\xbb\xbf"
          "data: x\n\n",
          "message||x;");
    check("\xef\xbb"
          "data: x\n\n",
          "");
    check(": comment\n\nid\ndata\n\ndata: y\n\n", "message||;message||y;");
    check("event: lost\n\ndata: x\n\n", "message||x;");
    check("id: 3\ndata: broken off", "");
    check("unknown: x\ndata: y\n\n", "message||y;");
}

static void a_delay_is_taken_only_from_digits(void **state) {
    (void)state;
    struct seen seen = {.retry_ms = 1};
    struct sse_decoder decoder;
    sse_decoder_init(&decoder, &handlers, &seen, 1000);
    assert_ok(sse_decoder_feed(&decoder, SLICE("retry: 4x\nretry:\nretry: -1\n")));
    assert_int_equal(seen.retry_ms, 1);
    assert_ok(sse_decoder_feed(&decoder, SLICE("retry: 400\n")));
    assert_int_equal(seen.retry_ms, 400);
    assert_ok(sse_decoder_feed(&decoder, SLICE("retry: 99999999999999999999999\n")));
    assert_int_equal(seen.retry_ms, 3600000);
    sse_decoder_release(&decoder);
}

static void a_line_or_event_over_the_limit_is_refused(void **state) {
    (void)state;
    struct seen seen = {.answer = STATUS_OK};
    struct sse_decoder decoder;
    enum status status = STATUS_OK;
    sse_decoder_init(&decoder, &handlers, &seen, 64);
    for (int i = 0; status == STATUS_OK && i < 100; i++)
        status = sse_decoder_feed(&decoder, SLICE("data: x\n"));
    assert_int_equal(status, STATUS_PAYLOAD_TOO_LARGE);
    sse_decoder_restart(&decoder);
    status = STATUS_OK;
    for (int i = 0; status == STATUS_OK && i < 100; i++)
        status = sse_decoder_feed(&decoder, SLICE("data: x"));
    assert_int_equal(status, STATUS_PAYLOAD_TOO_LARGE);
    sse_decoder_release(&decoder);
}

static void an_error_of_a_handler_ends_the_stream(void **state) {
    (void)state;
    struct seen seen = {.answer = STATUS_INVALID_JSON};
    struct sse_decoder decoder;
    sse_decoder_init(&decoder, &handlers, &seen, 64);
    assert_int_equal(sse_decoder_feed(&decoder, SLICE("data: x\n\ndata: y\n\n")),
                     STATUS_INVALID_JSON);
    assert_string_equal(seen.text, "message||x;");
    sse_decoder_release(&decoder);
}

static void a_restart_begins_a_new_stream(void **state) {
    (void)state;
    struct seen seen = {.answer = STATUS_OK};
    struct sse_decoder decoder;
    sse_decoder_init(&decoder, &handlers, &seen, 64);
    assert_ok(sse_decoder_feed(&decoder, SLICE("id: 1\ndata: half")));
    sse_decoder_restart(&decoder);
    assert_ok(sse_decoder_feed(&decoder, SLICE("\xef\xbb\xbf"
                                               "data: x\n\n")));
    assert_string_equal(seen.text, "message||x;");
    sse_decoder_release(&decoder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_read_whatever_the_pieces),
        cmocka_unit_test(a_delay_is_taken_only_from_digits),
        cmocka_unit_test(a_line_or_event_over_the_limit_is_refused),
        cmocka_unit_test(an_error_of_a_handler_ends_the_stream),
        cmocka_unit_test(a_restart_begins_a_new_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
