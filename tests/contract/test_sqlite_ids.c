/* Event ids in the embedded store: a store from before the mark, a backup and its restore. */
#include "backend.h"
#include "lookup.h"
#include "rows.h"
#include "store/store_maintenance.h"

#include <sqlite3.h>

#define OLD_EVENTS 20

static void execute(const char *place, const char *sql) {
    char path[256];
    sqlite3 *database = NULL;
    snprintf(path, sizeof(path), "%s/khala.db", place);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

static void close_all(struct fixture *fixture) {
    store_session_close(fixture->reader);
    store_session_close(fixture->writer);
    store_close(fixture->store);
}

static void open_all(struct fixture *fixture) {
    fixture->store = fixture->backend->open(fixture->place);
    assert_ok(store_session_open(fixture->store, STORE_WRITE, &fixture->writer));
    assert_ok(store_session_open(fixture->store, STORE_READ, &fixture->reader));
}

/* As schema version 2 held it: ids that the server minted are in no table of ids. */
static void make_old(struct fixture *fixture) {
    struct store_event events[OLD_EVENTS];
    for (uint64_t i = 0; i < OLD_EVENTS; i++)
        events[i] = rows_event(i + 1, 1, i + 1);
    events[3].event_id = rows_client_id(400);
    assert_ok(store_commit(fixture->writer,
                           &(struct store_batch){.events = events, .event_count = OLD_EVENTS}));
    close_all(fixture);
    execute(fixture->place, "DROP VIEW sync_topic_sequences; DROP VIEW sync_stream_events; "
                            "DROP VIEW khala_projection_checkpoints; "
                            "DROP VIEW owner_usage_counted; DROP TABLE owner_usage; "
                            "DROP TABLE owner_quotas; DROP TABLE operator_keys; "
                            "DROP INDEX entities_by_creation; DROP INDEX entities_by_owner; "
                            "DROP INDEX entities_by_owner_id; "
                            "DROP INDEX entities_by_worker; "
                            "ALTER TABLE topics RENAME TO sync_topic_sequences; "
                            "ALTER TABLE journal RENAME TO sync_stream_events; "
                            "ALTER TABLE checkpoints RENAME TO khala_projection_checkpoints; "
                            "DELETE FROM event_ids WHERE log_id <> 4; DROP TABLE minted_ids; "
                            "ALTER TABLE sync_stream_events DROP COLUMN first_entity_seq; "
                            "ALTER TABLE events DROP COLUMN recorded_at; "
                            "ALTER TABLE events DROP COLUMN chain_version; "
                            "ALTER TABLE events RENAME COLUMN prev_chain_hash TO prev_hash; "
                            "ALTER TABLE events RENAME COLUMN chain_hash TO event_hash; "
                            "ALTER TABLE sync_topic_sequences DROP COLUMN journal_epoch; "
                            "ALTER TABLE sync_topic_sequences DROP COLUMN damaged_seq; "
                            "ALTER TABLE khala_projection_drifts DROP COLUMN subject; "
                            "DELETE FROM event_positions_recent; INSERT INTO "
                            "event_positions_recent SELECT entity_ref, seq, log_id, 1 FROM events; "
                            "ALTER TABLE event_positions DROP COLUMN event_count; "
                            "ALTER TABLE event_positions_recent DROP COLUMN event_count; "
                            "PRAGMA user_version = 2");
}

static enum status supply(struct fixture *fixture, struct uuid id) {
    struct store_event event = rows_event(OLD_EVENTS + 1, 1, OLD_EVENTS + 1);
    event.event_id = id;
    return store_commit(fixture->writer, &(struct store_batch){.events = &event, .event_count = 1});
}

static void assert_old_ids_are_taken(struct fixture *fixture) {
    uint64_t log_id = 0;
    for (uint64_t i = 1; i <= OLD_EVENTS; i++) {
        struct uuid id = i == 4 ? rows_client_id(400) : rows_cursor(i);
        assert_ok(lookup_event_id(fixture->writer, &id, &log_id));
        assert_int_equal(log_id, i);
        assert_int_equal(supply(fixture, id), STATUS_ALREADY_EXISTS);
    }
    /* This cursor is not an id: its event has a supplied one. */
    struct uuid cursor = rows_cursor(4);
    assert_int_equal(lookup_event_id(fixture->writer, &cursor, &log_id), STATUS_NOT_FOUND);
}

static void old_events_keep_their_links_and_were_recorded_by_their_cursors(void **state) {
    struct fixture *fixture = *state;
    struct store_message message;
    make_old(fixture);
    assert_ok(store_migrate(fixture->place, &message));
    open_all(fixture);
    for (uint64_t i = 1; i <= OLD_EVENTS; i++) {
        struct store_event read, event = rows_event(i, 1, i);
        assert_ok(store_load_event(fixture->reader, i, &fixture->arena, &read));
        assert_int_equal(read.recorded_at_ms, rows_time_ms(i));
        assert_int_equal(read.chain_version, 1);
        assert_memory_equal(read.chain_hash, event.chain_hash, SHA256_BYTES);
        assert_memory_equal(read.prev_chain_hash, event.prev_chain_hash, SHA256_BYTES);
    }
}

static void ids_from_before_the_mark_stay_taken(void **state) {
    struct fixture *fixture = *state;
    struct store_message message;
    struct store_state at;
    make_old(fixture);
    assert_ok(store_migrate(fixture->place, &message));
    open_all(fixture);
    struct uuid last = rows_cursor(OLD_EVENTS);
    assert_ok(store_read_state(fixture->reader, &at));
    assert_memory_equal(&at.id_mark.unmarked_max, &last, sizeof(last));
    assert_old_ids_are_taken(fixture);
    fixture_reopen(fixture);
    assert_old_ids_are_taken(fixture);
    assert_ok(supply(fixture, rows_client_id(10)));
}

static void a_restored_backup_keeps_its_ids_and_its_mark(void **state) {
    struct fixture *fixture = *state;
    struct store_copy_options options = {0};
    struct store_message message;
    struct store_copy copy;
    struct store_restore *restore = NULL;
    struct store_restored restored;
    struct store_state before, after;
    char file[300];
    make_old(fixture);
    assert_ok(store_migrate(fixture->place, &message));
    open_all(fixture);
    assert_ok(store_read_state(fixture->reader, &before));
    close_all(fixture);
    snprintf(file, sizeof(file), "%s/backup", fixture->place);
    assert_ok(store_backup(fixture->place, file, &options, &copy, &message));
    assert_ok(store_restore_begin(fixture->place, file, &options, &restore, &message));
    assert_ok(store_restore_apply(restore, &restored, &message));
    store_restore_end(restore);
    open_all(fixture);
    assert_ok(store_read_state(fixture->reader, &after));
    assert_memory_equal(&before.id_mark, &after.id_mark, sizeof(before.id_mark));
    assert_old_ids_are_taken(fixture);
}

/* A backup that an older version made gets the mark when it is restored. */
static void an_old_backup_is_marked_when_it_is_restored(void **state) {
    struct fixture *fixture = *state;
    struct store_copy_options options = {0};
    struct store_message message;
    struct store_restore *restore = NULL;
    struct store_restored restored;
    char file[300], database[300];
    make_old(fixture);
    snprintf(file, sizeof(file), "%s/backup", fixture->place);
    snprintf(database, sizeof(database), "%s/khala.db", fixture->place);
    assert_int_equal(rename(database, file), 0);
    assert_ok(store_restore_begin(fixture->place, file, &options, &restore, &message));
    assert_ok(store_restore_apply(restore, &restored, &message));
    store_restore_end(restore);
    open_all(fixture);
    assert_old_ids_are_taken(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_from_before_the_mark_stay_taken),
        cmocka_unit_test(old_events_keep_their_links_and_were_recorded_by_their_cursors),
        cmocka_unit_test(a_restored_backup_keeps_its_ids_and_its_mark),
        cmocka_unit_test(an_old_backup_is_marked_when_it_is_restored),
    };
    return CONTRACT_RUN_ONLY("sqlite: event ids", "sqlite", tests);
}
