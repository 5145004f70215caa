#include "delivery/subscription_quota.h"

#include "test.h"

static struct principal user(const char *name) {
    return (struct principal){.identity = {.user_id = slice_of(name)}};
}

static struct quota_table *limits;

static struct subscription_quota *open_quota(uint64_t limit) {
    struct subscription_quota *quota;
    const struct quota_limits defaults = {.of = {[QUOTA_SUBSCRIPTIONS] = limit}};
    assert_ok(quota_table_open(&limits, &defaults));
    assert_ok(subscription_quota_open(&quota, limits));
    return quota;
}

static void close_quota(struct subscription_quota *quota) {
    subscription_quota_close(quota); /* asserts that nothing is left */
    quota_table_close(limits);
}

static void counts_add_up_and_a_refusal_changes_nothing(void **state) {
    (void)state;
    struct principal alice = user("alice");
    struct principal bob = user("bob");
    struct subscription_count counts[3] = {{0}};
    struct quota_refusal refusal = {0};
    struct subscription_quota *quota = open_quota(10);
    assert_ok(subscription_quota_set(quota, &counts[0], &alice, 6, &refusal));
    assert_int_equal(subscription_quota_set(quota, &counts[1], &alice, 5, &refusal),
                     STATUS_QUOTA_EXCEEDED);
    assert_int_equal(refusal.used, 6);
    assert_int_equal(refusal.limit, 10);
    assert_int_equal(counts[1].count, 0);
    assert_ok(subscription_quota_set(quota, &counts[1], &alice, 4, &refusal));
    assert_int_equal(subscription_quota_set(quota, &counts[0], &alice, 7, &refusal),
                     STATUS_QUOTA_EXCEEDED);
    assert_int_equal(counts[0].count, 6);
    assert_ok(subscription_quota_set(quota, &counts[2], &bob, 10, &refusal));
    subscription_quota_lower(quota, &counts[0], 8);
    assert_int_equal(counts[0].count, 6);
    subscription_quota_lower(quota, &counts[0], 5);
    assert_ok(subscription_quota_set(quota, &counts[1], &alice, 5, &refusal));
    for (int i = 0; i < 3; i++) {
        subscription_quota_lower(quota, &counts[i], 0);
        assert_null(counts[i].user);
    }
    close_quota(quota);
}

static void a_count_moves_to_another_principal_that_has_room(void **state) {
    (void)state;
    struct principal alice = user("alice");
    struct principal bob = user("bob");
    struct subscription_count count = {0};
    struct subscription_count other = {0};
    struct subscription_quota *quota = open_quota(10);
    assert_ok(subscription_quota_set(quota, &count, &alice, 6, NULL));
    assert_ok(subscription_quota_set(quota, &other, &bob, 5, NULL));
    assert_int_equal(subscription_quota_set(quota, &count, &bob, 6, NULL), STATUS_QUOTA_EXCEEDED);
    assert_ok(subscription_quota_set(quota, &other, &alice, 4, NULL));
    assert_int_equal(subscription_quota_set(quota, &other, &alice, 5, NULL), STATUS_QUOTA_EXCEEDED);
    subscription_quota_lower(quota, &count, 0);
    subscription_quota_lower(quota, &other, 0);
    close_quota(quota);
}

static void the_operator_key_is_not_counted(void **state) {
    (void)state;
    struct subscription_quota *quota = open_quota(1);
    struct subscription_count count = {0};
    assert_ok(subscription_quota_set(quota, &count, &principal_operator, 100, NULL));
    assert_int_equal(count.count, 0);
    assert_ok(subscription_quota_set(NULL, &count, &principal_operator, 100, NULL));
    close_quota(quota);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_add_up_and_a_refusal_changes_nothing),
        cmocka_unit_test(a_count_moves_to_another_principal_that_has_room),
        cmocka_unit_test(the_operator_key_is_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
