/* Commits: all or nothing, ids unique for all time, upserts, pruning. */
#include "backend.h"
#include "lookup.h"
#include "rows.h"

static enum status commit_events(struct fixture *fixture, const struct store_event *events,
                                 size_t count) {
    return store_commit(fixture->writer,
                        &(struct store_batch){.events = events, .event_count = count});
}

static uint64_t log_end(struct fixture *fixture) {
    struct store_state at;
    assert_ok(store_read_state(fixture->reader, &at));
    return at.log_id;
}

static void an_empty_batch_commits(void **state) {
    struct fixture *fixture = *state;
    assert_ok(store_commit(fixture->writer, &(struct store_batch){0}));
}

static void a_committed_batch_survives_a_reopen(void **state) {
    struct fixture *fixture = *state;
    struct rows_text id, names[2], key;
    struct store_entity run = rows_run(2, &id);
    struct store_event event = rows_event(1, 2, 1);
    struct store_key idempotency = {2, SLICE("key"), 1};
    struct store_topic topic = rows_topic(5, 2, names);
    struct store_document document = rows_document(DOCUMENT_RUN_SUMMARY, 2, 1, &key);
    struct store_checkpoint checkpoint = rows_checkpoint(DOCUMENT_RUN_SUMMARY, 2, 1);
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &run,
                                                                  .entity_count = 1,
                                                                  .events = &event,
                                                                  .event_count = 1,
                                                                  .keys = &idempotency,
                                                                  .key_count = 1,
                                                                  .topics = &topic,
                                                                  .topic_count = 1,
                                                                  .documents = &document,
                                                                  .document_count = 1,
                                                                  .checkpoints = &checkpoint,
                                                                  .checkpoint_count = 1}));
    fixture_reopen(fixture);
    struct arena *arena = &fixture->arena;
    uint64_t log_id = 0;
    assert_ok(store_load_entity(fixture->reader, ENTITY_RUN, run.id, arena, &run));
    assert_ok(store_load_event(fixture->reader, 1, arena, &event));
    assert_ok(lookup_key(fixture->writer, 2, SLICE("key"), &log_id));
    assert_int_equal(log_id, 1);
    assert_ok(store_load_topic(fixture->reader, slice_of(names[0].bytes), arena, &topic));
    assert_int_equal(topic.head_seq, 1);
    assert_ok(store_load_document(fixture->reader, DOCUMENT_RUN_SUMMARY, 2, arena, &document));
    assert_ok(store_load_checkpoint(fixture->reader, DOCUMENT_RUN_SUMMARY, 2, arena, &checkpoint));
}

/* A batch with one of everything, of which one part will be made to collide. */
struct whole {
    struct rows_text id, names[2], key;
    struct store_entity entity;
    struct store_event events[2];
    struct store_key idempotency;
    struct store_topic topic;
    struct store_document document;
    struct store_checkpoint checkpoint;
    struct store_journal_row journal;
    struct store_drift drift;
    struct store_batch batch;
};

static void whole_init(struct whole *whole, uint64_t number) {
    whole->entity = rows_run(number + 1, &whole->id);
    whole->events[0] = rows_event(2 * number - 1, number + 1, 1);
    whole->events[1] = rows_event(2 * number, number + 1, 2);
    whole->events[1].event_id = rows_client_id(number);
    whole->idempotency = (struct store_key){number + 1, SLICE("key"), 2 * number};
    whole->topic = rows_topic(number + 4, 0, whole->names);
    whole->document = rows_document(DOCUMENT_RUN_SUMMARY, number + 1, 1, &whole->key);
    whole->checkpoint = rows_checkpoint(DOCUMENT_RUN_SUMMARY, number + 1, 1);
    whole->journal = rows_journal(number + 4, 1, 2 * number);
    whole->drift = (struct store_drift){.entity_ref = number + 1, .reason = REASON_SEQUENCE_GAP};
    whole->batch = (struct store_batch){.entities = &whole->entity,
                                        .entity_count = 1,
                                        .events = whole->events,
                                        .event_count = 2,
                                        .keys = &whole->idempotency,
                                        .key_count = 1,
                                        .topics = &whole->topic,
                                        .topic_count = 1,
                                        .documents = &whole->document,
                                        .document_count = 1,
                                        .checkpoints = &whole->checkpoint,
                                        .checkpoint_count = 1,
                                        .journal = &whole->journal,
                                        .journal_count = 1,
                                        .drifts = &whole->drift,
                                        .drift_count = 1};
}

static enum status never_drift(void *user, const struct store_drift *drift) {
    *(bool *)user = drift->entity_ref == 3;
    return STATUS_OK;
}

static enum status never_journal(void *user, const struct store_journal_row *row,
                                 const struct store_event *event) {
    (void)row, (void)event;
    *(bool *)user = true;
    return STATUS_OK;
}

static void assert_nothing_of_the_second(struct fixture *fixture, struct store_session *session) {
    struct arena *arena = &fixture->arena;
    struct whole second;
    uint64_t log_id;
    bool seen = false;
    whole_init(&second, 2);
    assert_int_equal(log_end(fixture), 2);
    assert_int_equal(store_load_entity_ref(session, 3, arena, &second.entity), STATUS_NOT_FOUND);
    assert_int_equal(store_load_event(session, 3, arena, &second.events[0]), STATUS_NOT_FOUND);
    assert_int_equal(lookup_event_id(fixture->writer, &second.events[1].event_id, &log_id),
                     STATUS_NOT_FOUND);
    assert_int_equal(lookup_key(fixture->writer, 3, SLICE("key"), &log_id), STATUS_NOT_FOUND);
    assert_int_equal(
        store_load_topic(session, slice_of(second.names[0].bytes), arena, &second.topic),
        STATUS_NOT_FOUND);
    assert_int_equal(store_load_document(session, DOCUMENT_RUN_SUMMARY, 3, arena, &second.document),
                     STATUS_NOT_FOUND);
    assert_int_equal(
        store_load_checkpoint(session, DOCUMENT_RUN_SUMMARY, 3, arena, &second.checkpoint),
        STATUS_NOT_FOUND);
    assert_ok(store_walk_journal(session, 6, 0, 9, &seen, never_journal));
    assert_ok(store_walk_drifts(session, 1, &seen, never_drift));
    assert_false(seen);
}

enum collision {
    COLLIDE_ENTITY_ID,
    COLLIDE_ENTITY_REF,
    COLLIDE_LOG_ID,
    COLLIDE_LOG_GAP,
    COLLIDE_SEQ,
    COLLIDE_SEQ_GAP,
    COLLIDE_CURSOR,
    COLLIDE_EVENT_ID,
    COLLIDE_EVENT_ID_IN_BATCH,
    COLLIDE_KEY,
    COLLIDE_TOPIC_NAME,
    COLLIDE_STREAM_ID,
    COLLIDE_TOPIC_REF,
    COLLIDE_JOURNAL,
    COLLISION_COUNT,
};

static enum status collide(struct whole *second, const struct whole *first, enum collision what) {
    switch (what) {
    case COLLIDE_ENTITY_ID:
        second->entity.id = first->entity.id;
        return STATUS_ALREADY_EXISTS;
    case COLLIDE_ENTITY_REF:
        second->entity.ref = first->entity.ref;
        return STATUS_ALREADY_EXISTS;
    case COLLIDE_LOG_ID:
        second->events[0].log_id = 2;
        return STATUS_SEQUENCE_CONFLICT;
    case COLLIDE_LOG_GAP:
        second->events[1].log_id = 5;
        return STATUS_SEQUENCE_CONFLICT;
    case COLLIDE_SEQ:
        second->events[1].seq = 1;
        return STATUS_SEQUENCE_CONFLICT;
    case COLLIDE_SEQ_GAP:
        second->events[1].seq = 3;
        return STATUS_SEQUENCE_CONFLICT;
    case COLLIDE_CURSOR:
        second->events[0].cursor = second->events[0].event_id = first->events[1].cursor;
        return STATUS_SEQUENCE_CONFLICT;
    case COLLIDE_EVENT_ID:
        second->events[1].event_id = first->events[1].event_id;
        return STATUS_ALREADY_EXISTS;
    case COLLIDE_EVENT_ID_IN_BATCH:
        second->events[0].event_id = second->events[1].event_id;
        return STATUS_ALREADY_EXISTS;
    case COLLIDE_KEY:
        second->idempotency.entity_ref = first->idempotency.entity_ref;
        return STATUS_ALREADY_EXISTS;
    case COLLIDE_TOPIC_NAME:
        second->topic.name = first->topic.name;
        return STATUS_ALREADY_EXISTS;
    case COLLIDE_STREAM_ID:
        second->topic.stream_id = first->topic.stream_id;
        return STATUS_ALREADY_EXISTS;
    case COLLIDE_TOPIC_REF:
        second->topic.ref = first->topic.ref;
        return STATUS_ALREADY_EXISTS;
    case COLLIDE_JOURNAL:
        second->journal.topic_ref = first->journal.topic_ref;
        return STATUS_ALREADY_EXISTS;
    case COLLISION_COUNT:
        break;
    }
    fail();
    return STATUS_OK;
}

static void a_batch_with_a_collision_stores_nothing(void **state) {
    struct fixture *fixture = *state;
    struct whole first, second;
    whole_init(&first, 1);
    assert_ok(store_commit(fixture->writer, &first.batch));
    for (int i = 0; i < COLLISION_COUNT; i++) {
        whole_init(&second, 2);
        enum status expected = collide(&second, &first, (enum collision)i);
        print_message("collision %d\n", i);
        assert_int_equal(store_commit(fixture->writer, &second.batch), expected);
        assert_true(strlen(store_session_error(fixture->writer)) > 0);
        assert_nothing_of_the_second(fixture, fixture->writer);
        assert_nothing_of_the_second(fixture, fixture->reader);
    }
    fixture_reopen(fixture);
    assert_nothing_of_the_second(fixture, fixture->reader);
    whole_init(&second, 2);
    assert_ok(store_commit(fixture->writer, &second.batch));
    assert_int_equal(log_end(fixture), 4);
}

static void ids_of_clients_and_of_the_server_stay_findable(void **state) {
    struct fixture *fixture = *state;
    struct store_event events[60];
    for (uint64_t i = 0; i < 60; i++) {
        events[i] = rows_event(i + 1, 1, i + 1);
        if (i % 3 == 1)
            events[i].event_id = rows_client_id(1000 - i);
    }
    assert_ok(commit_events(fixture, events, 60));
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 60; i++) {
            uint64_t log_id = 0;
            assert_ok(lookup_event_id(fixture->writer, &events[i].event_id, &log_id));
            assert_int_equal(log_id, i + 1);
            if (i % 3 == 1) /* its cursor is nobody's id */
                assert_int_equal(lookup_event_id(fixture->writer, &events[i].cursor, &log_id),
                                 STATUS_NOT_FOUND);
        }
        fixture_reopen(fixture);
    }
}

static void a_client_cannot_use_an_id_that_the_server_minted(void **state) {
    struct fixture *fixture = *state;
    struct store_event events[10];
    for (uint64_t i = 0; i < 10; i++)
        events[i] = rows_event(i + 1, 1, i + 1);
    assert_ok(commit_events(fixture, events, 10));
    for (uint64_t i = 0; i < 10; i++) {
        struct store_event taken = rows_event(11, 1, 11);
        taken.event_id = events[i].event_id;
        assert_int_equal(commit_events(fixture, &taken, 1), STATUS_ALREADY_EXISTS);
        fixture_reopen(fixture);
        assert_int_equal(commit_events(fixture, &taken, 1), STATUS_ALREADY_EXISTS);
    }
    struct store_event both[2] = {rows_event(11, 1, 11), rows_event(12, 1, 12)};
    both[1].event_id = both[0].cursor;
    assert_int_equal(commit_events(fixture, both, 2), STATUS_ALREADY_EXISTS);
    assert_int_equal(log_end(fixture), 10);
}

static void the_server_cannot_mint_an_id_that_a_client_used(void **state) {
    struct fixture *fixture = *state;
    struct store_event first = rows_event(1, 1, 1), second = rows_event(2, 1, 2);
    first.event_id = second.cursor; /* chosen before the server got there */
    assert_ok(commit_events(fixture, &first, 1));
    assert_int_equal(commit_events(fixture, &second, 1), STATUS_ALREADY_EXISTS);
    fixture_reopen(fixture);
    assert_int_equal(commit_events(fixture, &second, 1), STATUS_ALREADY_EXISTS);
    second.cursor = second.event_id = rows_cursor(3);
    assert_ok(commit_events(fixture, &second, 1));
    struct store_event third = rows_event(3, 1, 3), fourth = rows_event(4, 1, 4);
    third.cursor = rows_cursor(5);
    third.event_id = fourth.event_id = fourth.cursor = rows_cursor(6);
    struct store_event both[2] = {third, fourth};
    assert_int_equal(commit_events(fixture, both, 2), STATUS_ALREADY_EXISTS);
}

static void an_unused_cursor_uuid_may_be_a_clients_event_id(void **state) {
    struct fixture *fixture = *state;
    struct store_event first = rows_event(1, 1, 1), second = rows_event(2, 1, 2);
    uint64_t log_id = 0;
    first.event_id = rows_client_id(50);
    second.event_id = first.cursor;
    assert_ok(commit_events(fixture, &first, 1));
    assert_ok(commit_events(fixture, &second, 1));
    assert_ok(lookup_event_id(fixture->writer, &first.cursor, &log_id));
    assert_int_equal(log_id, 2);
}

static void idempotency_keys_belong_to_their_entity(void **state) {
    struct fixture *fixture = *state;
    struct store_event events[2] = {rows_event(1, 1, 1), rows_event(2, 7, 1)};
    struct store_key keys[] = {{1, SLICE("k"), 1}, {7, SLICE("k"), 2}, {7, SLICE("K"), 1}};
    struct rows_text id;
    struct store_entity run = rows_run(7, &id);
    uint64_t log_id = 0;
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &run,
                                                                  .entity_count = 1,
                                                                  .events = events,
                                                                  .event_count = 2,
                                                                  .keys = keys,
                                                                  .key_count = 3}));
    assert_ok(lookup_key(fixture->writer, 7, SLICE("k"), &log_id));
    assert_int_equal(log_id, 2);
    assert_ok(lookup_key(fixture->writer, 1, SLICE("k"), &log_id));
    assert_int_equal(log_id, 1);
    assert_int_equal(lookup_key(fixture->writer, 1, SLICE("K"), &log_id), STATUS_NOT_FOUND);
}

static void an_entity_is_replaced_by_its_ref(void **state) {
    struct fixture *fixture = *state;
    struct rows_text id;
    struct store_entity run = rows_run(2, &id), read;
    struct store_batch batch = {.entities = &run, .entity_count = 1};
    assert_ok(store_commit(fixture->writer, &batch));
    run.status = SLICE("failed");
    run.owner = (struct owner){.guest_scope = SLICE("guest")};
    run.metadata = (struct slice){0};
    run.stopped_at_ms = 0;
    assert_ok(store_commit(fixture->writer, &batch));
    fixture_reopen(fixture);
    assert_ok(store_load_entity_ref(fixture->reader, 2, &fixture->arena, &read));
    assert_slice(read.id, "run-2");
    assert_slice(read.status, "failed");
    assert_null(read.owner.user_id.data);
    assert_slice(read.owner.guest_scope, "guest");
    /* Absent metadata leaves that of the row, so that a heartbeat does not write it again. */
    assert_slice(read.metadata, "{\"a\":1}");
    assert_int_equal(read.stopped_at_ms, 0);
    assert_int_equal(read.started_at_ms, run.started_at_ms);
}

static void documents_and_checkpoints_are_replaced(void **state) {
    struct fixture *fixture = *state;
    struct rows_text key;
    for (uint64_t version = 1; version <= 3; version++) {
        struct store_document document = rows_document(DOCUMENT_WORKER_SUMMARY, 7, version, &key);
        struct store_checkpoint checkpoint = rows_checkpoint(DOCUMENT_WORKER_SUMMARY, 7, version);
        assert_ok(store_commit(fixture->writer, &(struct store_batch){.documents = &document,
                                                                      .document_count = 1,
                                                                      .checkpoints = &checkpoint,
                                                                      .checkpoint_count = 1}));
    }
    struct store_document document;
    struct store_checkpoint checkpoint;
    uint8_t hash[SHA256_BYTES];
    rows_hash(hash, 3);
    assert_ok(store_load_document(fixture->reader, DOCUMENT_WORKER_SUMMARY, 7, &fixture->arena,
                                  &document));
    assert_int_equal(document.version, 3);
    assert_memory_equal(document.payload_hash, hash, sizeof(hash));
    assert_ok(store_load_checkpoint(fixture->reader, DOCUMENT_WORKER_SUMMARY, 7, &fixture->arena,
                                    &checkpoint));
    assert_int_equal(checkpoint.last_runtime_seq, 3);
    assert_memory_equal(checkpoint.summary_hash, hash, sizeof(hash));
}

/* ---- a long log: backends may store old and new positions differently --------------------------
 */

#define LONG_ENTITIES 7
#define LONG_BATCH    5000
#define LONG_EVENTS   (7 * LONG_BATCH)

/* Entities 1 to LONG_ENTITIES take turns. */
static struct store_event long_event(uint64_t log_id) {
    return rows_event(log_id, 1 + (log_id - 1) % LONG_ENTITIES, (log_id - 1) / LONG_ENTITIES + 1);
}

static enum status long_commit(struct fixture *fixture, uint64_t first,
                               const struct store_journal_row *row) {
    struct store_event *events = calloc(LONG_BATCH, sizeof(*events));
    assert_non_null(events);
    for (uint64_t i = 0; i < LONG_BATCH; i++)
        events[i] = long_event(first + i);
    enum status status =
        store_commit(fixture->writer, &(struct store_batch){.events = events,
                                                            .event_count = LONG_BATCH,
                                                            .journal = row,
                                                            .journal_count = row ? 1 : 0});
    free(events);
    return status;
}

struct long_walk {
    uint64_t entity_ref;
    uint64_t seq;
    uint64_t count;
};

static enum status long_see(void *user, const struct store_event *event) {
    struct long_walk *walk = user;
    assert_int_equal(event->entity_ref, walk->entity_ref);
    assert_int_equal(event->seq, ++walk->seq);
    assert_int_equal(event->log_id, (event->seq - 1) * LONG_ENTITIES + event->entity_ref);
    walk->count++;
    return STATUS_OK;
}

static void assert_long_log(struct fixture *fixture, uint64_t last) {
    for (uint64_t ref = 1; ref <= LONG_ENTITIES; ref++) {
        struct store_entity entity;
        uint8_t hash[SHA256_BYTES];
        uint64_t head = (last - ref) / LONG_ENTITIES + 1;
        uint64_t starts[] = {0, 1, head / 3, head / 2, head - 1, head};
        for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
            struct long_walk walk = {ref, starts[i], 0};
            int64_t wait_ms;
            /* On a slow machine the walks take longer than the writer may be silent. */
            assert_ok(store_keep_alive(fixture->writer, &wait_ms));
            assert_ok(store_walk_entity_events(fixture->reader, ref, starts[i], UINT64_MAX, &walk,
                                               long_see));
            assert_int_equal(walk.count, head - starts[i]);
            walk = (struct long_walk){ref, starts[i], 0};
            assert_ok(
                store_walk_entity_events(fixture->reader, ref, starts[i], 700, &walk, long_see));
            assert_int_equal(walk.count, head - starts[i] < 700 ? head - starts[i] : 700);
        }
        arena_reset(&fixture->arena);
        assert_ok(store_load_entity_ref(fixture->reader, ref, &fixture->arena, &entity));
        assert_int_equal(entity.head_seq, head);
        rows_hash(hash, 3 * ((head - 1) * LONG_ENTITIES + ref) + 2);
        assert_memory_equal(entity.head_hash, hash, sizeof(hash));
    }
}

static void a_long_log_keeps_every_position(void **state) {
    struct fixture *fixture = *state;
    struct rows_text ids[LONG_ENTITIES];
    struct store_entity runs[LONG_ENTITIES - 1];
    struct store_journal_row row = rows_journal(1, 1, 1);
    for (uint64_t i = 0; i < LONG_ENTITIES - 1; i++)
        runs[i] = rows_run(i + 2, &ids[i]);
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = runs,
                                                                  .entity_count = LONG_ENTITIES - 1,
                                                                  .journal = &row,
                                                                  .journal_count = 1}));
    for (uint64_t first = 1; first <= LONG_EVENTS; first += LONG_BATCH) {
        /* Everything else that a commit does is undone with it. */
        assert_int_equal(long_commit(fixture, first, &row), STATUS_ALREADY_EXISTS);
        assert_ok(long_commit(fixture, first, NULL));
        assert_long_log(fixture, first + LONG_BATCH - 1);
    }
    fixture_reopen(fixture);
    assert_long_log(fixture, LONG_EVENTS);
    struct store_event again = rows_event(LONG_EVENTS + 1, 1, 1);
    assert_int_equal(commit_events(fixture, &again, 1), STATUS_SEQUENCE_CONFLICT);
    struct store_event next = long_event(LONG_EVENTS + 1);
    assert_ok(commit_events(fixture, &next, 1));
    assert_long_log(fixture, LONG_EVENTS + 1);
}

/* ---- pruning ----------------------------------------------------------------------------------
 */

static struct store_topic topic_now(struct fixture *fixture, const char *name) {
    struct store_topic topic;
    assert_ok(store_load_topic(fixture->reader, slice_of(name), &fixture->arena, &topic));
    return topic;
}

static void assert_window(struct fixture *fixture, const char *name, uint64_t oldest_seq,
                          uint64_t head_seq) {
    struct store_topic topic = topic_now(fixture, name);
    assert_int_equal(topic.oldest_seq, oldest_seq);
    assert_int_equal(topic.head_seq, head_seq);
}

static uint64_t prune(struct fixture *fixture, uint64_t topic_ref, uint64_t below, uint64_t limit) {
    uint64_t pruned = UINT64_MAX;
    assert_ok(store_prune(fixture->writer, topic_ref, below, limit, &pruned));
    return pruned;
}

static enum status count_row(void *user, const struct store_journal_row *row,
                             const struct store_event *event) {
    uint64_t *first_and_count = user;
    (void)event;
    if (first_and_count[1]++ == 0)
        first_and_count[0] = row->seq;
    return STATUS_OK;
}

static void assert_journal(struct fixture *fixture, uint64_t topic_ref, uint64_t first,
                           uint64_t count) {
    uint64_t seen[2] = {0};
    assert_ok(store_walk_journal(fixture->reader, topic_ref, 0, UINT64_MAX, seen, count_row));
    assert_int_equal(seen[0], first);
    assert_int_equal(seen[1], count);
}

/* Topics 1 and 3 with ten journal rows each; topic 4 with ten events. */
static void fill_topics(struct fixture *fixture) {
    struct store_event events[10];
    struct store_journal_row rows[20];
    for (uint64_t i = 0; i < 10; i++) {
        events[i] = rows_event(i + 1, 1, i + 1);
        rows[i] = rows_journal(1, i + 1, i + 1);
        rows[10 + i] = rows_journal(3, i + 1, i + 1);
    }
    struct store_topic topics[2] = {topic_now(fixture, "runtime.run_summaries"),
                                    topic_now(fixture, "runtime.codex_worker_events")};
    topics[0].head_seq = topics[1].head_seq = 10;
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.events = events,
                                                                  .event_count = 10,
                                                                  .journal = rows,
                                                                  .journal_count = 20,
                                                                  .topics = topics,
                                                                  .topic_count = 2}));
}

static void a_journal_is_pruned_in_bounded_steps(void **state) {
    struct fixture *fixture = *state;
    fill_topics(fixture);
    assert_int_equal(prune(fixture, 1, 1, 100), 0);
    assert_int_equal(prune(fixture, 1, 8, 0), 0);
    assert_journal(fixture, 1, 1, 10);
    assert_int_equal(prune(fixture, 1, 8, 4), 4);
    assert_window(fixture, "runtime.run_summaries", 5, 10);
    assert_journal(fixture, 1, 5, 6);
    assert_int_equal(prune(fixture, 1, 8, 4), 3);
    assert_int_equal(prune(fixture, 1, 8, 4), 0);
    assert_window(fixture, "runtime.run_summaries", 8, 10);
    assert_journal(fixture, 1, 8, 3);
    assert_journal(fixture, 3, 1, 10); /* the neighbour keeps its own */
    fixture_reopen(fixture);
    assert_window(fixture, "runtime.run_summaries", 8, 10);
}

static void an_emptied_journal_begins_after_its_head(void **state) {
    struct fixture *fixture = *state;
    fill_topics(fixture);
    assert_int_equal(prune(fixture, 3, UINT64_MAX, UINT64_MAX), 10);
    assert_window(fixture, "runtime.codex_worker_events", 11, 10);
    assert_journal(fixture, 3, 0, 0);
    struct store_journal_row row = rows_journal(3, 11, 10);
    struct store_topic topic = topic_now(fixture, "runtime.codex_worker_events");
    topic.head_seq = 11;
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.journal = &row,
                                                                  .journal_count = 1,
                                                                  .topics = &topic,
                                                                  .topic_count = 1}));
    assert_window(fixture, "runtime.codex_worker_events", 11, 11);
    assert_journal(fixture, 3, 11, 1);
}

static void pruning_an_entitys_topic_does_not_change_the_log(void **state) {
    struct fixture *fixture = *state;
    struct store_event event;
    fill_topics(fixture);
    assert_window(fixture, "runtime.notifications", 1, 10);
    assert_int_equal(prune(fixture, 4, 6, 3), 3);
    assert_window(fixture, "runtime.notifications", 4, 10);
    assert_int_equal(prune(fixture, 4, 100, 100), 7);
    assert_window(fixture, "runtime.notifications", 11, 10);
    for (uint64_t i = 1; i <= 10; i++)
        assert_ok(store_load_event(fixture->reader, i, &fixture->arena, &event));
}

static void a_late_topic_row_does_not_restore_pruned_frames(void **state) {
    struct fixture *fixture = *state;
    fill_topics(fixture);
    struct store_topic stale = topic_now(fixture, "runtime.run_summaries");
    assert_int_equal(prune(fixture, 1, 5, 100), 4);
    stale.head_seq = 11;
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.topics = &stale, .topic_count = 1}));
    assert_window(fixture, "runtime.run_summaries", 5, 11);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_batch_commits),
        cmocka_unit_test(a_committed_batch_survives_a_reopen),
        cmocka_unit_test(a_batch_with_a_collision_stores_nothing),
        cmocka_unit_test(ids_of_clients_and_of_the_server_stay_findable),
        cmocka_unit_test(a_client_cannot_use_an_id_that_the_server_minted),
        cmocka_unit_test(the_server_cannot_mint_an_id_that_a_client_used),
        cmocka_unit_test(an_unused_cursor_uuid_may_be_a_clients_event_id),
        cmocka_unit_test(idempotency_keys_belong_to_their_entity),
        cmocka_unit_test(an_entity_is_replaced_by_its_ref),
        cmocka_unit_test(documents_and_checkpoints_are_replaced),
        cmocka_unit_test(a_long_log_keeps_every_position),
        cmocka_unit_test(a_journal_is_pruned_in_bounded_steps),
        cmocka_unit_test(an_emptied_journal_begins_after_its_head),
        cmocka_unit_test(pruning_an_entitys_topic_does_not_change_the_log),
        cmocka_unit_test(a_late_topic_row_does_not_restore_pruned_frames),
    };
    return CONTRACT_RUN("store: writing", tests);
}
