/* Event ids: unique among minted, supplied and imported ids together, for all time. Minted ids
 * carry the mark of the store; an id without it is not searched for among them. */
#include "backend.h"
#include "lookup.h"
#include "rows.h"

#define EVENTS 60

static struct id_mark mark_of(struct fixture *fixture) {
    struct store_state at;
    assert_ok(store_read_state(fixture->reader, &at));
    return at.id_mark;
}

/* An event as the server mints it: its id is its cursor, which carries the mark. */
static struct store_event minted(const struct id_mark *mark, uint64_t log_id) {
    struct store_event event = rows_event(log_id, 1, log_id);
    /* The last three bytes count events in rows_cursor; the mark replaces them. */
    event.cursor.bytes[12] = (uint8_t)log_id;
    id_mark_stamp(mark, &event.cursor);
    event.event_id = event.cursor;
    return event;
}

static enum status commit_event(struct fixture *fixture, struct store_event event) {
    return store_commit(fixture->writer, &(struct store_batch){.events = &event, .event_count = 1});
}

static void fill(struct fixture *fixture, struct store_event events[EVENTS]) {
    struct id_mark mark = mark_of(fixture);
    for (uint64_t i = 0; i < EVENTS; i++) {
        events[i] = i % 3 == 2 ? rows_event(i + 1, 1, i + 1) : minted(&mark, i + 1);
        if (i % 3 == 1)
            events[i].event_id = rows_client_id(1000 - i);
        if (i % 6 == 1) /* a client may supply an id with the mark */
            id_mark_stamp(&mark, &events[i].event_id);
    }
    assert_ok(store_commit(fixture->writer,
                           &(struct store_batch){.events = events, .event_count = EVENTS}));
}

static void the_mark_never_changes_and_differs_between_stores(void **state) {
    struct fixture *fixture = *state;
    struct fixture other;
    struct id_mark mark = mark_of(fixture);
    fixture_reopen(fixture);
    struct id_mark again = mark_of(fixture);
    assert_memory_equal(&mark, &again, sizeof(mark));
    /* Three random bytes are equal once in sixteen million tries. */
    fixture_open(&other, fixture->backend);
    again = mark_of(&other);
    assert_memory_not_equal(mark.bytes, again.bytes, sizeof(mark.bytes));
    fixture_close(&other);
}

static void every_id_is_found_across_restarts(void **state) {
    struct fixture *fixture = *state;
    struct store_event events[EVENTS];
    fill(fixture, events);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < EVENTS; i++) {
            uint64_t log_id = 0;
            assert_ok(lookup_event_id(fixture->writer, &events[i].event_id, &log_id));
            assert_int_equal(log_id, i + 1);
            if (i % 3 == 1) /* the cursor of an event with a supplied id is not an id */
                assert_int_equal(lookup_event_id(fixture->writer, &events[i].cursor, &log_id),
                                 STATUS_NOT_FOUND);
        }
        fixture_reopen(fixture);
    }
}

static void no_id_is_taken_twice(void **state) {
    struct fixture *fixture = *state;
    struct store_event events[EVENTS];
    struct id_mark mark = mark_of(fixture);
    fill(fixture, events);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < EVENTS; i++) {
            struct store_event taken = minted(&mark, EVENTS + 1);
            taken.event_id = events[i].event_id;
            assert_int_equal(commit_event(fixture, taken), STATUS_ALREADY_EXISTS);
        }
        fixture_reopen(fixture);
    }
    assert_ok(commit_event(fixture, minted(&mark, EVENTS + 1)));
}

static void an_id_minted_after_a_client_supplied_it_is_refused(void **state) {
    struct fixture *fixture = *state;
    struct id_mark mark = mark_of(fixture);
    struct store_event first = minted(&mark, 1), second = minted(&mark, 2);
    first.event_id = second.cursor;
    assert_ok(commit_event(fixture, first));
    assert_int_equal(commit_event(fixture, second), STATUS_ALREADY_EXISTS);
    fixture_reopen(fixture);
    assert_int_equal(commit_event(fixture, second), STATUS_ALREADY_EXISTS);
}

static enum status commit_both(struct fixture *fixture, struct store_event first,
                               struct store_event second) {
    const struct store_event both[2] = {first, second};
    return store_commit(fixture->writer, &(struct store_batch){.events = both, .event_count = 2});
}

static void an_id_is_minted_or_supplied_once_in_a_batch(void **state) {
    struct fixture *fixture = *state;
    struct id_mark mark = mark_of(fixture);
    const struct store_event first = minted(&mark, 1), second = minted(&mark, 2);
    struct store_event supplied_first = first, supplied_second = second;
    supplied_first.event_id = second.cursor;
    supplied_second.event_id = first.cursor;
    assert_int_equal(commit_both(fixture, first, supplied_second), STATUS_ALREADY_EXISTS);
    assert_int_equal(commit_both(fixture, supplied_first, second), STATUS_ALREADY_EXISTS);
    /* Nothing of the refused batches is left, and a cursor that is no event's id may be supplied.
     */
    supplied_first.event_id = rows_client_id(1000);
    assert_ok(commit_both(fixture, supplied_first, supplied_second));
}

static void an_imported_id_is_refused_in_the_same_batch_and_later(void **state) {
    struct fixture *fixture = *state;
    struct id_mark mark = mark_of(fixture);
    /* Minted by another store: the id is the cursor's, without this store's mark. */
    struct store_event imported = rows_event(1, 1, 1), taken = minted(&mark, 2);
    taken.event_id = imported.event_id;
    struct store_event both[2] = {imported, taken};
    assert_int_equal(
        store_commit(fixture->writer, &(struct store_batch){.events = both, .event_count = 2}),
        STATUS_ALREADY_EXISTS);
    assert_ok(commit_event(fixture, imported));
    fixture_reopen(fixture);
    assert_int_equal(commit_event(fixture, taken), STATUS_ALREADY_EXISTS);
}

/* The rows that a lookup reads are its cost. */
static void an_id_without_the_mark_does_not_search_the_log(void **state) {
    struct fixture *fixture = *state;
    struct store_event events[EVENTS];
    uint64_t log_id;
    fill(fixture, events);
    struct id_mark mark = mark_of(fixture);
    struct uuid without = rows_client_id(20), with = rows_client_id(20);
    id_mark_stamp(&mark, &with);
    without.bytes[15] = (uint8_t)~mark.bytes[2];
    uint64_t before = store_session_rows_read(fixture->writer);
    assert_int_equal(lookup_event_id(fixture->writer, &without, &log_id), STATUS_NOT_FOUND);
    uint64_t unmarked_rows = store_session_rows_read(fixture->writer) - before;
    assert_int_equal(lookup_event_id(fixture->writer, &with, &log_id), STATUS_NOT_FOUND);
    uint64_t marked_rows = store_session_rows_read(fixture->writer) - before - unmarked_rows;
    assert_true(unmarked_rows <= 1);
    assert_true(marked_rows > unmarked_rows);
}

static enum status commit_at(struct fixture *fixture, uint64_t log_id, uint64_t entity_ref,
                             uint64_t seq) {
    struct store_event event = rows_event(log_id, entity_ref, seq);
    return store_commit(fixture->writer, &(struct store_batch){.events = &event, .event_count = 1});
}

/* A store may remember the last positions that it stored, of more or fewer entities. */
static void a_position_follows_the_stored_one_whatever_was_stored_between(void **state) {
    static const uint64_t distances[] = {1, 1024, 4096, 16384, 65536};
    struct fixture *fixture = *state;
    uint64_t log_id = 0;
    assert_ok(commit_at(fixture, ++log_id, 2, 1));
    for (size_t i = 0; i < sizeof(distances) / sizeof(distances[0]); i++) {
        uint64_t seq = 2 + i;
        assert_int_equal(commit_at(fixture, log_id + 1, 2, seq + 1), STATUS_SEQUENCE_CONFLICT);
        assert_int_equal(commit_at(fixture, log_id + 1, 2, seq - 1), STATUS_SEQUENCE_CONFLICT);
        assert_ok(commit_at(fixture, ++log_id, 2 + distances[i], 1));
        assert_int_equal(commit_at(fixture, log_id + 1, 2 + distances[i], 3),
                         STATUS_SEQUENCE_CONFLICT);
        assert_ok(commit_at(fixture, ++log_id, 2, seq));
        assert_int_equal(commit_at(fixture, log_id + 1, 2, seq + 2), STATUS_SEQUENCE_CONFLICT);
        assert_ok(commit_at(fixture, ++log_id, 2 + distances[i], 2));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_position_follows_the_stored_one_whatever_was_stored_between),
        cmocka_unit_test(the_mark_never_changes_and_differs_between_stores),
        cmocka_unit_test(every_id_is_found_across_restarts),
        cmocka_unit_test(no_id_is_taken_twice),
        cmocka_unit_test(an_id_minted_after_a_client_supplied_it_is_refused),
        cmocka_unit_test(an_id_is_minted_or_supplied_once_in_a_batch),
        cmocka_unit_test(an_imported_id_is_refused_in_the_same_batch_and_later),
        cmocka_unit_test(an_id_without_the_mark_does_not_search_the_log),
    };
    return CONTRACT_RUN("event ids", tests);
}
