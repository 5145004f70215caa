#include "authority/publish_limit.h"
#include "test.h"

#define SECOND_NS UINT64_C(1000000000)

static uint64_t take_all(struct publish_bucket *bucket, uint64_t rate, uint64_t now_ns) {
    uint64_t taken = 0;
    while (publish_bucket_wait_ns(bucket, rate, now_ns) == 0) {
        publish_bucket_take(bucket, rate, now_ns);
        taken++;
    }
    return taken;
}

static void a_full_bucket_holds_the_tokens_of_one_second(void **state) {
    (void)state;
    static const uint64_t rates[] = {1, 2, 3, 7, 90, 180, 240, 999, 1000000};
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        struct publish_bucket bucket = {0};
        assert_int_equal(take_all(&bucket, rates[i], 5 * SECOND_NS), rates[i]);
        assert_int_equal(take_all(&bucket, rates[i], 5 * SECOND_NS), 0);
        assert_int_equal(take_all(&bucket, rates[i], 500 * SECOND_NS), rates[i]);
    }
}

static void a_bucket_fills_continuously(void **state) {
    (void)state;
    struct publish_bucket bucket = {0};
    uint64_t now_ns = 0;
    assert_int_equal(take_all(&bucket, 100, now_ns), 100);
    assert_int_equal(publish_bucket_wait_ns(&bucket, 100, now_ns), SECOND_NS / 100);
    assert_int_equal(take_all(&bucket, 100, now_ns + SECOND_NS / 100 - 1), 0);
    assert_int_equal(take_all(&bucket, 100, now_ns + SECOND_NS / 100), 1);
    assert_int_equal(take_all(&bucket, 100, now_ns + SECOND_NS / 2), 49);
}

static void over_a_long_time_the_rate_holds(void **state) {
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 50; round++) {
        struct publish_bucket bucket = {0};
        uint64_t rate = 10 + test_random(&seed) % 1000;
        uint64_t now_ns = 0;
        uint64_t taken = 0;
        while (now_ns < 20 * SECOND_NS) {
            taken += take_all(&bucket, rate, now_ns);
            now_ns += test_random(&seed) % (SECOND_NS / 3);
        }
        assert_in_range(taken, 19 * rate, 21 * rate + 1);
    }
}

static void a_refusal_names_the_exceeded_limit(void **state) {
    (void)state;
    const struct policy *policy = policy_default(POLICY_WORKER_LIFECYCLE);
    struct publish_bucket bucket = {0};
    struct append_refusal refusal = {0};
    assert_ok(publish_limit_check(policy, &bucket, 65536, 0, &refusal));
    assert_int_equal(publish_limit_check(policy, &bucket, 65537, 0, &refusal),
                     STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE);
    assert_int_equal(refusal.payload_bytes, 65537);
    assert_int_equal(refusal.max_payload_bytes, 65536);
    assert_string_equal(publish_class_name(refusal.policy->publish_class), "worker_lifecycle");
    (void)take_all(&bucket, policy->publish_rate_per_second, 0);
    refusal = (struct append_refusal){0};
    assert_int_equal(publish_limit_check(policy, &bucket, 10, 0, &refusal),
                     STATUS_KHALA_PUBLISH_RATE_LIMITED);
    assert_int_equal(refusal.retry_after_ms, 1);
    assert_int_equal(refusal.limit, 1000);
    assert_ok(publish_limit_check(policy, &bucket, 10, SECOND_NS / 1000, &refusal));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_bucket_holds_the_tokens_of_one_second),
        cmocka_unit_test(a_bucket_fills_continuously),
        cmocka_unit_test(over_a_long_time_the_rate_holds),
        cmocka_unit_test(a_refusal_names_the_exceeded_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
