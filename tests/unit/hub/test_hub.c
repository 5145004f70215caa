/* The hub: windows and their limits, watches, announcements, concurrency. */
#include "hub/hub.h"

#include <pthread.h>

#include "authority/event_write.h"
#include "delivery/publisher.h"
#include "hub/frame.h"
#include "topic/topic_name.h"

static const struct hub_options roomy = {{1024, 1u << 20}, 64u << 20};

struct ear {
    struct hub_listener listener;
    atomic_int wakes;
};

static void ear_wake(void *user) {
    struct ear *ear = user;
    atomic_fetch_add(&ear->wakes, 1);
}

struct bench {
    struct hub *hub;
    struct publisher *publisher;
    struct ear ear;
};

static void bench_open(struct bench *bench, const struct hub_options *options) {
    *bench = (struct bench){0};
    assert_ok(hub_open(&bench->hub, options));
    bench->publisher = publisher_open(bench->hub);
    hub_listen(bench->hub, &bench->ear.listener, ear_wake, &bench->ear);
}

static void bench_close(struct bench *bench) {
    hub_unlisten(&bench->ear.listener);
    publisher_close(bench->publisher);
    hub_close(bench->hub);
}

static enum hub_take_result take(struct hub_watch *watch, uint64_t next_seq, size_t count_max,
                                 size_t bytes_max, size_t *count) {
    struct frame *frames[64];
    struct hub_take taken = {
        .next_seq = next_seq, .count_max = count_max, .bytes_max = bytes_max, .frames = frames};
    enum hub_take_result place = hub_take(watch, &taken);
    for (size_t i = 0; i < taken.count; i++) {
        assert_int_equal(frames[i]->content.seq, next_seq + i);
        assert_int_equal(frame_number(frames[i]), next_seq + i);
        frame_unref(frames[i]);
    }
    *count = taken.count;
    return place;
}

static void pruned_frames_leave_the_window_and_their_memory(void **state) {
    (void)state;
    struct bench bench;
    struct hub_watch watch;
    size_t count;
    bench_open(&bench, &roomy);
    hub_prune(bench.hub, SLICE(RUN_TOPIC), 5);
    assert_ok(hub_watch(&bench.ear.listener, SLICE(RUN_TOPIC), &watch));
    size_t bytes = hub_stats(bench.hub).bytes;
    publisher_commit(bench.publisher, 20); /* ten events of this run */
    hub_prune(bench.hub, SLICE(OTHER_TOPIC), 8);
    assert_int_equal(take(&watch, 1, 16, 4096, &count), HUB_FRAMES);
    assert_int_equal(count, 10);
    hub_prune(bench.hub, SLICE(RUN_TOPIC), 1);
    assert_int_equal(hub_first_seq(&watch), 1);
    hub_prune(bench.hub, SLICE(RUN_TOPIC), 8);
    assert_int_equal(hub_first_seq(&watch), 8);
    assert_int_equal(take(&watch, 7, 16, 4096, &count), HUB_BELOW);
    assert_int_equal(take(&watch, 8, 16, 4096, &count), HUB_FRAMES);
    assert_int_equal(count, 3);
    hub_prune(bench.hub, SLICE(RUN_TOPIC), 11);
    assert_int_equal(hub_stats(bench.hub).bytes, bytes);
    assert_int_equal(take(&watch, 10, 16, 4096, &count), HUB_BELOW);
    assert_int_equal(take(&watch, 11, 16, 4096, &count), HUB_AT_HEAD);
    publisher_commit(bench.publisher, 2);
    assert_int_equal(take(&watch, 11, 16, 4096, &count), HUB_FRAMES);
    assert_int_equal(count, 1);
    hub_unwatch(&watch);
    hub_prune(bench.hub, SLICE(RUN_TOPIC), 12); /* unwatched and empty: the topic is freed */
    assert_int_equal(hub_stats(bench.hub).topics, 0);
    bench_close(&bench);
}

/* As the writer tells of a journal whose rows are only in the store. */
static void publish_head(struct hub *hub, uint64_t head_seq, uint64_t journal_epoch) {
    const struct store_topic topic = {
        .ref = 1, .name = SLICE(SUMMARIES), .head_seq = head_seq, .journal_epoch = journal_epoch};
    hub_publish(hub, &(struct store_batch){.topics = &topic, .topic_count = 1}, NULL);
}

static void frames_read_before_the_journal_was_made_again_are_not_kept(void **state) {
    (void)state;
    struct bench bench;
    struct hub_watch watch;
    struct frame *frames[2];
    replay_place place = 0;
    bench_open(&bench, &roomy);
    assert_ok(hub_watch(&bench.ear.listener, SLICE(SUMMARIES), &watch));
    publisher_commit(bench.publisher, 2);
    struct hub_take taken = {
        .next_seq = 1, .count_max = 2, .bytes_max = 4096, .frames = frames, .place = &place};
    assert_int_equal(hub_take(&watch, &taken), HUB_FRAMES);
    assert_int_equal(taken.count, 2);
    const struct replay_page page = {frames, 2};
    publish_head(bench.hub, 3, 0); /* the epoch is known from here on */
    uint64_t edition = hub_edition(&watch);
    /* Another node wrote a frame: what was read of the others is still true. */
    publish_head(bench.hub, 4, 0);
    assert_int_equal(hub_edition(&watch), edition);
    assert_true(hub_refill(&watch, &page, edition, &place));
    publish_head(bench.hub, 4, 1);
    assert_int_not_equal(hub_edition(&watch), edition);
    assert_false(hub_refill(&watch, &page, edition, &place));
    frame_unref(frames[0]);
    frame_unref(frames[1]);
    hub_replay_end(&watch, &place);
    hub_unwatch(&watch);
    bench_close(&bench);
}

static void an_unwatched_topic_costs_nothing(void **state) {
    (void)state;
    struct bench bench;
    bench_open(&bench, &roomy);
    publisher_commit(bench.publisher, 10);
    assert_int_equal(hub_stats(bench.hub).topics, 0);
    assert_int_equal(hub_stats(bench.hub).bytes, 0);
    assert_int_equal(bench.ear.wakes, 0);
    bench_close(&bench);
}

static void a_watched_topic_gets_its_frames_and_one_announcement(void **state) {
    (void)state;
    struct bench bench;
    struct hub_watch run;
    struct hub_watch summaries;
    size_t count;
    bench_open(&bench, &roomy);
    publisher_commit(bench.publisher, 4); /* before the first watch */
    assert_ok(hub_watch(&bench.ear.listener, SLICE(RUN_TOPIC), &run));
    assert_ok(hub_watch(&bench.ear.listener, SLICE(SUMMARIES), &summaries));
    assert_int_equal(take(&run, 1, 16, 4096, &count), HUB_AT_HEAD);
    hub_learn_head(&run, 2);
    assert_int_equal(take(&run, 1, 16, 4096, &count), HUB_BELOW);
    assert_int_equal(take(&run, 3, 16, 4096, &count), HUB_AT_HEAD);
    publisher_commit(bench.publisher, 6);
    publisher_commit(bench.publisher, 6);
    /* Two commits before the listener begins: one wake, and each topic once. */
    assert_int_equal(bench.ear.wakes, 1);
    assert_int_equal(hub_listener_begin(&bench.ear.listener), 2);
    struct hub_watch *first = hub_listener_next(&bench.ear.listener);
    struct hub_watch *second = hub_listener_next(&bench.ear.listener);
    assert_true((first == &run && second == &summaries) || (first == &summaries && second == &run));
    assert_null(hub_listener_next(&bench.ear.listener));
    assert_int_equal(take(&run, 3, 16, 4096, &count), HUB_FRAMES);
    assert_int_equal(count, 6);
    assert_int_equal(take(&run, 2, 16, 4096, &count), HUB_BELOW);
    assert_int_equal(take(&summaries, 5, 16, 4096, &count), HUB_FRAMES);
    assert_int_equal(count, 12);
    publisher_commit(bench.publisher, 1);
    assert_int_equal(bench.ear.wakes, 2);
    hub_unwatch(&run);
    hub_unwatch(&summaries);
    bench_close(&bench);
}

static void a_watched_log_gets_each_whole_event(void **state) {
    (void)state;
    struct bench bench;
    struct hub_watch watch;
    struct frame *frames[16];
    struct arena arena;
    struct buffer json;
    assert_int_equal(topic_name_check(SLICE(LOG_TOPIC)), STATUS_INVALID_TOPIC);
    bench_open(&bench, &roomy);
    publisher_commit(bench.publisher, 4);
    assert_int_equal(hub_stats(bench.hub).topics, 0);
    assert_ok(hub_watch(&bench.ear.listener, SLICE(LOG_TOPIC), &watch));
    publisher_commit(bench.publisher, 5);
    assert_int_equal(hub_listener_begin(&bench.ear.listener), 1);
    assert_ptr_equal(hub_listener_next(&bench.ear.listener), &watch);
    struct hub_take got = {.next_seq = 5, .count_max = 16, .bytes_max = 65536, .frames = frames};
    assert_int_equal(hub_take(&watch, &got), HUB_FRAMES);
    assert_int_equal(got.count, 5);
    assert_int_equal(got.head_seq, 9);
    arena_init(&arena, 65536);
    buffer_init(&json, 65536);
    for (size_t i = 0; i < got.count; i++) {
        const struct frame_content *content = &frames[i]->content;
        struct store_event event;
        assert_ok(store_load_event(bench.publisher->session, 5 + i, &arena, &event));
        buffer_clear(&json);
        assert_ok(event_write_json(&json, &event));
        assert_true(slice_equal(content->payload, buffer_slice(&json)));
        assert_int_equal(content->seq, 5 + i);
        assert_slice(content->kind, "run.log");
        assert_int_equal(uuid_compare(&content->cursor, &event.cursor), 0);
        assert_slice(i % 2 == 0 ? content->owner.user_id : content->owner.guest_scope,
                     i % 2 == 0 ? "u" : "g");
        frame_unref(frames[i]);
    }
    buffer_release(&json);
    arena_release(&arena);
    hub_unwatch(&watch);
    bench_close(&bench);
}

static void a_take_is_bounded_but_returns_at_least_one_frame(void **state) {
    (void)state;
    struct bench bench;
    struct hub_watch watch;
    size_t count;
    bench_open(&bench, &roomy);
    assert_ok(hub_watch(&bench.ear.listener, SLICE(SUMMARIES), &watch));
    publisher_commit(bench.publisher, 9);
    assert_int_equal(take(&watch, 1, 3, 4096, &count), HUB_FRAMES);
    assert_int_equal(count, 3);
    assert_int_equal(take(&watch, 1, 9, 1, &count), HUB_FRAMES);
    assert_int_equal(count, 1);
    assert_int_equal(take(&watch, 1, 9, 2 * strlen("{\"n\":1}"), &count), HUB_FRAMES);
    assert_int_equal(count, 2);
    hub_unwatch(&watch);
    bench_close(&bench);
}

static void a_window_keeps_the_newest_frames(void **state) {
    (void)state;
    struct bench bench;
    struct hub_watch watch;
    size_t count;
    const struct hub_options small = {{10, 1u << 20}, 64u << 20};
    bench_open(&bench, &small);
    assert_ok(hub_watch(&bench.ear.listener, SLICE(SUMMARIES), &watch));
    publisher_commit(bench.publisher, 25);
    assert_int_equal(hub_first_seq(&watch), 16);
    assert_int_equal(take(&watch, 15, 64, 4096, &count), HUB_BELOW);
    assert_int_equal(take(&watch, 16, 64, 4096, &count), HUB_FRAMES);
    assert_int_equal(count, 10);
    hub_unwatch(&watch);
    bench_close(&bench);
}

static void memory_stays_within_its_budget_and_watched_topics_stay_correct(void **state) {
    (void)state;
    struct bench bench;
    struct hub_watch watches[3];
    const char *const names[] = {RUN_TOPIC, OTHER_TOPIC, SUMMARIES};
    size_t count;
    const struct hub_options tight = {{1024, 1u << 20}, HUB_SHARDS * 16384};
    bench_open(&bench, &tight);
    for (size_t i = 0; i < 3; i++)
        assert_ok(hub_watch(&bench.ear.listener, slice_of(names[i]), &watches[i]));
    for (size_t i = 0; i < 50; i++) {
        publisher_commit(bench.publisher, 20);
        assert_true(hub_stats(bench.hub).bytes <= tight.bytes_max);
    }
    assert_int_equal(take(&watches[2], 1000, 64, 4096, &count), HUB_FRAMES);
    assert_int_equal(take(&watches[2], 1001, 64, 4096, &count), HUB_AT_HEAD);
    assert_int_equal(take(&watches[2], 1, 64, 4096, &count), HUB_BELOW);
    for (size_t i = 0; i < 3; i++)
        hub_unwatch(&watches[i]);
    bench_close(&bench);
}

static void an_unwatched_topic_is_freed_after_a_window_of_frames(void **state) {
    (void)state;
    struct bench bench;
    struct hub_watch watch;
    size_t count;
    const struct hub_options small = {{10, 1u << 20}, 64u << 20};
    bench_open(&bench, &small);
    assert_ok(hub_watch(&bench.ear.listener, SLICE(SUMMARIES), &watch));
    publisher_commit(bench.publisher, 1);
    hub_unwatch(&watch);
    assert_int_equal(hub_stats(bench.hub).topics, 1);
    publisher_commit(bench.publisher, 5);
    assert_ok(hub_watch(&bench.ear.listener, SLICE(SUMMARIES), &watch));
    assert_int_equal(take(&watch, 1, 64, 4096, &count), HUB_FRAMES);
    assert_int_equal(count, 6);
    hub_unwatch(&watch);
    publisher_commit(bench.publisher, 11);
    assert_int_equal(hub_stats(bench.hub).topics, 0);
    assert_int_equal(hub_stats(bench.hub).bytes, 0);
    bench_close(&bench);
}

static void a_removed_watch_is_not_announced(void **state) {
    (void)state;
    struct bench bench;
    struct hub_watch one;
    struct hub_watch two;
    bench_open(&bench, &roomy);
    assert_ok(hub_watch(&bench.ear.listener, SLICE(SUMMARIES), &one));
    assert_ok(hub_watch(&bench.ear.listener, SLICE(RUN_TOPIC), &two));
    publisher_commit(bench.publisher, 2);
    assert_int_equal(hub_listener_begin(&bench.ear.listener), 2);
    hub_unwatch(&one);
    assert_ptr_equal(hub_listener_next(&bench.ear.listener), &two);
    assert_null(hub_listener_next(&bench.ear.listener));
    hub_unwatch(&two);
    bench_close(&bench);
}

/* ---- frames ---- */

static void the_forms_of_a_frame_are_parts_of_one_text(void **state) {
    (void)state;
    struct frame *frame;
    const struct frame_content content = {.seq = 7, .payload = SLICE("{}"), .kind = SLICE("k")};
    const struct frame_text text = {SLICE("\"a\":1,\"payload\":"), 6, SLICE(",\"b\":2")};
    assert_ok(frame_make(NULL, &content, &text, &frame));
    assert_slice(frame->forms[FRAME_FULL], "\"a\":1,\"payload\":{},\"b\":2");
    assert_slice(frame->forms[FRAME_LEAN], "\"payload\":{}");
    assert_ptr_equal(frame->forms[FRAME_LEAN].data, frame->forms[FRAME_FULL].data + 6);
    assert_slice(frame->content.payload, "{}");
    assert_ptr_equal(frame->content.payload.data, frame->texts + text.head.size);
    assert_slice(frame->content.kind, "k");
    assert_null(frame->content.owner.user_id.data);
    assert_int_equal(frame->bytes, sizeof(*frame) + frame->forms[FRAME_FULL].size + 1);
    frame_unref(frame);
}

static void frames_of_events_name_the_projection_version(void **state) {
    (void)state;
    struct bench bench;
    struct hub_watch watch;
    struct frame *frame;
    bench_open(&bench, &roomy);
    assert_slice(hub_projection_version(bench.hub), "khala_summary_v2");
    hub_set_projection_version(bench.hub, SLICE("v9"));
    assert_ok(hub_watch(&bench.ear.listener, SLICE(RUN_TOPIC), &watch));
    publisher_commit(bench.publisher, 1);
    struct hub_take taken = {.next_seq = 1, .count_max = 1, .bytes_max = 1, .frames = &frame};
    assert_int_equal(hub_take(&watch, &taken), HUB_FRAMES);
    assert_true(slice_ends(frame->forms[FRAME_FULL], SLICE(",\"projection_version\":\"v9\"")));
    frame_unref(frame);
    hub_unwatch(&watch);
    bench_close(&bench);
}

/* ---- threads ---- */

struct watcher {
    struct hub *hub;
    atomic_bool *is_over;
    pthread_t thread;
    uint64_t seed;
};

static void no_wake(void *user) {
    (void)user;
}

static void *watch_and_unwatch(void *user) {
    struct watcher *watcher = user;
    struct hub_listener listener;
    const char *const names[] = {RUN_TOPIC, OTHER_TOPIC, SUMMARIES};
    hub_listen(watcher->hub, &listener, no_wake, NULL);
    while (!atomic_load(watcher->is_over)) {
        struct hub_watch watch;
        size_t count;
        uint64_t last = 0;
        assert_ok(hub_watch(&listener, slice_of(names[test_random(&watcher->seed) % 3]), &watch));
        for (int i = 0; i < 20; i++) {
            size_t announced = hub_listener_begin(&listener);
            while (announced-- > 0)
                (void)hub_listener_next(&listener);
            uint64_t first = hub_first_seq(&watch);
            if (first != UINT64_MAX && last == 0)
                last = first - 1;
            if (last > 0 && take(&watch, last + 1, 16, 4096, &count) == HUB_FRAMES)
                last += count;
        }
        hub_unwatch(&watch);
    }
    hub_unlisten(&listener);
    return NULL;
}

static void watchers_come_and_go_while_the_writer_publishes(void **state) {
    (void)state;
    struct bench bench;
    struct watcher watchers[3];
    atomic_bool is_over = false;
    const struct hub_options tight = {{64, 1u << 20}, HUB_SHARDS * 8192};
    bench_open(&bench, &tight);
    for (size_t i = 0; i < 3; i++) {
        watchers[i] = (struct watcher){.hub = bench.hub, .is_over = &is_over, .seed = i};
        pthread_create(&watchers[i].thread, NULL, watch_and_unwatch, &watchers[i]);
    }
    for (int i = 0; i < 200; i++)
        publisher_commit(bench.publisher, 1 + (size_t)i % 20);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < 3; i++)
        pthread_join(watchers[i].thread, NULL);
    bench_close(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_read_before_the_journal_was_made_again_are_not_kept),
        cmocka_unit_test(an_unwatched_topic_costs_nothing),
        cmocka_unit_test(pruned_frames_leave_the_window_and_their_memory),
        cmocka_unit_test(a_watched_topic_gets_its_frames_and_one_announcement),
        cmocka_unit_test(a_watched_log_gets_each_whole_event),
        cmocka_unit_test(a_take_is_bounded_but_returns_at_least_one_frame),
        cmocka_unit_test(a_window_keeps_the_newest_frames),
        cmocka_unit_test(memory_stays_within_its_budget_and_watched_topics_stay_correct),
        cmocka_unit_test(an_unwatched_topic_is_freed_after_a_window_of_frames),
        cmocka_unit_test(a_removed_watch_is_not_announced),
        cmocka_unit_test(the_forms_of_a_frame_are_parts_of_one_text),
        cmocka_unit_test(frames_of_events_name_the_projection_version),
        cmocka_unit_test(watchers_come_and_go_while_the_writer_publishes),
    };
    return cmocka_run_group_tests_name("hub", tests, NULL, NULL);
}
