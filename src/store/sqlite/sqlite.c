#include "store/sqlite/sqlite.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/metrics.h"

enum status sqlite_status(int code) {
    switch (code & 0xff) {
    case SQLITE_OK:
        return STATUS_OK;
    case SQLITE_NOMEM:
        return STATUS_OUT_OF_MEMORY;
    case SQLITE_CONSTRAINT:
        return STATUS_ALREADY_EXISTS;
    case SQLITE_FULL:
    case SQLITE_READONLY:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_NOLFS:
        return STATUS_STORE_UNAVAILABLE;
    default:
        return STATUS_INTERNAL_ERROR;
    }
}

/* Runs after each commit. SQLite's own hook, which the pragma wal_autocheckpoint sets, ignores a
 * failure, and the write-ahead log then grows until the disk is full. A reader that still needs the
 * log is no failure. */
static int checkpoint(void *user, sqlite3 *database, const char *name, int pages) {
    struct sqlite_session *session = user;
    int code;
    /* While readers keep the log from beginning anew, small pieces are copied as it grows. */
    if (pages < session->copied_pages)
        session->copied_pages = 0;
    bool is_small_due =
        session->is_shared && pages - session->copied_pages >= SQLITE_STORE_WAL_PAGES_SHARED;
    if (pages < sqlite_reserve_wal_pages(session->store) && !is_small_due)
        return SQLITE_OK;
    session->copied_pages = pages;
    do {
        code = sqlite3_wal_checkpoint_v2(database, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    } while (sqlite_lacks_space(database, code) && sqlite_reserve_give(session->store));
    bool is_failing =
        code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY && (code & 0xff) != SQLITE_LOCKED;
    if (is_failing)
        metrics_add(METRIC_STORE_CHECKPOINT_FAILURES, METRIC_PLAIN, 1);
    if (is_failing && !session->is_checkpoint_failing)
        log_event(LOG_ERROR, "store.checkpoint_failed",
                  log_int("code", sqlite3_extended_errcode(database)),
                  log_str("message", sqlite3_errmsg(database)), log_int("wal_pages", pages),
                  log_str("effect", "the write-ahead log grows until a checkpoint succeeds"));
    else if (!is_failing && session->is_checkpoint_failing)
        log_event(LOG_INFO, "store.checkpoint_recovered", log_int("wal_pages", pages));
    session->is_checkpoint_failing = is_failing;
    return SQLITE_OK;
}

static void session_free(struct sqlite_session *session) {
    if (session->base.mode == STORE_WRITE)
        atomic_store(&session->store->write_session_open, false);
    free(session);
}

enum status sqlite_session_open(struct store *base, enum store_mode mode,
                                struct store_session **opened) {
    struct sqlite_store *store = (struct sqlite_store *)base;
    if (mode == STORE_WRITE) {
        assert(store->lock_fd >= 0);
        bool second = atomic_exchange(&store->write_session_open, true);
        assert(!second);
        (void)second;
    }
    struct sqlite_session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        if (mode == STORE_WRITE)
            atomic_store(&store->write_session_open, false);
        return STATUS_OUT_OF_MEMORY;
    }
    session->base = (struct store_session){.engine = &store_engine_sqlite, .mode = mode};
    session->store = store;
    session->reason = REASON_STORE_FAILED;
    enum status status =
        sqlite_connect(store->path, mode, false, &session->database, session->error);
    if (status == STATUS_OK) {
        status = sqlite_frames_register(session);
        if (status == STATUS_OK && mode == STORE_WRITE)
            status = sqlite_record_location(store, session->error);
        if (status == STATUS_OK && mode == STORE_WRITE)
            status = sqlite_source_register(session);
        if (status == STATUS_OK && mode == STORE_WRITE)
            sqlite3_wal_hook(session->database, checkpoint, session);
        if (status != STATUS_OK)
            sqlite3_close(session->database);
    }
    if (status != STATUS_OK) {
        log_event(LOG_ERROR, "store.session_failed", log_str("code", status_code(status)),
                  log_str("message", session->error));
        session_free(session);
        return status;
    }
    if (mode == STORE_WRITE)
        sqlite_reserve_open(session);
    *opened = &session->base;
    return STATUS_OK;
}

void sqlite_session_close(struct store_session *base) {
    struct sqlite_session *session = sqlite_session_of(base);
    for (size_t i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(session->statements[i]);
    int code = sqlite3_close(session->database);
    assert(code == SQLITE_OK);
    (void)code;
    session_free(session);
}

enum reason sqlite_session_reason(const struct store_session *session) {
    return ((const struct sqlite_session *)session)->reason;
}

const char *sqlite_session_error(const struct store_session *session) {
    return ((const struct sqlite_session *)session)->error;
}

enum status sqlite_measure(struct store_session *base, struct store_size *size) {
    struct sqlite_session *session = sqlite_session_of(base);
    uint64_t bytes[SQLITE_FILE_COUNT] = {0};
    if (!sqlite_measure_files(session->store, bytes)) {
        snprintf(session->error, sizeof(session->error), "%.400s: %s", session->store->path,
                 strerror(errno));
        return STATUS_STORE_UNAVAILABLE;
    }
    *size = (struct store_size){.bytes = bytes[SQLITE_FILE_DATABASE],
                                .wal_bytes = bytes[SQLITE_FILE_WAL]};
    return STATUS_OK;
}

void sqlite_close(struct store *base) {
    struct sqlite_store *store = (struct sqlite_store *)base;
    assert(!atomic_load(&store->write_session_open));
    if (store->lock_fd >= 0)
        close(store->lock_fd);
    if (store->reserve.fd >= 0)
        close(store->reserve.fd);
    free(store->path);
    free(store);
}

#define SQLITE_ENTRY(call) .call = sqlite_##call,
const struct store_engine store_engine_sqlite = {.scheme = "sqlite",
                                                 .schema_version = STORE_SCHEMA_VERSION,
                                                 .open = sqlite_open,
                                                 .migrate = sqlite_migrate,
                                                 .make_room = sqlite_make_room,
                                                 .put_properties = sqlite_put_properties,
                                                 .read_rows = sqlite_read_rows,
                                                 .read_last_row = sqlite_read_last_row,
                                                 .count_rows = sqlite_count_rows,
                                                 .write_rows = sqlite_write_rows,
                                                 .clear_rows = sqlite_clear_rows,
                                                 .load = sqlite_load,
                                                 .walk = sqlite_walk,
                                                 .backup = sqlite_backup,
                                                 .restore_begin = sqlite_restore_begin,
                                                 .lock_holder = sqlite_lock_holder,
                                                 STORE_CALLS(SQLITE_ENTRY)
                                                     STORE_DISK_CALLS(SQLITE_ENTRY)};
