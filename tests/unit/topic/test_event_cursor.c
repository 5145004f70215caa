#include "topic/event_cursor.h"
#include "vectors.h"

static int sign(int number) {
    return (number > 0) - (number < 0);
}

static struct event_cursor decode(struct slice text) {
    struct event_cursor cursor;
    assert_ok(event_cursor_decode(text, &cursor, NULL));
    return cursor;
}

static void the_vectors_encode_and_decode(void **state) {
    (void)state;
    json_t *vectors = vectors_load("event_cursor");
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "derive"), index, vector) {
        struct event_cursor cursor = {.timestamp_ms = vector_number(vector, "timestamp_ms")};
        assert_ok(uuid7_parse(vector_text(vector, "uuid"), &cursor.uuid));
        char text[EVENT_CURSOR_SIZE_MAX];
        size_t size = event_cursor_encode(&cursor, text);
        assert_true(slice_equal((struct slice){text, size}, vector_text(vector, "cursor")));
        struct event_cursor back = decode(vector_text(vector, "cursor"));
        assert_int_equal(event_cursor_compare(&back, &cursor), 0);
    }
    json_decref(vectors);
}

static void cursors_compare_as_pairs(void **state) {
    (void)state;
    json_t *vectors = vectors_load("event_cursor");
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "compare"), index, vector) {
        struct event_cursor a = decode(vector_text(vector, "a"));
        struct event_cursor b = decode(vector_text(vector, "b"));
        int expected = (int)json_integer_value(json_object_get(vector, "expected"));
        assert_int_equal(sign(event_cursor_compare(&a, &b)), expected);
        assert_int_equal(sign(event_cursor_compare(&b, &a)), -expected);
    }
    json_decref(vectors);
}

static void the_invalid_vectors_are_refused_with_a_reason(void **state) {
    (void)state;
    json_t *vectors = vectors_load("event_cursor");
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "invalid"), index, vector) {
        struct event_cursor cursor = {.timestamp_ms = 42};
        const char *reason = NULL;
        struct slice text = vector_text(vector, "cursor");
        assert_int_equal(event_cursor_decode(text, &cursor, &reason), STATUS_INVALID_CURSOR);
        assert_non_null(reason);
        assert_true(cursor.timestamp_ms == 42);
        assert_int_equal(event_cursor_decode(text, &cursor, NULL), STATUS_INVALID_CURSOR);
    }
    json_decref(vectors);
}

static void each_fault_has_its_own_reason(void **state) {
    (void)state;
#define ID "018e1c6d-1234-7abc-9def-0123456789ab"
    static const struct {
        const char *pair;
        const char *reason;
    } cases[] = {
        {"x", "there is no colon between timestamp and id"},
        {ID, "there is no colon between timestamp and id"},
        {":" ID, "the timestamp is missing"},
        {"-1:" ID, "the timestamp is not made of digits"},
        {"+1:" ID, "the timestamp is not made of digits"},
        {" 1:" ID, "the timestamp is not made of digits"},
        {"1 :" ID, "the timestamp is not made of digits"},
        {"1.5:" ID, "the timestamp is not made of digits"},
        {"1e3:" ID, "the timestamp is not made of digits"},
        {"00:" ID, "the timestamp has a leading zero"},
        {"01:" ID, "the timestamp has a leading zero"},
        {"9007199254740992:" ID, "the timestamp is above 9007199254740991"},
        {"9999999999999999:" ID, "the timestamp is above 9007199254740991"},
        {"18446744073709551616:" ID, "the cursor is too long"},
        {"1:", "the id is not a lower-case UUIDv7"},
        {"1::" ID, "the id is not a lower-case UUIDv7"},
        {"1:" ID " ", "the id is not a lower-case UUIDv7"},
        {"1:" ID "\n", "the id is not a lower-case UUIDv7"},
        {"1: " ID, "the id is not a lower-case UUIDv7"},
        {"1:018E1C6D-1234-7ABC-9DEF-0123456789AB", "the id is not a lower-case UUIDv7"},
        {"1:018e1c6d-1234-4abc-9def-0123456789ab", "the id is not a lower-case UUIDv7"},
        {"1:018e1c6d-1234-7abc-7def-0123456789ab", "the id is not a lower-case UUIDv7"},
        {"1:018e1c6d12347abc9def0123456789ab", "the id is not a lower-case UUIDv7"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[200];
        const char *reason = NULL;
        struct event_cursor cursor;
        size_t size = base64url_encode(cases[i].pair, strlen(cases[i].pair), text);
        assert_int_equal(event_cursor_decode((struct slice){text, size}, &cursor, &reason),
                         STATUS_INVALID_CURSOR);
        assert_string_equal(reason, cases[i].reason);
    }
    const char *reason = NULL;
    struct event_cursor cursor;
    assert_int_equal(event_cursor_decode((struct slice){NULL, 0}, &cursor, &reason),
                     STATUS_INVALID_CURSOR);
    assert_string_equal(reason, "the cursor is empty");
    assert_int_equal(event_cursor_decode(SLICE("MTo="), &cursor, &reason), STATUS_INVALID_CURSOR);
    assert_string_equal(reason, "the cursor is not canonical unpadded base64url");
#undef ID
}

static void unused_bits_after_the_last_byte_must_be_zero(void **state) {
    (void)state;
    /* 49 bytes leave four unused bits, 50 bytes two. */
    static const uint64_t timestamps[] = {176722560012, 1767225600123};
    for (size_t i = 0; i < 2; i++) {
        struct event_cursor cursor = {.timestamp_ms = timestamps[i]};
        assert_ok(uuid7_parse(SLICE("018e1c6d-1234-7abc-9def-0123456789ab"), &cursor.uuid));
        char text[EVENT_CURSOR_SIZE_MAX];
        size_t size = event_cursor_encode(&cursor, text);
        assert_int_equal(size % 4, 2 + i);
        text[size - 1]++;
        assert_int_equal(event_cursor_decode((struct slice){text, size}, &cursor, NULL),
                         STATUS_INVALID_CURSOR);
    }
}

static void legacy_cursors_are_positions_before_their_millisecond(void **state) {
    (void)state;
    json_t *vectors = vectors_load("event_cursor");
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "legacy"), index, vector) {
        uint64_t timestamp_ms = vector_number(vector, "timestamp_ms");
        struct slice text = vector_text(vector, "cursor");
        struct event_cursor cursor = {.timestamp_ms = 42};
        const char *reason = NULL;
        assert_int_equal(event_cursor_read(text, false, &cursor, &reason), STATUS_INVALID_CURSOR);
        assert_non_null(reason);
        assert_true(cursor.timestamp_ms == 42);
        assert_ok(event_cursor_read(text, true, &cursor, NULL));
        assert_true(cursor.timestamp_ms == timestamp_ms);
        /* Behind every event of an earlier millisecond, and before every one of its own. */
        const struct uuid least = uuid7_first(0);
        assert_int_equal(uuid_compare(&cursor.uuid, &least), 0);
        char again[EVENT_CURSOR_SIZE_MAX];
        size_t size = event_cursor_encode(&cursor, again);
        struct event_cursor back = decode((struct slice){again, size});
        assert_int_equal(event_cursor_compare(&back, &cursor), 0);
    }
    json_array_foreach(vectors_array(vectors, "legacy_invalid"), index, vector) {
        struct event_cursor cursor = {.timestamp_ms = 42};
        const char *reason = NULL;
        assert_int_equal(event_cursor_read(vector_text(vector, "cursor"), true, &cursor, &reason),
                         STATUS_INVALID_CURSOR);
        assert_non_null(reason);
        assert_true(cursor.timestamp_ms == 42);
    }
    json_array_foreach(vectors_array(vectors, "derive"), index, vector) {
        struct event_cursor cursor;
        struct event_cursor exact = decode(vector_text(vector, "cursor"));
        assert_ok(event_cursor_read(vector_text(vector, "cursor"), true, &cursor, NULL));
        assert_int_equal(event_cursor_compare(&cursor, &exact), 0);
    }
    json_decref(vectors);
}

static struct event_cursor random_cursor(uint64_t *seed) {
    struct event_cursor cursor;
    uint64_t words[2] = {test_random(seed), test_random(seed)};
    memcpy(cursor.uuid.bytes, words, sizeof(words));
    cursor.uuid.bytes[6] = (uint8_t)(0x70 | (cursor.uuid.bytes[6] & 15));
    cursor.uuid.bytes[8] = (uint8_t)(0x80 | (cursor.uuid.bytes[8] & 63));
    cursor.timestamp_ms =
        test_random(seed) % (EVENT_CURSOR_TIMESTAMP_MS_MAX + 1) >> (test_random(seed) % 54);
    return cursor;
}

/* Half of the pairs share the timestamp, so that the id decides. */
static struct event_cursor random_neighbour(uint64_t *seed, const struct event_cursor *cursor) {
    struct event_cursor other = random_cursor(seed);
    uint64_t pick = test_random(seed) % 4;
    if (pick < 2)
        other.timestamp_ms = cursor->timestamp_ms;
    if (pick == 1)
        memcpy(other.uuid.bytes, cursor->uuid.bytes, 15);
    if (pick == 2 && cursor->timestamp_ms > 100)
        other.timestamp_ms = cursor->timestamp_ms - test_random(seed) % 100;
    return other;
}

static int compare_pairs(const struct event_cursor *a, const struct event_cursor *b) {
    if (a->timestamp_ms < b->timestamp_ms)
        return -1;
    if (a->timestamp_ms > b->timestamp_ms)
        return 1;
    for (size_t i = 0; i < sizeof(a->uuid.bytes); i++)
        if (a->uuid.bytes[i] != b->uuid.bytes[i])
            return a->uuid.bytes[i] < b->uuid.bytes[i] ? -1 : 1;
    return 0;
}

static void random_pairs_keep_their_order_through_the_round_trip(void **state) {
    (void)state;
    uint64_t seed = 41;
    for (int round = 0; round < 1000000; round++) {
        struct event_cursor pair[2];
        struct event_cursor back[2];
        pair[0] = random_cursor(&seed);
        pair[1] = random_neighbour(&seed, &pair[0]);
        for (size_t i = 0; i < 2; i++) {
            char text[EVENT_CURSOR_SIZE_MAX];
            char again[EVENT_CURSOR_SIZE_MAX];
            size_t size = event_cursor_encode(&pair[i], text);
            if (event_cursor_decode((struct slice){text, size}, &back[i], NULL) != STATUS_OK)
                fail_msg("round %d does not decode", round);
            if (event_cursor_encode(&back[i], again) != size || memcmp(again, text, size) != 0)
                fail_msg("round %d does not encode again", round);
        }
        if (sign(event_cursor_compare(&back[0], &back[1])) != compare_pairs(&pair[0], &pair[1]))
            fail_msg("round %d is out of order", round);
    }
}

static void cursors_of_server_ids_rise_while_the_clock_steps_back(void **state) {
    (void)state;
    struct uuid7_generator generator;
    assert_ok(uuid7_generator_init(&generator, NULL));
    uint64_t seed = 42;
    struct event_cursor last = {0};
    for (int round = 0; round < 200000; round++) {
        uint64_t now_ms = 1767225600000 + test_random(&seed) % 100000;
        struct uuid uuid = uuid7_next(&generator, now_ms);
        struct event_cursor cursor = event_cursor_of(&uuid);
        assert_true(event_cursor_compare(&cursor, &last) > 0);
        last = cursor;
    }
}

static void a_cursor_later_than_the_last_event_is_ahead(void **state) {
    (void)state;
    const struct uuid none = {{0}};
    const struct uuid last = uuid7_first(1700000000000);
    struct event_cursor cursor = event_cursor_of(&last);
    assert_false(event_cursor_is_ahead(&cursor, &last));
    assert_true(event_cursor_is_ahead(&cursor, &none));
    cursor.uuid.bytes[15]++;
    assert_true(event_cursor_is_ahead(&cursor, &last));
    const struct uuid origin = uuid7_first(0);
    cursor = event_cursor_of(&origin);
    assert_false(event_cursor_is_ahead(&cursor, &last));
    assert_false(event_cursor_is_ahead(&cursor, &none));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_encode_and_decode),
        cmocka_unit_test(cursors_compare_as_pairs),
        cmocka_unit_test(the_invalid_vectors_are_refused_with_a_reason),
        cmocka_unit_test(each_fault_has_its_own_reason),
        cmocka_unit_test(unused_bits_after_the_last_byte_must_be_zero),
        cmocka_unit_test(legacy_cursors_are_positions_before_their_millisecond),
        cmocka_unit_test(random_pairs_keep_their_order_through_the_round_trip),
        cmocka_unit_test(cursors_of_server_ids_rise_while_the_clock_steps_back),
        cmocka_unit_test(a_cursor_later_than_the_last_event_is_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
