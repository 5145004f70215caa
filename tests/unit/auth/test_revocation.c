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

static void who_has_no_ids_is_never_revoked(void **state) {
    (void)state;
    struct revocations *revocations;
    assert_ok(revocations_open(&revocations, 10));
    assert_false(revocations_has(revocations, &principal_operator));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("x"), 100, 0));
    assert_false(revocations_has(revocations, &principal_operator));
    revocations_close(revocations);
}

static void only_what_has_expired_makes_room(void **state) {
    (void)state;
    struct revocations *revocations;
    assert_ok(revocations_open(&revocations, 2));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("s1"), 100, 0));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("s2"), 200, 0));
    assert_int_equal(revocations_add(revocations, REVOCATION_SESSION, SLICE("s3"), 200, 99),
                     STATUS_LIMIT_REACHED);
    assert_int_equal(revocations_count(revocations), 2);
    assert_true(revocations_has(revocations, &who));
    assert_ok(revocations_add(revocations, REVOCATION_SESSION, SLICE("s3"), 300, 100));
    assert_false(revocations_has(revocations, &who));
    assert_int_equal(revocations_count(revocations), 2);
    revocations_close(revocations);
}

static void the_later_time_of_two_counts(void **state) {
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

static void readers_see_a_revocation_while_others_are_written(void **state) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_a_device_and_a_token_are_revoked_each_by_its_own_id),
        cmocka_unit_test(who_has_no_ids_is_never_revoked),
        cmocka_unit_test(only_what_has_expired_makes_room),
        cmocka_unit_test(the_later_time_of_two_counts),
        cmocka_unit_test(ids_that_no_token_has_are_refused),
        cmocka_unit_test(readers_see_a_revocation_while_others_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
