/* Readers beside a writer: each sees committed batches, whole, and never goes back in time. */
#include "backend.h"
#include "rows.h"

#include <pthread.h>
#include <stdatomic.h>

#define READERS      3
#define BATCHES      150
#define BATCH_EVENTS 8

struct reading {
    struct store *store;
    atomic_bool *done;
    uint64_t reads;
    uint64_t wrong;
};

static enum status count_event(void *user, const struct store_event *event) {
    uint64_t *last = user;
    if (event->log_id != *last + 1)
        return STATUS_INTERNAL_ERROR;
    *last = event->log_id;
    return STATUS_OK;
}

/* cmocka's assertions belong to the main thread: what is wrong is counted. */
static void read_once(struct store_session *session, struct arena *arena, uint64_t *last,
                      struct reading *reading) {
    struct store_state at;
    struct store_entity entity;
    struct store_document document;
    uint64_t walked = 0;
    arena_reset(arena);
    if (store_read_state(session, &at) != STATUS_OK || at.log_id < *last ||
        at.log_id % BATCH_EVENTS != 0)
        reading->wrong++;
    *last = at.log_id;
    if (store_walk_log(session, 0, UINT64_MAX, &walked, count_event) != STATUS_OK ||
        walked < at.log_id || walked % BATCH_EVENTS != 0)
        reading->wrong++;
    /* The document was written in the same commits as the events it counts. */
    enum status status = store_load_document(session, DOCUMENT_RUN_SUMMARY, 1, arena, &document);
    uint64_t version = status == STATUS_OK ? document.version : 0;
    if (version * BATCH_EVENTS < walked || (status != STATUS_OK && status != STATUS_NOT_FOUND))
        reading->wrong++;
    if (store_load_entity_ref(session, 1, arena, &entity) != STATUS_OK ||
        entity.head_seq < version * BATCH_EVENTS || entity.head_seq % BATCH_EVENTS != 0)
        reading->wrong++;
    reading->reads++;
}

static void *read_on(void *user) {
    struct reading *reading = user;
    struct store_session *session = NULL;
    struct arena arena;
    uint64_t last = 0;
    if (store_session_open(reading->store, STORE_READ, &session) != STATUS_OK) {
        reading->wrong++;
        return NULL;
    }
    arena_init(&arena, 1048576);
    while (!atomic_load(reading->done) || reading->reads == 0)
        read_once(session, &arena, &last, reading);
    arena_release(&arena);
    store_session_close(session);
    return NULL;
}

static void commit_batch(struct fixture *fixture, uint64_t number) {
    struct store_event events[BATCH_EVENTS];
    struct rows_text key;
    struct store_document document = rows_document(DOCUMENT_RUN_SUMMARY, 1, number + 1, &key);
    for (uint64_t i = 0; i < BATCH_EVENTS; i++) {
        uint64_t log_id = number * BATCH_EVENTS + i + 1;
        events[i] = rows_event(log_id, 1, log_id);
    }
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.events = events,
                                                                  .event_count = BATCH_EVENTS,
                                                                  .documents = &document,
                                                                  .document_count = 1}));
}

static void readers_see_complete_batches_while_a_writer_writes(void **state) {
    struct fixture *fixture = *state;
    atomic_bool done = false;
    pthread_t threads[READERS];
    struct reading readings[READERS];
    for (size_t i = 0; i < READERS; i++) {
        readings[i] = (struct reading){.store = fixture->store, .done = &done};
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &readings[i]), 0);
    }
    for (uint64_t i = 0; i < BATCHES; i++)
        commit_batch(fixture, i);
    atomic_store(&done, true);
    for (size_t i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readings[i].wrong, 0);
        assert_true(readings[i].reads > 0);
    }
}

struct stalled {
    struct fixture *fixture;
    uint64_t seen;
};

static enum status write_inside(void *user, const struct store_event *event) {
    struct stalled *stalled = user;
    (void)event;
    if (stalled->seen++ == 0)
        commit_batch(stalled->fixture, 1);
    return STATUS_OK;
}

static void a_walk_shows_the_store_as_it_was_when_it_began(void **state) {
    struct stalled stalled = {.fixture = *state};
    commit_batch(stalled.fixture, 0);
    assert_ok(store_walk_log(stalled.fixture->reader, 0, UINT64_MAX, &stalled, write_inside));
    assert_int_equal(stalled.seen, BATCH_EVENTS);
    stalled.seen = 1;
    assert_ok(store_walk_log(stalled.fixture->reader, 0, UINT64_MAX, &stalled, write_inside));
    assert_int_equal(stalled.seen, 1 + 2 * BATCH_EVENTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_see_complete_batches_while_a_writer_writes),
        cmocka_unit_test(a_walk_shows_the_store_as_it_was_when_it_began),
    };
    return CONTRACT_RUN("store: threads", tests);
}
