#include "authority/event_ids.h"
#include "test.h"

static struct uuid id_of(uint64_t number) {
    struct uuid id = {{0}};
    for (size_t i = 0; i < 8; i++)
        id.bytes[15 - i] = (uint8_t)(number >> (8 * i));
    return id;
}

/* No id of these tests has it, except where a test says so. */
static const struct id_mark mark = {.bytes = {0xff, 0xff, 0x01}};

static enum recent_answer find(const struct recent_ids *recent, uint64_t number, uint64_t *log_id) {
    struct uuid id = id_of(number);
    return recent_ids_find(recent, &id, log_id);
}

static void add(struct recent_ids *recent, uint64_t number, uint64_t log_id) {
    struct uuid id = id_of(number);
    recent_ids_add(recent, &id, log_id);
}

static void an_id_is_known_when_added_and_new_above_the_floor(void **state) {
    (void)state;
    struct recent_ids recent = {0};
    struct uuid floor = id_of(1000);
    uint64_t log_id = 0;
    assert_ok(recent_ids_reset(&recent, &floor, &mark));
    assert_int_equal(find(&recent, 1000, &log_id), RECENT_UNKNOWN);
    assert_int_equal(find(&recent, 1001, &log_id), RECENT_NEW);
    add(&recent, 1001, 7);
    add(&recent, 5, 8);
    assert_int_equal(find(&recent, 1001, &log_id), RECENT_KNOWN);
    assert_int_equal(log_id, 7);
    assert_int_equal(find(&recent, 5, &log_id), RECENT_KNOWN);
    assert_int_equal(log_id, 8);
    assert_int_equal(find(&recent, 4, &log_id), RECENT_UNKNOWN);
    assert_int_equal(find(&recent, 1002, &log_id), RECENT_NEW);
    floor = id_of(2000);
    assert_ok(recent_ids_reset(&recent, &floor, &mark));
    assert_int_equal(find(&recent, 1001, &log_id), RECENT_UNKNOWN);
    assert_int_equal(find(&recent, 2001, &log_id), RECENT_NEW);
    recent_ids_release(&recent);
}

/* Against the truth: never wrong about an id that was added, however many came after. */
static void a_forgotten_id_is_never_reported_as_new(void **state) {
    (void)state;
    enum { COUNT = 3 * RECENT_IDS_MAX };
    static uint64_t numbers[COUNT];
    struct recent_ids recent = {0};
    struct uuid floor = id_of(0);
    uint64_t seed = 3;
    uint64_t log_id;
    assert_ok(recent_ids_reset(&recent, &floor, &mark));
    for (size_t i = 0; i < COUNT; i++) {
        /* Mostly rising, as ids made by clocks are. */
        numbers[i] = (i + 2000) * 1000 - test_random(&seed) % 1000000 / 1000 * 1000 + i % 7;
        numbers[i] = numbers[i] * COUNT + i;
        assert_int_not_equal(find(&recent, numbers[i], &log_id), RECENT_KNOWN);
        add(&recent, numbers[i], i + 1);
        size_t pick = test_random(&seed) % (i + 1);
        enum recent_answer answer = find(&recent, numbers[pick], &log_id);
        assert_int_not_equal(answer, RECENT_NEW);
        assert_int_equal(answer == RECENT_KNOWN, i - pick < RECENT_IDS_MAX);
        assert_true(answer != RECENT_KNOWN || log_id == pick + 1);
    }
    assert_int_equal(find(&recent, UINT64_MAX, &log_id), RECENT_NEW);
    recent_ids_release(&recent);
}

static void an_id_added_twice_keeps_its_first_event(void **state) {
    (void)state;
    struct recent_ids recent = {0};
    struct uuid floor = id_of(0);
    uint64_t log_id;
    assert_ok(recent_ids_reset(&recent, &floor, &mark));
    add(&recent, 9, 1);
    add(&recent, 9, 2);
    assert_int_equal(find(&recent, 9, &log_id), RECENT_KNOWN);
    assert_int_equal(log_id, 1);
    for (uint64_t i = 0; i < RECENT_IDS_MAX; i++)
        add(&recent, 100 + i, 3 + i);
    assert_int_equal(find(&recent, 9, &log_id), RECENT_UNKNOWN);
    recent_ids_release(&recent);
}

static void an_id_that_may_be_minted_is_never_new(void **state) {
    (void)state;
    struct recent_ids recent = {0};
    struct uuid floor = id_of(0);
    struct uuid minted = id_of(0x55ffff01);
    struct uuid next = id_of(0x56ffff01);
    uint64_t log_id;
    assert_ok(recent_ids_reset(&recent, &floor, &mark));
    assert_int_equal(recent_ids_find(&recent, &minted, &log_id), RECENT_UNKNOWN);
    assert_false(recent_ids_has_minted(&recent, &minted));
    recent_ids_add(&recent, &minted, 4);
    assert_int_equal(recent_ids_find(&recent, &minted, &log_id), RECENT_KNOWN);
    assert_true(recent_ids_has_minted(&recent, &minted));
    assert_false(recent_ids_has_minted(&recent, &next));
    assert_ok(recent_ids_reset(&recent, &floor, &mark));
    assert_false(recent_ids_has_minted(&recent, &minted));
    recent_ids_release(&recent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_known_when_added_and_new_above_the_floor),
        cmocka_unit_test(a_forgotten_id_is_never_reported_as_new),
        cmocka_unit_test(an_id_added_twice_keeps_its_first_event),
        cmocka_unit_test(an_id_that_may_be_minted_is_never_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
