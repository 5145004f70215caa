#include "store/postgres/postgres.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/postgres/postgres_migrations.h"

static void session_free(struct postgres_session *session) {
    if (session->base.mode == STORE_WRITE)
        atomic_store(&session->store->is_write_session_open, false);
    for (size_t i = 0; i < POSTGRES_PARAMETERS_MAX; i++)
        buffer_release(&session->parameters[i].bytes);
    free(session->heads);
    atomic_fetch_sub(&session->store->session_count, 1);
    free(session);
}

/* The connection that took the role becomes the write session's, if it is still there. */
static enum status adopt(struct postgres_session *session) {
    struct postgres_store *store = session->store;
    session->connection = store->writing;
    store->writing = NULL;
    atomic_store(&store->is_unconnected, true);
    if (session->connection && store->term.number > 0 &&
        postgres_limit_silence(store, session->connection, true, session->error) == STATUS_OK) {
        session->term = store->term;
        postgres_note_connected(session);
    }
    session->pinged_ns = clock_now().mono_ns;
    enum status status = postgres_take_role(&session->base);
    return store->is_joined ? STATUS_OK : status;
}

enum status postgres_session_open(struct store *base, enum store_mode mode,
                                  struct store_session **opened) {
    struct postgres_store *store = (struct postgres_store *)base;
    if (atomic_fetch_add(&store->session_count, 1) >= POSTGRES_SESSIONS_MAX) {
        atomic_fetch_sub(&store->session_count, 1);
        return STATUS_LIMIT_REACHED;
    }
    if (mode == STORE_WRITE) {
        assert(store->is_exclusive);
        bool is_second = atomic_exchange(&store->is_write_session_open, true);
        assert(!is_second);
        (void)is_second;
    }
    struct postgres_session *session = calloc(1, sizeof(*session));
    if (!session) {
        if (mode == STORE_WRITE)
            atomic_store(&store->is_write_session_open, false);
        atomic_fetch_sub(&store->session_count, 1);
        return STATUS_OUT_OF_MEMORY;
    }
    session->base = (struct store_session){.engine = &store_engine_postgres, .mode = mode};
    session->store = store;
    session->reason = REASON_STORE_FAILED;
    for (size_t i = 0; i < POSTGRES_PARAMETERS_MAX; i++)
        buffer_init(&session->parameters[i].bytes, POSTGRES_PARAMETER_BYTES_MAX);
    enum status status = mode == STORE_WRITE ? adopt(session) : postgres_ensure(session);
    if (status != STATUS_OK) {
        log_event(LOG_ERROR, "store.session_failed", log_str("code", status_code(status)),
                  log_str("message", session->error));
        PQfinish(session->connection);
        session_free(session);
        return status;
    }
    *opened = &session->base;
    return STATUS_OK;
}

/* The role of a verb stays with the store until that is closed. A node frees it for the others. */
void postgres_session_close(struct store_session *base) {
    struct postgres_session *session = postgres_session_of(base);
    struct postgres_store *store = session->store;
    bool is_kept = postgres_has_role(session) && !store->is_joined;
    if (session->base.mode == STORE_WRITE)
        store->term = session->term;
    if (is_kept &&
        postgres_limit_silence(store, session->connection, false, session->error) == STATUS_OK) {
        store->writing = session->connection;
    } else {
        PQfinish(session->connection);
    }
    session_free(session);
}

enum reason postgres_session_reason(const struct store_session *session) {
    return ((const struct postgres_session *)session)->reason;
}

const char *postgres_session_error(const struct store_session *session) {
    return ((const struct postgres_session *)session)->error;
}

/* There are no files. The session that writes may be lost. */
enum status postgres_check_location(const struct store *base, struct store_message *message) {
    const struct postgres_store *store = (const struct postgres_store *)base;
    if (!atomic_load(&store->is_unconnected))
        return STATUS_OK;
    snprintf(message->text, sizeof(message->text),
             "%s: the session that writes was lost; the server connects again by itself",
             store->label);
    return STATUS_STORE_UNAVAILABLE;
}

enum status postgres_measure(struct store_session *base, struct store_size *size) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_MEASURE);
    enum status status = postgres_query(session, &result);
    if (status == STATUS_OK)
        *size = (struct store_size){.bytes = postgres_number((struct postgres_row){result, 0}, 0)};
    PQclear(result);
    return status;
}

void postgres_close(struct store *base) {
    struct postgres_store *store = (struct postgres_store *)base;
    assert(!atomic_load(&store->is_write_session_open));
    PQfinish(store->writing);
    pthread_mutex_destroy(&store->read_lock);
    free(store->url);
    free(store);
}

#define POSTGRES_ENTRY(call) .call = postgres_##call,
const struct store_engine store_engine_postgres = {
    .scheme = "postgres",
    .scheme_alias = "postgresql",
    .schema_version = POSTGRES_SCHEMA_VERSION,
    .open = postgres_open,
    .join = postgres_join,
    .migrate = postgres_migrate,
    .keep_secret = postgres_keep_secret,
    .put_properties = postgres_put_properties,
    .read_rows = postgres_read_rows,
    .read_last_row = postgres_read_last_row,
    .count_rows = postgres_count_rows,
    .write_rows = postgres_write_rows,
    .clear_rows = postgres_clear_rows,
    .load = postgres_load,
    .walk = postgres_walk,
    .maintenance_advice = "the store is in PostgreSQL: back it up with pg_dump or pg_basebackup, "
                          "restore it with pg_restore, and check its pages with pg_amcheck or "
                          "pg_checksums",
    STORE_CALLS(POSTGRES_ENTRY) STORE_SHARED_CALLS(POSTGRES_ENTRY)};
