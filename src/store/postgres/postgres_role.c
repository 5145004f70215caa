/* The writer role.
 *
 * The session that writes holds an advisory lock for as long as it lives, so a node that lost the
 * session cannot commit. A node that is paused keeps its connection open; the server ends that
 * session after a time without a statement, and so frees the lock. The limit is set with the lock,
 * in one statement. A node that works sends a statement each second. The server does not limit a
 * session that waits for the rest of a pipeline, or for its client to read an answer: a follower
 * ends such a session. The term of the role, which each commit checks, rejects what is left. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/postgres/postgres.h"
#include "store/postgres/postgres_migrations.h"

#define PING_MS      1000
#define PAUSE_MS_MIN 100
/* Between two attempts to take the lock that another session holds. */
#define LOCK_PAUSE_MS 500
/* Changes with each message that the session handles. */
#define ACTIVITY "l.pid || ' ' || a.state_change"
#define HOLDER_NAME                                                                                \
    "'session ' || l.pid || ' of ' || a.application_name || ' from ' || coalesce(host(a."          \
    "client_addr), 'this machine')"

/* Takes the lock where the condition holds, and limits the silence of the session that has it. The
 * result is is_taken, which is NULL where the condition does not hold, and the value. */
#define TRY_LOCK(condition, value, source)                                                         \
    "WITH l AS MATERIALIZED (SELECT CASE WHEN " condition                                          \
    " THEN pg_try_advisory_lock(" POSTGRES_TEXT_OF(                                                \
        POSTGRES_WRITER_LOCK) ") END AS is_taken, " value " AS value" source                       \
                              ") SELECT is_taken, value, CASE WHEN is_taken "                      \
                              "THEN " POSTGRES_LIMIT_SILENCE " END FROM l"

/* ---- the writer role ---- */

/* A column about the session that holds the writer lock. Empty: no session holds it, or the
 * database does not tell. */
static void holder_column(const struct postgres_store *store, PGconn *connection,
                          const char *column, char text[POSTGRES_ACTIVITY_SIZE]) {
    char sql[600];
    int size = snprintf(sql, sizeof(sql),
                        "SELECT %s FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
                        "WHERE " POSTGRES_IS_LOCK(POSTGRES_WRITER_LOCK),
                        column);
    assert(size > 0 && (size_t)size < sizeof(sql));
    PGresult *result = postgres_exec(store, connection, sql);
    bool is_known = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0;
    snprintf(text, POSTGRES_ACTIVITY_SIZE, "%s", is_known ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
}

static enum status add_term(const struct postgres_store *store, PGconn *connection,
                            struct postgres_term *term, char *message) {
    PGresult *result =
        postgres_exec(store, connection,
                      "UPDATE writer SET term = term + 1, taken_at = now() WHERE id = 1 "
                      "RETURNING term, tableoid::bigint");
    enum status status = STATUS_OK;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        status = postgres_result_fault(store, connection, result, message);
    else if (PQntuples(result) != 1)
        status = postgres_refuse(store, message, "runtime.writer has no row: restore a backup");
    else
        *term = (struct postgres_term){strtoull(PQgetvalue(result, 0, 0), NULL, 10),
                                       strtoull(PQgetvalue(result, 0, 1), NULL, 10)};
    PQclear(result);
    return status;
}

enum status postgres_raise_term(struct postgres_store *store, PGconn *connection,
                                const enum postgres_history *judged, struct postgres_term *term,
                                char *message) {
    /* Before the first migration there is no such table. */
    PGresult *result =
        postgres_exec(store, connection, "SELECT to_regclass('runtime.writer') IS NULL");
    bool is_absent =
        PQresultStatus(result) == PGRES_TUPLES_OK && strcmp(PQgetvalue(result, 0, 0), "t") == 0;
    PQclear(result);
    *term = (struct postgres_term){0};
    if (is_absent)
        return STATUS_OK;
    enum postgres_history history = judged ? *judged : HISTORY_SAME;
    enum status status =
        judged ? STATUS_OK : postgres_await_history(store, connection, &history, message);
    if (status == STATUS_OK)
        status = postgres_execute(store, connection, "BEGIN", message);
    if (status != STATUS_OK)
        return status;
    status = add_term(store, connection, term, message);
    if (status == STATUS_OK)
        status = postgres_settle_history(store, connection, history, message);
    if (status == STATUS_OK)
        return postgres_execute(store, connection, "COMMIT", message);
    PQclear(postgres_exec(store, connection, "ROLLBACK"));
    return status;
}

enum status postgres_take_lock(struct postgres_store *store, PGconn *connection, int wait_ms,
                               struct postgres_term *term, char *message) {
    char sql[160];
    char cause[300];
    snprintf(sql, sizeof(sql),
             "SET lock_timeout = %d; SELECT pg_advisory_lock(" POSTGRES_TEXT_OF(
                 POSTGRES_WRITER_LOCK) "); SET lock_timeout = 0",
             wait_ms);
    PGresult *result = postgres_exec(store, connection, sql);
    enum status status = STATUS_OK;
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (code && strcmp(code, "55P03") == 0) {
        char holder[POSTGRES_ACTIVITY_SIZE];
        holder_column(store, connection, HOLDER_NAME, holder);
        snprintf(cause, sizeof(cause),
                 "another khala server uses this database: end that first, or name another "
                 "database. It holds the writer lock in the %s",
                 *holder ? holder : "session that has ended now");
        (void)postgres_refuse(store, message, cause);
        status = STATUS_STORE_UNAVAILABLE;
    } else if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        status = postgres_result_fault(store, connection, result, message);
    }
    PQclear(result);
    return status == STATUS_OK ? postgres_raise_term(store, connection, NULL, term, message)
                               : status;
}

/* The next turn of the writer sees the lock. Another process that asks already serves as well. */
enum status postgres_ask_handover(const struct postgres_store *store, PGconn *connection,
                                  char *message) {
    return postgres_execute(
        store, connection,
        "SELECT pg_try_advisory_lock(" POSTGRES_TEXT_OF(POSTGRES_HANDOVER_LOCK) ")", message);
}

enum status postgres_try_lock(const struct postgres_store *store, PGconn *connection,
                              bool *is_taken, char *message) {
    PGresult *result = postgres_exec(store, connection, TRY_LOCK("true", "NULL", ""));
    bool is_answered = PQresultStatus(result) == PGRES_TUPLES_OK;
    *is_taken = is_answered && *PQgetvalue(result, 0, 0) == 't';
    enum status status =
        is_answered ? STATUS_OK : postgres_result_fault(store, connection, result, message);
    PQclear(result);
    return status;
}

void postgres_lock_activity(const struct postgres_store *store, PGconn *connection,
                            char text[POSTGRES_ACTIVITY_SIZE]) {
    holder_column(store, connection, ACTIVITY, text);
}

/* A server that waited for the role while the store was moved must not get it. */
static enum status check_moved(const struct postgres_store *store, PGconn *connection,
                               char *message) {
    PGresult *result = postgres_exec(store, connection, "SELECT FROM meta WHERE name = 'move_out'");
    enum status status = STATUS_OK;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        status = postgres_result_fault(store, connection, result, message);
    else if (PQntuples(result) > 0)
        status = postgres_refuse(store, message, "the store was moved elsewhere");
    PQclear(result);
    return status;
}

/* A connection that took the lock becomes the writer's. */
static enum status begin_term(struct postgres_session *session,
                              const enum postgres_history *history) {
    struct postgres_store *store = session->store;
    enum status status = check_moved(store, session->connection, session->error);
    return status == STATUS_OK ? postgres_raise_term(store, session->connection, history,
                                                     &session->term, session->error)
                               : status;
}

static void drop_connection(struct postgres_session *session) {
    PQfinish(session->connection);
    session->connection = NULL;
    session->changed_ns = 0;
}

static enum status connect_writer(struct postgres_session *session) {
    const struct postgres_store *store = session->store;
    bool is_direct = false;
    enum status status = postgres_connect(store, STORE_WRITE, &session->connection, session->error);
    return status == STATUS_OK
               ? postgres_check_pooler(store, session->connection, &is_direct, session->error)
               : status;
}

/* Tries the lock, where the schema is the one that this build writes: a newer build may have
 * changed it while this node followed. */
static enum status try_role(struct postgres_session *session, bool *is_taken) {
    PGresult *result =
        postgres_exec(session->store, session->connection,
                      TRY_LOCK("value = '" POSTGRES_TEXT_OF(POSTGRES_SCHEMA_VERSION) "'", "value",
                               " FROM meta WHERE name = 'schema_version'"));
    enum status status = STATUS_OK;
    *is_taken = false;
    if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
        status = postgres_result_fault(session->store, session->connection, result, session->error);
    else if (!PQgetisnull(result, 0, 0))
        *is_taken = *PQgetvalue(result, 0, 0) == 't';
    else if (!session->is_schema_foreign)
        log_event(LOG_WARN, "store.schema_differs", log_str("schema", PQgetvalue(result, 0, 1)),
                  log_int("schema_of_build", POSTGRES_SCHEMA_VERSION),
                  log_str("effect", "this node does not take the writer role"));
    session->is_schema_foreign = status == STATUS_OK && PQgetisnull(result, 0, 0);
    PQclear(result);
    return status;
}

/* The schema may have changed between the look at it and the lock. */
static enum status check_schema(const struct postgres_session *session, char *message) {
    PGresult *result = postgres_exec(
        session->store, session->connection,
        "SELECT FROM meta WHERE name = 'schema_version' AND value = '" POSTGRES_TEXT_OF(
            POSTGRES_SCHEMA_VERSION) "'");
    enum status status = STATUS_OK;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        status = postgres_result_fault(session->store, session->connection, result, message);
    else if (PQntuples(result) == 0)
        status = postgres_refuse(session->store, message, "the schema was changed");
    PQclear(result);
    return status;
}

/* Ends the session that holds the lock, if that has waited for its client for too long in the
 * middle of a pipeline or of an answer. A client that is stopped or cut off there keeps the lock
 * for ever otherwise. */
static void end_stuck_holder(struct postgres_session *session) {
    const struct postgres_store *store = session->store;
    char stuck[POSTGRES_ACTIVITY_SIZE];
    char column[POSTGRES_ACTIVITY_SIZE + 100];
    uint64_t now_ns = clock_now().mono_ns;
    holder_column(store, session->connection,
                  "CASE WHEN a.state = 'active' AND a.wait_event_type = 'Client' THEN " ACTIVITY
                  " ELSE '' END",
                  stuck);
    if (strcmp(stuck, session->stuck) != 0) {
        snprintf(session->stuck, sizeof(session->stuck), "%s", stuck);
        session->stuck_ns = now_ns;
    }
    if (!*stuck || now_ns - session->stuck_ns < POSTGRES_SILENCE_MS * (uint64_t)CLOCK_NS_PER_MS)
        return;
    snprintf(column, sizeof(column),
             "CASE WHEN " ACTIVITY " = '%s' THEN pg_terminate_backend(l.pid) END", stuck);
    holder_column(store, session->connection, column, stuck);
    session->stuck_ns = now_ns;
    log_event(LOG_WARN, "store.stuck_writer", log_str("session", session->stuck),
              log_str("reason", "the session with the writer lock waits for its client"),
              log_str("effect", *stuck == 't' ? "this node ends that session"
                                              : "this node may not end that session"));
}

/* Another session has the lock. The connection stays for the next attempt. */
static enum status stay_follower(struct postgres_session *session) {
    end_stuck_holder(session);
    if (!session->is_role_elsewhere)
        log_event(LOG_INFO, "store.following", log_str("store", session->store->label),
                  log_str("effect", "another node has the writer role"));
    session->is_role_elsewhere = true;
    atomic_store(&session->store->is_role_lost, false);
    session->connect_at_ns = clock_now().mono_ns + LOCK_PAUSE_MS * CLOCK_NS_PER_MS;
    return STATUS_NOT_WRITER;
}

/* The session has the lock. HISTORY_CHANGED: it waits with the lock, and takes no role yet. */
static enum status judge_history(struct postgres_session *session, enum postgres_history *history) {
    uint64_t now_ns = clock_now().mono_ns;
    uint64_t waited_ms =
        session->changed_ns > 0 ? (now_ns - session->changed_ns) / CLOCK_NS_PER_MS + 1 : 0;
    enum status status = postgres_judge_history(session->store, session->connection, waited_ms,
                                                history, session->error);
    if (status != STATUS_OK || *history != HISTORY_CHANGED) {
        session->changed_ns = 0;
        return status;
    }
    if (session->changed_ns == 0)
        session->changed_ns = now_ns;
    return STATUS_OK;
}

static enum status wait_for_nodes(struct postgres_session *session) {
    session->is_role_elsewhere = true;
    atomic_store(&session->store->is_role_lost, false);
    session->connect_at_ns = clock_now().mono_ns + PAUSE_MS_MIN * CLOCK_NS_PER_MS;
    return STATUS_NOT_WRITER;
}

enum status postgres_take_role(struct store_session *base) {
    struct postgres_session *session = postgres_session_of(base);
    struct postgres_store *store = session->store;
    bool is_taken = false;
    enum postgres_history history = HISTORY_SAME;
    if (!session->is_role_lost)
        return STATUS_OK;
    if (clock_now().mono_ns < session->connect_at_ns)
        return session->is_role_elsewhere ? STATUS_NOT_WRITER : STATUS_WRITER_LOST;
    enum status status = session->connection ? STATUS_OK : connect_writer(session);
    if (status == STATUS_OK)
        status = try_role(session, &is_taken);
    if (status == STATUS_OK && !is_taken)
        return stay_follower(session);
    if (status == STATUS_OK)
        status = check_schema(session, session->error);
    if (status == STATUS_OK)
        status = judge_history(session, &history);
    if (status == STATUS_OK && history == HISTORY_CHANGED)
        return wait_for_nodes(session);
    if (status == STATUS_OK)
        status = begin_term(session, &history);
    postgres_note_attempt(session, status);
    session->is_role_elsewhere = false;
    atomic_store(&store->is_role_lost, status != STATUS_OK);
    if (status != STATUS_OK) {
        drop_connection(session);
        return STATUS_WRITER_LOST;
    }
    session->is_role_lost = false;
    session->pinged_ns = clock_now().mono_ns;
    log_event(LOG_INFO, "store.writer_role_taken", log_str("store", store->label),
              log_int("term", (int64_t)session->term.number));
    return STATUS_OK;
}

/* Another process asks for the lock, or the schema was changed without it. */
static enum status look_for_request(struct postgres_session *session, bool *is_asked) {
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_ROLE_ASKED);
    postgres_put_text(session, SLICE(POSTGRES_TEXT_OF(POSTGRES_SCHEMA_VERSION)));
    enum status status = postgres_query(session, &result);
    *is_asked = status == STATUS_OK && postgres_number((struct postgres_row){result, 0}, 0) != 0;
    PQclear(result);
    return status;
}

static int64_t ms_since(uint64_t then_ns) {
    return (int64_t)((clock_now().mono_ns - then_ns) / CLOCK_NS_PER_MS);
}

enum status postgres_keep_alive(struct store_session *base, int64_t *wait_ms) {
    struct postgres_session *session = postgres_session_of(base);
    bool is_asked = false;
    *wait_ms = PING_MS;
    if (session->is_role_lost)
        return STATUS_WRITER_LOST;
    /* Commits keep the session alive too, and must not keep the writer from looking. */
    int64_t silent_ms = ms_since(session->asked_ns);
    if (silent_ms < PING_MS) {
        *wait_ms = PING_MS - silent_ms;
        return STATUS_OK;
    }
    session->asked_ns = clock_now().mono_ns;
    enum status status = look_for_request(session, &is_asked);
    if (status != STATUS_OK || !is_asked)
        return status;
    log_event(LOG_INFO, "store.writer_role_given_up", log_str("store", session->store->label),
              log_str("effect", "'khala migrate' takes the writer lock"));
    snprintf(session->error, sizeof(session->error), "the writer lock was given up on request");
    postgres_disconnect(session);
    return STATUS_WRITER_LOST;
}
