/* The writer role.
 *
 * The role is the row of runtime.writer, which only the owner of the schema can touch. Its safety
 * is the term alone: a session that takes the role raises the term, and every commit locks the row
 * and checks it. So a writer that was paused, cut off or replaced cannot commit any more.
 *
 * The other columns are for liveness. They name the database session that has the role. Another
 * session takes the role when that one is gone, which the database knows at once after a crash, or
 * when it is silent for three seconds. A session is silent if it has not written seen_at, has sent
 * no other statement, and does not work on one. The database itself ends an idle session after the
 * same time. It does not limit a session that waits for the rest of a pipeline, or for its client
 * to read an answer, and that session may hold the lock of the row: the session that takes the role
 * ends it.
 *
 * A pooler keeps a session of the database when its client is gone, and gives it to another client.
 * backend_start is NULL then, and seen_at alone counts. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/postgres/postgres.h"
#include "store/postgres/postgres_migrations.h"

#define PING_MS      1000
#define PAUSE_MS_MIN 100
/* Between two attempts to take the role that another session has. */
#define ROLE_PAUSE_MS 500
/* How long an attempt waits for a session that has locked the row. */
#define ROW_WAIT_MS 500

/* ---- the holder, as SQL ---- */

/* The row w, and the session a that it names: NULL where that is gone. A role of the database that
 * may not see when a session began, or what it does, sees NULL in its columns. */
#define WRITER_AND_SESSION                                                                         \
    "runtime.writer w LEFT JOIN pg_stat_activity a ON a.pid = w.backend_pid AND "                  \
    "(w.backend_start IS NULL OR a.backend_start IS NULL OR a.backend_start = w.backend_start)"
#define LAST_SEEN                                                                                  \
    "greatest(w.seen_at, CASE WHEN w.backend_start IS NOT NULL THEN a.state_change END)"
/* A clock that was set back shows a time ahead of it. */
#define IS_SEEN                                                                                    \
    "coalesce(" LAST_SEEN " = 'infinity' OR " LAST_SEEN " BETWEEN clock_timestamp() - interval "   \
    "'" POSTGRES_TEXT_OF(POSTGRES_SILENCE_MS) " ms' AND clock_timestamp() + interval "             \
                                              "'" POSTGRES_TEXT_OF(                                \
                                                  POSTGRES_SILENCE_MS) " ms', false)"
#define IS_WORKING                                                                                 \
    "coalesce(w.backend_start IS NOT NULL AND a.state = 'active' AND a.wait_event_type IS "        \
    "DISTINCT FROM 'Client', false)"
/* This connection's own session is not silent. It may take again what it has. */
#define IS_SILENT "(a.pid <> pg_backend_pid() AND NOT (" IS_SEEN " OR " IS_WORKING "))"
#define IS_FREE   "(a.pid IS NULL OR a.pid = pg_backend_pid() OR " IS_SILENT ")"
/* Another live session asks for the role: no third one takes it. */
#define IS_RESERVED                                                                                \
    "EXISTS (SELECT FROM pg_stat_activity x WHERE x.pid <> pg_backend_pid() AND w.wanted_by "      \
    "= " POSTGRES_SESSION_OF("x") ")"
#define SESSION_NAME(row)                                                                          \
    "'session ' || " row ".pid || ' of ' || " row ".application_name || ' from ' || "              \
    "coalesce(host(" row ".client_addr), 'this machine')"

static bool is_true(const PGresult *result, int column) {
    return *PQgetvalue(result, 0, column) == 't';
}

static void copy_column(const PGresult *result, int column, char *text, size_t size) {
    snprintf(text, size, "%s", PQgetvalue(result, 0, column));
}

enum status postgres_look_at_holder(const struct postgres_store *store, PGconn *connection,
                                    struct postgres_holder *holder, char *message) {
    PGresult *result = postgres_exec(
        store, connection,
        "SELECT " IS_FREE ", a.pid IS NOT NULL AND " IS_SILENT ", " IS_RESERVED
        ", (SELECT w.wanted_by = " POSTGRES_SESSION_OF(
            "m") " FROM pg_stat_activity m WHERE m.pid = pg_backend_pid()), EXISTS (SELECT FROM "
                 "runtime.meta WHERE name = 'move_out'), (SELECT value FROM runtime.meta WHERE "
                 "name = 'schema_version'), w.backend_pid || ' ' || " LAST_SEEN
                 " FROM " WRITER_AND_SESSION " WHERE w.id = 1");
    enum status status = STATUS_OK;
    *holder = (struct postgres_holder){.is_free = false};
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        status = postgres_result_fault(store, connection, result, message);
    } else if (PQntuples(result) != 1) {
        status = postgres_refuse(store, message, "runtime.writer has no row: restore a backup");
    } else {
        holder->is_free = is_true(result, 0);
        holder->is_silent = is_true(result, 1);
        holder->is_reserved = is_true(result, 2);
        holder->is_requested = is_true(result, 3);
        holder->is_moved = is_true(result, 4);
        copy_column(result, 5, holder->schema, sizeof(holder->schema));
        copy_column(result, 6, holder->activity, sizeof(holder->activity));
    }
    PQclear(result);
    return status;
}

enum status postgres_refuse_role(const struct postgres_store *store, PGconn *connection,
                                 char *message) {
    char cause[STORE_MESSAGE_MAX];
    /* The session that has locked the row first, then others with the role or a lock. Before
     * POSTGRES_ROLE_VERSION the row names no session. */
    PGresult *result = postgres_exec(
        store, connection,
        "SELECT " SESSION_NAME(
            "a") " FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid() AND "
                 "(a.pid IN (SELECT (to_jsonb(w) ->> 'backend_pid')::int FROM runtime.writer w) OR "
                 "a.pid IN (SELECT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation "
                 "WHERE l.granted AND l.database = a.datid AND c.relnamespace = "
                 "'runtime'::regnamespace)) ORDER BY EXISTS (SELECT FROM pg_locks l WHERE l.pid = "
                 "a.pid AND l.relation = 'runtime.writer'::regclass) DESC, a.xact_start LIMIT 1");
    bool is_known = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0;
    snprintf(cause, sizeof(cause),
             "another khala server uses this database: end that first, or name another database. "
             "It has the writer role, or a lock that is needed, in the %s",
             is_known ? PQgetvalue(result, 0, 0) : "session that has ended now");
    PQclear(result);
    (void)postgres_refuse(store, message, cause);
    return STATUS_STORE_UNAVAILABLE;
}

/* ---- taking the role ---- */

/* A session that is paused with the lock of the row keeps it only for this time. */
#define BEGIN_WITH_ROW                                                                             \
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = " POSTGRES_TEXT_OF(            \
        ROW_WAIT_MS) "; SET LOCAL idle_in_transaction_session_timeout = " POSTGRES_TEXT_OF(POSTGRES_SILENCE_MS) "; "
/* The row names the session s of this connection. */
#define ENTER                                                                                      \
    "UPDATE runtime.writer t SET term = t.term + 1, node_id = NULL, backend_pid = s.pid, "         \
    "backend_start = CASE WHEN %s THEN s.backend_start END, seen_at = clock_timestamp(), "         \
    "wanted_by = NULL FROM pg_stat_activity s WHERE t.id = 1 AND s.pid = pg_backend_pid()"
#define ENTERED " RETURNING t.term, t.tableoid::bigint, " POSTGRES_LIMIT_SILENCE

static const char *directness(const struct postgres_store *store) {
    return store->is_direct ? "true" : "false";
}

/* Runs statements of which one answers the term. STATUS_NOT_WRITER: it answers no row, or another
 * session has locked the row. */
static enum status run_for_term(const struct postgres_store *store, PGconn *connection,
                                const char *sql, struct postgres_term *term, char *message) {
    enum status status = PQsendQuery(connection, sql)
                             ? STATUS_NOT_WRITER
                             : postgres_result_fault(store, connection, NULL, message);
    PGresult *result = status == STATUS_NOT_WRITER ? postgres_result(store, connection) : NULL;
    for (; result; result = postgres_result(store, connection)) {
        ExecStatusType answered = PQresultStatus(result);
        if (answered == PGRES_TUPLES_OK && PQnfields(result) == 3 && PQntuples(result) == 1) {
            *term = (struct postgres_term){strtoull(PQgetvalue(result, 0, 0), NULL, 10),
                                           strtoull(PQgetvalue(result, 0, 1), NULL, 10)};
            status = STATUS_OK;
        } else if (answered != PGRES_TUPLES_OK && answered != PGRES_COMMAND_OK) {
            status = postgres_result_fault(store, connection, result, message);
        }
        PQclear(result);
    }
    if (PQtransactionStatus(connection) == PQTRANS_INERROR)
        PQclear(postgres_exec(store, connection, "ROLLBACK"));
    if (PQstatus(connection) != CONNECTION_OK && status != STATUS_STORE_UNAVAILABLE)
        return postgres_result_fault(store, connection, NULL, message);
    return status;
}

enum status postgres_enter_role(const struct postgres_store *store, PGconn *connection,
                                struct postgres_term *term, char *message) {
    char sql[800];
    int size = snprintf(sql, sizeof(sql), ENTER ENTERED, directness(store));
    assert(size > 0 && (size_t)size < sizeof(sql));
    (void)size;
    enum status status = run_for_term(store, connection, sql, term, message);
    return status == STATUS_NOT_WRITER
               ? postgres_refuse(store, message, "runtime.writer has no row: restore a backup")
               : status;
}

/* One message, so that this process cannot stop between the lock and the commit. The row is locked
 * first: the next statement sees the row and the sessions as they are then. */
enum status postgres_claim_role(const struct postgres_store *store, PGconn *connection,
                                const struct postgres_claim *claim, struct postgres_term *term,
                                char *message) {
    char sql[3000];
    int size = snprintf(
        sql, sizeof(sql),
        BEGIN_WITH_ROW
        "SELECT FROM runtime.writer WHERE id = 1 FOR UPDATE; " ENTER
        " AND EXISTS (SELECT FROM " WRITER_AND_SESSION " WHERE w.id = 1 AND " IS_FREE
        " AND NOT " IS_RESERVED ") AND EXISTS (SELECT FROM runtime.meta WHERE name = "
        "'schema_version' AND value = '%d') AND NOT (%s AND EXISTS (SELECT FROM runtime.meta WHERE "
        "name = 'move_out'))" ENTERED "; COMMIT",
        directness(store), claim->schema_version, claim->refuses_moved ? "true" : "false");
    assert(size > 0 && (size_t)size < sizeof(sql));
    (void)size;
    return run_for_term(store, connection, sql, term, message);
}

enum status postgres_begin_in_term(const struct postgres_store *store, PGconn *connection,
                                   const struct postgres_term *term, char *message) {
    char sql[256];
    snprintf(sql, sizeof(sql),
             "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT FROM runtime.writer WHERE id = 1 AND "
             "term = %llu AND tableoid::bigint = %llu FOR UPDATE",
             (unsigned long long)term->number, (unsigned long long)term->table);
    PGresult *result = postgres_exec(store, connection, sql);
    enum status status = STATUS_OK;
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        status = postgres_result_fault(store, connection, result, message);
    } else if (PQntuples(result) != 1) {
        (void)postgres_refuse(store, message, "another session has taken the writer role");
        status = STATUS_WRITER_LOST;
    }
    PQclear(result);
    if (status != STATUS_OK)
        PQclear(postgres_exec(store, connection, "ROLLBACK"));
    return status;
}

enum status postgres_settle_role(struct postgres_store *store, PGconn *connection,
                                 const struct postgres_term *term,
                                 const enum postgres_history *judged, char *message) {
    enum postgres_history history = judged ? *judged : HISTORY_SAME;
    enum status status =
        judged ? STATUS_OK : postgres_await_history(store, connection, &history, message);
    if (status != STATUS_OK || history == HISTORY_SAME)
        return status;
    status = postgres_begin_in_term(store, connection, term, message);
    if (status != STATUS_OK)
        return status;
    status = postgres_settle_history(store, connection, history, message);
    if (status == STATUS_OK)
        return postgres_execute(store, connection, "COMMIT", message);
    PQclear(postgres_exec(store, connection, "ROLLBACK"));
    return status;
}

/* The next turn of the writer sees the request. */
enum status postgres_request_role(const struct postgres_store *store, PGconn *connection,
                                  char *message) {
    struct postgres_term ignored;
    /* The three columns are those of a term. */
    enum status status = run_for_term(
        store, connection,
        BEGIN_WITH_ROW "UPDATE runtime.writer t SET wanted_by = " POSTGRES_SESSION_OF(
            "s") " FROM pg_stat_activity s WHERE t.id = 1 AND s.pid = pg_backend_pid() RETURNING "
                 "t.term, t.tableoid::bigint, " POSTGRES_LIMIT_SILENCE "; COMMIT",
        &ignored, message);
    return status == STATUS_NOT_WRITER ? STATUS_OK : status;
}

enum status postgres_limit_silence(const struct postgres_store *store, PGconn *connection,
                                   bool is_limited, char *message) {
    char sql[300];
    bool is_seen = is_limited || !store->is_direct;
    int size = snprintf(sql, sizeof(sql),
                        "%s; UPDATE runtime.writer SET seen_at = %s WHERE id = 1 "
                        "AND term = %llu",
                        is_limited ? "SELECT " POSTGRES_LIMIT_SILENCE
                                   : "DEALLOCATE ALL; SET idle_session_timeout = 0",
                        is_seen ? "clock_timestamp()" : "'infinity'",
                        (unsigned long long)store->term.number);
    assert(size > 0 && (size_t)size < sizeof(sql));
    (void)size;
    return postgres_execute(store, connection, sql, message);
}

/* ---- the role of a session ---- */

void postgres_note_connected(struct postgres_session *session) {
    struct postgres_store *store = session->store;
    bool was_unconnected = atomic_exchange(&store->is_unconnected, false);
    assert(session->base.mode == STORE_WRITE && session->connection);
    if (postgres_has_role(session))
        log_event(LOG_INFO, "store.writer_role_taken", log_str("store", store->label),
                  log_int("term", (int64_t)session->term.number));
    else if (was_unconnected && session->term.number == 0)
        log_event(LOG_INFO, "store.following", log_str("store", store->label),
                  log_str("effect", "another node has the writer role"));
}

/* Ends a session of another node that has locked the row and waits for its client, in the middle of
 * a pipeline or of an answer. A client that is stopped or cut off there keeps the lock for ever
 * otherwise. */
static void end_stuck_session(const struct postgres_session *session,
                              const struct postgres_holder *holder) {
    const struct postgres_store *store = session->store;
    PGresult *result = postgres_exec(
        store, session->connection,
        "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a JOIN pg_stat_activity m ON "
        "m.pid = pg_backend_pid() AND a.usesysid = m.usesysid AND a.pid <> m.pid WHERE a.state = "
        "'active' AND a.wait_event_type = 'Client' AND a.state_change < clock_timestamp() - "
        "interval '" POSTGRES_TEXT_OF(
            POSTGRES_SILENCE_MS) " ms' AND a.pid IN (SELECT l.pid FROM "
                                 "pg_locks l WHERE l.granted AND l.mode = 'RowShareLock' AND "
                                 "l.database = a.datid AND "
                                 "l.relation = 'runtime.writer'::regclass)");
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0)
        log_event(LOG_WARN, "store.stuck_writer", log_str("session", holder->activity),
                  log_str("reason", "the session with the writer role waits for its client"),
                  log_str("effect", "this node ends that session"));
    PQclear(result);
}

/* Tries to take the role, where the schema is the one that this build writes: a newer build may
 * have changed it while this node followed. The session then has a term, if the role was free. */
static enum status try_role(struct postgres_session *session) {
    const struct postgres_store *store = session->store;
    struct postgres_holder holder;
    struct postgres_term term = {0};
    enum status status =
        postgres_look_at_holder(store, session->connection, &holder, session->error);
    if (status != STATUS_OK)
        return status;
    bool is_foreign = strcmp(holder.schema, POSTGRES_TEXT_OF(POSTGRES_SCHEMA_VERSION)) != 0;
    if (is_foreign && !session->is_schema_foreign)
        log_event(LOG_WARN, "store.schema_differs", log_str("schema", holder.schema),
                  log_int("schema_of_build", POSTGRES_SCHEMA_VERSION),
                  log_str("effect", "this node does not take the writer role"));
    session->is_schema_foreign = is_foreign;
    if (is_foreign || !holder.is_free || holder.is_reserved)
        return STATUS_OK;
    /* A server that waited for the role while the store was moved must not get it. */
    if (holder.is_moved)
        return postgres_refuse(store, session->error, "the store was moved elsewhere");
    if (holder.is_silent)
        end_stuck_session(session, &holder);
    const struct postgres_claim claim = {.schema_version = POSTGRES_SCHEMA_VERSION,
                                         .refuses_moved = true};
    status = postgres_claim_role(store, session->connection, &claim, &term, session->error);
    if (status == STATUS_OK)
        session->term = term;
    return status == STATUS_NOT_WRITER ? STATUS_OK : status;
}

/* Each attempt leaves the session without a connection (STATUS_WRITER_LOST), following without a
 * term or waiting with one for the nodes' answers (both STATUS_NOT_WRITER), or with the role. */
enum status postgres_take_role(struct store_session *base) {
    struct postgres_session *session = postgres_session_of(base);
    struct postgres_store *store = session->store;
    enum postgres_history history = HISTORY_SAME;
    uint64_t now_ns = clock_now().mono_ns;
    bool is_direct = false;
    if (postgres_has_role(session))
        return STATUS_OK;
    if (now_ns < session->connect_at_ns)
        return atomic_load(&store->is_unconnected) ? STATUS_WRITER_LOST : STATUS_NOT_WRITER;
    enum status status = STATUS_OK;
    if (!session->connection) {
        status = postgres_connect(store, STORE_WRITE, &session->connection, session->error);
        if (status == STATUS_OK)
            status = postgres_check_pooler(store, session->connection, &is_direct, session->error);
    }
    if (status == STATUS_OK && session->term.number == 0)
        status = try_role(session);
    if (status == STATUS_OK && session->term.number == 0) {
        /* The connection stays for the next attempt. */
        postgres_note_connected(session);
        session->connect_at_ns = clock_now().mono_ns + ROLE_PAUSE_MS * CLOCK_NS_PER_MS;
        return STATUS_NOT_WRITER;
    }
    /* The row names the session. Where the history changed, nothing is written before the nodes
     * have answered. */
    now_ns = clock_now().mono_ns;
    uint64_t waited_ms =
        session->changed_ns > 0 ? (now_ns - session->changed_ns) / CLOCK_NS_PER_MS + 1 : 0;
    if (status == STATUS_OK)
        status =
            postgres_judge_history(store, session->connection, waited_ms, &history, session->error);
    if (status == STATUS_OK && history == HISTORY_CHANGED) {
        if (session->changed_ns == 0)
            session->changed_ns = now_ns;
        postgres_note_connected(session);
        session->connect_at_ns = clock_now().mono_ns + PAUSE_MS_MIN * CLOCK_NS_PER_MS;
        return STATUS_NOT_WRITER;
    }
    if (status == STATUS_OK)
        status = postgres_settle_role(store, session->connection, &session->term, &history,
                                      session->error);
    postgres_note_attempt(session, status);
    if (status != STATUS_OK) {
        postgres_disconnect(session);
        return STATUS_WRITER_LOST;
    }
    session->changed_ns = 0;
    session->pinged_ns = clock_now().mono_ns;
    session->seen_ns = 0;
    postgres_note_connected(session);
    return STATUS_OK;
}

/* Writes that the session was seen. Answers whether it must give the role up: another session asks
 * for the role, or the schema was changed. */
static enum status write_seen(struct postgres_session *session, bool *is_asked) {
    struct postgres_store *store = session->store;
    PGresult *result = NULL;
    pthread_mutex_lock(&store->read_lock);
    const struct postgres_node_id id = store->node_id;
    pthread_mutex_unlock(&store->read_lock);
    postgres_begin(session, STATEMENT_KEEP_ROLE);
    postgres_put_number(session, session->term.number);
    postgres_put_number(session, session->term.table);
    postgres_put_text(session, SLICE(POSTGRES_TEXT_OF(POSTGRES_SCHEMA_VERSION)));
    postgres_put_text(session, *id.text ? slice_of(id.text) : (struct slice){0});
    enum status status = postgres_query(session, &result);
    bool is_held = status == STATUS_OK && PQntuples(result) == 1;
    *is_asked = is_held && postgres_number((struct postgres_row){result, 0}, 0) != 0;
    if (is_held)
        session->has_old_readers = postgres_number((struct postgres_row){result, 0}, 1) != 0;
    PQclear(result);
    return status == STATUS_OK && !is_held ? postgres_lose_role(session) : status;
}

enum status postgres_keep_alive(struct store_session *base, int64_t *wait_ms) {
    struct postgres_session *session = postgres_session_of(base);
    bool is_asked = false;
    *wait_ms = PING_MS;
    if (!postgres_has_role(session))
        return STATUS_WRITER_LOST;
    /* Commits keep the session alive too, and must not keep the writer from looking. */
    int64_t unseen_ms = (int64_t)((clock_now().mono_ns - session->seen_ns) / CLOCK_NS_PER_MS);
    if (unseen_ms < PING_MS) {
        *wait_ms = PING_MS - unseen_ms;
        return STATUS_OK;
    }
    session->seen_ns = clock_now().mono_ns;
    enum status status = write_seen(session, &is_asked);
    if (status != STATUS_OK || !is_asked)
        return status;
    log_event(LOG_INFO, "store.writer_role_given_up", log_str("store", session->store->label),
              log_str("effect", "'khala migrate' takes the writer role"));
    snprintf(session->error, sizeof(session->error), "the writer role was given up on request");
    /* The role is free when the session is gone. */
    postgres_disconnect(session);
    return STATUS_WRITER_LOST;
}
