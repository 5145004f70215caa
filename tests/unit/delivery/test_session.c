/* Sessions and their subscribers over a fake outlet: order, replay, states, blocking, ending. */
#include "delivery/session/session.h"

#include "death.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_events.h"
#include "delivery/session_fixture.h"

/* ---- delivery ---- */

static void a_session_writes_its_head_first_and_then_frames_in_order(void **state) {
    (void)state;
    fixture_open(6);
    fixture_subscribe(RUN_TOPIC, 1);
    fixture_settle();
    assert_written("head 2 3 caught_up ");
    publisher_commit(fixture.publisher, 4);
    fixture_settle();
    assert_written("4 5 ");
    fixture_close();
}

static void a_replay_goes_from_the_store_through_memory_to_the_head(void **state) {
    (void)state;
    fixture_open(40);
    struct subscriber *subscriber = fixture_subscribe(RUN_TOPIC, 0);
    subscriber->frames_max = 7;
    fixture_settle();
    assert_written("head 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 caught_up ");
    assert_int_equal(subscriber->state, SUBSCRIBER_LIVE);
    fixture_close();
}

static void a_subscriber_without_a_cursor_bootstraps(void **state) {
    (void)state;
    fixture_open(4);
    struct subscriber *subscriber = fixture_subscribe(RUN_TOPIC, UINT64_MAX);
    assert_int_equal(subscriber->state, SUBSCRIBER_NEW);
    fixture_settle();
    assert_written("head bootstrap 1 2 caught_up ");
    fixture_close();
}

static void a_stale_subscriber_is_notified_and_bootstraps(void **state) {
    (void)state;
    fixture_open(40);
    publisher_prune(fixture.publisher, fixture.publisher->summaries_ref, 20);
    struct subscriber *subscriber = fixture_subscribe(SUMMARIES, 5);
    fixture.policies.rows[policy_row_of(SLICE(SUMMARIES))].snapshot_document = DOCUMENT_NONE;
    fixture_settle();
    assert_written("head stale bootstrap 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 "
                   "39 40 caught_up ");
    assert_int_equal(subscriber->state, SUBSCRIBER_LIVE);
    fixture_close();
}

static void a_blocked_session_sends_nothing_until_its_socket_has_room(void **state) {
    (void)state;
    fixture_open(4);
    fixture_subscribe(RUN_TOPIC, 0);
    fixture_settle();
    buffer_clear(&fixture.written);
    fixture.blocks = true;
    publisher_commit(fixture.publisher, 2);
    fixture_settle();
    assert_written("3 ");
    publisher_commit(fixture.publisher, 4);
    fixture_settle();
    assert_written("");
    fixture_unblock();
    fixture_settle();
    assert_written("4 5 ");
    fixture_close();
}

static void two_subscribers_of_a_session_are_both_served(void **state) {
    (void)state;
    fixture_open(4);
    fixture_subscribe(RUN_TOPIC, 2);
    fixture_settle();
    fixture_subscribe(OTHER_TOPIC, 2);
    fixture_settle();
    buffer_clear(&fixture.written);
    publisher_commit(fixture.publisher, 2);
    fixture_settle();
    assert_written("3 3 ");
    fixture_close();
}

static void tokens_without_an_owner_have_turns_of_their_own(void **state) {
    static const struct principal tokens[] = {{.subject = SLICE("a"), .read_all = true},
                                              {.subject = SLICE("b"), .read_all = true}};
    (void)state;
    fixture_open(4);
    const struct principal *opened_for = fixture.session->principal;
    fixture.session->principal = &tokens[0];
    fixture_subscribe(RUN_TOPIC, 2);
    fixture_settle();
    fixture.session->principal = &tokens[1];
    fixture_subscribe(OTHER_TOPIC, 2);
    fixture_settle();
    assert_int_equal(fixture.loop.scheduler.shares.count, 2);
    fixture.session->principal = opened_for;
    fixture_close();
}

/* ---- ending ---- */

static void a_session_that_ends_sends_its_last_message_and_lingers(void **state) {
    (void)state;
    fixture_open(2);
    fixture_subscribe(RUN_TOPIC, 0);
    fixture_settle();
    buffer_clear(&fixture.written);
    session_end(fixture.session, STATUS_TOKEN_REVOKED);
    assert_written("failed:token_revoked ");
    assert_int_equal(fixture.session->state, SESSION_ENDED);
    assert_true(fixture.is_lingering);
    assert_null(session_first(fixture.session));
    publisher_commit(fixture.publisher, 2);
    fixture_settle();
    assert_written("");
    fixture_close();
}

static void the_last_message_waits_behind_the_push_that_blocks(void **state) {
    (void)state;
    fixture_open(2);
    fixture_subscribe(RUN_TOPIC, 0);
    fixture.blocks = true;
    fixture_settle();
    assert_non_null(fixture.blocked);
    buffer_clear(&fixture.written);
    session_drain(fixture.session);
    assert_int_equal(fixture.session->state, SESSION_CLOSING);
    assert_int_equal(fixture.deadline, DEADLINE_LINGER);
    assert_written("");
    fixture_unblock();
    assert_written("leaving ");
    assert_int_equal(fixture.session->state, SESSION_ENDED);
    fixture_close();
}

static void a_connection_that_closes_during_a_read_frees_the_session_with_the_read(void **state) {
    (void)state;
    fixture_open(2);
    fixture_subscribe(RUN_TOPIC, 0);
    assert_int_equal(session_job(fixture.session), SESSION_JOB_OPEN);
    outlet_close(&fixture.outlet);
    assert_int_equal(fixture.session->state, SESSION_DISCONNECTED);
    while (fixture.io.hold_count > 0)
        io_loop_turn(&fixture.io, true);
    assert_null(session_first(fixture.session));
    fixture_close();
}

/* ---- openings that are read together ---- */

#define TOGETHER 100 /* more than one slice of a task */

/* Opens that many sessions in one turn, with subscribers at the head. Answers the rows that the
 * pool read for them. is_closed: the connection of every other session closes in that turn. */
static uint64_t rows_of_openings(size_t count, bool is_closed) {
    static struct session *sessions[TOGETHER];
    fixture_open(6);
    struct session *first = fixture.session;
    uint64_t rows = store_pool_rows_read(fixture.pool);
    for (size_t i = 0; i < count; i++) {
        sessions[i] = session_new(&(struct session_options){.delivery = &fixture.loop,
                                                            .outlet = &fixture.outlet,
                                                            .name = SLICE("request-2"),
                                                            .dialect = &word_dialect,
                                                            .principal = &principal_operator,
                                                            .head = SLICE("head ")});
        assert_non_null(sessions[i]);
        fixture.session = sessions[i];
        fixture_subscribe(RUN_TOPIC, 3);
        if (is_closed && i % 2 == 0) {
            session_disconnected(sessions[i]);
            session_free(sessions[i]);
            sessions[i] = NULL;
        }
    }
    fixture.session = first;
    fixture_settle();
    rows = store_pool_rows_read(fixture.pool) - rows;
    for (size_t i = 0; i < count; i++) {
        if (!sessions[i])
            continue;
        assert_int_equal(session_first(sessions[i])->state, SUBSCRIBER_LIVE);
        session_disconnected(sessions[i]);
        session_free(sessions[i]);
    }
    fixture_close();
    return rows;
}

static void sessions_that_open_in_one_turn_share_the_rows_that_they_read(void **state) {
    (void)state;
    uint64_t rows = rows_of_openings(1, false);
    assert_true(rows > 0);
    assert_int_equal(rows_of_openings(2, false), rows);
    /* Each slice of the task reads the rows again. */
    assert_in_range(rows_of_openings(TOGETHER, false), rows, 2 * rows);
}

static void sessions_that_close_while_they_open_are_freed_with_the_common_read(void **state) {
    (void)state;
    assert_true(rows_of_openings(1, true) > 0);
    assert_true(rows_of_openings(TOGETHER, true) > 0);
}

struct number_lookup {
    struct session_lookup base;
    int number; /* its result */
    bool may_copy;
};

static atomic_int lookups_run;
static size_t lookups_done;

static bool number_run(struct session_lookup *lookup, struct store_session *store) {
    (void)store;
    struct number_lookup *mine = container_of(lookup, struct number_lookup, base);
    mine->number = atomic_fetch_add(&lookups_run, 1) + 1;
    return false;
}

static bool number_copy(struct session_lookup *lookup, const struct session_lookup *from) {
    struct number_lookup *mine = container_of(lookup, struct number_lookup, base);
    mine->number = container_of(from, struct number_lookup, base)->number;
    return mine->may_copy;
}

static void number_done(struct session *session, struct session_lookup *lookup,
                        enum status status) {
    (void)session;
    (void)lookup;
    assert_ok(status);
    lookups_done++;
}

static void lookups_of_one_turn_run_once_where_they_may_be_copied(void **state) {
    (void)state;
    static const int expected[] = {1, 1, 2, 2, 3, 4};
    static struct number_lookup lookups[sizeof(expected) / sizeof(expected[0])];
    static struct session *sessions[sizeof(expected) / sizeof(expected[0])];
    size_t count = sizeof(expected) / sizeof(expected[0]);
    fixture_open(2);
    atomic_store(&lookups_run, 0);
    lookups_done = 0;
    for (size_t i = 0; i < count; i++) {
        sessions[i] = session_new(&(struct session_options){.delivery = &fixture.loop,
                                                            .outlet = &fixture.outlet,
                                                            .name = SLICE("request-2"),
                                                            .dialect = &word_dialect,
                                                            .principal = &principal_operator,
                                                            .head = SLICE("head ")});
        assert_non_null(sessions[i]);
        /* The third is refused a copy, and the last two take none. */
        lookups[i] = (struct number_lookup){
            .base = {.run = number_run, .copy = i < 4 ? number_copy : NULL, .done = number_done},
            .may_copy = i != 2};
        session_look_up(sessions[i], &lookups[i].base);
    }
    fixture_settle();
    assert_int_equal(lookups_done, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(lookups[i].number, expected[i]);
        session_disconnected(sessions[i]);
        session_free(sessions[i]);
    }
    fixture_close();
}

static void a_session_whose_peer_takes_nothing_is_evicted_by_its_strikes(void **state) {
    (void)state;
    fixture_open(2);
    fixture_subscribe(RUN_TOPIC, 0);
    fixture.blocks = true;
    fixture_settle();
    assert_true(fixture.session->strikes->deadline.at_ms != 0);
    void (*check)(struct deadline *) = fixture.io.deadlines.kinds[DEADLINE_STRIKE_CHECK].expired;
    for (int i = 0; i < 3 && session_is_open(fixture.session); i++) {
        deadline_drop(&fixture.session->strikes->deadline);
        check(&fixture.session->strikes->deadline);
    }
    assert_int_equal(fixture.session->state, SESSION_CLOSING);
    assert_int_equal(fixture.session->close_code, CLOSE_SLOW_CONSUMER);
    fixture_close();
}

static void a_reset_drops_what_the_peer_was_not_sent(void **state) {
    (void)state;
    fixture_open(2);
    fixture.has_unsent = true;
    buffer_clear(&fixture.written);
    session_reset(fixture.session, STATUS_TOKEN_REVOKED);
    assert_true(fixture.is_reset);
    assert_written("");
    fixture_close();
}

/* ---- states ---- */

struct edge {
    unsigned from;
    unsigned to;
};

static void session_edge(void *user) {
    const struct edge *edge = user;
    struct session session = {.state = (enum session_state)edge->from};
    session_set_state(&session, (enum session_state)edge->to);
}

static void subscriber_edge(void *user) {
    const struct edge *edge = user;
    struct subscriber subscriber = {.state = (uint8_t)edge->from};
    subscriber_set_state(&subscriber, (enum subscriber_state)edge->to);
}

static void subscription_edge(void *user) {
    const struct edge *edge = user;
    struct subscription subscription = {.state = (uint8_t)edge->from};
    subscription_set_state(&subscription, (enum subscription_state)edge->to);
}

/* Every edge that is not listed asserts; the state after the last is no state. */
static void check_edges(void (*act)(void *user), unsigned count, const struct edge *legal,
                        size_t legal_count) {
    for (unsigned from = 0; from < count; from++)
        for (unsigned to = 0; to <= count; to++) {
            struct edge edge = {from, to};
            bool is_legal = false;
            for (size_t i = 0; i < legal_count; i++)
                is_legal |= legal[i].from == from && legal[i].to == to;
            if (aborts(act, &edge) == is_legal)
                fail_msg("edge from %u to %u", from, to);
        }
}

static void a_session_takes_only_legal_edges(void **state) {
    (void)state;
    static const struct edge legal[] = {
        {SESSION_OPEN, SESSION_CLOSING},       {SESSION_OPEN, SESSION_DISCONNECTED},
        {SESSION_CLOSING, SESSION_ENDED},      {SESSION_CLOSING, SESSION_DISCONNECTED},
        {SESSION_ENDED, SESSION_DISCONNECTED}, {SESSION_DISCONNECTED, SESSION_RELEASED},
    };
    check_edges(session_edge, SESSION_STATE_COUNT, legal, sizeof(legal) / sizeof(legal[0]));
}

static void a_subscriber_takes_only_legal_edges(void **state) {
    (void)state;
    static const struct edge legal[] = {
        {SUBSCRIBER_NEW, SUBSCRIBER_BOOTSTRAP},    {SUBSCRIBER_NEW, SUBSCRIBER_REPLAY},
        {SUBSCRIBER_NEW, SUBSCRIBER_LEAVING},      {SUBSCRIBER_BOOTSTRAP, SUBSCRIBER_SNAPSHOT},
        {SUBSCRIBER_BOOTSTRAP, SUBSCRIBER_REPLAY}, {SUBSCRIBER_BOOTSTRAP, SUBSCRIBER_LEAVING},
        {SUBSCRIBER_SNAPSHOT, SUBSCRIBER_REPLAY},  {SUBSCRIBER_SNAPSHOT, SUBSCRIBER_LEAVING},
        {SUBSCRIBER_REPLAY, SUBSCRIBER_LIVE},      {SUBSCRIBER_REPLAY, SUBSCRIBER_BOOTSTRAP},
        {SUBSCRIBER_REPLAY, SUBSCRIBER_LEAVING},   {SUBSCRIBER_LIVE, SUBSCRIBER_BOOTSTRAP},
        {SUBSCRIBER_LIVE, SUBSCRIBER_LEAVING},     {SUBSCRIBER_LEAVING, SUBSCRIBER_LEAVING},
    };
    check_edges(subscriber_edge, SUBSCRIBER_STATE_COUNT, legal, sizeof(legal) / sizeof(legal[0]));
}

static void a_subscription_takes_only_legal_edges(void **state) {
    (void)state;
    static const struct edge legal[] = {
        {SUBSCRIPTION_UNPLACED, SUBSCRIPTION_PLACING}, {SUBSCRIPTION_UNPLACED, SUBSCRIPTION_OPEN},
        {SUBSCRIPTION_UNPLACED, SUBSCRIPTION_FAILED},  {SUBSCRIPTION_PLACING, SUBSCRIPTION_OPEN},
        {SUBSCRIPTION_PLACING, SUBSCRIPTION_STALE},    {SUBSCRIPTION_PLACING, SUBSCRIPTION_FAILED},
        {SUBSCRIPTION_OPEN, SUBSCRIPTION_READING},     {SUBSCRIPTION_OPEN, SUBSCRIPTION_OPEN},
        {SUBSCRIPTION_OPEN, SUBSCRIPTION_FAILED},      {SUBSCRIPTION_READING, SUBSCRIPTION_OPEN},
        {SUBSCRIPTION_READING, SUBSCRIPTION_STALE},    {SUBSCRIPTION_READING, SUBSCRIPTION_FAILED},
        {SUBSCRIPTION_STALE, SUBSCRIPTION_UNPLACED},   {SUBSCRIPTION_STALE, SUBSCRIPTION_FAILED},
        {SUBSCRIPTION_FAILED, SUBSCRIPTION_FAILED},
    };
    check_edges(subscription_edge, SUBSCRIPTION_STATE_COUNT, legal,
                sizeof(legal) / sizeof(legal[0]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_writes_its_head_first_and_then_frames_in_order),
        cmocka_unit_test(a_replay_goes_from_the_store_through_memory_to_the_head),
        cmocka_unit_test(a_subscriber_without_a_cursor_bootstraps),
        cmocka_unit_test(a_stale_subscriber_is_notified_and_bootstraps),
        cmocka_unit_test(a_blocked_session_sends_nothing_until_its_socket_has_room),
        cmocka_unit_test(two_subscribers_of_a_session_are_both_served),
        cmocka_unit_test(tokens_without_an_owner_have_turns_of_their_own),
        cmocka_unit_test(a_session_that_ends_sends_its_last_message_and_lingers),
        cmocka_unit_test(the_last_message_waits_behind_the_push_that_blocks),
        cmocka_unit_test(a_connection_that_closes_during_a_read_frees_the_session_with_the_read),
        cmocka_unit_test(sessions_that_open_in_one_turn_share_the_rows_that_they_read),
        cmocka_unit_test(sessions_that_close_while_they_open_are_freed_with_the_common_read),
        cmocka_unit_test(lookups_of_one_turn_run_once_where_they_may_be_copied),
        cmocka_unit_test(a_session_whose_peer_takes_nothing_is_evicted_by_its_strikes),
        cmocka_unit_test(a_reset_drops_what_the_peer_was_not_sent),
        cmocka_unit_test(a_session_takes_only_legal_edges),
        cmocka_unit_test(a_subscriber_takes_only_legal_edges),
        cmocka_unit_test(a_subscription_takes_only_legal_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
