/* The ids that a topic of the C library remembers, against a plain list of them. */
#include "client/recent.h"

#include "client/client_limits.h"
#include "test.h"

#define WINDOW_S (CLIENT_RECENT_MS / 1000)
#define RATE     1000u

/* The id of a number, as a JSON string. Numbers differ in the first or in the last bytes. */
static struct slice id_of(uint64_t number, char text[UUID_TEXT_SIZE + 3]) {
    struct uuid id = {{0}};
    for (size_t i = 0; i < 6; i++) {
        id.bytes[number % 2 ? 15 - i : i] = (uint8_t)(number >> 8 * i);
    }
    id.bytes[6] = 0x70;
    id.bytes[8] = 0x80;
    text[0] = text[UUID_TEXT_SIZE + 1] = '"';
    uuid_format(&id, text + 1);
    return (struct slice){text, UUID_TEXT_SIZE + 2};
}

static bool has(struct recent *recent, uint64_t number, uint64_t now_ms) {
    char text[UUID_TEXT_SIZE + 3];
    return recent_has(recent, id_of(number, text), 0, now_ms);
}

static void add(struct recent *recent, uint64_t number, uint64_t now_ms) {
    char text[UUID_TEXT_SIZE + 3];
    assert_ok(recent_add(recent, id_of(number, text), 0, now_ms));
}

static size_t bytes_of(const struct recent *recent) {
    return recent->capacity * sizeof(*recent->ring) + recent->table_size * sizeof(*recent->table);
}

static void five_minutes_of_a_thousand_events_a_second_are_recognised(void **state) {
    (void)state;
    struct recent recent;
    recent_init(&recent);
    for (uint64_t s = 0; s < 2 * WINDOW_S; s++)
        for (uint64_t i = 0; i < RATE; i++)
            add(&recent, s * RATE + i, 1000 * s + i);
    uint64_t now_ms = UINT64_C(1000) * 2 * WINDOW_S;
    size_t forgotten = 0;
    for (uint64_t number = RATE * WINDOW_S; number < 2 * RATE * WINDOW_S; number++)
        forgotten += !has(&recent, number, now_ms);
    assert_int_equal(forgotten, 0);
    /* An event that was never seen is not taken for one that was. */
    for (uint64_t number = 2 * RATE * WINDOW_S; number < 3 * RATE * WINDOW_S; number++)
        assert_false(has(&recent, number, now_ms));
    assert_true(bytes_of(&recent) < 8600000);
    recent_release(&recent);
}

static void a_faster_topic_forgets_its_oldest_events_and_takes_no_more_memory(void **state) {
    (void)state;
    struct recent recent;
    recent_init(&recent);
    for (uint64_t number = 0; number < 2 * CLIENT_RECENT_IDS_MAX; number++)
        add(&recent, number, number / 10);
    assert_int_equal(recent.count, CLIENT_RECENT_IDS_MAX);
    assert_true(bytes_of(&recent) < 8600000);
    assert_true(has(&recent, CLIENT_RECENT_IDS_MAX, 100000));
    assert_false(has(&recent, CLIENT_RECENT_IDS_MAX - 1, 100000));
    recent_release(&recent);
}

static void an_idle_topic_returns_its_memory_and_a_slow_one_shrinks(void **state) {
    (void)state;
    struct recent recent;
    recent_init(&recent);
    assert_int_equal(bytes_of(&recent), 0);
    for (uint64_t number = 0; number < 100000; number++)
        add(&recent, number, number / 100);
    add(&recent, 100000, CLIENT_RECENT_MS);
    assert_true(bytes_of(&recent) > 2000000);
    recent_expire(&recent, CLIENT_RECENT_MS + 3000);
    assert_true(bytes_of(&recent) < 2000000);
    assert_true(has(&recent, 100000, CLIENT_RECENT_MS + 3000));
    for (unsigned i = 0; i < 10; i++)
        recent_expire(&recent, CLIENT_RECENT_MS + 4000);
    assert_true(bytes_of(&recent) < 3000);
    assert_true(has(&recent, 100000, CLIENT_RECENT_MS + 4000));
    recent_expire(&recent, 2 * CLIENT_RECENT_MS + 2000);
    assert_int_equal(bytes_of(&recent), 0);
    add(&recent, 1, 0);
    recent_clear(&recent);
    assert_false(has(&recent, 1, 0));
    assert_int_equal(bytes_of(&recent), 0);
    recent_release(&recent);
}

/* Seeks every wrong removal from the table: numbers come and go at random, also again. */
static void it_agrees_with_a_plain_list_of_times(void **state) {
    (void)state;
    enum { NUMBERS = 3000, STEPS = 300000 };
    static uint64_t added_s[NUMBERS]; /* 0: never, or forgotten */
    struct recent recent;
    uint64_t seed = 25, now_ms = 1000;
    recent_init(&recent);
    for (unsigned step = 0; step < STEPS; step++) {
        now_ms += test_random(&seed) % 400;
        size_t number = test_random(&seed) % NUMBERS;
        bool is_known = added_s[number] > 0 && now_ms / 1000 - added_s[number] <= WINDOW_S;
        assert_true(has(&recent, number, now_ms) == is_known);
        if (is_known)
            continue;
        add(&recent, number, now_ms);
        added_s[number] = now_ms / 1000;
    }
    recent_release(&recent);
}

static void a_document_repeats_unless_its_version_is_newer(void **state) {
    (void)state;
    struct recent recent;
    const struct slice key = SLICE("\"runtime/run_summary:a\"");
    recent_init(&recent);
    assert_false(recent_has(&recent, key, 2, 0));
    assert_ok(recent_add(&recent, key, 2, 0));
    assert_true(recent_has(&recent, key, 1, 0));
    assert_true(recent_has(&recent, key, 2, 0));
    assert_false(recent_has(&recent, key, 3, 0));
    assert_false(recent_has(&recent, key, 2, CLIENT_RECENT_MS + 1));
    for (unsigned i = 0; i < 2 * CLIENT_RECENT_MAX; i++) {
        char text[32];
        snprintf(text, sizeof(text), "\"%u\"", i);
        assert_ok(recent_add(&recent, slice_of(text), 1, 0));
    }
    assert_int_equal(recent.by_key.count, CLIENT_RECENT_MAX);
    recent_release(&recent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_minutes_of_a_thousand_events_a_second_are_recognised),
        cmocka_unit_test(a_faster_topic_forgets_its_oldest_events_and_takes_no_more_memory),
        cmocka_unit_test(an_idle_topic_returns_its_memory_and_a_slow_one_shrinks),
        cmocka_unit_test(it_agrees_with_a_plain_list_of_times),
        cmocka_unit_test(a_document_repeats_unless_its_version_is_newer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
