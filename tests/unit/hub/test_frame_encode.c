/* The text of a frame: its members, its lean part and its longest names. */
#include "hub/frame.h"

#include "base/limits.h"
#include "test.h"
#include "wire/json.h"

static const uint8_t hash[SHA256_BYTES];

static struct store_event event_of(struct slice entity_id, uint64_t seq) {
    struct store_event event = {.entity_kind = ENTITY_RUN, .entity_id = entity_id, .seq = seq};
    assert_ok(uuid7_parse(SLICE("018bcfe5-6800-7000-8000-000000000001"), &event.cursor));
    event.event_id = event.cursor;
    return event;
}

/* The member of the frame as JSON, or "" if it has none. */
static struct slice member(const struct frame *frame, const char *name, struct buffer *json) {
    const struct json_limits limits = {1u << 20, JSON_DEPTH_MAX};
    struct json_field field = {.name = slice_of(name)};
    struct slice text = frame->forms[FRAME_FULL];
    buffer_clear(json);
    assert_ok(buffer_printf(json, "{%.*s}", (int)text.size, text.data));
    assert_ok(json_read_object(buffer_slice(json), &limits, &field, 1));
    return field.present ? field.value.raw : SLICE("");
}

static struct frame *make_frame(const struct frame_members *members, struct slice kind) {
    const struct frame_content content = {.seq = 7,
                                          .kind = kind,
                                          .document_version = members->is_document ? 2 : 4,
                                          .payload = SLICE("{\"a\":1}"),
                                          .published_at_ms = 5};
    struct frame_encoding encoding;
    struct frame *frame;
    assert_ok(frame_encode(&content, members, &encoding));
    assert_ok(frame_make(NULL, &content, &encoding.text, &frame));
    return frame;
}

static void a_range_is_written_only_for_several_events(void **state) {
    (void)state;
    static const struct {
        uint64_t first_seq;
        const char *range;
    } cases[] = {{0, ""}, {4, ""}, {5, ""}, {3, "[3,4]"}, {1, "[1,4]"}};
    const struct store_event event = event_of(SLICE("r"), 4);
    struct buffer json;
    buffer_init(&json, 1u << 20);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct frame_members members = {.topic = SLICE("t"),
                                              .event = &event,
                                              .first_seq = cases[i].first_seq,
                                              .payload_hash = hash,
                                              .projection_version = SLICE("v")};
        struct frame *frame = make_frame(&members, SLICE("k"));
        assert_slice(member(frame, "seq_range", &json), cases[i].range);
        assert_slice(member(frame, "entity_seq", &json), "4");
        assert_slice(member(frame, "runtime_source", &json),
                     "{\"entity\":\"run\",\"run_id\":\"r\",\"seq\":4}");
        frame_unref(frame);
    }
    buffer_release(&json);
}

#define EVENT_ID "018bcfe5-6800-7000-8000-000000000001"

static void a_lean_event_has_no_document_and_a_lean_document_has_one(void **state) {
    (void)state;
    struct store_event event = event_of(SLICE("r"), 4);
    event.recorded_at_ms = 9;
    struct frame_members members = {.topic = SLICE("t"),
                                    .event = &event,
                                    .payload_hash = hash,
                                    .projection_version = SLICE("v")};
    struct frame *frame = make_frame(&members, SLICE("k"));
    assert_slice(frame->forms[FRAME_LEAN], "\"seq\":7,\"kind\":\"k\",\"event_id\":\"" EVENT_ID
                                           "\",\"recorded_at\":9,\"payload\":{\"a\":1}");
    assert_true(
        slice_starts(frame->forms[FRAME_FULL],
                     SLICE("\"topic\":\"t\",\"doc_key\":null,\"doc_version\":4,\"seq\":7,")));
    frame_unref(frame);
    members.is_document = true;
    members.first_seq = 3;
    frame = make_frame(&members, SLICE("k"));
    assert_slice(frame->forms[FRAME_LEAN],
                 "\"seq\":7,\"kind\":\"k\",\"event_id\":\"" EVENT_ID
                 "\",\"recorded_at\":9,\"doc_key\":null,\"doc_version\":2,"
                 "\"seq_range\":[3,4],\"payload\":{\"a\":1}");
    frame_unref(frame);
}

/* Names may have characters that JSON escapes, but no control characters. */
static void the_longest_names_fit(void **state) {
    (void)state;
    char quotes[1024];
    memset(quotes, '"', sizeof(quotes));
    struct store_event event = event_of((struct slice){quotes, 512}, UINT64_MAX >> 11);
    event.entity_kind = ENTITY_TOPIC;
    const struct frame_members members = {.topic = {quotes, 512},
                                          .event = &event,
                                          .first_seq = 1,
                                          .payload_hash = hash,
                                          .projection_version = {quotes, 256}};
    struct buffer json;
    buffer_init(&json, 1u << 20);
    struct frame *frame = make_frame(&members, (struct slice){quotes, 128});
    assert_int_equal(member(frame, "topic", &json).size, 2 * 512 + 2);
    assert_int_equal(member(frame, "entity_id", &json).size, 2 * 512 + 2);
    assert_int_equal(member(frame, "kind", &json).size, 2 * 128 + 2);
    frame_unref(frame);
    buffer_release(&json);
}

static void names_beyond_the_limit_are_refused(void **state) {
    (void)state;
    char control[FRAME_HEAD_BYTES_MAX] = {0};
    const struct store_event event = event_of(SLICE("r"), 1);
    const struct frame_members members = {
        .topic = {control, sizeof(control)}, .event = &event, .payload_hash = hash};
    const struct frame_content content = {.seq = 1, .kind = SLICE("k"), .payload = SLICE("{}")};
    struct frame_encoding encoding;
    assert_int_equal(frame_encode(&content, &members, &encoding), STATUS_PAYLOAD_TOO_LARGE);
}

static void a_removed_document_has_its_key_and_version(void **state) {
    (void)state;
    const struct frame_content content = {.seq = 7,
                                          .kind = SLICE("run_summary"),
                                          .document_key = SLICE("runtime/run_summary:\"r"),
                                          .document_version = 3,
                                          .payload = SLICE("{\"a\":1}"),
                                          .owner.user_id = SLICE("u")};
    const struct frame_text text = {.head = SLICE("\"topic\":\"t\",\"seq\":7,\"payload\":"),
                                    .lean_begin = sizeof("\"topic\":\"t\"")};
    struct frame *frame;
    assert_ok(frame_make(NULL, &content, &text, &frame));
    struct frame *removed = frame_removed(frame);
    frame_unref(frame);
    assert_non_null(removed);
    assert_slice(removed->forms[FRAME_LEAN],
                 "\"seq\":7,\"kind\":\"removed\",\"doc_key\":\"runtime/run_summary:\\\"r\","
                 "\"doc_version\":3");
    assert_true(slice_starts(removed->forms[FRAME_FULL], SLICE("\"topic\":\"t\",\"seq\":7,")));
    assert_slice(removed->content.owner.user_id, "u");
    assert_int_equal(removed->content.payload.size, 0);
    frame_unref(removed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_written_only_for_several_events),
        cmocka_unit_test(a_lean_event_has_no_document_and_a_lean_document_has_one),
        cmocka_unit_test(a_removed_document_has_its_key_and_version),
        cmocka_unit_test(the_longest_names_fit),
        cmocka_unit_test(names_beyond_the_limit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
