/* The publish rates of topics: one bucket for each topic and producing principal. */
#include "authority/publish_limit.h"
#include "test.h"

#define SECOND_NS UINT64_C(1000000000)
#define RATE      10
#define COUNT_MAX 8

static uint64_t take_all(struct publish_buckets *buckets, struct publish_key key, uint64_t now_ns) {
    for (uint64_t taken = 0;; taken++) {
        struct publish_bucket bucket = publish_buckets_get(buckets, &key);
        if (publish_bucket_wait_ns(&bucket, RATE, now_ns) > 0)
            return taken;
        publish_buckets_take(buckets, &key, RATE, now_ns);
    }
}

static void each_topic_and_principal_has_its_own_tokens(void **state) {
    (void)state;
    struct publish_buckets buckets;
    publish_buckets_init(&buckets, COUNT_MAX);
    for (uint64_t topic = 1; topic <= 2; topic++)
        for (uint64_t principal = 1; principal <= 2; principal++) {
            const struct publish_key key = {topic, principal};
            assert_int_equal(take_all(&buckets, key, SECOND_NS), RATE);
            assert_int_equal(take_all(&buckets, key, SECOND_NS), 0);
        }
    assert_int_equal(take_all(&buckets, (struct publish_key){1, 1}, 2 * SECOND_NS), RATE);
    publish_buckets_clear(&buckets);
}

static void principals_of_every_second_never_exceed_the_rate_or_the_count(void **state) {
    (void)state;
    struct publish_buckets buckets;
    publish_buckets_init(&buckets, COUNT_MAX);
    /* As many in each second as there is room for; those of the second before are full again. */
    for (uint64_t second = 1; second < 100; second++)
        for (uint64_t i = 0; i < COUNT_MAX; i++) {
            const struct publish_key key = {1, second * COUNT_MAX + i};
            uint64_t now_ns = 2 * second * SECOND_NS;
            assert_int_equal(take_all(&buckets, key, now_ns), RATE);
            for (uint64_t earlier = 0; earlier <= i; earlier++)
                assert_int_equal(take_all(&buckets,
                                          (struct publish_key){1, second * COUNT_MAX + earlier},
                                          now_ns),
                                 0);
            assert_in_range(buckets.by_key.count, 1, COUNT_MAX);
        }
    publish_buckets_clear(&buckets);
}

static void idle_buckets_leave_when_others_come(void **state) {
    (void)state;
    struct publish_buckets buckets;
    publish_buckets_init(&buckets, 1000);
    for (uint64_t principal = 0; principal < 1000; principal++)
        publish_buckets_take(&buckets, &(struct publish_key){1, principal}, RATE, SECOND_NS);
    assert_int_equal(buckets.by_key.count, 1000);
    for (uint64_t i = 0; i < 1200; i++)
        publish_buckets_take(&buckets, &(struct publish_key){1, 5000}, RATE, (3 + i) * SECOND_NS);
    for (uint64_t principal = 2000; principal < 3200; principal++)
        publish_buckets_take(&buckets, &(struct publish_key){1, principal}, RATE,
                             principal * SECOND_NS);
    assert_in_range(buckets.by_key.count, 1, 2);
    publish_buckets_clear(&buckets);
}

static void beyond_the_count_the_oldest_leaves_and_all_others_keep_their_rate(void **state) {
    (void)state;
    struct publish_buckets buckets;
    publish_buckets_init(&buckets, COUNT_MAX);
    for (uint64_t principal = 1; principal <= COUNT_MAX + 1; principal++)
        assert_int_equal(take_all(&buckets, (struct publish_key){1, principal}, SECOND_NS), RATE);
    assert_int_equal(buckets.by_key.count, COUNT_MAX);
    for (uint64_t principal = 2; principal <= COUNT_MAX + 1; principal++)
        assert_int_equal(take_all(&buckets, (struct publish_key){1, principal}, SECOND_NS), 0);
    assert_int_equal(take_all(&buckets, (struct publish_key){1, 1}, SECOND_NS), RATE);
    publish_buckets_clear(&buckets);
}

static uint64_t principal_of(const struct principal *producer, struct owner owner) {
    return publish_principal(&(struct append_request){
        .producer = producer, .kind = APPEND_NOTIFICATION, .owner = owner});
}

static void a_producer_is_its_principal_and_an_operator_the_owner_that_it_names(void **state) {
    (void)state;
    const struct owner ada = {.user_id = SLICE("ada"), .org_id = SLICE("acme")};
    const struct owner guest = {.guest_scope = SLICE("ada")};
    const struct principal token = {.identity = {.user_id = SLICE("ada")}};
    const struct principal service = {.subject = SLICE("ada")};
    assert_true(principal_of(NULL, ada) == principal_of(&token, (struct owner){0}));
    assert_true(principal_of(NULL, ada) != principal_of(NULL, guest));
    assert_true(principal_of(NULL, ada) != principal_of(NULL, (struct owner){0}));
    assert_true(principal_of(&service, (struct owner){0}) != principal_of(&token, ada));
    assert_true(principal_of(&service, (struct owner){0}) != principal_of(NULL, (struct owner){0}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_topic_and_principal_has_its_own_tokens),
        cmocka_unit_test(principals_of_every_second_never_exceed_the_rate_or_the_count),
        cmocka_unit_test(idle_buckets_leave_when_others_come),
        cmocka_unit_test(beyond_the_count_the_oldest_leaves_and_all_others_keep_their_rate),
        cmocka_unit_test(a_producer_is_its_principal_and_an_operator_the_owner_that_it_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
