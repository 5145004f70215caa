#include "authority/event_ids.h"
#include "test.h"

#define IDS    100000
#define NOW_MS UINT64_C(1700000000000)

static const struct id_mark mark = {.bytes = {0x00, 0x80, 0xff}};

static void minted_ids_rise_and_carry_the_mark_under_any_clock(void **state) {
    static const uint64_t clocks[] = {NOW_MS, NOW_MS, NOW_MS + 1, NOW_MS - 5000, NOW_MS + 2};
    struct id_minter minter;
    struct uuid last = {{0}};
    (void)state;
    assert_ok(id_minter_init(&minter, &mark, NULL));
    for (size_t i = 0; i < IDS; i++) {
        struct uuid id = id_minter_next(&minter, clocks[i * 5 / IDS]);
        assert_true(uuid7_valid(&id));
        assert_true(uuid_compare(&id, &last) > 0);
        assert_true(id_mark_may_be_minted(&mark, &id));
        last = id;
    }
    assert_true(uuid7_timestamp_ms(&last) <= NOW_MS + 3);
}

/* The last id of the log may end with bytes above or below the mark. */
static void the_first_id_is_above_the_last_of_the_log(void **state) {
    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        struct id_minter minter;
        struct uuid last = uuid7_first(NOW_MS);
        memset(last.bytes + 9, i % 2 ? 0xff : 0x7f, 7);
        assert_ok(id_minter_init(&minter, &mark, &last));
        struct uuid id = id_minter_next(&minter, NOW_MS - 100);
        assert_true(uuid_compare(&id, &last) > 0);
    }
}

static void an_id_without_the_mark_is_not_minted_unless_it_is_old(void **state) {
    struct id_mark since = mark;
    struct uuid id = uuid7_first(NOW_MS);
    (void)state;
    assert_false(id_mark_may_be_minted(&since, &id));
    since.unmarked_max = id;
    assert_true(id_mark_may_be_minted(&since, &id));
    id.bytes[15]++;
    assert_false(id_mark_may_be_minted(&since, &id));
    id_mark_stamp(&since, &id);
    assert_true(id_mark_may_be_minted(&since, &id));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minted_ids_rise_and_carry_the_mark_under_any_clock),
        cmocka_unit_test(the_first_id_is_above_the_last_of_the_log),
        cmocka_unit_test(an_id_without_the_mark_is_not_minted_unless_it_is_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
