/* Which groups a commit holds, by principal. On a real store. */
#include "authority/writer_queue.h"

#include "authority/append.h"
#include "authority/writer_fixture.h"
#include "base/log.h"

#define SLICE_ITEMS APPEND_SLICE_REQUESTS_MAX
/* Events of one turn. */
#define TURN_EVENTS (WRITER_QUANTUM / APPEND_EVENT_COST)
#define BACKLOG     8 /* slices, several turns */

/* A run of the user with the same name. */
static void new_run(struct fixture *fixture, const char *id) {
    char body[100];
    (void)snprintf(body, sizeof(body), "{\"run_id\":\"%s\",\"owner_user_id\":\"%s\"}", id, id);
    ask_ok(fixture, APPEND_RUN_CREATE, NULL, body);
}

/* A slice of a batch; order may be NULL. first: its first item, or NULL: one like the others. */
static struct asked *post_slice(struct fixture *fixture, const char *item, const char *first,
                                struct append_order *order) {
    struct asked *asked = asked_new(fixture, SLICE_ITEMS);
    for (size_t i = 0; i < SLICE_ITEMS; i++)
        assert_ok(append_read_item(&fixture->reader, parsed(i == 0 && first ? first : item),
                                   &asked->group.arena, &asked->requests[i]));
    asked->group.order = order;
    assert_ok(writer_post(fixture->writer, &asked->group));
    return asked;
}

#define EVENT_OF(run) "{\"run_id\":\"" run "\",\"event_type\":\"x\"}"

static void post_backlog(struct fixture *fixture, const char *item, struct asked *asked[BACKLOG]) {
    for (size_t i = 0; i < BACKLOG; i++)
        asked[i] = post_slice(fixture, item, NULL, NULL);
}

static struct asked *post_event(struct fixture *fixture, const char *run) {
    return post(fixture, APPEND_RUN_EVENT, run, "{\"event_type\":\"x\"}");
}

static uint64_t log_id_of(struct asked *asked) {
    const struct append_request *request = wait_for(asked);
    assert_int_equal(request->status, STATUS_OK);
    return request->event.log_id;
}

/* The log ids of a backlog rise, and the last one is returned. */
static uint64_t check_backlog(struct asked *asked[BACKLOG]) {
    uint64_t last = 0;
    for (size_t i = 0; i < BACKLOG; i++)
        for (size_t j = 0; j < SLICE_ITEMS; j++) {
            assert_int_equal(wait_for(asked[i])[j].status, STATUS_OK);
            assert_true(asked[i]->requests[j].event.log_id > last);
            last = asked[i]->requests[j].event.log_id;
        }
    return last;
}

static void check_wait_behind_two(struct fixture *fixture) {
    struct asked *a[BACKLOG], *c[BACKLOG];
    gate_shut(fixture);
    post_backlog(fixture, EVENT_OF("a"), a);
    post_backlog(fixture, EVENT_OF("c"), c);
    struct asked *b = post_event(fixture, "b");
    gate_open(fixture);
    uint64_t waited = log_id_of(b) - log_id_of(a[0]);
    assert_in_range(waited, 2 * SLICE_ITEMS, 2 * TURN_EVENTS);
    assert_true(check_backlog(a) > log_id_of(b) && check_backlog(c) > log_id_of(b));
}

static void a_single_append_waits_for_one_turn_of_each_other_owner(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "a");
    new_run(fixture, "b");
    new_run(fixture, "c");
    check_wait_behind_two(fixture);
    /* Also while the owners are not in memory. */
    fixture_restart(fixture);
    check_wait_behind_two(fixture);
}

static void a_token_waits_with_what_the_operator_writes_for_its_user(void **state) {
    struct fixture *fixture = *state;
    const struct principal user = {.identity.user_id = SLICE("a"), .scopes = SCOPE_APPEND};
    struct asked *a[BACKLOG];
    new_run(fixture, "a");
    new_run(fixture, "b");
    gate_shut(fixture);
    post_backlog(fixture, EVENT_OF("a"), a);
    fixture->reader.producer = &user;
    struct asked *own = post_event(fixture, "a");
    fixture->reader.producer = NULL;
    struct asked *b = post_event(fixture, "b");
    gate_open(fixture);
    assert_true(log_id_of(own) > check_backlog(a));
    assert_true(log_id_of(b) < log_id_of(own));
}

static void events_without_an_owner_share_one_queue(void **state) {
    struct fixture *fixture = *state;
    struct asked *t[BACKLOG];
    new_run(fixture, "b");
    gate_shut(fixture);
    post_backlog(fixture, "{\"topic\":\"t\",\"event_type\":\"x\"}", t);
    struct asked *other = post(fixture, APPEND_TOPIC_EVENT, "other", "{\"event_type\":\"x\"}");
    struct asked *b = post_event(fixture, "b");
    gate_open(fixture);
    uint64_t last = check_backlog(t);
    assert_true(log_id_of(other) > last);
    assert_true(log_id_of(b) < last);
}

static void slices_of_a_batch_with_several_owners_keep_their_order(void **state) {
    struct fixture *fixture = *state;
    struct append_order order;
    struct asked *a[BACKLOG];
    append_order_init(&order);
    new_run(fixture, "a");
    new_run(fixture, "b");
    gate_shut(fixture);
    post_backlog(fixture, EVENT_OF("a"), a);
    /* The first slice waits behind the backlog of a. The second one begins with an event of b. */
    struct asked *first = post_slice(fixture, EVENT_OF("b"), EVENT_OF("a"), &order);
    struct asked *second = post_slice(fixture, EVENT_OF("b"), NULL, &order);
    gate_open(fixture);
    assert_int_equal(wait_for(first)[1].event.seq, 2);
    assert_int_equal(wait_for(second)[0].event.seq, SLICE_ITEMS + 1);
    assert_true(first->requests[0].event.log_id > check_backlog(a));
    append_order_release(&order);
}

static void what_follows_a_refusal_in_a_later_slice_is_not_attempted(void **state) {
    struct fixture *fixture = *state;
    struct append_order order;
    struct asked *slices[BACKLOG], *c[BACKLOG];
    append_order_init(&order);
    new_run(fixture, "a");
    new_run(fixture, "b");
    new_run(fixture, "c");
    const size_t allowed = SLICE_ITEMS + 10;
    fixture->policies.rows[POLICY_RUN_EVENTS].publish_rate_per_second =
        allowed + 1; /* and run.started */
    gate_shut(fixture);
    post_backlog(fixture, EVENT_OF("c"), c);
    for (size_t i = 0; i < BACKLOG; i++)
        slices[i] = post_slice(fixture, EVENT_OF("a"), i > 2 ? EVENT_OF("b") : NULL, &order);
    gate_open(fixture);
    for (size_t i = 0; i < BACKLOG * SLICE_ITEMS; i++) {
        enum status status = wait_for(slices[i / SLICE_ITEMS])[i % SLICE_ITEMS].status;
        if (i % SLICE_ITEMS == 0 && i / SLICE_ITEMS > 2)
            assert_int_equal(status, STATUS_OK);
        else
            assert_int_equal(status, i < allowed    ? STATUS_OK
                                     : i == allowed ? STATUS_KHALA_PUBLISH_RATE_LIMITED
                                                    : STATUS_NOT_ATTEMPTED);
    }
    for (size_t i = 0; i < BACKLOG; i++)
        (void)wait_for(c[i]);
    append_order_release(&order);
}

static void slices_of_an_abandoned_batch_are_dropped(void **state) {
    struct fixture *fixture = *state;
    struct append_order order;
    struct asked *a[BACKLOG], *dropped[2];
    append_order_init(&order);
    new_run(fixture, "a");
    new_run(fixture, "b");
    gate_shut(fixture);
    post_backlog(fixture, EVENT_OF("a"), a);
    for (size_t i = 0; i < 2; i++)
        dropped[i] = post_slice(fixture, EVENT_OF("b"), NULL, &order);
    atomic_store(&order.is_abandoned, true);
    gate_open(fixture);
    (void)check_backlog(a);
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < SLICE_ITEMS; j++)
            assert_int_equal(wait_for(dropped[i])[j].status, STATUS_NOT_ATTEMPTED);
    assert_int_equal(wait_for(post_event(fixture, "b"))->event.seq, 2);
    append_order_release(&order);
}

static void a_principal_beyond_its_share_is_refused_alone(void **state) {
    struct fixture *fixture = *state;
    fixture->options.group_max = 2 * BACKLOG;
    fixture_restart(fixture);
    struct asked *a[2 * BACKLOG - 1];
    new_run(fixture, "a");
    new_run(fixture, "b");
    gate_shut(fixture);
    for (size_t i = 0; i < 2 * BACKLOG - 1; i++)
        a[i] = post_slice(fixture, EVENT_OF("a"), NULL, NULL);
    struct asked *b = post_event(fixture, "b");
    gate_open(fixture);
    assert_int_equal(wait_for(b)->status, STATUS_OK);
    for (size_t i = 0; i < 2 * BACKLOG - 1; i++)
        assert_int_equal(wait_for(a[i])->status, i < BACKLOG ? STATUS_OK : STATUS_LIMIT_REACHED);
}

/* How many commits the backlog of one owner takes. */
static uint64_t commits_of_backlog(struct fixture *fixture) {
    struct asked *a[BACKLOG];
    gate_shut(fixture);
    uint64_t before = writer_stats(fixture->writer).commits;
    post_backlog(fixture, EVENT_OF("a"), a);
    gate_open(fixture);
    (void)check_backlog(a);
    return writer_stats(fixture->writer).commits - before;
}

static void a_principal_that_is_alone_for_long_gets_large_commits(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "a");
    new_run(fixture, "b");
    new_run(fixture, "c");
    assert_int_equal(commits_of_backlog(fixture), 1);
    check_wait_behind_two(fixture);
    assert_in_range(commits_of_backlog(fixture), BACKLOG * SLICE_ITEMS / TURN_EVENTS, BACKLOG);
    fixture->clock.reading.mono_ns += WRITER_ALONE_NS;
    assert_int_equal(commits_of_backlog(fixture), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    log_configure(LOG_OFF, LOG_TEXT, STDERR_FILENO);
    const struct CMUnitTest tests[] = {
        TEST(a_single_append_waits_for_one_turn_of_each_other_owner),
        TEST(a_token_waits_with_what_the_operator_writes_for_its_user),
        TEST(events_without_an_owner_share_one_queue),
        TEST(slices_of_a_batch_with_several_owners_keep_their_order),
        TEST(what_follows_a_refusal_in_a_later_slice_is_not_attempted),
        TEST(slices_of_an_abandoned_batch_are_dropped),
        TEST(a_principal_beyond_its_share_is_refused_alone),
        TEST(a_principal_that_is_alone_for_long_gets_large_commits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
