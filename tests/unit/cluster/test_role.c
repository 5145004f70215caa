#include "test.h"

#include "cluster/role.h"
#include "death.h"

static const struct {
    enum writer_role from, to;
} edges[] = {
    {WRITER_ROLE_LOST, WRITER_ROLE_LOST},           {WRITER_ROLE_LOST, WRITER_ROLE_ELSEWHERE},
    {WRITER_ROLE_LOST, WRITER_ROLE_BEHIND},         {WRITER_ROLE_ELSEWHERE, WRITER_ROLE_LOST},
    {WRITER_ROLE_ELSEWHERE, WRITER_ROLE_ELSEWHERE}, {WRITER_ROLE_ELSEWHERE, WRITER_ROLE_BEHIND},
    {WRITER_ROLE_BEHIND, WRITER_ROLE_LOST},         {WRITER_ROLE_BEHIND, WRITER_ROLE_HELD},
    {WRITER_ROLE_HELD, WRITER_ROLE_LOST},
};

struct change {
    enum writer_role from, to;
};

static void make(void *user) {
    const struct change *change = user;
    struct role role;
    role_init(&role, change->from, true);
    role_set(&role, change->to);
    assert_int_equal(role_get(&role), change->to);
    assert_int_equal(role.changes, role_is_writer(change->from) != role_is_writer(change->to));
}

static bool is_edge(const struct change *change) {
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
        if (edges[i].from == change->from && edges[i].to == change->to)
            return true;
    return false;
}

static void only_the_edges_of_the_picture_exist(void **state) {
    (void)state;
    for (enum writer_role from = WRITER_ROLE_LOST; from <= WRITER_ROLE_HELD; from++) {
        for (enum writer_role to = WRITER_ROLE_LOST; to <= WRITER_ROLE_HELD; to++) {
            struct change change = {from, to};
            if (is_edge(&change))
                make(&change);
            else
                assert_true(aborts(make, &change));
        }
    }
}

static void the_status_of_an_attempt_becomes_a_state_and_a_refusal(void **state) {
    (void)state;
    assert_int_equal(role_answered(STATUS_OK), WRITER_ROLE_BEHIND);
    assert_int_equal(role_answered(STATUS_NOT_WRITER), WRITER_ROLE_ELSEWHERE);
    assert_int_equal(role_answered(STATUS_WRITER_LOST), WRITER_ROLE_LOST);
    assert_int_equal(role_answered(STATUS_STORE_UNAVAILABLE), WRITER_ROLE_LOST);
    assert_int_equal(role_refusal(WRITER_ROLE_ELSEWHERE), STATUS_NOT_WRITER);
    assert_int_equal(role_refusal(WRITER_ROLE_LOST), STATUS_WRITER_LOST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_edges_of_the_picture_exist),
        cmocka_unit_test(the_status_of_an_attempt_becomes_a_state_and_a_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
