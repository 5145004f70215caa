/* Feeds of a shared topic over a real store and hub: which members a commit wakes, how far a member
 * may move without frames, and both under a writer on another thread, by seed. */
#include "delivery/subscription.h"

#include <pthread.h>
#include <stdatomic.h>

#include "delivery/feed_world.h"

#define BYTES_MAX 4096
#define READERS   8

static const struct principal user = {.identity.user_id = SLICE("u")};
static const struct principal guest = {
    .identity = {.guest_scope = SLICE("g"), .org_id = SLICE("o")}};
static const struct principal stranger = {.identity.user_id = SLICE("x")};

/* A client of the summaries that takes its frames when the feed wakes it. */
struct client {
    struct subscription subscription;
    const struct principal *principal;
    bool is_open;
    bool is_woken;
    bool wants_more;
    bool is_eager; /* it also looks for frames when it was not woken */
    size_t wakes;
    uint64_t received_seq; /* the last frame that it was sent */
    uint64_t sent_seq;     /* the position that it was sent */
    uint64_t checked_seq;  /* up to here it has every frame of its own */
};

struct fixture {
    struct feed_world world;
    struct client clients[READERS];
};

static struct fixture fixture;

/* ---- the fixture ---- */

static void fixture_open(size_t window_frames, uint64_t seed) {
    memset(&fixture, 0, sizeof(fixture));
    feed_world_open(&fixture.world, window_frames);
    fixture.world.policies.rows[policy_row_of(SLICE(SUMMARIES))].replay_budget_events = 1000000;
    fixture.world.publisher->seed = seed;
}

static void client_close(struct client *client) {
    if (client->is_open)
        subscription_close(&client->subscription);
    client->is_open = false;
}

static void fixture_close(void) {
    for (size_t i = 0; i < READERS; i++)
        client_close(&fixture.clients[i]);
    feed_world_close(&fixture.world);
}

static void commit(size_t count) {
    feed_world_commit(&fixture.world, count);
}

/* ---- clients ---- */

static struct client *client_of(struct subscription *subscription) {
    return container_of(subscription, struct client, subscription);
}

static bool owns(const struct client *client, uint64_t seq) {
    size_t which = fixture.world.publisher->which[seq];
    const struct owner *owner = &fixture.world.publisher->runs[which].owner;
    return grant_may_read(client->principal, GRANT_VIEW_OWN, owner);
}

/* Everything of its own up to the position was sent. */
static void check(struct client *client, uint64_t through_seq) {
    for (; client->checked_seq < through_seq; client->checked_seq++)
        if (owns(client, client->checked_seq + 1))
            assert_true(client->checked_seq + 1 <= client->received_seq);
}

static void on_frames(struct subscription *subscription, struct delivery_batch *batch) {
    struct client *client = client_of(subscription);
    assert_int_equal(batch->after_seq, client->sent_seq);
    for (size_t i = 0; i < batch->count; i++) {
        uint64_t seq = batch->frames[i]->content.seq;
        assert_true(owns(client, seq) && seq > client->received_seq);
        check(client, seq - 1);
        client->received_seq = seq;
    }
    if (batch->count > 0) {
        client->sent_seq = batch->through_seq;
        subscription_sent(subscription, batch->through_seq);
        check(client, batch->through_seq);
    }
    delivery_batch_release(batch);
    client->wants_more = subscription_lag(subscription) > 0;
}

static void on_head(struct subscription *subscription) {
    client_of(subscription)->wants_more = false;
}

static void on_read(struct subscription *subscription) {
    subscription_read_run(subscription, fixture.world.session);
    subscription_read_done(subscription, STATUS_OK);
    client_of(subscription)->wants_more = true;
}

static void on_failed(struct subscription *subscription) {
    fail_msg("%s", status_code(subscription->status));
}

static const struct subscription_sink sink = {.frames = on_frames,
                                              .at_head = on_head,
                                              .read = on_read,
                                              .stale = on_failed,
                                              .failed = on_failed};

static void woken(struct feed_member *member) {
    struct client *client = container_of(member, struct client, subscription.member);
    client->is_woken = true;
    client->wakes++;
}

static void client_open(struct client *client, const struct principal *principal,
                        uint64_t after_seq) {
    const struct subscription_options options = {
        .principal = principal, .view = GRANT_VIEW_OWN, .has_cursor = true, .after_seq = after_seq};
    const struct subscription_rules rules = {.policies = &fixture.world.policies};
    client->subscription = (struct subscription){.member.advanced = woken};
    client->principal = principal;
    client->is_open = client->is_woken = true; /* a new subscriber has a turn */
    client->sent_seq = client->checked_seq = after_seq;
    assert_ok(subscription_open(&client->subscription, &fixture.world.feeds, SLICE(SUMMARIES),
                                &rules, &options));
}

static void client_step(struct client *client) {
    client->is_woken = false;
    subscription_serve(&client->subscription, 16, BYTES_MAX, &sink);
    client->is_woken |= client->wants_more;
}

static void client_serve(struct client *client) {
    while (client->is_woken)
        client_step(client);
}

/* What a heartbeat does. Returns the position. */
static uint64_t client_cover(struct client *client) {
    struct subscription *subscription = &client->subscription;
    subscription_skip_hidden(&client->subscription);
    if (subscription_is_reading(subscription))
        return client->sent_seq;
    uint64_t through_seq = subscription->next_seq - 1;
    assert_true(through_seq >= client->sent_seq);
    check(client, through_seq);
    subscription_sent(subscription, through_seq);
    client->sent_seq = through_seq;
    return through_seq;
}

/* ---- tests ---- */

static void a_frame_wakes_the_members_of_its_owner_and_those_that_read_everything(void **state) {
    (void)state;
    struct client *clients = fixture.clients;
    fixture_open(32, 0);
    commit(2);
    client_open(&clients[0], &user, 2);
    client_open(&clients[1], &guest, 2);
    client_open(&clients[2], &stranger, 2);
    client_open(&clients[3], &principal_operator, 2);
    for (size_t i = 0; i < 4; i++)
        client_serve(&clients[i]);
    commit(1); /* of the user */
    assert_true(clients[0].is_woken && clients[3].is_woken);
    assert_false(clients[1].is_woken || clients[2].is_woken);
    commit(1); /* of the guest */
    assert_true(clients[1].is_woken);
    assert_false(clients[2].is_woken);
    for (size_t i = 0; i < 4; i++)
        client_serve(&clients[i]);
    assert_int_equal(clients[0].received_seq, 3);
    assert_int_equal(clients[1].received_seq, 4);
    assert_int_equal(clients[3].received_seq, 4);
    assert_int_equal(clients[2].wakes, 0);
    fixture_close();
}

static void
a_member_that_was_not_woken_moves_to_the_last_frame_that_the_feed_handled(void **state) {
    (void)state;
    struct client *client = &fixture.clients[0];
    fixture_open(8, 0);
    commit(2);
    client_open(client, &stranger, 2);
    client_serve(client);
    commit(5);
    assert_int_equal(client_cover(client), 7);
    /* Committed and not handled yet. */
    publisher_commit(fixture.world.publisher, 5);
    assert_int_equal(client_cover(client), 7);
    feed_world_handle_wakes(&fixture.world);
    assert_int_equal(client_cover(client), 12);
    commit(40);
    assert_int_equal(client->wakes, 1); /* the window lost frames before they were seen */
    client_serve(client);
    assert_int_equal(client_cover(client), 52);
    fixture_close();
}

static void a_woken_member_skips_what_lies_before_its_frame_without_reading(void **state) {
    (void)state;
    struct client *client = &fixture.clients[0];
    fixture_open(8, 0);
    commit(2);
    client_open(client, &user, 2);
    client_serve(client);
    uint64_t rows = store_session_rows_read(fixture.world.session);
    fixture.world.publisher->seed = UINT64_MAX; /* all frames are the guest's */
    for (int i = 0; i < 20; i++)
        commit(4);
    assert_int_equal(client->wakes, 0);
    assert_int_equal(subscription_own_lag(&client->subscription), 0);
    fixture.world.publisher->seed = 0;
    commit(1);
    assert_true(client->is_woken);
    assert_int_equal(subscription_own_lag(&client->subscription), 1);
    assert_int_equal(client_cover(client), 82);
    client_serve(client);
    assert_int_equal(subscription_own_lag(&client->subscription), 0);
    assert_int_equal(client->received_seq, 83);
    assert_int_equal(client->sent_seq, 83);
    assert_int_equal(store_session_rows_read(fixture.world.session), rows);
    fixture_close();
}

static atomic_bool is_over;

static void *publish(void *unused) {
    uint64_t seed = 7;
    (void)unused;
    for (int i = 0; i < 250; i++)
        publisher_commit(fixture.world.publisher, 1 + test_random(&seed) % 6);
    atomic_store(&is_over, true);
    return NULL;
}

static void random_act(uint64_t *seed) {
    struct client *client = &fixture.clients[test_random(seed) % READERS];
    switch (test_random(seed) % 16) {
    case 0:
        client_close(client);
        client_open(client, client->principal, client->sent_seq);
        return;
    case 1:
    case 2:
    case 3:
        if (!subscription_is_reading(&client->subscription))
            client_cover(client);
        return;
    case 4:
    case 5:
    case 6:
        feed_world_handle_wakes(&fixture.world);
        return;
    default:
        if (client->is_woken || client->is_eager)
            client_step(client);
        return;
    }
}

/* While a writer commits, clients are woken, served late, covered, closed and resumed at random. No
 * position passes a frame of the client's own that it was not sent, and no wake-up is lost. */
static void no_covered_position_passes_a_frame_that_was_not_sent(void **state) {
    static const struct principal *const principals[] = {&user, &guest, &stranger,
                                                         &principal_operator};
    const char *given = getenv("KHALA_SEAM_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : clock_now().wall_ms;
    pthread_t writer;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    fixture_open(1 + seed % 40, 1 + seed % 1000000);
    atomic_store(&is_over, false);
    for (size_t i = 0; i < READERS; i++) {
        client_open(&fixture.clients[i], principals[i % 4], 0);
        fixture.clients[i].is_eager = i >= 4 && seed % 2 == 0;
    }
    assert_int_equal(pthread_create(&writer, NULL, publish, NULL), 0);
    while (!atomic_load(&is_over))
        random_act(&seed);
    pthread_join(writer, NULL);
    feed_world_handle_wakes(&fixture.world);
    for (size_t i = 0; i < READERS; i++) {
        client_serve(&fixture.clients[i]);
        assert_int_equal(client_cover(&fixture.clients[i]), fixture.world.publisher->log_id);
    }
    fixture_close();
}

/* ---- pages ---- */

static void add_page(struct feed *feed, uint64_t after_seq, uint64_t head_seq) {
    struct delivery_batch batch = {.after_seq = after_seq, .through_seq = after_seq + 1};
    const struct frame_content content = {.seq = after_seq + 1, .payload = SLICE("{}")};
    struct page *page;
    assert_ok(frame_make(NULL, &content, &(struct frame_text){0}, &batch.frames[batch.count++]));
    assert_ok(page_make(&page, SLICE(SUMMARIES), head_seq, &batch));
    feed_page_add(feed, page);
}

static const struct page_key plain = {PAGE_READER_PLAIN, NULL};
static const struct page_key folding = {PAGE_READER_FOLDING, NULL};

static void a_feed_keeps_the_pages_that_were_used_last(void **state) {
    (void)state;
    fixture_open(64, 1);
    client_open(&fixture.clients[0], &user, 2);
    struct feed *feed = fixture.clients[0].subscription.member.feed;
    for (uint64_t seq = 0; seq < FEED_PAGES_MAX; seq++)
        add_page(feed, seq, 100);
    assert_int_equal(feed_page(feed, 0, &plain)->batch.after_seq, 0);
    add_page(feed, 50, 100);
    assert_non_null(feed_page(feed, 0, &plain));
    assert_null(feed_page(feed, 1, &plain));
    assert_non_null(feed_page(feed, 50, &plain));
    assert_null(feed_page(feed, 51, &plain));
    assert_false(feed_page_is_idle(feed_page(feed, 50, &plain)));
    feeds_pages_idle(&fixture.world.feeds);
    assert_true(feed_page_is_idle(feed_page(feed, 50, &plain)));
    add_page(feed, 50, 100);
    assert_false(feed_page_is_idle(feed_page(feed, 50, &plain)));
    fixture_close();
}

/* Two frames behind the position, for readers of one kind only. */
static void add_page_for(struct feed *feed, uint64_t after_seq, bool is_folding) {
    struct delivery_batch batch = {
        .after_seq = after_seq, .through_seq = after_seq + 2, .is_folded = is_folding};
    struct page *page;
    for (uint64_t seq = after_seq + 1; seq <= after_seq + (is_folding ? 1 : 2); seq++) {
        const struct frame_content content = {.seq = seq, .payload = SLICE("{}")};
        assert_ok(
            frame_make(NULL, &content, &(struct frame_text){0}, &batch.frames[batch.count++]));
    }
    if (is_folding)
        batch.frames[0]->content.seq++;
    assert_ok(page_make(&page, SLICE(SUMMARIES), 100, &batch));
    feed_page_add(feed, page);
}

static void readers_that_fold_have_pages_of_their_own(void **state) {
    (void)state;
    fixture_open(64, 1);
    client_open(&fixture.clients[0], &user, 2);
    struct feed *feed = fixture.clients[0].subscription.member.feed;
    add_page_for(feed, 7, false);
    assert_null(feed_page(feed, 7, &folding));
    add_page_for(feed, 7, true);
    assert_int_equal(feed_page(feed, 7, &plain)->batch.count, 2);
    assert_int_equal(feed_page(feed, 7, &folding)->batch.count, 1);
    /* One that suits both replaces both. */
    add_page(feed, 7, 100);
    const struct page *page = feed_page(feed, 7, &plain);
    assert_ptr_equal(page, feed_page(feed, 7, &folding));
    assert_int_equal(page->batch.through_seq, 8);
    fixture_close();
}

static void a_page_that_ends_at_the_head_goes_when_the_topic_advances(void **state) {
    (void)state;
    fixture_open(64, 1);
    client_open(&fixture.clients[0], &user, 2);
    struct feed *feed = fixture.clients[0].subscription.member.feed;
    add_page(feed, 3, 100);
    add_page(feed, 99, 100);
    commit(1);
    assert_non_null(feed_page(feed, 3, &plain));
    assert_null(feed_page(feed, 99, &plain));
    fixture_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_wakes_the_members_of_its_owner_and_those_that_read_everything),
        cmocka_unit_test(a_member_that_was_not_woken_moves_to_the_last_frame_that_the_feed_handled),
        cmocka_unit_test(a_woken_member_skips_what_lies_before_its_frame_without_reading),
        cmocka_unit_test(no_covered_position_passes_a_frame_that_was_not_sent),
        cmocka_unit_test(a_feed_keeps_the_pages_that_were_used_last),
        cmocka_unit_test(readers_that_fold_have_pages_of_their_own),
        cmocka_unit_test(a_page_that_ends_at_the_head_goes_when_the_topic_advances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
