/* Positions in the embedded store. One position covers events of an entity that follow each other
 * in the log; a store from before that has a position for each event. */
#include "backend.h"
#include "rows.h"

#include <sqlite3.h>

/* Entity 1 has the events 1 to 10, 12, and 14 to 20 of the log; entity 2 has 11 and 13. */
#define EVENTS 20
#define SEQS   18

static sqlite3_int64 ask(const char *place, const char *sql) {
    char path[256];
    sqlite3 *database = NULL;
    sqlite3_stmt *statement = NULL;
    snprintf(path, sizeof(path), "%s/khala.db", place);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(database, sql, -1, &statement, NULL), SQLITE_OK);
    int code = sqlite3_step(statement);
    assert_true(code == SQLITE_ROW || code == SQLITE_DONE);
    sqlite3_int64 number = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
    return number;
}

static bool is_second(uint64_t log_id) {
    return log_id == 11 || log_id == 13;
}

static void write_events(struct fixture *fixture) {
    struct store_event events[EVENTS];
    struct store_entity entities[2];
    struct rows_text names[2];
    uint64_t seqs[3] = {0};
    for (uint64_t i = 0; i < 2; i++)
        entities[i] = rows_run(i + 2, &names[i]);
    for (uint64_t i = 1; i <= EVENTS; i++) {
        uint64_t ref = is_second(i) ? 3 : 2;
        events[i - 1] = rows_event(i, ref, ++seqs[ref - 1]);
    }
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = entities,
                                                                  .entity_count = 2,
                                                                  .events = events,
                                                                  .event_count = EVENTS}));
}

struct seen {
    uint64_t seq;
    uint64_t log_id;
};

static enum status see(void *user, const struct store_event *event) {
    struct seen *seen = user;
    assert_int_equal(event->seq, seen->seq + 1);
    assert_true(event->log_id > seen->log_id);
    assert_int_equal(event->entity_ref, 2);
    *seen = (struct seen){event->seq, event->log_id};
    return STATUS_OK;
}

/* Every walk from every position, with every limit. */
static void assert_walks(struct fixture *fixture) {
    for (uint64_t after = 0; after <= SEQS + 1; after++)
        for (uint64_t limit = 1; limit <= SEQS + 1; limit++) {
            struct seen seen = {.seq = after};
            struct store_replay replay;
            uint64_t left = after < SEQS ? SEQS - after : 0;
            uint64_t count = left < limit ? left : limit;
            const struct store_topic topic = {.entity_ref = 2};
            assert_ok(store_walk_entity_events(fixture->reader, 2, after, limit, &seen, see));
            assert_int_equal(seen.seq, after + count);
            seen = (struct seen){.seq = after};
            assert_ok(store_walk_entity_frames(fixture->reader, 2, after, limit, &seen, see));
            assert_int_equal(seen.seq, after + count);
            assert_ok(store_measure_replay(fixture->reader, &topic, after, limit, &replay));
            assert_int_equal(replay.frame_count, count);
        }
}

static void events_that_follow_each_other_share_a_position(void **state) {
    struct fixture *fixture = *state;
    write_events(fixture);
    assert_int_equal(ask(fixture->place, "SELECT count(*) FROM event_positions_recent"), 5);
    assert_int_equal(ask(fixture->place, "SELECT max(event_count) FROM event_positions_recent"),
                     10);
    assert_walks(fixture);
    fixture_reopen(fixture);
    assert_walks(fixture);
    /* The older part of the positions has some, the recent part has the others. */
    ask(fixture->place, "INSERT INTO event_positions SELECT * FROM event_positions_recent "
                        "WHERE entity_ref = 2 AND seq < 12");
    ask(fixture->place, "DELETE FROM event_positions_recent WHERE entity_ref = 2 AND seq < 12");
    fixture_reopen(fixture);
    assert_walks(fixture);
}

static void a_position_for_each_event_reads_the_same(void **state) {
    struct fixture *fixture = *state;
    write_events(fixture);
    ask(fixture->place, "DELETE FROM event_positions_recent");
    ask(fixture->place, "INSERT INTO event_positions (entity_ref, seq, log_id) SELECT entity_ref, "
                        "seq, log_id FROM events");
    fixture_reopen(fixture);
    assert_walks(fixture);
}

static void the_head_goes_on_behind_a_shared_position(void **state) {
    struct fixture *fixture = *state;
    struct store_entity entity;
    write_events(fixture);
    assert_ok(store_load_entity_ref(fixture->reader, 2, &fixture->arena, &entity));
    assert_int_equal(entity.head_seq, SEQS);
    fixture_reopen(fixture);
    struct store_event late = rows_event(EVENTS + 1, 2, SEQS + 2);
    struct store_event next = rows_event(EVENTS + 1, 2, SEQS + 1);
    assert_int_equal(
        store_commit(fixture->writer, &(struct store_batch){.events = &late, .event_count = 1}),
        STATUS_SEQUENCE_CONFLICT);
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.events = &next, .event_count = 1}));
    /* The failure was forgotten, and the success is remembered. */
    assert_int_equal(
        store_commit(fixture->writer, &(struct store_batch){.events = &next, .event_count = 1}),
        STATUS_SEQUENCE_CONFLICT);
    assert_ok(store_load_entity_ref(fixture->reader, 2, &fixture->arena, &entity));
    assert_int_equal(entity.head_seq, SEQS + 1);
}

static void a_lost_event_is_damage_wherever_its_position_has_it(void **state) {
    struct fixture *fixture = *state;
    char sql[128];
    write_events(fixture);
    static const uint64_t lost[] = {20, 14, 10, 5, 1};
    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
        struct seen seen = {0};
        snprintf(sql, sizeof(sql), "DELETE FROM events WHERE log_id = %llu",
                 (unsigned long long)lost[i]);
        ask(fixture->place, sql);
        assert_int_equal(store_walk_entity_events(fixture->reader, 2, 0, 100, &seen, see),
                         STATUS_INTERNAL_ERROR);
        assert_true(seen.log_id < lost[i]);
        seen = (struct seen){0};
        assert_int_equal(store_walk_entity_frames(fixture->reader, 2, 0, 100, &seen, see),
                         STATUS_INTERNAL_ERROR);
        assert_true(seen.log_id < lost[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_that_follow_each_other_share_a_position),
        cmocka_unit_test(a_position_for_each_event_reads_the_same),
        cmocka_unit_test(the_head_goes_on_behind_a_shared_position),
        cmocka_unit_test(a_lost_event_is_damage_wherever_its_position_has_it),
    };
    return CONTRACT_RUN_ONLY("sqlite: positions", "sqlite", tests);
}
