#include "auth/principal.h"

#include "test.h"

static void a_copy_keeps_everything_and_outlives_its_source(void **state) {
    (void)state;
    char user[] = "user-1";
    char topic[] = "run:a:events";
    struct slice topics[] = {slice_of(topic), SLICE("")};
    struct slice streams[] = {SLICE("runtime.run.a.events")};
    const struct principal from = {
        .identity = {.user_id = slice_of(user), .org_id = SLICE("org")},
        .session_id = SLICE("s"),
        .token_id = SLICE("t"),
        .expires_at_ms = 77,
        .scopes = SCOPE_AUDIT,
        .topics = {topics, 2},
        .streams = {streams, 1},
    };
    const struct principal *copy;
    assert_ok(principal_new(&from, &copy));
    memset(user, 'x', sizeof(user));
    memset(topic, 'x', sizeof(topic));
    assert_true(slice_equal(copy->identity.user_id, SLICE("user-1")));
    assert_true(slice_equal(copy->identity.org_id, SLICE("org")));
    assert_null(copy->identity.guest_scope.data);
    assert_null(copy->device_id.data);
    assert_true(slice_equal(copy->session_id, SLICE("s")));
    assert_true(slice_equal(copy->token_id, SLICE("t")));
    assert_int_equal(copy->expires_at_ms, 77);
    assert_int_equal(copy->scopes, SCOPE_AUDIT);
    assert_int_equal(copy->topics.count, 2);
    assert_true(slice_equal(copy->topics.names[0], SLICE("run:a:events")));
    assert_true(slice_equal(copy->streams.names[0], SLICE("runtime.run.a.events")));
    assert_ptr_equal(principal_ref(copy), copy);
    principal_unref(copy);
    assert_true(slice_equal(copy->identity.user_id, SLICE("user-1")));
    principal_unref(copy);
}

static const struct principal *made_for(const char *user, uint64_t expires_at_ms) {
    const struct principal *made;
    struct slice topics[] = {SLICE("room")};
    const struct principal from = {.identity = {.user_id = slice_of(user)},
                                   .expires_at_ms = expires_at_ms,
                                   .topics = {topics, 1}};
    assert_ok(principal_new(&from, &made));
    return made;
}

static void equal_principals_are_shared_while_one_is_in_use(void **state) {
    (void)state;
    const struct principal *one = made_for("a", 5), *same = made_for("a", 5);
    const struct principal *later = made_for("a", 6), *other = made_for("b", 5);
    const struct principal *kept = principal_shared(one);
    assert_ptr_equal(kept, one);
    principal_unref(one);
    assert_ptr_equal(principal_shared(same), kept);
    assert_ptr_equal(principal_shared(later), later);
    assert_ptr_equal(principal_shared(other), other);
    assert_ptr_equal(principal_shared(&principal_operator), &principal_operator);
    for (int i = 0; i < 2; i++) {
        principal_unref(kept);
        principal_unref(later);
        principal_unref(other);
    }
    /* The last reference is gone, and with it the entry. */
    kept = principal_shared(same);
    assert_ptr_equal(kept, same);
    principal_unref(kept);
    principal_unref(same);
}

static void references_to_a_constant_have_no_effect(void **state) {
    (void)state;
    principal_unref(&principal_operator);
    assert_ptr_equal(principal_ref(&principal_operator), &principal_operator);
    principal_unref(&principal_operator);
    principal_unref(&principal_operator);
    principal_unref(NULL);
    assert_false(principal_is_expired(&principal_operator, UINT64_MAX));
}

static void a_principal_expires_at_its_expiry_time(void **state) {
    (void)state;
    const struct principal one = {.expires_at_ms = 1000};
    assert_false(principal_is_expired(&one, 999));
    assert_true(principal_is_expired(&one, 1000));
}

#define USER(text)                                                                                 \
    { .user_id = SLICE(text) }
#define GUEST(text)                                                                                \
    { .guest_scope = SLICE(text) }
#define ORG(text)                                                                                  \
    { .org_id = SLICE(text) }
#define NOBODY                                                                                     \
    {                                                                                              \
        .user_id = { NULL, 0 }                                                                     \
    }

static void ownership_follows_the_table(void **state) {
    (void)state;
    static const struct {
        struct owner who;
        struct owner owner;
        bool readable;
    } rows[] = {
        {USER("u"), USER("u"), true},
        {USER("u"), USER("v"), false},
        {USER("u"), USER("uu"), false},
        {USER("u"), GUEST("u"), false},
        {GUEST("g"), GUEST("g"), true},
        {GUEST("g"), USER("g"), false},
        {ORG("o"), ORG("o"), true},
        {ORG("o"), ORG("p"), false},
        {ORG("o"), USER("o"), false},
        /* Data of a user is not readable for others of the organisation. */
        {{.user_id = SLICE("v"), .org_id = SLICE("o")},
         {.user_id = SLICE("u"), .org_id = SLICE("o")},
         false},
        {{.user_id = SLICE("u"), .org_id = SLICE("p")},
         {.user_id = SLICE("u"), .org_id = SLICE("o")},
         true},
        {{.user_id = SLICE("v"), .org_id = SLICE("o")}, ORG("o"), true},
        /* Data without an owner is not readable. */
        {USER("u"), NOBODY, false},
        {NOBODY, NOBODY, false},
        {NOBODY, USER("u"), false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct principal one = {.identity = rows[i].who};
        if (principal_may_read(&one, &rows[i].owner) != rows[i].readable)
            fail_msg("row %zu", i);
        assert_true(principal_may_read(&principal_operator, &rows[i].owner));
    }
}

static void assert_key(const struct principal *principal, const char *expected) {
    char key[PRINCIPAL_KEY_BYTES_MAX];
    assert_slice(principal_key(principal, key), expected);
}

static void the_key_of_a_principal_is_its_first_name(void **state) {
    (void)state;
    struct principal one = {.identity = {.user_id = SLICE("u"), .org_id = SLICE("o")},
                            .subject = SLICE("s"),
                            .token_id = SLICE("t")};
    assert_key(&one, "uu");
    one.identity = (struct owner){.guest_scope = SLICE("g"), .org_id = SLICE("o")};
    assert_key(&one, "gg");
    one.identity = (struct owner){.org_id = SLICE("o")};
    assert_key(&one, "oo");
    one.identity = (struct owner)NOBODY;
    assert_key(&one, "ss");
    one.subject = (struct slice){NULL, 0};
    assert_key(&one, "jt");
    one.token_id = (struct slice){NULL, 0};
    assert_key(&one, "-");
    assert_key(&principal_operator, "*operator");
    /* No token has the key of an operator, whatever its claims say. */
    one = (struct principal){.subject = SLICE("ci"), .role = KEY_ROLE_READ, .token_id = SLICE("k")};
    assert_key(&one, "*ci");
    one.role = KEY_ROLE_NONE;
    assert_key(&one, "sci");
}

static void long_names_have_different_keys(void **state) {
    (void)state;
    char first[PRINCIPAL_KEY_BYTES_MAX - 1], second[PRINCIPAL_KEY_BYTES_MAX - 1];
    char first_key[PRINCIPAL_KEY_BYTES_MAX], second_key[PRINCIPAL_KEY_BYTES_MAX];
    memset(first, 'x', sizeof(first));
    memset(second, 'x', sizeof(second));
    second[sizeof(second) - 1] = 'y';
    const struct principal one = {.subject = {first, sizeof(first)}};
    const struct principal other = {.subject = {second, sizeof(second)}};
    assert_false(slice_equal(principal_key(&one, first_key), principal_key(&other, second_key)));
}

static void scopes_have_one_bit_and_one_name_each(void **state) {
    (void)state;
    unsigned seen = 0;
    for (unsigned i = 0; i < SCOPE_COUNT; i++) {
        unsigned bit = scope_of(slice_of(scope_name((enum scope)(1u << i))));
        assert_int_equal(bit, 1u << i);
        assert_int_equal(seen & bit, 0);
        seen |= bit;
    }
    assert_int_equal(scope_of(SLICE(SCOPE_READ_ALL_NAME)), 0);
    assert_int_equal(scope_of(SLICE("runtime.run_event")), 0);
    assert_int_equal(scope_of(SLICE("")), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_keeps_everything_and_outlives_its_source),
        cmocka_unit_test(equal_principals_are_shared_while_one_is_in_use),
        cmocka_unit_test(references_to_a_constant_have_no_effect),
        cmocka_unit_test(a_principal_expires_at_its_expiry_time),
        cmocka_unit_test(ownership_follows_the_table),
        cmocka_unit_test(the_key_of_a_principal_is_its_first_name),
        cmocka_unit_test(long_names_have_different_keys),
        cmocka_unit_test(scopes_have_one_bit_and_one_name_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
