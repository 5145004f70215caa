/* The projector behind the real writer: documents agree with the authority. */
#include <jansson.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "authority/writer_fixture.h"
#include "base/log.h"
#include "projector/projector.h"
#include "projector/reproject.h"
#include "projector/verify.h"

struct world {
    struct fixture *fixture;
    struct projector *projector;
};

static void new_projector(struct world *world) {
    const struct projector_options options = {.cache_bytes_max = 8192};
    projector_close(world->projector);
    assert_ok(projector_open(&world->projector, &options));
    world->fixture->options.projection = projector_projection(world->projector);
}

static int setup(void **state) {
    struct world *world = calloc(1, sizeof(*world));
    world->fixture = fixture_new_unlimited();
    new_projector(world);
    fixture_open(world->fixture);
    *state = world;
    return 0;
}

static int teardown(void **state) {
    struct world *world = *state;
    fixture_close(world->fixture);
    projector_close(world->projector);
    fixture_free(world->fixture);
    free(world);
    return 0;
}

/* ---- documents against entities ------------------------------------------------------------ */

static void same_text(const json_t *document, const char *name, struct slice text) {
    const json_t *value = json_object_get(document, name);
    assert_non_null(value);
    if (!text.data) {
        assert_true(json_is_null(value));
        return;
    }
    assert_int_equal(json_string_length(value), text.size);
    assert_memory_equal(json_string_value(value), text.data, text.size);
}

static void same_time(const json_t *document, const char *name, uint64_t time_ms) {
    const json_t *value = json_object_get(document, name);
    assert_non_null(value);
    if (time_ms == 0)
        assert_true(json_is_null(value));
    else
        assert_int_equal(json_integer_value(value), time_ms);
}

static void same_metadata(const json_t *document, struct slice metadata) {
    json_t *value = json_object_get(document, "metadata");
    if (!metadata.data) {
        assert_true(json_is_null(value));
        return;
    }
    json_t *expected = json_loadb(metadata.data, metadata.size, 0, NULL);
    assert_true(json_equal(value, expected));
    json_decref(expected);
}

static void check_worker(const json_t *document, const struct store_entity *entity) {
    same_text(document, "worker_id", entity->id);
    same_text(document, "workspace_ref", entity->workspace_ref);
    same_text(document, "codex_home_ref", entity->codex_home_ref);
    same_text(document, "adapter", entity->adapter);
    same_time(document, "started_at", entity->started_at_ms);
    same_time(document, "stopped_at", entity->stopped_at_ms);
    same_time(document, "last_heartbeat_at", entity->last_heartbeat_at_ms);
    same_metadata(document, entity->metadata);
}

static enum status check_entity(void *user, const struct store_entity *entity) {
    struct store *store = user;
    struct store_session *session;
    struct store_document row;
    struct arena arena;
    bool is_run = entity->kind == ENTITY_RUN;
    arena_init(&arena, (size_t)1 << 20);
    assert_ok(store_session_open(store, STORE_READ, &session));
    assert_ok(store_load_document(session, is_run ? DOCUMENT_RUN_SUMMARY : DOCUMENT_WORKER_SUMMARY,
                                  entity->ref, &arena, &row));
    json_t *document = json_loadb(row.payload.data, row.payload.size, 0, NULL);
    assert_non_null(document);
    same_text(document, "status", entity->status);
    same_text(document, "owner_user_id", entity->owner.user_id);
    same_text(document, "owner_guest_scope", entity->owner.guest_scope);
    same_text(document, "org_id", entity->owner.org_id);
    assert_int_equal(json_integer_value(json_object_get(document, "latest_seq")), entity->head_seq);
    assert_int_equal(json_integer_value(json_object_get(document, "event_count")),
                     entity->head_seq);
    if (is_run) {
        same_text(document, "run_id", entity->id);
        same_text(document, "thread_id", entity->thread_id);
        same_time(document, "terminal_at", entity->stopped_at_ms);
    } else {
        check_worker(document, entity);
    }
    json_decref(document);
    store_session_close(session);
    arena_release(&arena);
    return STATUS_OK;
}

static void check_documents(struct world *world) {
    struct store *store = world->fixture->store;
    struct store_session *session;
    assert_ok(store_session_open(store, STORE_READ, &session));
    assert_ok(store_walk_entities(session, ENTITY_RUN, 0, UINT64_MAX, store, check_entity));
    assert_ok(store_walk_entities(session, ENTITY_WORKER, 0, UINT64_MAX, store, check_entity));
    store_session_close(session);
}

static void check_log(struct world *world) {
    const struct verify_options verifying = {0};
    const struct reproject_options reprojecting = {.now_ms = 1};
    struct verify_result verified;
    struct reproject_result reprojected;
    struct store_session *session;
    assert_ok(store_session_open(world->fixture->store, STORE_READ, &session));
    assert_ok(verify(session, &verifying, &verified));
    assert_false(verified.is_broken);
    assert_ok(reproject(session, &reprojecting, &reprojected));
    assert_int_equal(reprojected.drifted, 0);
    store_session_close(session);
}

/* ---- tests --------------------------------------------------------------------------------- */

static const char *const items[] = {
    "{\"worker_id\":\"w%u\",\"status\":\"running\"}",
    "{\"worker_id\":\"w%u\",\"status\":\"stopping\",\"reason\":\"told so\"}",
    "{\"worker_id\":\"w%u\",\"status\":\"stopped\",\"reason\":\"done\"}",
    "{\"worker_id\":\"w%u\",\"status\":\"failed\"}",
    "{\"worker_id\":\"w%u\",\"metadata_patch\":{\"b\":{\"c\":1},\"a\":null}}",
    "{\"worker_id\":\"w%u\",\"metadata_patch\":{\"a\":[1,2],\"\\\"\":0}}",
    "{\"worker_id\":\"w%u\",\"event_type\":\"worker.log\",\"payload\":{\"x\":1}}",
    "{\"run_id\":\"r%u\",\"event_type\":\"run.started\",\"payload\":{\"owner_user_id\":\"x\"}}",
    "{\"run_id\":\"r%u\",\"event_type\":\"anything\"}",
    "{\"run_id\":\"r%u\",\"event_type\":\"run.cancel_requested\"}",
    "{\"run_id\":\"r%u\",\"event_type\":\"run.finished\",\"payload\":{\"status\":\"cancelled\"}}",
    "{\"topic\":\"app.t%u\",\"event_type\":\"x\"}",
};

static void create(struct world *world, unsigned number) {
    char body[256];
    snprintf(body, sizeof(body),
             "{\"run_id\":\"r%u\",\"owner_guest_scope\":\"g\",\"thread_id\":\"t\\\"\"}", number);
    ask_ok(world->fixture, APPEND_RUN_CREATE, NULL, body);
    snprintf(body, sizeof(body),
             "{\"worker_id\":\"w%u\",\"owner_user_id\":\"u%u\",\"org_id\":\"o\",%s"
             "\"codex_home_ref\":\"home\"}",
             number, number % 2, number % 3 ? "\"metadata\":{\"a\":1}," : "");
    ask_ok(world->fixture, APPEND_WORKER_CREATE, NULL, body);
}

static void revive(struct world *world, unsigned number) {
    char body[256];
    snprintf(body, sizeof(body),
             "{\"worker_id\":\"w%u\",\"owner_user_id\":\"u%u\",\"adapter\":\"other\"}", number,
             number % 2);
    (void)ask(world->fixture, APPEND_WORKER_CREATE, NULL, body);
}

static void documents_agree_with_the_authority(void **state) {
    struct world *world = *state;
    uint64_t chance = 7;
    for (unsigned i = 0; i < 6; i++)
        create(world, i);
    for (int round = 0; round < 60; round++) {
        char texts[32][256];
        const char *batch[32];
        size_t count = 1 + test_random(&chance) % 32;
        for (size_t i = 0; i < count; i++) {
            const char *item = items[test_random(&chance) % (sizeof(items) / sizeof(items[0]))];
            unsigned number = (unsigned)(test_random(&chance) % 6);
            const char *at = strstr(item, "%u");
            snprintf(texts[i], sizeof(texts[i]), "%.*s%u%s", (int)(at - item), item, number,
                     at + 2);
            batch[i] = texts[i];
        }
        (void)wait_for(post_items(world->fixture, count, batch));
        revive(world, (unsigned)(test_random(&chance) % 6));
        clock_manual_advance_ms(&world->fixture->clock, 10);
    }
    check_documents(world);
    check_log(world);
    struct projector_stats stats = projector_stats(world->projector);
    assert_int_equal(stats.drifts, 0);
    assert_int_equal(stats.failures, 0);
    assert_true(stats.cache_misses > 12);
}

struct checker {
    struct world *world;
    atomic_bool is_over;
    pthread_t thread;
};

static void *append_until_over(void *argument) {
    struct checker *checker = argument;
    const char *batch[] = {
        "{\"run_id\":\"r0\",\"event_type\":\"x\"}",
        "{\"worker_id\":\"w0\",\"metadata_patch\":{\"a\":2}}",
        "{\"run_id\":\"r1\",\"event_type\":\"x\"}",
    };
    while (!atomic_load(&checker->is_over))
        (void)wait_for(post_items(checker->world->fixture, 3, batch));
    return NULL;
}

static void a_check_beside_a_running_writer_finds_no_drift(void **state) {
    struct world *world = *state;
    struct checker checker = {.world = world};
    create(world, 0);
    create(world, 1);
    atomic_init(&checker.is_over, false);
    assert_int_equal(pthread_create(&checker.thread, NULL, append_until_over, &checker), 0);
    for (int i = 0; i < 40; i++)
        check_log(world);
    atomic_store(&checker.is_over, true);
    pthread_join(checker.thread, NULL);
    check_documents(world);
    check_log(world);
}

/* ---- derived tables that are damaged --------------------------------------------------------- */

/* Changes the database directly. Answers the number of changed rows. */
static int alter_schema(struct world *world, const char *sql) {
    char path[96];
    sqlite3 *database;
    char *error = NULL;
    snprintf(path, sizeof(path), "%s/khala.db", world->fixture->folder);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_busy_timeout(database, 10000), SQLITE_OK);
    if (sqlite3_exec(database, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s", error);
    int changes = sqlite3_changes(database);
    sqlite3_close(database);
    return changes;
}

static void alter(struct world *world, const char *sql) {
    assert_true(alter_schema(world, sql) > 0);
}

/* Rows ahead of the heads of their topics, so that the next frames cannot be written. */
static void damage(struct world *world) {
    alter(world, "INSERT INTO journal (topic_ref, seq, log_id, entity_ref, doc_version, "
                 "published_at, payload_hash, payload) SELECT ref, head_seq + 1, 1, 2, 7, 0, "
                 "x'00', '{}' FROM topics WHERE entity_ref IS NULL AND ref <= 2");
}

static void append_everywhere(struct world *world) {
    const char *batch[] = {
        "{\"run_id\":\"r0\",\"event_type\":\"run.started\"}",
        "{\"worker_id\":\"w0\",\"metadata_patch\":{\"a\":2}}",
        "{\"topic\":\"app.t\",\"event_type\":\"x\"}",
    };
    const struct append_request *answers = wait_for(post_items(world->fixture, 3, batch));
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(status_code(answers[i].status), status_code(STATUS_OK));
}

/* Waits until the writer has healed all documents. */
static void wait_until_whole(struct world *world) {
    struct store_session *session;
    struct store_state state = {.unprojected_from = 1};
    assert_ok(store_session_open(world->fixture->store, STORE_READ, &session));
    while (state.unprojected_from > 0)
        assert_ok(store_read_state(session, &state));
    store_session_close(session);
}

static void damaged_frames_do_not_fail_an_append(void **state) {
    struct world *world = *state;
    create(world, 0);
    damage(world);
    for (unsigned i = 1; i < 5; i++) {
        append_everywhere(world);
        create(world, i);
    }
    struct writer_stats stats = writer_stats(world->fixture->writer);
    assert_int_equal(stats.commit_failures, 0);
    assert_int_equal(stats.refused, 0);
    assert_int_equal(stats.underived, 1);
    assert_int_equal(checked_log(world->fixture), 2 + 4 * 5);
    wait_until_whole(world);
    check_documents(world);
    check_log(world);
    append_everywhere(world);
    check_documents(world);
    check_log(world);
}

static void damage_heals_without_another_append(void **state) {
    struct world *world = *state;
    create(world, 0);
    damage(world);
    append_everywhere(world);
    wait_until_whole(world);
    check_documents(world);
    check_log(world);
}

static void events_without_frames_are_healed_after_a_restart(void **state) {
    struct world *world = *state;
    create(world, 0);
    append_everywhere(world);
    writer_stop(world->fixture->writer);
    alter(world, "DELETE FROM run_documents");
    alter(world, "INSERT INTO meta (name, value) VALUES ('unprojected_from', '1')");
    new_projector(world);
    assert_ok(writer_start(&world->fixture->writer, &world->fixture->options));
    wait_until_whole(world);
    check_documents(world);
    check_log(world);
}

/* A trigger is a damage that no repair of rows removes. */
static void damage_that_stays_refuses_nothing(void **state) {
    struct world *world = *state;
    create(world, 0);
    alter_schema(world, "CREATE TRIGGER no AFTER INSERT ON journal BEGIN "
                        "SELECT raise(ABORT, 'no'); END");
    for (unsigned i = 0; i < 5; i++)
        append_everywhere(world);
    struct writer_stats stats = writer_stats(world->fixture->writer);
    assert_int_equal(stats.commit_failures, 0);
    assert_int_equal(stats.refused, 0);
    assert_true(stats.underived >= 1);
    alter_schema(world, "DROP TRIGGER no");
    clock_manual_advance_ms(&world->fixture->clock, 1000);
    append_everywhere(world);
    wait_until_whole(world);
    check_documents(world);
    check_log(world);
}

int main(void) {
    log_configure(LOG_OFF, LOG_TEXT, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(documents_agree_with_the_authority, setup, teardown),
        cmocka_unit_test_setup_teardown(a_check_beside_a_running_writer_finds_no_drift, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(damaged_frames_do_not_fail_an_append, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_heals_without_another_append, setup, teardown),
        cmocka_unit_test_setup_teardown(events_without_frames_are_healed_after_a_restart, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(damage_that_stays_refuses_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
