/* Revocations and single uses: durable, and gone when they have expired. Properties of the store,
 * and operator keys. */
#include "backend.h"

struct seen {
    size_t count;
    struct store_revocation last;
    char id[64];
    char reason[256];
};

static enum status see(void *user, const struct store_revocation *revocation) {
    struct seen *seen = user;
    seen->count++;
    seen->last = *revocation;
    snprintf(seen->id, sizeof(seen->id), "%.*s", (int)revocation->id.size, revocation->id.data);
    snprintf(seen->reason, sizeof(seen->reason), "%.*s", (int)revocation->reason.size,
             revocation->reason.data ? revocation->reason.data : "");
    return STATUS_OK;
}

static struct seen walk(struct fixture *fixture, uint64_t now_ms) {
    struct seen seen = {.count = 0};
    assert_ok(store_walk_revocations(fixture->reader, now_ms, &seen, see));
    return seen;
}

static void revocations_survive_a_reopen(void **state) {
    struct fixture *fixture = *state;
    const struct store_revocation rows[] = {
        {REVOCATION_SESSION, SLICE("s"), SLICE("stolen"), 10, 100},
        {REVOCATION_DEVICE, SLICE("s"), {NULL, 0}, 10, 200},
        {REVOCATION_TOKEN, SLICE("s"), {NULL, 0}, 10, 300},
    };
    assert_ok(store_put_revocations(fixture->writer, rows, 3, 10));
    fixture_reopen(fixture);
    struct seen seen = walk(fixture, 10);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.last.kind, REVOCATION_TOKEN);
    assert_int_equal(seen.last.expires_at_ms, 300);
    assert_int_equal(seen.last.revoked_at_ms, 10);
    assert_string_equal(seen.id, "s");
    assert_int_equal(walk(fixture, 199).count, 2);
    assert_int_equal(walk(fixture, 200).count, 1);
    assert_int_equal(walk(fixture, 300).count, 0);
}

static void a_repeated_revocation_keeps_its_reason_and_the_later_expiry(void **state) {
    struct fixture *fixture = *state;
    struct store_revocation row = {REVOCATION_SESSION, SLICE("s"), SLICE("stolen"), 10, 200};
    assert_ok(store_put_revocations(fixture->writer, &row, 1, 10));
    row.expires_at_ms = 100;
    assert_ok(store_put_revocations(fixture->writer, &row, 1, 10));
    assert_int_equal(walk(fixture, 10).last.expires_at_ms, 200);
    row.expires_at_ms = 300;
    assert_ok(store_put_revocations(fixture->writer, &row, 1, 10));
    struct seen seen = walk(fixture, 10);
    assert_int_equal(seen.last.expires_at_ms, 300);
    assert_string_equal(seen.reason, "stolen");
    assert_int_equal(seen.count, 1);
}

static void the_next_write_removes_expired_revocations(void **state) {
    struct fixture *fixture = *state;
    struct store_revocation row = {REVOCATION_SESSION, SLICE("a"), {NULL, 0}, 10, 100};
    assert_ok(store_put_revocations(fixture->writer, &row, 1, 10));
    row.id = SLICE("b");
    row.expires_at_ms = 200;
    assert_ok(store_put_revocations(fixture->writer, &row, 1, 100));
    assert_int_equal(walk(fixture, 0).count, 1);
    assert_ok(store_put_revocations(fixture->writer, NULL, 0, 200));
    assert_int_equal(walk(fixture, 0).count, 0);
}

/* Whether it was used before. */
static bool use(struct fixture *fixture, enum single_use_kind kind, const char *id,
                uint64_t expires_at_ms, uint64_t now_ms) {
    struct store_single_use one = {kind, slice_of(id), expires_at_ms, false};
    assert_ok(store_use_once(fixture->writer, &one, 1, now_ms));
    return one.was_used;
}

static void a_single_use_stays_used_after_a_reopen(void **state) {
    struct fixture *fixture = *state;
    assert_false(use(fixture, SINGLE_USE_TOKEN, "j", 100, 10));
    assert_true(use(fixture, SINGLE_USE_TOKEN, "j", 100, 10));
    fixture_reopen(fixture);
    assert_true(use(fixture, SINGLE_USE_TOKEN, "j", 900, 99));
    assert_false(use(fixture, SINGLE_USE_NONCE, "j", 100, 10));
    assert_false(use(fixture, SINGLE_USE_TOKEN, "k", 100, 10));
}

static void a_use_is_forgotten_when_it_has_expired(void **state) {
    struct fixture *fixture = *state;
    assert_false(use(fixture, SINGLE_USE_NONCE, "n", 100, 10));
    assert_false(use(fixture, SINGLE_USE_NONCE, "n", 400, 100));
    assert_true(use(fixture, SINGLE_USE_NONCE, "n", 400, 100));
}

static void uses_of_one_call_are_decided_one_by_one(void **state) {
    struct fixture *fixture = *state;
    struct store_single_use uses[STORE_SINGLE_USES_MAX];
    char ids[STORE_SINGLE_USES_MAX][8];
    assert_false(use(fixture, SINGLE_USE_NONCE, "n5", 100, 10));
    for (size_t i = 0; i < STORE_SINGLE_USES_MAX; i++) {
        /* Later ones repeat the ids of earlier ones, and come in another order. */
        snprintf(ids[i], sizeof(ids[i]), "n%zu", i < 100 ? 99 - i : i - 100);
        uses[i] = (struct store_single_use){SINGLE_USE_NONCE, slice_of(ids[i]), 100, true};
    }
    assert_ok(store_use_once(fixture->writer, uses, STORE_SINGLE_USES_MAX, 10));
    for (size_t i = 0; i < STORE_SINGLE_USES_MAX; i++)
        assert_int_equal(uses[i].was_used, i >= 100 || strcmp(ids[i], "n5") == 0);
    assert_ok(store_use_once(fixture->writer, uses, STORE_SINGLE_USES_MAX, 10));
    for (size_t i = 0; i < STORE_SINGLE_USES_MAX; i++)
        assert_true(uses[i].was_used);
}

static void assert_property(struct fixture *fixture, const char *name, const char *wanted) {
    struct slice value = {0};
    enum status status =
        store_load_property(fixture->reader, slice_of(name), &fixture->arena, &value);
    assert_int_equal(status, wanted ? STATUS_OK : STATUS_NOT_FOUND);
    if (wanted)
        assert_slice(value, wanted);
}

static void properties_are_set_replaced_and_removed_together(void **state) {
    struct fixture *fixture = *state;
    const struct store_property first[] = {{SLICE("a"), SLICE("1\n2")}, {SLICE("b"), SLICE("")}};
    const struct store_property second[] = {{SLICE("a"), {NULL, 0}}, {SLICE("b"), SLICE("é")}};
    assert_property(fixture, "a", NULL);
    assert_ok(store_put_properties(fixture->writer, first, 2));
    assert_property(fixture, "a", "1\n2");
    assert_property(fixture, "b", "");
    assert_ok(store_put_properties(fixture->writer, second, 2));
    fixture_reopen(fixture);
    assert_property(fixture, "a", NULL);
    assert_property(fixture, "b", "é");
}

static enum status see_key(void *user, const struct store_operator_key *key) {
    struct seen *seen = user;
    seen->count++;
    assert_int_equal(key->digest[0], 7);
    assert_int_equal(key->digest[SHA256_BYTES - 1], 7);
    snprintf(seen->reason + strlen(seen->reason), sizeof(seen->reason) - strlen(seen->reason),
             "%.*s %.*s %.*s %d %d %.*s %d %d;", (int)key->name.size, key->name.data,
             (int)key->role.size, key->role.data, (int)key->id.size, key->id.data,
             (int)key->created_at_ms, (int)key->rotated_at_ms, (int)key->previous_id.size,
             key->previous_id.data ? key->previous_id.data : "", key->previous_digest[1],
             (int)key->previous_until_ms);
    return STATUS_OK;
}

static void assert_keys(struct fixture *fixture, const char *wanted) {
    struct seen seen = {.count = 0};
    assert_ok(store_walk_operator_keys(fixture->reader, &seen, see_key));
    assert_string_equal(seen.reason, wanted);
}

static void operator_keys_are_added_replaced_and_removed(void **state) {
    struct fixture *fixture = *state;
    struct store_operator_key ci = {
        .name = SLICE("ci"), .role = SLICE("append"), .id = SLICE("1"), .created_at_ms = 5};
    struct store_operator_key all = {
        .name = SLICE("all"), .role = SLICE("admin"), .id = SLICE("2"), .created_at_ms = 6};
    memset(ci.digest, 7, SHA256_BYTES);
    memset(all.digest, 7, SHA256_BYTES);
    assert_keys(fixture, "");
    assert_ok(store_put_operator_key(fixture->writer, &ci));
    assert_ok(store_put_operator_key(fixture->writer, &all));
    fixture_reopen(fixture);
    assert_keys(fixture, "all admin 2 6 0  0 0;ci append 1 5 0  0 0;");
    ci.id = SLICE("3");
    ci.rotated_at_ms = 8;
    ci.previous_id = SLICE("1");
    ci.previous_digest[1] = 9;
    ci.previous_until_ms = 10;
    assert_ok(store_put_operator_key(fixture->writer, &ci));
    assert_ok(store_drop_operator_key(fixture->writer, SLICE("all")));
    assert_ok(store_drop_operator_key(fixture->writer, SLICE("none")));
    assert_keys(fixture, "ci append 3 5 8 1 9 10;");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(revocations_survive_a_reopen),
        cmocka_unit_test(a_repeated_revocation_keeps_its_reason_and_the_later_expiry),
        cmocka_unit_test(the_next_write_removes_expired_revocations),
        cmocka_unit_test(a_single_use_stays_used_after_a_reopen),
        cmocka_unit_test(a_use_is_forgotten_when_it_has_expired),
        cmocka_unit_test(uses_of_one_call_are_decided_one_by_one),
        cmocka_unit_test(properties_are_set_replaced_and_removed_together),
        cmocka_unit_test(operator_keys_are_added_replaced_and_removed),
    };
    return CONTRACT_RUN("auth", tests);
}
