#include "auth/revocation.h"

#include <pthread.h>

#include "test.h"

static const struct principal who = {
    .session_id = {"s1", 2}, .device_id = {"d1", 2}, .token_id = {"t1", 2}};

static bool has_after(enum revocation_kind kind, struct slice id) {
    struct revocations *revocations;
    assert_ok(revocations_open(&revocations, 10));
    assert_ok(revocations_add(revocations, kind, id, 100, 0));
    bool found = revocations_has(revocations, &who);
    revocations_close(revocations);
    return found;
}

static void a_session_a_device_and_a_token_are_revoked_each_by_its_own_id(void **state) {
    (void)state;
    assert_true(has_after(REVOCATION_SESSION, SLICE("s1")));
    assert_true(has_after(REVOCATION_DEVICE, SLICE("d1")));
    assert_true(has_after(REVOCATION_TOKEN, SLICE("t1")));
    assert_false(has_after(REVOCATION_SESSION, SLICE("t1")));
    assert_false(has_after(REVOCATION_DEVICE, SLICE("s1")));
    assert_false(has_after(REVOCATION_TOKEN, SLICE("t")));
    assert_false(has_after(REVOCATION_SESSION, SLICE("s11")));
}

static void a_principal_without_ids_is_never_revoked(void **state) {
    (void)state;
    struct revocations *revocations;
    assert_ok(revocations_open(&revocations, 10));
    assert_false(revocations_has(revocations, &principal_operator));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("x"), 100, 0));
    assert_false(revocations_has(revocations, &principal_operator));
    revocations_close(revocations);
}

static void only_expired_entries_make_room(void **state) {
    (void)state;
    struct revocations *revocations;
    assert_ok(revocations_open(&revocations, 2));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("s1"), 100, 0));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("s2"), 200, 0));
    assert_int_equal(revocations_add(revocations, REVOCATION_SESSION, SLICE("s3"), 200, 99),
                     STATUS_LIMIT_REACHED);
    assert_true(revocations_has(revocations, &who));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("s3"), 300, 100));
    assert_false(revocations_has(revocations, &who));
    revocations_close(revocations);
}

static void the_later_of_two_expiry_times_is_kept(void **state) {
    (void)state;
    struct revocations *revocations;
    assert_ok(revocations_open(&revocations, 1));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("s1"), 100, 0));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("s1"), 500, 0));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("s1"), 50, 0));
    assert_int_equal(revocations_add(revocations, REVOCATION_TOKEN, SLICE("x"), 900, 499),
                     STATUS_LIMIT_REACHED);
    revocations_close(revocations);
}

static void ids_that_no_token_has_are_refused(void **state) {
    (void)state;
    static char id[REVOCATION_ID_BYTES_MAX + 1];
    struct revocations *revocations;
    memset(id, 'i', sizeof(id));
    assert_ok(revocations_open(&revocations, 2));
    assert_int_equal(revocations_add(revocations, REVOCATION_TOKEN, SLICE(""), 1, 0),
                     STATUS_INVALID_REQUEST);
    assert_int_equal(
        revocations_add(revocations, REVOCATION_TOKEN, (struct slice){id, sizeof(id)}, 1, 0),
        STATUS_INVALID_REQUEST);
    assert_ok(
        revocations_add(revocations, REVOCATION_TOKEN, (struct slice){id, sizeof(id) - 1}, 1, 0));
    revocations_close(revocations);
}

static void *look(void *user) {
    struct revocations *revocations = user;
    while (!revocations_has(revocations, &who))
        continue;
    return NULL;
}

static void lookups_see_a_revocation_while_others_are_added(void **state) {
    (void)state;
    struct revocations *revocations;
    pthread_t readers[3];
    assert_ok(revocations_open(&revocations, 2000));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, look, revocations), 0);
    for (int i = 0; i < 1000; i++) {
        char id[16];
        snprintf(id, sizeof(id), "other%d", i);
        assert_ok(revocations_add(revocations, REVOCATION_SESSION, slice_of(id), 100, 0));
    }
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("s1"), 100, 0));
    for (size_t i = 0; i < 3; i++)
        pthread_join(readers[i], NULL);
    revocations_close(revocations);
}

struct churn {
    struct revocations *revocations;
    atomic_bool is_over;
    atomic_size_t lookups;
};

static void *look_until_over(void *user) {
    struct churn *churn = user;
    const struct principal held = {.session_id = {"held", 4}, .token_id = {"other1", 6}};
    while (!churn->is_over) {
        assert_true(revocations_has(churn->revocations, &held));
        (void)revocations_has(churn->revocations, &who);
        churn->lookups++;
    }
    return NULL;
}

/* A set of eight: each addition to a full set removes the expired entries while lookups run. */
static void lookups_run_while_expired_entries_are_removed(void **state) {
    (void)state;
    struct churn churn = {.lookups = 0};
    pthread_t readers[3];
    assert_ok(revocations_open(&churn.revocations, 8));
    assert_ok(revocations_add(churn.revocations, REVOCATION_SESSION, SLICE("held"), UINT64_MAX, 0));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, look_until_over, &churn), 0);
    for (uint64_t i = 0; i < 2000 || churn.lookups < 1000; i++) {
        char id[32];
        snprintf(id, sizeof(id), "other%llu", (unsigned long long)i);
        assert_ok(revocations_add(churn.revocations, REVOCATION_TOKEN, slice_of(id), i, i));
    }
    churn.is_over = true;
    for (size_t i = 0; i < 3; i++)
        pthread_join(readers[i], NULL);
    revocations_close(churn.revocations);
}

static void a_set_of_many_entries_finds_each_by_its_kind(void **state) {
    (void)state;
    struct revocations *revocations;
    assert_ok(revocations_open(&revocations, 1000));
    for (int i = 0; i < 1000; i++) {
        char id[16];
        snprintf(id, sizeof(id), "id%d", i);
        assert_ok(revocations_add(revocations, REVOCATION_DEVICE, slice_of(id), 100, 0));
    }
    assert_int_equal(revocations_add(revocations, REVOCATION_DEVICE, SLICE("more"), 100, 0),
                     STATUS_LIMIT_REACHED);
    for (int i = 0; i < 1000; i++) {
        char id[16];
        snprintf(id, sizeof(id), "id%d", i);
        const struct principal device = {.device_id = slice_of(id)};
        const struct principal session = {.session_id = slice_of(id)};
        assert_true(revocations_has(revocations, &device));
        assert_false(revocations_has(revocations, &session));
    }
    revocations_close(revocations);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_a_device_and_a_token_are_revoked_each_by_its_own_id),
        cmocka_unit_test(a_principal_without_ids_is_never_revoked),
        cmocka_unit_test(only_expired_entries_make_room),
        cmocka_unit_test(the_later_of_two_expiry_times_is_kept),
        cmocka_unit_test(ids_that_no_token_has_are_refused),
        cmocka_unit_test(lookups_see_a_revocation_while_others_are_added),
        cmocka_unit_test(lookups_run_while_expired_entries_are_removed),
        cmocka_unit_test(a_set_of_many_entries_finds_each_by_its_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
