#include "server/nonces.h"

#include "../test.h"

#define NOW_MS 1700000000000u

static void a_nonce_is_taken_once_while_its_time_counts(void **state) {
    (void)state;
    struct nonces *nonces;
    assert_ok(nonces_open(&nonces));
    assert_ok(nonces_use(nonces, SLICE("a"), NOW_MS, NOW_MS));
    assert_ok(nonces_use(nonces, SLICE("b"), NOW_MS, NOW_MS));
    assert_int_equal(nonces_use(nonces, SLICE("a"), NOW_MS, NOW_MS), STATUS_TOKEN_REPLAYED);
    /* As long as it could be given again with its time. */
    uint64_t last_ms = NOW_MS + NONCE_SKEW_MS_MAX;
    assert_int_equal(nonces_use(nonces, SLICE("a"), NOW_MS, last_ms), STATUS_TOKEN_REPLAYED);
    assert_int_equal(nonces_use(nonces, SLICE("a"), last_ms, last_ms), STATUS_TOKEN_REPLAYED);
    assert_int_equal(nonces_use(nonces, SLICE("a"), NOW_MS, last_ms + 1), STATUS_TOKEN_EXPIRED);
    assert_ok(nonces_use(nonces, SLICE("a"), last_ms, last_ms + 1));
    nonces_close(nonces);
}

static void a_time_out_of_the_skew_is_refused_and_uses_nothing(void **state) {
    (void)state;
    struct nonces *nonces;
    assert_ok(nonces_open(&nonces));
    assert_int_equal(nonces_use(nonces, SLICE("a"), NOW_MS + NONCE_SKEW_MS_MAX + 1, NOW_MS),
                     STATUS_TOKEN_NOT_YET_VALID);
    assert_int_equal(nonces_use(nonces, SLICE("a"), NOW_MS - NONCE_SKEW_MS_MAX - 1, NOW_MS),
                     STATUS_TOKEN_EXPIRED);
    assert_int_equal(nonces_use(nonces, SLICE("a"), 0, NOW_MS), STATUS_TOKEN_EXPIRED);
    assert_ok(nonces_use(nonces, SLICE("a"), NOW_MS + NONCE_SKEW_MS_MAX, NOW_MS));
    /* A clock ahead: it stays taken until that clock's time is over. */
    assert_int_equal(nonces_use(nonces, SLICE("a"), NOW_MS + 1, NOW_MS + NONCE_SKEW_MS_MAX + 1),
                     STATUS_TOKEN_REPLAYED);
    nonces_close(nonces);
}

static void there_is_a_most_of_them_and_time_makes_room(void **state) {
    (void)state;
    struct nonces *nonces;
    assert_ok(nonces_open(&nonces));
    for (unsigned i = 0; i < NONCES_MAX; i++)
        assert_ok(nonces_use(nonces, (struct slice){(const char *)&i, sizeof(i)}, NOW_MS, NOW_MS));
    assert_int_equal(nonces_use(nonces, SLICE("more"), NOW_MS, NOW_MS), STATUS_RATE_LIMITED);
    uint64_t later_ms = NOW_MS + NONCE_SKEW_MS_MAX + 1;
    assert_ok(nonces_use(nonces, SLICE("more"), later_ms, later_ms));
    nonces_close(nonces);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nonce_is_taken_once_while_its_time_counts),
        cmocka_unit_test(a_time_out_of_the_skew_is_refused_and_uses_nothing),
        cmocka_unit_test(there_is_a_most_of_them_and_time_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
