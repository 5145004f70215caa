/* Walks: rows in order, by the page, as the store was when the walk began. */
#include <malloc.h>

#include "rows_check.h"

struct seen {
    uint64_t numbers[64];
    size_t count;
    size_t stop_after; /* 0: never */
};

static enum status see(struct seen *seen, uint64_t number) {
    assert_true(seen->count < 64);
    seen->numbers[seen->count++] = number;
    return seen->count == seen->stop_after ? STATUS_SLOW_CONSUMER : STATUS_OK;
}

static enum status see_event(void *user, const struct store_event *event) {
    struct store_event expected =
        rows_event(event->log_id, 2 + (event->log_id - 1) % 2, (event->log_id - 1) / 2 + 1);
    assert_event(event, &expected);
    assert_int_equal(event->entity_id.size, 5);
    return see(user, event->log_id);
}

static void assert_seen(const struct seen *seen, uint64_t first, uint64_t step, size_t count) {
    assert_int_equal(seen->count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(seen->numbers[i], first + i * step);
}

static void the_log_is_walked_in_order_after_a_position(void **state) {
    struct fixture *fixture = *state;
    check_fill(fixture);
    struct seen seen = {0};
    assert_ok(store_walk_log(fixture->reader, 0, UINT64_MAX, &seen, see_event));
    assert_seen(&seen, 1, 1, CHECK_EVENTS);
    seen = (struct seen){0};
    assert_ok(store_walk_log(fixture->reader, 10, 5, &seen, see_event));
    assert_seen(&seen, 11, 1, 5);
    seen = (struct seen){0};
    assert_ok(store_walk_log(fixture->reader, CHECK_EVENTS - 1, 5, &seen, see_event));
    assert_seen(&seen, CHECK_EVENTS, 1, 1);
    seen = (struct seen){0};
    assert_ok(store_walk_log(fixture->reader, CHECK_EVENTS, 5, &seen, see_event));
    assert_ok(store_walk_log(fixture->reader, UINT64_MAX, 5, &seen, see_event));
    assert_ok(store_walk_log(fixture->reader, 0, 0, &seen, see_event));
    assert_int_equal(seen.count, 0);
}

static void a_walk_stops_when_its_callback_ends_it_and_can_start_again(void **state) {
    struct fixture *fixture = *state;
    check_fill(fixture);
    struct seen seen = {.stop_after = 3};
    assert_int_equal(store_walk_log(fixture->reader, 0, 10, &seen, see_event),
                     STATUS_SLOW_CONSUMER);
    assert_seen(&seen, 1, 1, 3);
    seen = (struct seen){0};
    assert_ok(store_walk_log(fixture->reader, 3, 2, &seen, see_event));
    assert_seen(&seen, 4, 1, 2);
}

static void a_walk_of_an_entity_shows_only_its_events(void **state) {
    struct fixture *fixture = *state;
    check_fill(fixture);
    struct seen seen = {0};
    assert_ok(store_walk_entity_events(fixture->reader, 3, 0, UINT64_MAX, &seen, see_event));
    assert_seen(&seen, 2, 2, CHECK_EVENTS / 2);
    seen = (struct seen){0};
    assert_ok(store_walk_entity_events(fixture->reader, 2, 4, 3, &seen, see_event));
    assert_seen(&seen, 9, 2, 3);
    seen = (struct seen){.stop_after = 2};
    assert_int_equal(store_walk_entity_events(fixture->reader, 2, 4, 3, &seen, see_event),
                     STATUS_SLOW_CONSUMER);
    seen = (struct seen){0};
    assert_ok(store_walk_entity_events(fixture->reader, 2, CHECK_EVENTS / 2, 3, &seen, see_event));
    assert_ok(store_walk_entity_events(fixture->reader, 9, 0, 3, &seen, see_event));
    assert_int_equal(seen.count, 0);
}

/* The engine may leave out the chain. */
static enum status see_frame(void *user, const struct store_event *event) {
    struct store_event expected =
        rows_event(event->log_id, 2 + (event->log_id - 1) % 2, (event->log_id - 1) / 2 + 1);
    struct store_event seen = *event;
    memcpy(seen.prev_chain_hash, expected.prev_chain_hash, sizeof(seen.prev_chain_hash));
    memcpy(seen.chain_hash, expected.chain_hash, sizeof(seen.chain_hash));
    seen.chain_version = expected.chain_version;
    assert_event(&seen, &expected);
    assert_int_equal(event->entity_id.size, 5);
    return see(user, event->log_id);
}

static void a_walk_for_frames_shows_the_same_events(void **state) {
    struct fixture *fixture = *state;
    check_fill(fixture);
    struct seen seen = {0};
    assert_ok(store_walk_entity_frames(fixture->reader, 3, 0, UINT64_MAX, &seen, see_frame));
    assert_seen(&seen, 2, 2, CHECK_EVENTS / 2);
    seen = (struct seen){0};
    assert_ok(store_walk_entity_frames(fixture->reader, 2, 4, 3, &seen, see_frame));
    assert_seen(&seen, 9, 2, 3);
    seen = (struct seen){.stop_after = 2};
    assert_int_equal(store_walk_entity_frames(fixture->reader, 2, 4, 3, &seen, see_frame),
                     STATUS_SLOW_CONSUMER);
    seen = (struct seen){0};
    assert_ok(store_walk_entity_frames(fixture->reader, 2, CHECK_EVENTS / 2, 3, &seen, see_frame));
    assert_ok(store_walk_entity_frames(fixture->reader, 9, 0, 3, &seen, see_frame));
    assert_int_equal(seen.count, 0);
}

struct nested {
    struct fixture *fixture;
    size_t count;
};

static enum status load_inside(void *user, const struct store_event *event) {
    struct nested *nested = user;
    struct store_entity entity;
    arena_reset(&nested->fixture->arena);
    assert_ok(store_load_entity_ref(nested->fixture->reader, event->entity_ref,
                                    &nested->fixture->arena, &entity));
    assert_true(slice_equal(entity.id, event->entity_id));
    nested->count++;
    return STATUS_OK;
}

static void rows_may_be_loaded_inside_a_walk(void **state) {
    struct nested nested = {.fixture = *state};
    check_fill(nested.fixture);
    assert_ok(store_walk_log(nested.fixture->reader, 0, UINT64_MAX, &nested, load_inside));
    assert_int_equal(nested.count, CHECK_EVENTS);
    assert_ok(
        store_walk_entity_frames(nested.fixture->reader, 3, 0, UINT64_MAX, &nested, load_inside));
    assert_int_equal(nested.count, CHECK_EVENTS + CHECK_EVENTS / 2);
}

static enum status see_entity(void *user, const struct store_entity *entity) {
    assert_int_equal(entity->kind, ENTITY_RUN);
    assert_int_equal(entity->head_seq, CHECK_EVENTS / 2);
    return see(user, entity->ref);
}

static void entities_of_a_kind_are_walked_by_ref(void **state) {
    struct fixture *fixture = *state;
    struct seen seen = {0};
    check_fill(fixture);
    assert_ok(store_walk_entities(fixture->reader, ENTITY_RUN, 0, 10, &seen, see_entity));
    assert_seen(&seen, 2, 1, 2);
    seen = (struct seen){0};
    assert_ok(store_walk_entities(fixture->reader, ENTITY_RUN, 2, 10, &seen, see_entity));
    assert_seen(&seen, 3, 1, 1);
    seen = (struct seen){0};
    assert_ok(store_walk_entities(fixture->reader, ENTITY_WORKER, 0, 10, &seen, see_entity));
    assert_ok(store_walk_entities(fixture->reader, ENTITY_RUN, 0, 0, &seen, see_entity));
    assert_int_equal(seen.count, 0);
}

static enum status see_topic(void *user, const struct store_topic *topic) {
    return see(user, topic->ref);
}

static enum status see_ref(void *user, const struct store_entity *entity) {
    return see(user, entity->ref);
}

static void topics_are_walked_by_ref(void **state) {
    struct fixture *fixture = *state;
    struct seen seen = {0};
    struct rows_text names[2];
    struct store_topic topic = rows_topic(5, 0, names);
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.topics = &topic, .topic_count = 1}));
    assert_ok(store_walk_topics(fixture->reader, 0, 10, &seen, see_topic));
    assert_seen(&seen, 1, 1, 5);
    seen = (struct seen){.stop_after = 2};
    assert_int_equal(store_walk_topics(fixture->reader, 2, 10, &seen, see_topic),
                     STATUS_SLOW_CONSUMER);
    assert_seen(&seen, 3, 1, 2);
}

static void entities_of_a_kind_are_listed_by_id_after_one(void **state) {
    struct fixture *fixture = *state;
    struct seen seen = {0};
    struct rows_text ids[3];
    struct store_entity runs[3];
    for (size_t i = 0; i < 3; i++)
        runs[i] = rows_run(2 + i, &ids[i]);
    runs[0].id = SLICE("b");
    runs[1].id = SLICE("\xc3\xa9");
    runs[2].id = SLICE("B");
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.entities = runs, .entity_count = 3}));
    assert_ok(store_list_entities(fixture->reader, ENTITY_RUN, SLICE(""), 10, &seen, see_ref));
    assert_int_equal(seen.count, 3);
    /* By bytes: capitals first, other letters behind. */
    assert_int_equal(seen.numbers[0], 4);
    assert_int_equal(seen.numbers[1], 2);
    assert_int_equal(seen.numbers[2], 3);
    seen = (struct seen){0};
    assert_ok(store_list_entities(fixture->reader, ENTITY_RUN, SLICE("B"), 1, &seen, see_ref));
    assert_seen(&seen, 2, 1, 1);
    seen = (struct seen){0};
    assert_ok(
        store_list_entities(fixture->reader, ENTITY_RUN, SLICE("\xc3\xa9"), 10, &seen, see_ref));
    assert_ok(store_list_entities(fixture->reader, ENTITY_WORKER, SLICE(""), 10, &seen, see_ref));
    assert_int_equal(seen.count, 0);
}

static void topics_are_listed_by_name_from_a_prefix_on(void **state) {
    struct fixture *fixture = *state;
    struct seen seen = {0};
    struct rows_text names[4][2];
    static const char *const given[][2] = {{"zoo", "runtime.topic.zoo"},
                                           {"room:1", "runtime.topic.room.1"},
                                           {"room", "runtime.topic.room"},
                                           {"rooms", "runtime.topic.rooms"}};
    struct store_topic topics[4];
    for (size_t i = 0; i < 4; i++) {
        topics[i] = rows_topic(5 + i, 0, names[i]);
        topics[i].name = slice_of(given[i][0]);
        topics[i].stream_id = slice_of(given[i][1]);
    }
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.topics = topics, .topic_count = 4}));
    /* The name that is the prefix is the first. */
    assert_ok(store_list_topics(fixture->reader, SLICE("room"), SLICE(""), 3, &seen, see_topic));
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.numbers[0], 7);
    assert_int_equal(seen.numbers[1], 6);
    assert_int_equal(seen.numbers[2], 8);
    seen = (struct seen){0};
    assert_ok(
        store_list_topics(fixture->reader, SLICE("room"), SLICE("room:1"), 1, &seen, see_topic));
    assert_seen(&seen, 8, 1, 1);
    seen = (struct seen){0};
    assert_ok(store_list_topics(fixture->reader, SLICE(""), SLICE("rv"), 10, &seen, see_topic));
    assert_seen(&seen, 5, 1, 1);
}

#define ENTITY_WITHOUT_DOCUMENT 11

static enum status see_document(void *user, const struct store_document *document) {
    struct rows_text key;
    struct store_document expected =
        rows_document(document->kind, document->entity_ref, document->version, &key);
    if (document->entity_ref == ENTITY_WITHOUT_DOCUMENT) {
        assert_null(document->key.data);
        assert_null(document->payload.data);
        return see(user, document->entity_ref);
    }
    assert_text(document->key, expected.key);
    assert_text(document->payload, expected.payload);
    assert_memory_equal(document->payload_hash, expected.payload_hash, SHA256_BYTES);
    return see(user, document->entity_ref);
}

static void documents_are_kept_by_kind_and_walked_by_ref(void **state) {
    struct fixture *fixture = *state;
    struct rows_text keys[4], ids[5];
    struct store_entity entities[5];
    for (size_t i = 0; i < 5; i++)
        entities[i] = rows_run(i + 8, &ids[i]);
    entities[4].kind = ENTITY_WORKER;
    struct store_document read, documents[] = {
                                    rows_document(DOCUMENT_RUN_SUMMARY, 9, 1, &keys[0]),
                                    rows_document(DOCUMENT_RUN_SUMMARY, 8, 2, &keys[1]),
                                    rows_document(DOCUMENT_WORKER_SUMMARY, 12, 3, &keys[2]),
                                    rows_document(DOCUMENT_RUN_SUMMARY, 10, 4, &keys[3]),
                                };
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = entities,
                                                                  .entity_count = 5,
                                                                  .documents = documents,
                                                                  .document_count = 4}));
    struct seen seen = {0};
    assert_ok(
        store_walk_documents(fixture->reader, DOCUMENT_RUN_SUMMARY, 0, 10, &seen, see_document));
    assert_seen(&seen, 8, 1, 4);
    seen = (struct seen){0};
    assert_ok(
        store_walk_documents(fixture->reader, DOCUMENT_RUN_SUMMARY, 8, 1, &seen, see_document));
    assert_seen(&seen, 9, 1, 1);
    seen = (struct seen){0};
    assert_ok(
        store_walk_documents(fixture->reader, DOCUMENT_WORKER_SUMMARY, 0, 10, &seen, see_document));
    assert_seen(&seen, 12, 1, 1);
    assert_ok(
        store_load_document(fixture->reader, DOCUMENT_WORKER_SUMMARY, 12, &fixture->arena, &read));
    assert_int_equal(read.kind, DOCUMENT_WORKER_SUMMARY);
    assert_int_equal(read.version, 3);
    assert_text(read.key, documents[2].key);
}

struct journal_seen {
    struct seen seen;
    bool with_payload;
};

static enum status see_journal(void *user, const struct store_journal_row *row,
                               const struct store_event *event) {
    struct journal_seen *walk = user;
    struct store_journal_row expected = rows_journal(row->topic_ref, row->seq, row->log_id);
    if (!walk->with_payload)
        expected.payload = (struct slice){0};
    assert_text(row->payload, expected.payload);
    assert_int_equal(row->entity_ref, expected.entity_ref);
    assert_int_equal(row->document_version, expected.document_version);
    assert_int_equal(row->first_seq, expected.first_seq);
    assert_int_equal(row->published_at_ms, expected.published_at_ms);
    assert_memory_equal(row->payload_hash, expected.payload_hash, SHA256_BYTES);
    assert_int_equal(event->log_id, row->log_id);
    (void)see_event(&(struct seen){0}, event);
    return see(&walk->seen, row->seq);
}

static void the_journal_is_walked_by_topic_with_its_events(void **state) {
    struct fixture *fixture = *state;
    struct store_journal_row rows[20];
    check_fill(fixture);
    for (uint64_t i = 0; i < 20; i++) {
        rows[i] = rows_journal(1 + i % 2 * 2, i / 2 + 1, 20 - i);
        if (i % 2)
            rows[i].payload = (struct slice){0};
    }
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.journal = rows, .journal_count = 20}));
    struct journal_seen walk = {.with_payload = true};
    assert_ok(store_walk_journal(fixture->reader, 1, 0, UINT64_MAX, &walk, see_journal));
    assert_seen(&walk.seen, 1, 1, 10);
    walk = (struct journal_seen){0};
    assert_ok(store_walk_journal(fixture->reader, 3, 4, 3, &walk, see_journal));
    assert_seen(&walk.seen, 5, 1, 3);
    walk = (struct journal_seen){.seen.stop_after = 1};
    assert_int_equal(store_walk_journal(fixture->reader, 3, 4, 3, &walk, see_journal),
                     STATUS_SLOW_CONSUMER);
    walk = (struct journal_seen){0};
    assert_ok(store_walk_journal(fixture->reader, 3, 10, 3, &walk, see_journal));
    assert_ok(store_walk_journal(fixture->reader, 2, 0, 3, &walk, see_journal));
    assert_int_equal(walk.seen.count, 0);
}

static enum status see_drift(void *user, const struct store_drift *drift) {
    assert_int_equal(drift->kind, DOCUMENT_RUN_SUMMARY);
    assert_int_equal(drift->reason, REASON_SEQUENCE_GAP);
    assert_int_equal(drift->expected_seq, drift->seen_at_ms + 1);
    assert_int_equal(drift->actual_seq, drift->seen_at_ms + 2);
    assert_slice(drift->entity_id, "runtime.notifications");
    return see(user, drift->seen_at_ms);
}

static void drifts_are_walked_from_the_most_recent(void **state) {
    struct fixture *fixture = *state;
    for (uint64_t i = 1; i <= 5; i++) {
        struct store_drift drift = {.kind = DOCUMENT_RUN_SUMMARY,
                                    .entity_ref = 1,
                                    .reason = REASON_SEQUENCE_GAP,
                                    .expected_seq = i + 1,
                                    .actual_seq = i + 2,
                                    .seen_at_ms = i};
        assert_ok(store_commit(fixture->writer,
                               &(struct store_batch){.drifts = &drift, .drift_count = 1}));
    }
    struct seen seen = {0};
    assert_ok(store_walk_drifts(fixture->reader, 3, &seen, see_drift));
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.numbers[0], 5);
    assert_int_equal(seen.numbers[2], 3);
}

/* ---- pages: a callback may read with the session, and sees rows that were fetched before ---- */

#define MANY        500
#define LARGE_BYTES ((size_t)200 << 10)

/* Run 2 with many events, the first ones with payloads larger than a page takes together. */
static void fill_many(struct fixture *fixture, char *large) {
    struct rows_text id;
    struct store_entity run = rows_run(2, &id);
    struct store_event *events = calloc(MANY, sizeof(*events));
    memset(large, 'x', LARGE_BYTES);
    large[0] = large[LARGE_BYTES - 1] = '"';
    for (uint64_t i = 0; i < MANY; i++) {
        events[i] = rows_event(i + 1, 2, i + 1);
        if (i < 5)
            events[i].payload = (struct slice){large, LARGE_BYTES};
    }
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &run,
                                                                  .entity_count = 1,
                                                                  .events = events,
                                                                  .event_count = MANY}));
    free(events);
}

struct paged {
    struct fixture *fixture;
    uint64_t last;
    uint64_t inner;
    uint64_t appended;
};

static enum status count_inner(void *user, const struct store_event *event) {
    struct paged *paged = user;
    assert_int_equal(event->log_id, event->seq);
    paged->inner++;
    return STATUS_OK;
}

/* Reads in all ways that the contract allows, and commits with the other session. */
static enum status read_inside(void *user, const struct store_event *event) {
    struct paged *paged = user;
    struct store_event copy = *event, loaded;
    struct store_entity entity;
    struct store_state at;
    struct arena *arena = &paged->fixture->arena;
    assert_int_equal(event->log_id, paged->last + 1);
    paged->last = event->log_id;
    arena_reset(arena);
    assert_ok(store_load_entity_ref(paged->fixture->reader, 2, arena, &entity));
    assert_ok(store_load_event(paged->fixture->reader, event->log_id, arena, &loaded));
    assert_ok(store_read_state(paged->fixture->reader, &at));
    uint64_t before = paged->inner;
    assert_ok(
        store_walk_entity_events(paged->fixture->reader, 2, event->seq - 1, 3, paged, count_inner));
    assert_true(paged->inner > before);
    if (event->log_id % 50 == 1) {
        struct store_event more =
            rows_event(MANY + paged->appended + 1, 2, MANY + paged->appended + 1);
        assert_ok(store_commit(paged->fixture->writer,
                               &(struct store_batch){.events = &more, .event_count = 1}));
        paged->appended++;
    }
    /* The row is the one that it was before all of this. */
    assert_event(event, &copy);
    assert_event(event, &loaded);
    return STATUS_OK;
}

static void a_callback_may_read_with_the_session_on_every_page(void **state) {
    struct paged paged = {.fixture = *state};
    char *large = malloc(LARGE_BYTES);
    fill_many(paged.fixture, large);
    assert_ok(store_walk_log(paged.fixture->reader, 0, UINT64_MAX, &paged, read_inside));
    /* What was committed meanwhile is not part of the walk. */
    assert_int_equal(paged.last, MANY);
    assert_int_equal(paged.appended, 10);
    free(large);
}

static enum status stop_at_third(void *user, const struct store_event *event) {
    uint64_t *seen = user;
    (*seen)++;
    return event->seq == 3 ? STATUS_SLOW_CONSUMER : STATUS_OK;
}

static void a_stopped_walk_reads_at_most_one_row_more(void **state) {
    struct fixture *fixture = *state;
    uint64_t seen = 0;
    char *large = malloc(LARGE_BYTES);
    fill_many(fixture, large);
    uint64_t before = store_session_rows_read(fixture->reader);
    assert_int_equal(store_walk_log(fixture->reader, 0, UINT64_MAX, &seen, stop_at_third),
                     STATUS_SLOW_CONSUMER);
    assert_int_equal(seen, 3);
    assert_true(store_session_rows_read(fixture->reader) - before <= 4);
    free(large);
}

struct cancelling {
    atomic_bool is_cancelled;
    uint64_t seen;
};

static enum status cancel_at_third(void *user, const struct store_event *event) {
    struct cancelling *cancelling = user;
    (void)event;
    if (++cancelling->seen == 3)
        atomic_store(&cancelling->is_cancelled, true);
    return STATUS_OK;
}

/* Replay reads by this walk. */
static void a_walk_over_frames_counts_its_rows_and_ends_where_it_is_told(void **state) {
    struct fixture *fixture = *state;
    struct store_session *reader = fixture->reader;
    struct cancelling cancelling = {0};
    uint64_t seen = 0;
    char *large = malloc(LARGE_BYTES);
    fill_many(fixture, large);
    uint64_t before = store_session_rows_read(reader);
    assert_int_equal(store_walk_entity_frames(reader, 2, 0, UINT64_MAX, &seen, stop_at_third),
                     STATUS_SLOW_CONSUMER);
    assert_int_equal(seen, 3);
    uint64_t read = store_session_rows_read(reader) - before;
    assert_true(read >= 3 && read <= 5); /* one of them is the entity */
    assert_ok(store_walk_entity_frames(reader, 2, 0, 0, &seen, stop_at_third));
    assert_int_equal(seen, 3);
    store_session_cancel_by(reader, &cancelling.is_cancelled);
    assert_int_equal(
        store_walk_entity_frames(reader, 2, 0, UINT64_MAX, &cancelling, cancel_at_third),
        STATUS_STORE_UNAVAILABLE);
    store_session_cancel_by(reader, NULL);
    free(large);
}

/* ---- memory ---- */

#define SMALL_EVENTS 84 /* pages of a walk grow until here */
#define HUGE_EVENTS  60
#define HUGE_BYTES   ((size_t)512 << 10)
#define HELD_MAX     ((size_t)8 << 20)

static size_t held_bytes(void) {
    struct mallinfo2 held = mallinfo2(); /* zero under a sanitizer */
    return held.uordblks + held.hblkhd;
}

struct held {
    uint64_t last;
    size_t bytes_max;
};

static enum status measure(void *user, const struct store_event *event) {
    struct held *held = user;
    size_t bytes = held_bytes();
    assert_int_equal(event->log_id, held->last + 1);
    held->last = event->log_id;
    held->bytes_max = bytes > held->bytes_max ? bytes : held->bytes_max;
    return STATUS_OK;
}

static void commit_events(struct fixture *fixture, uint64_t first, uint64_t count,
                          struct slice payload) {
    struct rows_text id;
    struct store_entity run = rows_run(2, &id);
    struct store_event events[SMALL_EVENTS];
    for (uint64_t i = 0; i < count; i++) {
        events[i] = rows_event(first + i, 2, first + i);
        if (payload.data)
            events[i].payload = payload;
    }
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &run,
                                                                  .entity_count = first == 1,
                                                                  .events = events,
                                                                  .event_count = count}));
}

static void a_page_of_large_rows_takes_bounded_memory(void **state) {
    struct fixture *fixture = *state;
    char *huge = malloc(HUGE_BYTES);
    memset(huge, 'x', HUGE_BYTES);
    huge[0] = huge[HUGE_BYTES - 1] = '"';
    commit_events(fixture, 1, SMALL_EVENTS, (struct slice){NULL, 0});
    for (uint64_t i = 0; i < HUGE_EVENTS; i += 10)
        commit_events(fixture, SMALL_EVENTS + 1 + i, 10, (struct slice){huge, HUGE_BYTES});
    free(huge);
    size_t before = held_bytes();
    struct held held = {0};
    assert_ok(store_walk_log(fixture->reader, 0, UINT64_MAX, &held, measure));
    assert_int_equal(held.last, SMALL_EVENTS + HUGE_EVENTS);
    assert_true(held.bytes_max <= before + HELD_MAX);
    held = (struct held){0};
    assert_ok(store_walk_entity_events(fixture->reader, 2, 0, UINT64_MAX, &held, measure));
    assert_int_equal(held.last, SMALL_EVENTS + HUGE_EVENTS);
    assert_true(held.bytes_max <= before + HELD_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_is_walked_in_order_after_a_position),
        cmocka_unit_test(a_walk_stops_when_its_callback_ends_it_and_can_start_again),
        cmocka_unit_test(a_walk_of_an_entity_shows_only_its_events),
        cmocka_unit_test(a_walk_for_frames_shows_the_same_events),
        cmocka_unit_test(rows_may_be_loaded_inside_a_walk),
        cmocka_unit_test(entities_of_a_kind_are_walked_by_ref),
        cmocka_unit_test(topics_are_walked_by_ref),
        cmocka_unit_test(entities_of_a_kind_are_listed_by_id_after_one),
        cmocka_unit_test(topics_are_listed_by_name_from_a_prefix_on),
        cmocka_unit_test(documents_are_kept_by_kind_and_walked_by_ref),
        cmocka_unit_test(the_journal_is_walked_by_topic_with_its_events),
        cmocka_unit_test(drifts_are_walked_from_the_most_recent),
        cmocka_unit_test(a_callback_may_read_with_the_session_on_every_page),
        cmocka_unit_test(a_stopped_walk_reads_at_most_one_row_more),
        cmocka_unit_test(a_walk_over_frames_counts_its_rows_and_ends_where_it_is_told),
        cmocka_unit_test(a_page_of_large_rows_takes_bounded_memory),
    };
    return CONTRACT_RUN("store: walks", tests);
}
