#include "http/admit/conn_tickets.h"

#include "test.h"

static struct conn_limits limits;
static struct conn_tickets tickets;
static struct conn_ticket all[10];

static int open_tickets(void **state) {
    (void)state;
    memset(all, 0, sizeof(all));
    limits = (struct conn_limits){.conn_max = 4, .unauthenticated_max = 3, .reserved_max = 2};
    conn_tickets_init(&tickets, &limits);
    return 0;
}

/* Every ticket is returned in the end, and then none is counted. */
static int close_tickets(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        conn_ticket_return(&all[i]);
    assert_true(list_is_empty(&tickets.unauthenticated) && list_is_empty(&tickets.reserved));
    return (int)conn_limits_count(&limits);
}

static struct conn_ticket *take(size_t index) {
    return conn_ticket_take(&tickets, &all[index], false);
}

static void admit(size_t index) {
    assert_null(take(index));
    conn_ticket_admit(&all[index]);
}

static void the_connection_that_was_silent_longest_gives_way(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_null(take(i));
    conn_ticket_touch(&all[0]);
    assert_ptr_equal(take(3), &all[1]);
    conn_ticket_return(&all[1]);
    assert_int_equal(conn_limits_count(&limits), 3);
    assert_ptr_equal(take(4), &all[2]);
}

static void connections_with_a_token_stay_and_silent_ones_make_room(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++)
        admit(i);
    assert_null(take(3));
    assert_ptr_equal(take(4), &all[3]);
    conn_ticket_return(&all[3]);
    assert_int_equal(all[4].rank, CONN_RANK_UNAUTHENTICATED);
}

static void beyond_the_total_a_connection_is_reserved_and_then_closed(void **state) {
    (void)state;
    for (size_t i = 0; i < 4; i++)
        admit(i);
    assert_null(take(4));
    assert_null(take(5));
    assert_true(conn_ticket_is_reserved(&all[4]) && conn_ticket_is_reserved(&all[5]));
    conn_ticket_touch(&all[4]);
    assert_ptr_equal(take(6), &all[5]);
    conn_ticket_return(&all[5]);
    conn_ticket_admit(&all[4]);
    conn_ticket_admit(&all[6]);
    assert_int_equal(all[4].rank, CONN_RANK_OPERATOR);
    assert_ptr_equal(take(7), &all[7]);
}

static void the_operators_listener_uses_the_reserve(void **state) {
    (void)state;
    for (size_t i = 0; i < 4; i++)
        admit(i);
    assert_null(conn_ticket_take(&tickets, &all[4], true));
    assert_int_equal(all[4].rank, CONN_RANK_OPERATOR);
    assert_null(take(5));
    assert_ptr_equal(conn_ticket_take(&tickets, &all[6], true), &all[5]);
}

static void a_connection_that_another_limit_refuses_displaces_only_its_like(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_null(take(i));
    assert_null(conn_ticket_reserve(&tickets, &all[3]));
    assert_null(conn_ticket_reserve(&tickets, &all[4]));
    assert_ptr_equal(conn_ticket_reserve(&tickets, &all[5]), &all[3]);
}

int main(void) {
#define TICKET_TEST(name) cmocka_unit_test_setup_teardown(name, open_tickets, close_tickets)
    const struct CMUnitTest tests[] = {
        TICKET_TEST(the_connection_that_was_silent_longest_gives_way),
        TICKET_TEST(connections_with_a_token_stay_and_silent_ones_make_room),
        TICKET_TEST(beyond_the_total_a_connection_is_reserved_and_then_closed),
        TICKET_TEST(the_operators_listener_uses_the_reserve),
        TICKET_TEST(a_connection_that_another_limit_refuses_displaces_only_its_like),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
