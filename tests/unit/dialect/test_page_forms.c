/* The bytes that each dialect makes of known frames. */
#include "dialect/dialects.h"

#include "delivery/delivery.h"
#include "dialect/phoenix/phoenix_message.h"
#include "test.h"
#include "wire/websocket/ws_deflate.h"

#define EVENT_ID "018bcfe5-6800-7000-8000-000000000001"
#define CURSOR   "MTcwMDAwMDAwMDAwMDowMThiY2ZlNS02ODAwLTcwMDAtODAwMC0wMDAwMDAwMDAwMDE"

static struct io_loop io;
static struct delivery shared = {.epoch = "e1"};
static struct delivery_loop delivery = {.shared = &shared, .io = &io};

#define HEAD "\"topic\":\"t\","
#define LEAN "\"seq\":12,\"kind\":\"k\",\"payload\":"
#define TAIL ",\"event_id\":\"" EVENT_ID "\""

static struct frame *make_frame(uint64_t seq) {
    struct frame *frame;
    struct frame_content content = {
        .seq = seq, .kind = SLICE("k"), .payload = SLICE("{\"a\":1}"), .published_at_ms = 7};
    const struct frame_text text = {SLICE(HEAD LEAN), strlen(HEAD), SLICE(TAIL)};
    assert_ok(uuid7_parse(SLICE(EVENT_ID), &content.cursor));
    assert_ok(frame_make(NULL, &content, &text, &frame));
    return frame;
}

/* Frame 12 of (10, 13]: 11 and 13 are hidden from the client. */
static struct page *make_page(void) {
    struct delivery_batch batch = {.count_max = 16, .after_seq = 10, .through_seq = 13, .count = 1};
    struct page *page;
    batch.frames[0] = make_frame(12);
    assert_ok(page_make(&page, SLICE("t"), 13, &batch));
    page->epoch = (struct topic_epoch){"e1"};
    return page;
}

static void encode(const struct page_form *form, struct buffer *out) {
    struct page *page = make_page();
    buffer_init(out, 1u << 20);
    assert_ok(form->encode(page, form, &delivery, out));
    page_free(page);
}

static void check(const struct page_form *form, const char *expected) {
    struct buffer out;
    encode(form, &out);
    assert_slice(buffer_slice(&out), expected);
    buffer_release(&out);
}

/* One text frame of a server: a byte of flags, the size in one or three bytes, the text. */
static struct slice next_text(struct slice *bytes) {
    assert_true(bytes->size > 4);
    assert_int_equal((unsigned char)bytes->data[0], 0x81);
    size_t size = (unsigned char)bytes->data[1];
    size_t head = 2;
    if (size == 126) {
        size = (size_t)(unsigned char)bytes->data[2] << 8 | (unsigned char)bytes->data[3];
        head = 4;
    }
    struct slice text = {bytes->data + head, size};
    *bytes = slice_from(*bytes, head + size);
    return text;
}

#define MESSAGE HEAD LEAN "{\"a\":1}" TAIL ",\"sequence\":12,\"published_at\":7}"

static void a_poll_message_is_the_frame_with_its_own_names(void **state) {
    (void)state;
    struct frame *frame = make_frame(12);
    struct buffer out;
    buffer_init(&out, 4096);
    assert_ok(message_write(&out, frame, FRAME_FULL));
    assert_slice(buffer_slice(&out), "{" MESSAGE);
    buffer_clear(&out);
    assert_ok(message_write(&out, frame, FRAME_LEAN));
    assert_slice(buffer_slice(&out), "{" LEAN "{\"a\":1}}");
    buffer_release(&out);
    frame_unref(frame);
}

#define SSE_EVENTS "id: 12@e1\ndata: {\"after\":10," MESSAGE "\n\n"

static void an_event_stream_sends_each_message_with_the_position_before_it(void **state) {
    (void)state;
    char chunked[1024];
    check(&sse_dialect.forms[FRAME_FULL][false], SSE_EVENTS);
    snprintf(chunked, sizeof(chunked), "%08zx\r\n%s\r\n", strlen(SSE_EVENTS), SSE_EVENTS);
    check(&sse_dialect.forms[FRAME_FULL][true], chunked);
}

static void the_log_as_an_event_stream_has_event_cursors_as_ids(void **state) {
    (void)state;
    const char *events = "id: " CURSOR "\ndata: {\"a\":1}\n\n";
    char chunked[1024];
    check(&log_sse_dialect.forms[0][false], events);
    snprintf(chunked, sizeof(chunked), "%08zx\r\n%s\r\n", strlen(events), events);
    check(&log_sse_dialect.forms[0][true], chunked);
}

static void a_topic_socket_sends_each_message_with_the_position_before_it(void **state) {
    (void)state;
    struct buffer out;
    encode(&topic_ws_dialect.forms[FRAME_FULL][false], &out);
    struct slice bytes = buffer_slice(&out);
    assert_slice(next_text(&bytes), "{\"type\":\"message\",\"after\":10," MESSAGE);
    assert_int_equal(bytes.size, 0);
    buffer_release(&out);
}

static void an_audit_socket_sends_the_event_and_its_cursor(void **state) {
    (void)state;
    struct buffer out;
    clock_init(&io.clock);
    io.clock.reading.wall_ms = 99;
    encode(&audit_ws_dialect.forms[0][false], &out);
    struct slice bytes = buffer_slice(&out);
    assert_slice(next_text(&bytes), "{\"type\":\"event\",\"event\":{\"a\":1},\"cursor\":\"" CURSOR
                                    "\",\"server_time\":99}");
    assert_int_equal(bytes.size, 0);
    buffer_release(&out);
}

static void a_phoenix_batch_covers_its_range(void **state) {
    (void)state;
    struct buffer out;
    encode(&phoenix_dialect.forms[PHOENIX_UPDATES_FULL][false], &out);
    struct slice bytes = buffer_slice(&out);
    struct slice text = next_text(&bytes);
    assert_true(slice_starts(
        text, SLICE("[null,null,\"sync:v1\",\"sync:update_batch\",{\"topic\":"
                    "\"t\",\"after\":10,\"through\":13,\"updates\":[{" HEAD LEAN "{\"a\":1}" TAIL
                    ",\"watermark\":12,\"hydration_required\":false}]")));
    assert_true(
        slice_ends(text, SLICE("}],\"epoch\":\"e1\",\"replay_complete\":true,\"head_watermarks\":[{"
                               "\"topic\":\"t\",\"watermark\":13}]}]")));
    assert_int_equal(bytes.size, 0);
    buffer_release(&out);
}

static void phoenix_frames_come_one_by_one_before_their_range(void **state) {
    (void)state;
    struct buffer out;
    encode(&phoenix_dialect.forms[PHOENIX_UPDATES_NONE][false], &out);
    struct slice bytes = buffer_slice(&out);
    assert_slice(next_text(&bytes),
                 "[null,null,\"sync:v1\",\"sync:frame\",{\"topic\":\"t\",\"seq\":12,\"kind\":\"k\","
                 "\"payload_bytes\":\"eyJhIjoxfQ==\",\"schema_version\":1}]");
    assert_slice(next_text(&bytes),
                 "[null,null,\"sync:v1\",\"sync:update_batch\",{\"topic\":\"t\",\"after\":10,"
                 "\"through\":13,\"updates\":[],\"epoch\":\"e1\",\"replay_complete\":true,\"head_"
                 "watermarks\":[{"
                 "\"topic\":\"t\",\"watermark\":13}]}]");
    assert_int_equal(bytes.size, 0);
    buffer_release(&out);
}

static void check_lean(uint64_t after, const char *sse, const char *topic_ws) {
    struct page *page = make_page();
    struct buffer out;
    page->batch.after_seq = after;
    buffer_init(&out, 4096);
    assert_ok(sse_dialect.forms[FRAME_LEAN][false].encode(
        page, &sse_dialect.forms[FRAME_LEAN][false], &delivery, &out));
    assert_slice(buffer_slice(&out), sse);
    buffer_clear(&out);
    assert_ok(topic_ws_dialect.forms[FRAME_LEAN][false].encode(
        page, &topic_ws_dialect.forms[FRAME_LEAN][false], &delivery, &out));
    struct slice bytes = buffer_slice(&out);
    assert_slice(next_text(&bytes), topic_ws);
    buffer_release(&out);
    page_free(page);
}

/* The members from seq to the payload, and the position before them if it is not seq - 1. */
static void lean_forms_have_few_members(void **state) {
    (void)state;
    struct buffer out;
    check_lean(10, "id: 12@e1\ndata: {\"after\":10," LEAN "{\"a\":1}}\n\n",
               "{\"type\":\"message\",\"after\":10," LEAN "{\"a\":1}}");
    check_lean(11, "id: 12@e1\ndata: {" LEAN "{\"a\":1}}\n\n",
               "{\"type\":\"message\"," LEAN "{\"a\":1}}");
    encode(&phoenix_dialect.forms[PHOENIX_UPDATES_LEAN][false], &out);
    struct slice bytes = buffer_slice(&out);
    assert_slice(next_text(&bytes),
                 "[null,null,\"sync:v1\",\"sync:update_batch\",{\"topic\":\"t\",\"after\":10,"
                 "\"through\":13,\"updates\":[{" LEAN "{\"a\":1}}],\"epoch\":\"e1\","
                 "\"replay_complete\":true}]");
    buffer_release(&out);
}

/* The second bit of a frame says that it is compressed. */
static void compressed_forms_are_marked_as_compressed(void **state) {
    (void)state;
    const struct page_form *forms[] = {&topic_ws_dialect.forms[FRAME_FULL][true],
                                       &audit_ws_dialect.forms[0][true],
                                       &phoenix_dialect.forms[PHOENIX_UPDATES_FULL][true]};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct buffer out;
        encode(forms[i], &out);
        assert_int_equal((unsigned char)out.data[0], 0xc1);
        buffer_release(&out);
    }
    ws_deflater_release(delivery.deflater);
    free(delivery.deflater);
    delivery.deflater = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_poll_message_is_the_frame_with_its_own_names),
        cmocka_unit_test(an_event_stream_sends_each_message_with_the_position_before_it),
        cmocka_unit_test(the_log_as_an_event_stream_has_event_cursors_as_ids),
        cmocka_unit_test(a_topic_socket_sends_each_message_with_the_position_before_it),
        cmocka_unit_test(an_audit_socket_sends_the_event_and_its_cursor),
        cmocka_unit_test(a_phoenix_batch_covers_its_range),
        cmocka_unit_test(phoenix_frames_come_one_by_one_before_their_range),
        cmocka_unit_test(lean_forms_have_few_members),
        cmocka_unit_test(compressed_forms_are_marked_as_compressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
