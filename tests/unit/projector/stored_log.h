/* A log in a real store with the projector: the work of the writer without its rules. The first
 * event of an entity creates it. A commit holds the events since the last commit. */
#ifndef STORED_LOG_H
#define STORED_LOG_H

#include <dirent.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "authority/chain_hash.h"
#include "projector/projector.h"
#include "projector/reproject.h"
#include "projector/verify.h"
#include "test.h"

#define LOG_ENTITIES_MAX 256
#define LOG_EVENTS_MAX   2048

struct stored_log {
    char folder[64];
    struct store *store;
    struct store_session *session;
    struct projector *projector;
    struct projector_options options;
    struct store_state state;
    uint64_t now_ms;
    struct store_entity entities[LOG_ENTITIES_MAX];
    size_t entity_count;
    struct store_event events[LOG_EVENTS_MAX];
    struct store_entity *owners[LOG_EVENTS_MAX]; /* of the events */
    size_t event_count;
    struct arena arena;   /* ids */
    struct arena payload; /* of the commit */
    struct uuid7_generator generator;
    struct buffer scratch;
};

static inline void log_start(struct stored_log *log) {
    struct store_message message;
    if (store_open(&log->store, log->folder, true, &message) != STATUS_OK)
        fail_msg("%s", message.text);
    assert_ok(store_session_open(log->store, STORE_WRITE, &log->session));
    assert_ok(projector_open(&log->projector, &log->options));
    assert_ok(store_read_state(log->session, &log->state));
}

static inline void log_stop(struct stored_log *log) {
    projector_close(log->projector);
    store_session_close(log->session);
    store_close(log->store);
}

static inline void log_restart(struct stored_log *log) {
    log_stop(log);
    log_start(log);
}

static inline struct stored_log *log_open(const struct projector_options *options) {
    struct stored_log *log = calloc(1, sizeof(*log));
    assert_non_null(log);
    strcpy(log->folder, "/tmp/khala-projector-XXXXXX");
    assert_non_null(mkdtemp(log->folder));
    if (options)
        log->options = *options;
    log->now_ms = UINT64_C(1700000000000);
    arena_init(&log->arena, (size_t)16 << 20);
    arena_init(&log->payload, (size_t)64 << 20);
    buffer_init(&log->scratch, CHAIN_HASH_SCRATCH_BYTES);
    assert_ok(uuid7_generator_init(&log->generator, NULL));
    log_start(log);
    return log;
}

static inline void log_close(struct stored_log *log) {
    log_stop(log);
    DIR *folder = opendir(log->folder);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        if (entry->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(folder), entry->d_name, 0), 0);
    closedir(folder);
    assert_int_equal(rmdir(log->folder), 0);
    arena_release(&log->arena);
    arena_release(&log->payload);
    buffer_release(&log->scratch);
    free(log);
}

static inline struct store_entity *log_entity(struct stored_log *log, enum entity_kind kind,
                                              const char *id) {
    for (size_t i = 0; i < log->entity_count; i++)
        if (log->entities[i].kind == kind && slice_equal(log->entities[i].id, slice_of(id)))
            return &log->entities[i];
    assert_true(log->entity_count < LOG_ENTITIES_MAX);
    struct store_entity *entity = &log->entities[log->entity_count++];
    *entity = (struct store_entity){
        .ref = ++log->state.entity_ref,
        .kind = kind,
        .id = arena_copy(&log->arena, slice_of(id)),
        .created_at_ms = log->now_ms,
    };
    return entity;
}

static inline void log_append(struct stored_log *log, enum entity_kind kind, const char *id,
                              const char *type, const char *payload) {
    assert_true(log->event_count < LOG_EVENTS_MAX);
    struct store_entity *entity = log_entity(log, kind, id);
    struct store_event *event = &log->events[log->event_count];
    *event = (struct store_event){
        .log_id = ++log->state.log_id,
        .entity_ref = entity->ref,
        .entity_kind = kind,
        .entity_id = entity->id,
        .seq = ++entity->head_seq,
        .type = arena_copy(&log->payload, slice_of(type)),
        .payload = arena_copy(&log->payload, slice_of(payload)),
        .cursor = uuid7_next(&log->generator, ++log->now_ms),
        .recorded_at_ms = log->now_ms,
        .owner = entity->owner,
        .chain_version = STORE_CHAIN_VERSION,
    };
    event->event_id = event->cursor;
    sha256(event->payload.data, event->payload.size, event->payload_hash);
    memcpy(event->prev_chain_hash, entity->head_hash, SHA256_BYTES);
    assert_ok(chain_hash(event, &log->scratch, event->chain_hash));
    memcpy(entity->head_hash, event->chain_hash, SHA256_BYTES);
    log->owners[log->event_count++] = entity;
}

/* Folds and collects the appended events. The batch lives in the arena. */
static inline struct store_batch log_collect(struct stored_log *log, struct arena *arena) {
    const struct projection *projection = projector_projection(log->projector);
    struct store_batch batch = {
        .entities = log->entities,
        .entity_count = log->entity_count,
        .events = log->events,
        .event_count = log->event_count,
    };
    projection->begin(projection->user, log->session, log->now_ms);
    for (size_t i = 0; i < log->event_count; i++)
        projection->fold(projection->user, log->owners[i], &log->events[i]);
    projection->collect(projection->user, arena, &batch, &log->state.topic_ref);
    return batch;
}

static inline void log_commit(struct stored_log *log) {
    const struct projection *projection = projector_projection(log->projector);
    struct arena arena;
    arena_init(&arena, (size_t)64 << 20);
    struct store_batch batch = log_collect(log, &arena);
    enum status status = store_commit(log->session, &batch);
    if (status != STATUS_OK)
        fail_msg("%s: %s", status_code(status), store_session_error(log->session));
    projection->committed(projection->user);
    log->event_count = 0;
    arena_release(&arena);
    arena_reset(&log->payload);
}

/* Writes the events without projecting them. */
static inline void log_commit_unprojected(struct stored_log *log) {
    struct store_batch batch = {
        .entities = log->entities,
        .entity_count = log->entity_count,
        .events = log->events,
        .event_count = log->event_count,
    };
    assert_ok(store_commit(log->session, &batch));
    log->event_count = 0;
    arena_reset(&log->payload);
}

/* Changes the database directly. */
static inline void log_alter(struct stored_log *log, const char *sql) {
    char path[96];
    sqlite3 *database;
    char *error = NULL;
    snprintf(path, sizeof(path), "%s/khala.db", log->folder);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    if (sqlite3_exec(database, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s", error);
    assert_true(sqlite3_changes(database) > 0);
    sqlite3_close(database);
}

static inline struct store_document log_document(struct stored_log *log, enum entity_kind kind,
                                                 const char *id) {
    struct store_document document;
    assert_ok(store_load_document(log->session, entity_row(kind)->summary,
                                  log_entity(log, kind, id)->ref, &log->arena, &document));
    return document;
}

static inline struct reproject_result log_reproject(struct stored_log *log, bool apply) {
    const struct reproject_options options = {
        .apply = apply,
        .now_ms = ++log->now_ms,
        .projection_version = log->options.projection_version,
    };
    struct reproject_result result;
    assert_ok(reproject(log->session, &options, &result));
    assert_ok(store_read_state(log->session, &log->state));
    return result;
}

#endif
