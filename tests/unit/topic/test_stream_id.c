#include "topic/stream_id.h"
#include "vectors.h"

static struct buffer out;

static int setup(void **state) {
    (void)state;
    buffer_init(&out, 4096);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    buffer_release(&out);
    return 0;
}

static struct slice forward(struct slice topic) {
    buffer_clear(&out);
    assert_ok(topic_to_stream(topic, &out));
    return buffer_slice(&out);
}

/* topic NULL: there is no topic, and the buffer is unchanged. */
static void check_reverse(struct slice stream_id, const char *topic) {
    buffer_clear(&out);
    assert_ok(buffer_append(&out, "kept", 4));
    enum status status = stream_to_topic(stream_id, &out);
    assert_int_equal(status, topic ? STATUS_OK : STATUS_NOT_FOUND);
    assert_memory_equal(out.data, "kept", 4);
    assert_slice(slice_from(buffer_slice(&out), 4), topic ? topic : "");
}

static void stream_ids_match_the_vectors(void **state) {
    (void)state;
    json_t *vectors = vectors_load("topic_mapping");
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "forward"), index, vector) assert_true(
        slice_equal(forward(vector_text(vector, "topic")), vector_text(vector, "stream_id")));
    json_array_foreach(vectors_array(vectors, "reverse"), index, vector) check_reverse(
        vector_text(vector, "stream_id"), json_string_value(json_object_get(vector, "topic")));
    json_decref(vectors);
}

static void unusual_topics_map_by_the_first_rule_that_matches(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"run:a:events:events", "runtime.run.a:events.events"},
        {"run:a.b:events", "runtime.run.a.b.events"},
        {"run: :events", "runtime.run. .events"},
        {"run:*:events", "runtime.run.*.events"},
        {"worker::lifecycle", "runtime.worker..lifecycle"},
        {"fleet:user::workers", "runtime.fleet.user..workers"},
        {"fleet:guest:workers", "runtime.topic.fleet.guest.workers"},
        {"fleet:user:a:b:workers", "runtime.fleet.user.a:b.workers"},
        {"run:1:events ", "runtime.topic.run.1.events "},
        {"runtime.notifications", "runtime.topic.runtime.notifications"},
        {"runtime.topic.a", "runtime.topic.runtime.topic.a"},
        {"runtime.codex_worker_events2", "runtime.topic.runtime.codex_worker_events2"},
        {"::", "runtime.topic..."},
        {"", "runtime.topic."},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_slice(forward(slice_of(cases[i][0])), cases[i][1]);
}

static void a_blank_id_has_no_topic(void **state) {
    (void)state;
    static const char *const blanks[] = {
        "",
        " ",
        "\t",
        "\n\v\f\r",
        "\xc2\x85",
        "\xc2\xa0",
        " \xe1\x9a\x80",
        "\xe2\x80\x80",
        "\xe2\x80\x8a",
        "\xe2\x80\xa8\xe2\x80\xa9",
        "\xe2\x80\xaf",
        "\xe2\x81\x9f",
        "\xe3\x80\x80 ",
    };
    static const char *const patterns[] = {"runtime.run.%s.events", "runtime.worker.%s.lifecycle",
                                           "runtime.fleet.user.%s.workers",
                                           "runtime.fleet.guest.%s.workers", "runtime.topic.%s"};
    for (size_t i = 0; i < sizeof(blanks) / sizeof(blanks[0]); i++) {
        for (size_t k = 0; k < sizeof(patterns) / sizeof(patterns[0]); k++) {
            struct buffer stream_id;
            buffer_init(&stream_id, 100);
            size_t before = (size_t)(strchr(patterns[k], '%') - patterns[k]);
            assert_ok(buffer_append(&stream_id, patterns[k], before));
            assert_ok(buffer_append_slice(&stream_id, slice_of(blanks[i])));
            assert_ok(buffer_append_slice(&stream_id, slice_of(patterns[k] + before + 2)));
            check_reverse(buffer_slice(&stream_id), NULL);
            buffer_release(&stream_id);
        }
    }
}

static void an_id_that_only_looks_blank_has_a_topic(void **state) {
    (void)state;
    check_reverse(SLICE("runtime.run. x .events"), "run: x :events");
    check_reverse(SLICE("runtime.run...events"), "run:.:events");
    check_reverse(SLICE("runtime.run.\xe2\x80\x8b.events"), "run:\xe2\x80\x8b:events");
    check_reverse(SLICE("runtime.run.\xe2\x80.events"), "run:\xe2\x80:events");
    check_reverse(SLICE("runtime.run.\xc2.events"), "run:\xc2:events");
}

static void a_text_that_is_no_stream_id_has_no_topic(void **state) {
    (void)state;
    static const char *const cases[] = {
        "",
        "runtime",
        "runtime.",
        "runtime.topic",
        "runtime.run.events",
        "runtime.run.1.event",
        "runtime.run.1:events",
        "Runtime.run.1.events",
        " runtime.run.1.events",
        "runtime.fleet.org.9.workers",
        "runtime.fleet.user.workers",
        "runtime.codex_worker_events",
        "runtime.codex.worker.events.",
        "runtime.run_summaries",
        "run:1:events",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_reverse(slice_of(cases[i]), NULL);
    check_reverse((struct slice){NULL, 0}, NULL);
}

static void built_in_topics_keep_their_dots(void **state) {
    (void)state;
    check_reverse(SLICE("runtime.topic.runtime.run_summaries"), "runtime.run_summaries");
    check_reverse(SLICE("runtime.topic.runtime.codex_worker_summaries"),
                  "runtime.codex_worker_summaries");
    check_reverse(SLICE("runtime.topic.runtime.notifications"), "runtime.notifications");
    check_reverse(SLICE("runtime.topic.runtime.audit"), "runtime.audit");
    /* A pattern of the table is no name. */
    check_reverse(SLICE("runtime.topic.runtime.*"), "runtime:*");
    /* This topic has a retained stream. Under runtime.topic. the id belongs to another topic. */
    check_reverse(SLICE("runtime.topic.runtime.codex_worker_events"),
                  "runtime:codex_worker_events");
}

static void the_text_rule_never_returns_a_topic_of_another_stream(void **state) {
    (void)state;
    check_reverse(SLICE("runtime.topic.run.1.events"), NULL);
    check_reverse(SLICE("runtime.topic.run..events"), NULL);
    check_reverse(SLICE("runtime.topic.worker.1.lifecycle"), NULL);
    check_reverse(SLICE("runtime.topic.fleet.user.1.workers"), NULL);
    check_reverse(SLICE("runtime.topic.run.events"), "run:events");
    check_reverse(SLICE("runtime.topic.fleet.org.9.workers"), "fleet:org:9:workers");
}

static size_t random_name(uint64_t *seed, char *memory, size_t pieces_max) {
    static const char *const pieces[] = {":",
                                         ".",
                                         "a",
                                         "7",
                                         "run",
                                         "-",
                                         "events",
                                         "worker",
                                         "*",
                                         "\xc3\xa9",
                                         " ",
                                         "user",
                                         "\xf0\x9f\x9a\x80",
                                         "\xe3\x80\x80"};
    size_t size = 0;
    for (size_t count = test_random(seed) % (pieces_max + 1); count > 0; count--) {
        const char *piece = pieces[test_random(seed) % (sizeof(pieces) / sizeof(pieces[0]))];
        memcpy(memory + size, piece, strlen(piece));
        size += strlen(piece);
    }
    return size;
}

static void any_id_survives_the_round_trip_through_a_retained_stream(void **state) {
    (void)state;
    static const char *const ends[][2] = {{"run:", ":events"},
                                          {"worker:", ":lifecycle"},
                                          {"fleet:user:", ":workers"},
                                          {"fleet:guest:", ":workers"}};
    uint64_t seed = 21;
    for (int round = 0; round < 100000; round++) {
        char topic[200];
        char stream_id[200];
        const char *const *end = ends[test_random(&seed) % 4];
        size_t size = strlen(end[0]);
        memcpy(topic, end[0], size);
        topic[size++] = 'x'; /* so that it is not blank */
        size += random_name(&seed, topic + size, 12);
        memcpy(topic + size, end[1], strlen(end[1]) + 1);
        struct slice mapped = forward(slice_of(topic));
        memcpy(stream_id, mapped.data, mapped.size);
        check_reverse((struct slice){stream_id, mapped.size}, topic);
    }
}

static void a_topic_found_by_a_stream_id_has_that_stream_id(void **state) {
    (void)state;
    uint64_t seed = 22;
    int found = 0;
    for (int round = 0; round < 200000; round++) {
        char stream_id[200] = "runtime.";
        char topic[200];
        if (round % 2)
            strcat(stream_id, "topic.");
        size_t size = strlen(stream_id);
        size += random_name(&seed, stream_id + size, 8);
        stream_id[size] = '\0';
        buffer_clear(&out);
        if (stream_to_topic((struct slice){stream_id, size}, &out) != STATUS_OK)
            continue;
        found++;
        struct slice name = buffer_slice(&out);
        memcpy(topic, name.data, name.size);
        assert_slice(forward((struct slice){topic, name.size}), stream_id);
    }
    assert_true(found > 10000);
}

static void colons_of_other_topics_survive_the_round_trip(void **state) {
    (void)state;
    assert_slice(forward(SLICE("chat:room:7")), "runtime.topic.chat.room.7");
    check_reverse(SLICE("runtime.topic.chat.room.7"), "chat:room:7");
    check_reverse(SLICE("runtime.topic.chat:room:7"), NULL);
    assert_true(STREAM_ID_BYTES_MAX == 526);
    char topic[TOPIC_NAME_BYTES_MAX + 1];
    memset(topic, 'x', TOPIC_NAME_BYTES_MAX);
    topic[TOPIC_NAME_BYTES_MAX] = '\0';
    assert_int_equal(forward(slice_of(topic)).size, STREAM_ID_BYTES_MAX);
}

static void a_full_buffer_is_unchanged(void **state) {
    (void)state;
    struct buffer small;
    buffer_init(&small, 10);
    assert_ok(buffer_append(&small, "ab", 2));
    assert_int_equal(topic_to_stream(SLICE("run:1:events"), &small), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(topic_to_stream(SLICE("chat"), &small), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(stream_to_topic(SLICE("runtime.run.1.events"), &small),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(stream_to_topic(SLICE("runtime.topic.chat.room.7"), &small),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(buffer_slice(&small), "ab");
    buffer_release(&small);
}

static void an_address_is_a_topic_or_a_stream_id(void **state) {
    (void)state;
    static const struct {
        const char *address;
        enum address_kind kind;
        const char *stream;
        const char *topic; /* NULL: only the store knows it */
    } cases[] = {
        {"a.b", ADDRESS_TOPIC, "runtime.topic.a.b", "a.b"},
        {"run:x:events", ADDRESS_TOPIC, "runtime.run.x.events", "run:x:events"},
        {"runtime.run_summaries", ADDRESS_TOPIC, "runtime.topic.runtime.run_summaries",
         "runtime.run_summaries"},
        {"runtime.nothing", ADDRESS_TOPIC, "runtime.topic.runtime.nothing", "runtime.nothing"},
        {"runtime.topic.", ADDRESS_TOPIC, "runtime.topic.runtime.topic.", "runtime.topic."},
        {"runtime.topic.a:b", ADDRESS_TOPIC, "runtime.topic.runtime.topic.a.b",
         "runtime.topic.a:b"},
        {"runtime.run.x.events", ADDRESS_STREAM, "runtime.run.x.events", "run:x:events"},
        {"runtime.codex.worker.events", ADDRESS_STREAM, "runtime.codex.worker.events",
         "runtime.codex_worker_events"},
        {"runtime.topic.runtime.audit", ADDRESS_STREAM, "runtime.topic.runtime.audit",
         "runtime.audit"},
        {"runtime.topic.a.b", ADDRESS_STORED_STREAM, "runtime.topic.a.b", NULL},
        {"runtime.topic.run.x.events", ADDRESS_STORED_STREAM, "runtime.topic.run.x.events", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct slice address = slice_of(cases[i].address);
        assert_ok(address_check(address));
        assert_int_equal(address_kind(address), cases[i].kind);
        buffer_clear(&out);
        assert_ok(address_stream(address, &out));
        assert_slice(buffer_slice(&out), cases[i].stream);
        buffer_clear(&out);
        assert_int_equal(address_topic(address, &out),
                         cases[i].topic ? STATUS_OK : STATUS_NOT_FOUND);
        assert_slice(buffer_slice(&out), cases[i].topic ? cases[i].topic : "");
    }
}

static void an_address_has_room_for_the_stream_id_of_the_longest_topic(void **state) {
    (void)state;
    char text[STREAM_ID_BYTES_MAX + 1] = "runtime.topic.";
    memset(text + 14, 'a', sizeof(text) - 14);
    assert_ok(address_check((struct slice){text, STREAM_ID_BYTES_MAX}));
    assert_int_equal(address_check((struct slice){text, sizeof(text)}), STATUS_INVALID_TOPIC);
    assert_ok(address_check((struct slice){text + 14, TOPIC_NAME_BYTES_MAX}));
    assert_int_equal(address_check((struct slice){text + 14, TOPIC_NAME_BYTES_MAX + 1}),
                     STATUS_INVALID_TOPIC);
    assert_int_equal(address_check(SLICE("runtime.topic.a\nb")), STATUS_INVALID_TOPIC);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_ids_match_the_vectors),
        cmocka_unit_test(unusual_topics_map_by_the_first_rule_that_matches),
        cmocka_unit_test(a_blank_id_has_no_topic),
        cmocka_unit_test(an_id_that_only_looks_blank_has_a_topic),
        cmocka_unit_test(a_text_that_is_no_stream_id_has_no_topic),
        cmocka_unit_test(built_in_topics_keep_their_dots),
        cmocka_unit_test(the_text_rule_never_returns_a_topic_of_another_stream),
        cmocka_unit_test(any_id_survives_the_round_trip_through_a_retained_stream),
        cmocka_unit_test(a_topic_found_by_a_stream_id_has_that_stream_id),
        cmocka_unit_test(colons_of_other_topics_survive_the_round_trip),
        cmocka_unit_test(a_full_buffer_is_unchanged),
        cmocka_unit_test(an_address_is_a_topic_or_a_stream_id),
        cmocka_unit_test(an_address_has_room_for_the_stream_id_of_the_longest_topic),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
