/* The shares of principals in the memory of batches. */
#include "api/batch_shares.h"
#include "base/limits.h"
#include "http/unread_answers.h"
#include "test.h"

#define MIB      ((size_t)1 << 20)
#define TOTAL    (64 * MIB)
#define DIVIDED  (56 * MIB)
#define QUOTA    (40 * MIB)
#define MANY_MAX 50

static struct batch_shares shares;

static int open_shares_of(uint64_t quota_bytes) {
    const struct quota_limits defaults = {.of = {[QUOTA_BATCH_BYTES] = quota_bytes}};
    shares = (struct batch_shares){.bytes_max = TOTAL};
    if (quota_table_open(&shares.quotas, &defaults) != STATUS_OK)
        return -1;
    batch_shares_init(&shares);
    return 0;
}

static int open_shares(void **state) {
    (void)state;
    return open_shares_of(QUOTA);
}

static int open_small_shares(void **state) {
    (void)state;
    return open_shares_of(MIB);
}

static int close_shares(void **state) {
    (void)state;
    batch_shares_release(&shares);
    quota_table_close(shares.quotas);
    return 0;
}

/* "*" is the operator. */
static struct batch_holder *join(const char *name) {
    const struct principal user = {.identity = {.user_id = slice_of(name)}};
    struct batch_holder *holder;
    assert_ok(batch_shares_join(&shares, name[0] == '*' ? &principal_operator : &user, &holder));
    return holder;
}

static void leave(struct batch_holder *holder) {
    batch_shares_charge(&shares, holder, batch_holder_bytes(holder), 0);
    batch_shares_leave(&shares, holder);
}

/* Takes memory by steps until it is refused, and returns what the holder has then. */
static size_t take_all(struct batch_holder *holder) {
    size_t held = batch_holder_bytes(holder);
    while (batch_shares_check(&shares, holder, 0) == STATUS_OK) {
        batch_shares_charge(&shares, holder, held, held + MIB / 8);
        held += MIB / 8;
    }
    return held;
}

static void a_newcomer_finds_a_share(void **state) {
    (void)state;
    struct batch_holder *first = join("ua");
    assert_int_equal(take_all(first), DIVIDED / 2);
    assert_true(batch_shares_is_short(&shares, first));
    struct batch_holder *second = join("ub");
    assert_false(batch_shares_is_short(&shares, second));
    assert_true(take_all(second) >= DIVIDED / 4);
    /* The first keeps what it has, and takes nothing until it is below its share of now. */
    assert_int_equal(batch_shares_check(&shares, first, 0), STATUS_LIMIT_REACHED);
    assert_int_equal(batch_holder_bytes(first), DIVIDED / 2);
    batch_shares_charge(&shares, first, DIVIDED / 2, DIVIDED / 8);
    assert_ok(batch_shares_check(&shares, first, 0));
    leave(first);
    leave(second);
}

static void many_greedy_principals_keep_neither_a_newcomer_nor_the_operator_out(void **state) {
    (void)state;
    struct batch_holder *greedy[MANY_MAX];
    char key[] = "u?";
    for (int i = 0; i < MANY_MAX; i++) {
        key[1] = (char)('0' + i);
        greedy[i] = join(key);
        assert_true(take_all(greedy[i]) > 0);
    }
    assert_true(atomic_load(&shares.bytes) <= TOTAL + TOTAL / 2);
    struct batch_holder *newcomer = join("un");
    assert_true(take_all(newcomer) >= MIB);
    struct batch_holder *admin = join("*");
    assert_true(take_all(admin) >= TOTAL / 8);
    leave(admin);
    leave(newcomer);
    for (int i = 0; i < MANY_MAX; i++)
        leave(greedy[i]);
    assert_int_equal(atomic_load(&shares.bytes), 0);
}

static void batches_of_one_principal_share_a_holder_with_a_quota(void **state) {
    (void)state;
    struct batch_holder *holder = join("ua");
    assert_ptr_equal(join("ua"), holder);
    assert_int_equal(take_all(holder), MIB);
    assert_int_equal(batch_shares_check(&shares, holder, 0), STATUS_QUOTA_EXCEEDED);
    /* A batch that holds nothing but its own item may finish it. */
    assert_ok(batch_shares_check(&shares, holder, MIB));
    batch_shares_leave(&shares, holder);
    leave(holder);
    struct batch_holder *admin = join("*");
    assert_true(take_all(admin) > MIB);
    assert_int_equal(batch_shares_quota(&shares, admin), UINT64_MAX);
    leave(admin);
}

static void progress_is_judged_against_what_is_held_only_while_memory_is_short(void **state) {
    (void)state;
    assert_int_equal(unread_progress_min(64 * MIB, false), UNREAD_PROGRESS_BYTES_MIN);
    assert_int_equal(unread_progress_min(64 * MIB, true), 64 * MIB / UNREAD_PROGRESS_PART);
    assert_int_equal(unread_progress_min(1, true), UNREAD_PROGRESS_BYTES_MIN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_newcomer_finds_a_share, open_shares, close_shares),
        cmocka_unit_test_setup_teardown(
            many_greedy_principals_keep_neither_a_newcomer_nor_the_operator_out, open_shares,
            close_shares),
        cmocka_unit_test_setup_teardown(batches_of_one_principal_share_a_holder_with_a_quota,
                                        open_small_shares, close_shares),
        cmocka_unit_test(progress_is_judged_against_what_is_held_only_while_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
