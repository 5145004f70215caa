/* Replays of a shared topic for one owner: frames of others are covered, and not read where their
 * owner is known. */
#include <sqlite3.h>

#include "base/limits.h"
#include "base/metrics.h"
#include "delivery/subscription_fixture.h"

static const struct principal user = {.identity.user_id = {"u", 1}};

static void replay_open(struct client *client, struct publisher *publisher,
                        const struct principal *principal, uint64_t after_seq) {
    client_open(client, publisher,
                &(struct client_options){.topic = SLICE(SUMMARIES),
                                         .principal = principal,
                                         .has_cursor = true,
                                         .after_seq = after_seq});
}

/* The number of frames of r from after_seq on. */
static size_t own_count(const struct publisher *publisher, uint64_t after_seq) {
    size_t count = 0;
    for (uint64_t log_id = after_seq + 1; log_id <= publisher->log_id; log_id++)
        count += publisher->which[log_id] == 0;
    return count;
}

/* Replays to the head: every frame is the next one of r, and the ranges have no gap. Answers the
 * rows that were read. */
static uint64_t replay(struct client *client, const struct publisher *publisher,
                       uint64_t after_seq) {
    uint64_t rows = store_session_rows_read(client->session);
    uint64_t seq = after_seq;
    size_t given = 0;
    enum subscription_step step;
    while ((step = client_next(client)) == STEP_FRAMES) {
        assert_int_equal(client->batch.after_seq, seq);
        for (size_t i = 0; i < client->batch.count; i++) {
            uint64_t found = client->batch.frames[i]->content.seq;
            assert_true(found > seq && publisher->which[found] == 0);
            assert_int_equal(frame_number(client->batch.frames[i]), found);
            assert_int_equal(own_count(publisher, seq) - own_count(publisher, found), 1);
            seq = found;
        }
        given += client->batch.count;
        assert_true(client->batch.through_seq >= seq);
        seq = client->batch.through_seq;
        delivery_batch_release(&client->batch);
    }
    assert_int_equal(step, STEP_WAIT);
    assert_int_equal(seq, publisher->log_id);
    assert_int_equal(given, own_count(publisher, after_seq));
    return store_session_rows_read(client->session) - rows;
}

static void learn_all(struct fixture *fixture) {
    struct client reader = {0};
    size_t given;
    replay_open(&reader, fixture->publisher, &operator_all, 0);
    assert_int_equal(drain(&reader, &given), fixture->publisher->log_id);
    client_close(&reader);
}

static void fixture_open_mixed(struct fixture *fixture, uint64_t seed, size_t count) {
    fixture_open(fixture, 2);
    fixture->publisher->seed = seed;
    for (size_t left = count - 2; left > 0;) {
        size_t now = left < PUBLISHER_BATCH_MAX ? left : PUBLISHER_BATCH_MAX;
        publisher_commit(fixture->publisher, now);
        left -= now;
    }
}

static void a_second_replay_reads_the_frames_of_its_owner(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open_mixed(&fixture, 5, 2000);
    learn_all(&fixture);
    replay_open(&fixture.client, fixture.publisher, &user, 0);
    size_t own = own_count(fixture.publisher, 0);
    uint64_t rows = replay(&fixture.client, fixture.publisher, 0);
    /* Each read also reads the topic, the state and an entity. About 250 frames are its own. */
    assert_true(own > 150 && own < 350);
    assert_true(rows < 4 * own && rows < 1000);
    fixture_close(&fixture);
}

/* Frames that were made of rows, with their payloads. */
static uint64_t frames_read(void) {
    return metrics_get_all(METRIC_SYNC_REPLAY_FRAMES);
}

static void the_first_replay_reads_no_frame_of_others(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open_mixed(&fixture, 5, 4000);
    replay_open(&fixture.client, fixture.publisher, &user, 0);
    size_t own = own_count(fixture.publisher, 0);
    uint64_t before = frames_read();
    uint64_t rows = replay(&fixture.client, fixture.publisher, 0);
    /* Frames behind the last whole slice may be read without a look at their owners. */
    assert_true(frames_read() - before < own + 200);
    assert_true(rows >= 3900 && rows < 4000 + 8 * own);
    fixture_close(&fixture);
}

/* A slice of the read looks at a bounded number of rows, so that other principals have a turn. */
static void owners_are_learned_in_slices(void **state) {
    (void)state;
    const struct principal stranger = {.identity.user_id = SLICE("x")};
    struct fixture fixture;
    fixture_open_mixed(&fixture, 6, 4000);
    replay_open(&fixture.client, fixture.publisher, &stranger, 0);
    enum subscription_step step;
    uint64_t rows = store_session_rows_read(fixture.client.session);
    for (size_t steps = 0; (step = client_next(&fixture.client)) == STEP_FRAMES; steps++) {
        assert_true(store_session_rows_read(fixture.client.session) - rows < 2 * STORE_TASK_ROWS);
        rows = store_session_rows_read(fixture.client.session);
        delivery_batch_release(&fixture.client.batch);
        assert_true(steps < 10);
    }
    assert_int_equal(step, STEP_WAIT);
    fixture_close(&fixture);
}

static void lose_row(const struct publisher *publisher, uint64_t seq) {
    char path[128], text[128];
    sqlite3 *database;
    snprintf(path, sizeof(path), "%s/khala.db", publisher->folder);
    snprintf(text, sizeof(text), "DELETE FROM journal WHERE topic_ref = %llu AND seq = %llu",
             (unsigned long long)publisher->summaries_ref, (unsigned long long)seq);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(database);
}

static void a_hole_in_the_rows_is_found_though_owners_are_learned(void **state) {
    (void)state;
    const struct principal stranger = {.identity.user_id = SLICE("x")};
    struct fixture fixture;
    fixture_open_mixed(&fixture, 8, 1000);
    lose_row(fixture.publisher, 500);
    replay_open(&fixture.client, fixture.publisher, &stranger, 0);
    enum subscription_step step;
    while ((step = client_next(&fixture.client)) == STEP_FRAMES)
        delivery_batch_release(&fixture.client.batch);
    assert_int_equal(step, STEP_FAILED);
    fixture_close(&fixture);
}

static void an_owner_without_frames_reaches_the_head_at_once(void **state) {
    (void)state;
    const struct principal stranger = {.identity.user_id = SLICE("x")};
    struct fixture fixture;
    fixture_open_mixed(&fixture, 6, 2000);
    learn_all(&fixture);
    replay_open(&fixture.client, fixture.publisher, &stranger, 0);
    size_t given;
    uint64_t rows = store_session_rows_read(fixture.client.session);
    assert_int_equal(drain(&fixture.client, &given), 2000);
    assert_int_equal(given, 0);
    assert_true(store_session_rows_read(fixture.client.session) - rows < 100);
    fixture_close(&fixture);
}

/* Parts of the topic are known, and events are committed between the steps. */
static void the_frames_are_the_same_whatever_is_known(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fixture fixture;
        uint64_t chance = seed;
        fixture_open_mixed(&fixture, seed, 300 + test_random(&chance) % 500);
        for (int i = 0; i < 3; i++) {
            struct client reader = {0};
            uint64_t after = test_random(&chance) % fixture.publisher->log_id;
            replay_open(&reader, fixture.publisher, &operator_all, after);
            for (uint64_t steps = test_random(&chance) % 12; steps > 0; steps--)
                if (client_next(&reader) == STEP_FRAMES)
                    delivery_batch_release(&reader.batch);
            client_close(&reader);
        }
        uint64_t after = test_random(&chance) % fixture.publisher->log_id;
        replay_open(&fixture.client, fixture.publisher, &user, after);
        replay(&fixture.client, fixture.publisher, after);
        publisher_commit(fixture.publisher, 40);
        replay(&fixture.client, fixture.publisher, fixture.publisher->log_id - 40);
        fixture_close(&fixture);
    }
}

static void a_prune_under_a_replay_is_reported(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open_mixed(&fixture, 7, 2000);
    learn_all(&fixture);
    replay_open(&fixture.client, fixture.publisher, &user, 0);
    assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
    uint64_t through = fixture.client.batch.through_seq;
    delivery_batch_release(&fixture.client.batch);
    publisher_prune(fixture.publisher, fixture.publisher->summaries_ref, 1900);
    hub_prune(fixture.hub, SLICE(SUMMARIES), 1900);
    enum subscription_step step;
    while ((step = client_next(&fixture.client)) == STEP_FRAMES) {
        through = fixture.client.batch.through_seq;
        delivery_batch_release(&fixture.client.batch);
    }
    assert_int_equal(step, STEP_STALE);
    assert_int_equal(subscription_continuity(&fixture.client.subscription)->after_seq, through);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_replay_reads_the_frames_of_its_owner),
        cmocka_unit_test(the_first_replay_reads_no_frame_of_others),
        cmocka_unit_test(owners_are_learned_in_slices),
        cmocka_unit_test(a_hole_in_the_rows_is_found_though_owners_are_learned),
        cmocka_unit_test(an_owner_without_frames_reaches_the_head_at_once),
        cmocka_unit_test(the_frames_are_the_same_whatever_is_known),
        cmocka_unit_test(a_prune_under_a_replay_is_reported),
    };
    return cmocka_run_group_tests_name("replay for one owner", tests, NULL, NULL);
}
