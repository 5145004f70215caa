#include "http/admit/conn_tickets.h"

#include "test.h"

static struct conn_limits limits;
static struct conn_tickets tickets;
static struct conn_tickets other; /* of a second loop */
static struct conn_ticket all[40];
static uint64_t now_ms;

static int open_tickets(void **state) {
    (void)state;
    memset(all, 0, sizeof(all));
    limits = (struct conn_limits){.conn_max = 4, .unauthenticated_max = 3, .reserved_max = 2};
    conn_tickets_init(&tickets, &limits);
    conn_tickets_init(&other, &limits);
    return 0;
}

/* Every ticket is returned in the end, and then none is counted. */
static int close_tickets(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        conn_ticket_return(&all[i]);
    assert_true(list_is_empty(&tickets.unauthenticated.tickets));
    assert_true(list_is_empty(&tickets.reserved.tickets));
    assert_int_equal(limits.table_count + tickets.own_count + other.own_count, 0);
    return (int)conn_limits_count(&limits);
}

static struct conn_ticket *take(size_t index) {
    return conn_ticket_take(&tickets, &all[index], false, ++now_ms).ticket;
}

static void admit(size_t index) {
    assert_null(take(index));
    conn_ticket_admit(&all[index]);
}

static void the_connection_that_was_silent_longest_gives_way(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_null(take(i));
    conn_ticket_touch(&all[0], ++now_ms);
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
    conn_ticket_touch(&all[4], ++now_ms);
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
    assert_null(conn_ticket_take(&tickets, &all[4], true, ++now_ms).ticket);
    assert_int_equal(all[4].rank, CONN_RANK_OPERATOR);
    assert_null(take(5));
    assert_ptr_equal(conn_ticket_take(&tickets, &all[6], true, ++now_ms).ticket, &all[5]);
}

static void a_connection_that_another_limit_refuses_displaces_only_its_like(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_null(take(i));
    assert_null(conn_ticket_reserve(&tickets, &all[3], ++now_ms).ticket);
    assert_null(conn_ticket_reserve(&tickets, &all[4], ++now_ms).ticket);
    assert_ptr_equal(conn_ticket_reserve(&tickets, &all[5], ++now_ms).ticket, &all[3]);
}

static void a_loop_is_asked_to_close_the_connection_that_was_silent_longest_of_all(void **state) {
    (void)state;
    for (size_t i = 0; i < 2; i++)
        assert_null(conn_ticket_take(&other, &all[i], false, ++now_ms).ticket);
    assert_null(take(2));
    conn_ticket_touch(&all[0], ++now_ms);
    struct conn_displaced displaced = conn_ticket_take(&tickets, &all[3], false, ++now_ms);
    assert_null(displaced.ticket);
    assert_ptr_equal(displaced.elsewhere, &other);
    assert_null(conn_tickets_asked(&tickets));
    assert_ptr_equal(conn_tickets_asked(&other), &all[1]);
    conn_ticket_return(&all[1]);
    assert_null(conn_tickets_asked(&other));
    /* Now one of this loop was silent longest. */
    assert_ptr_equal(take(4), &all[2]);
}

static void a_loop_that_does_not_answer_owes_few_closes(void **state) {
    (void)state;
    assert_null(conn_ticket_take(&other, &all[0], false, ++now_ms).ticket);
    size_t index = 1;
    while (index < 3)
        assert_null(take(index++));
    for (size_t i = 0; i < CONN_ASKED_MAX; i++)
        assert_ptr_equal(conn_ticket_take(&tickets, &all[index++], false, ++now_ms).elsewhere,
                         &other);
    assert_ptr_equal(take(index), &all[1]);
    /* The others were asked for more than it has. */
    assert_ptr_equal(conn_tickets_asked(&other), &all[0]);
    conn_ticket_return(&all[0]);
    assert_null(conn_tickets_asked(&other));
    assert_int_equal(limits.asked[CONN_RANK_UNAUTHENTICATED], 0);
}

static void a_request_that_is_settled_meanwhile_closes_nothing(void **state) {
    (void)state;
    assert_null(conn_ticket_take(&other, &all[0], false, ++now_ms).ticket);
    assert_null(take(1));
    assert_null(take(2));
    assert_ptr_equal(conn_ticket_take(&tickets, &all[3], false, ++now_ms).elsewhere, &other);
    conn_ticket_admit(&all[1]);
    assert_null(conn_tickets_asked(&other));
}

static void the_reserve_is_one_for_all_loops(void **state) {
    (void)state;
    for (size_t i = 0; i < 4; i++)
        admit(i);
    assert_null(conn_ticket_take(&other, &all[4], false, ++now_ms).ticket);
    assert_null(conn_ticket_take(&other, &all[5], false, ++now_ms).ticket);
    assert_ptr_equal(conn_ticket_take(&tickets, &all[6], false, ++now_ms).elsewhere, &other);
    assert_true(conn_ticket_is_reserved(&all[6]));
    assert_ptr_equal(conn_tickets_asked(&other), &all[4]);
}

static void a_full_descriptor_table_makes_room_by_its_own_connections(void **state) {
    (void)state;
    limits.table_conn_max = 1;
    conn_tickets_own_table(&other);
    assert_null(conn_ticket_take(&other, &all[0], false, ++now_ms).ticket);
    assert_null(take(1));
    assert_ptr_equal(take(2), &all[1]);
    conn_ticket_return(&all[1]);
    conn_ticket_admit(&all[2]);
    assert_null(take(3));
    assert_true(conn_ticket_is_reserved(&all[3]));
}

int main(void) {
#define TICKET_TEST(name) cmocka_unit_test_setup_teardown(name, open_tickets, close_tickets)
    const struct CMUnitTest tests[] = {
        TICKET_TEST(the_connection_that_was_silent_longest_gives_way),
        TICKET_TEST(connections_with_a_token_stay_and_silent_ones_make_room),
        TICKET_TEST(beyond_the_total_a_connection_is_reserved_and_then_closed),
        TICKET_TEST(the_operators_listener_uses_the_reserve),
        TICKET_TEST(a_connection_that_another_limit_refuses_displaces_only_its_like),
        TICKET_TEST(a_loop_is_asked_to_close_the_connection_that_was_silent_longest_of_all),
        TICKET_TEST(a_loop_that_does_not_answer_owes_few_closes),
        TICKET_TEST(a_request_that_is_settled_meanwhile_closes_nothing),
        TICKET_TEST(the_reserve_is_one_for_all_loops),
        TICKET_TEST(a_full_descriptor_table_makes_room_by_its_own_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
