/* Connections: the settings of a session, the checks of the server, the writer role.
 *
 * The session that writes holds an advisory lock for as long as it lives, so a node that lost the
 * session cannot commit. A node that is paused keeps its connection open; the server ends that
 * session after a time without a statement, and so frees the lock. A node that works sends a
 * statement each second. The term of the role, which each commit checks, rejects what is left. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/postgres/postgres.h"
#include "store/postgres/postgres_migrations.h"

#define MS_PER_S         1000
#define TEXT_OF_(number) #number
#define TEXT_OF(number)  TEXT_OF_(number)
/* How long a session that writes may be silent before the server ends it. */
#define SILENCE_MS     "3000"
#define PING_MS        1000
#define LOCK_WAIT_MS   TEXT_OF(POSTGRES_LOCK_WAIT_MS)
#define PAUSE_MS_MIN   100
#define POOLER_WAIT_MS 2000
/* The shortest time that libpq takes. */
#define PROBE_S      "2"
#define PAUSE_MS_MAX 1000
/* Between two attempts to take the lock that another session holds. */
#define LOCK_PAUSE_MS 500
#define LOCK_LOW_HALF TEXT_OF(POSTGRES_WRITER_LOCK) " & 4294967295"

/* A role or a database may limit the time of a statement or a transaction. A limit that the server
 * does not know yet is skipped. */
#define NO_TIMEOUTS                                                                                \
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', "    \
    "'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', "               \
    "'idle_session_timeout'); "
/* Every statement finds its rows by an index. The planner knows nothing about a table that grew
 * since it was last analysed, so the plans that scan whole tables are switched off. */
#define SETTINGS                                                                                   \
    "SET search_path = runtime; SET jit = off; SET enable_seqscan = off; SET enable_hashjoin = "   \
    "off; SET enable_mergejoin = off; SET enable_bitmapscan = off; " NO_TIMEOUTS
#define SETTINGS_READ SETTINGS "SET default_transaction_read_only = on"
/* A role or a database may say synchronous_commit = off, which would lose acknowledged events. */
#define SETTINGS_SIDE                                                                              \
    "; SET statement_timeout = 4000; SET idle_in_transaction_session_timeout = 4000"
#define SETTINGS_WRITE                                                                             \
    SETTINGS "SELECT set_config('synchronous_commit', 'on', false) WHERE "                         \
             "current_setting('synchronous_commit') = 'off'"
/* The server ends a statement of a client that is gone, and so frees the writer lock. Servers on
 * other systems than Linux refuse the setting. */
#define SETTING_CHECKED "SET client_connection_check_interval = 1000"

/* ---- faults ---------------------------------------------------------------------------------- */

/* One line, without the end of line that libpq adds. */
static void say(const struct postgres_store *store, char *message, const char *cause,
                const char *advice) {
    int size =
        snprintf(message, STORE_MESSAGE_MAX, "%s: %.*s", store->label, 300, cause ? cause : "");
    size_t end = size < STORE_MESSAGE_MAX ? (size_t)size : STORE_MESSAGE_MAX - 1;
    while (end > 0 && (message[end - 1] == '\n' || message[end - 1] == ' '))
        message[--end] = '\0';
    for (size_t i = 0; i < end; i++)
        if (message[i] == '\n')
            message[i] = ' ';
    if (*advice)
        snprintf(message + end, STORE_MESSAGE_MAX - end, "%s", advice);
}

struct state_row {
    const char *code; /* an SQLSTATE, or the class that begins it */
    enum status status;
    const char *advice;
};

#define ADVICE_CONNECTIONS ": raise max_connections of the server, or lower KHALA_READERS"

/* The first row that matches. */
static const struct state_row states[] = {
    {"23505", STATUS_ALREADY_EXISTS, ""},
    {"25006", STATUS_STORE_UNAVAILABLE,
     ": the database is read-only: connect to the primary server, or unset "
     "default_transaction_read_only"},
    {"42501", STATUS_STORE_UNAVAILABLE,
     ": the role of DB_URL needs the right to create and use the schema runtime"},
    {"53300", STATUS_STORE_UNAVAILABLE, ADVICE_CONNECTIONS},
    {"26000", STATUS_STORE_UNAVAILABLE,
     ": prepared statements do not survive: DB_URL must not lead through a pooler in transaction "
     "mode"},
    {"0A000", STATUS_STORE_UNAVAILABLE, ""}, /* a cached plan whose table was made again */
    {"XX001", STATUS_INTERNAL_ERROR, "; the store is damaged: restore a backup"},
    {"XX002", STATUS_INTERNAL_ERROR, "; the store is damaged: restore a backup"},
    {"3F000", STATUS_INTERNAL_ERROR, ": the schema runtime is missing: restore a backup"},
    {"08", STATUS_STORE_UNAVAILABLE, ""},
    {"25", STATUS_STORE_UNAVAILABLE, ""},
    {"40", STATUS_STORE_UNAVAILABLE, ""},
    {"53", STATUS_STORE_UNAVAILABLE, ""},
    {"55", STATUS_STORE_UNAVAILABLE, ""},
    {"57", STATUS_STORE_UNAVAILABLE, ""},
    {"58", STATUS_STORE_UNAVAILABLE, ""},
    {"", STATUS_INTERNAL_ERROR, ""},
};

enum status postgres_result_fault(const struct postgres_store *store, const PGconn *connection,
                                  const PGresult *result, char *message) {
    const char *code = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *cause = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    const struct state_row *row = states;
    if (!code) {
        say(store, message, connection ? PQerrorMessage(connection) : "no connection", "");
        return STATUS_STORE_UNAVAILABLE;
    }
    while (strncmp(code, row->code, strlen(row->code)) != 0)
        row++;
    say(store, message, cause, row->advice);
    const char *constraint = PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME);
    /* A position of the log, or of an entity, that is taken. */
    if (row->status == STATUS_ALREADY_EXISTS && constraint &&
        (strcmp(constraint, "events_pkey") == 0 || strcmp(constraint, "events_by_entity") == 0))
        return STATUS_SEQUENCE_CONFLICT;
    return row->status;
}

enum status postgres_execute(const struct postgres_store *store, PGconn *connection,
                             const char *sql, char *message) {
    PGresult *result = postgres_exec(store, connection, sql);
    ExecStatusType answered = PQresultStatus(result);
    enum status status = answered == PGRES_COMMAND_OK || answered == PGRES_TUPLES_OK
                             ? STATUS_OK
                             : postgres_result_fault(store, connection, result, message);
    PQclear(result);
    return status;
}

/* ---- a new connection ---- */

/* Notices are for people at a terminal. */
static void ignore_notice(void *user, const PGresult *result) {
    (void)user, (void)result;
}

static enum status refuse(const struct postgres_store *store, char *message, const char *cause) {
    say(store, message, cause, "");
    return STATUS_INVALID_CONFIG;
}

/* The server's version, whether it is a standby, whether it is read-only, its encoding. */
static enum status check_server(const struct postgres_store *store, PGconn *connection,
                                enum store_mode mode, char *message) {
    if (PQserverVersion(connection) < POSTGRES_VERSION_MIN)
        return refuse(store, message, "the server is older than PostgreSQL 14: upgrade it");
    PGresult *result = postgres_exec(store, connection,
                                     "SELECT pg_is_in_recovery(), "
                                     "current_setting('transaction_read_only'), "
                                     "current_setting('server_encoding')");
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        enum status failed = postgres_result_fault(store, connection, result, message);
        PQclear(result);
        return failed;
    }
    enum status status = STATUS_OK;
    if (strcmp(PQgetvalue(result, 0, 0), "t") == 0)
        status = refuse(store, message,
                        "the server is a standby: let DB_URL name the primary server, for example "
                        "with target_session_attrs=read-write");
    else if (mode != STORE_READ && strcmp(PQgetvalue(result, 0, 1), "on") == 0)
        status = refuse(store, message,
                        "default_transaction_read_only is on: reset it for the role and the "
                        "database of DB_URL");
    else if (strcmp(PQgetvalue(result, 0, 2), "UTF8") != 0)
        status = refuse(store, message,
                        "the encoding of the database is not UTF8: create one with ENCODING "
                        "'UTF8' TEMPLATE template0");
    PQclear(result);
    return status;
}

/* The values of the URL override those before it, and not those behind it. libpq skips NULL. */
static const char *const dial_names[] = {"connect_timeout",
                                         "keepalives_idle",
                                         "keepalives_interval",
                                         "keepalives_count",
                                         "tcp_user_timeout",
                                         "fallback_application_name",
                                         "dbname",
                                         "client_encoding",
                                         "connect_timeout",
                                         NULL};

#define DIAL_VALUES(url, timeout)                                                                  \
    { "5", "5", "2", "3", "10000", "khala", (url), "UTF8", (timeout), NULL }

PGconn *postgres_dial(const struct postgres_store *store, bool is_probe) {
    const char *const values[] = DIAL_VALUES(store->url, is_probe ? PROBE_S : NULL);
    return PQconnectdbParams(dial_names, values, 1);
}

bool postgres_is_reachable(const struct postgres_store *store) {
    const char *const values[] = DIAL_VALUES(store->url, PROBE_S);
    return PQpingParams(dial_names, values, 1) != PQPING_NO_RESPONSE;
}

/* libpq knows no SQLSTATE of a failed connection. */
static const char *advice_for(const char *cause) {
    bool is_full = strstr(cause, "too many") || strstr(cause, "connection slots");
    return is_full ? ADVICE_CONNECTIONS : ": check DB_URL";
}

static const char *const settings_of[] = {
    [STORE_READ] = SETTINGS_READ,
    [STORE_WRITE] = SETTINGS_WRITE,
    [STORE_SIDE] = SETTINGS_WRITE SETTINGS_SIDE,
};

enum status postgres_connect(const struct postgres_store *store, enum store_mode mode,
                             PGconn **connection, char *message) {
    PGconn *made = postgres_dial(store, false);
    enum status status = STATUS_OK;
    *connection = NULL;
    if (PQstatus(made) != CONNECTION_OK) {
        const char *cause = made ? PQerrorMessage(made) : "no memory";
        say(store, message, cause, advice_for(cause));
        status = made ? STATUS_STORE_UNAVAILABLE : STATUS_OUT_OF_MEMORY;
    }
    if (status == STATUS_OK) {
        PQsetNoticeReceiver(made, ignore_notice, NULL);
        status = check_server(store, made, mode, message);
    }
    if (status == STATUS_OK)
        status = postgres_execute(store, made, settings_of[mode], message);
    if (status == STATUS_OK && mode == STORE_WRITE)
        PQclear(postgres_exec(store, made, SETTING_CHECKED));
    if (status == STATUS_OK)
        *connection = made;
    else
        PQfinish(made);
    return status;
}

/* ---- a pooler ---- */

/* 0: no answer. */
static long backend_of(PGconn *connection) {
    PGresult *result = postgres_exec_within(connection, "SELECT pg_backend_pid()", POOLER_WAIT_MS);
    long pid = 0;
    if (PQresultStatus(result) == PGRES_TUPLES_OK)
        pid = strtol(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return pid;
}

/* While a second connection holds a transaction open, a pooler in transaction mode gives the first
 * connection another session of the server, or none. A direct connection knows its process; the
 * process id that a pooler reports is its own. */
enum status postgres_check_pooler(const struct postgres_store *store, PGconn *connection,
                                  bool *is_direct, char *message) {
    long before = backend_of(connection);
    *is_direct = before == PQbackendPID(connection);
    if (*is_direct)
        return STATUS_OK;
    PGconn *second = postgres_dial(store, false);
    bool is_same = true, is_served = true;
    for (int i = 0; i < 3 && is_same && is_served; i++) {
        PGresult *begun = postgres_exec_within(second, "BEGIN", POOLER_WAIT_MS);
        is_served = begun != NULL;
        /* In statement mode a transaction is refused. */
        is_same = !is_served || (PQresultStatus(begun) == PGRES_COMMAND_OK &&
                                 backend_of(second) != before && backend_of(connection) == before);
        PQclear(begun);
        if (is_served)
            PQclear(postgres_exec_within(second, "ROLLBACK", POOLER_WAIT_MS));
    }
    PQfinish(second);
    if (!is_same)
        return refuse(store, message,
                      "DB_URL leads through a pooler in transaction mode or statement mode, where "
                      "the writer's lock and its commits use different sessions: connect to the "
                      "server itself, or use session mode");
    if (is_served)
        return STATUS_OK;
    say(store, message,
        "the pooler at DB_URL gives no second session: raise its pool size, or connect to the "
        "server itself",
        "");
    return STATUS_STORE_UNAVAILABLE;
}

/* ---- the writer role ---- */

static enum status add_term(const struct postgres_store *store, PGconn *connection, uint64_t *term,
                            char *message) {
    PGresult *result =
        postgres_exec(store, connection,
                      "UPDATE writer SET term = term + 1, taken_at = now() WHERE id = 1 "
                      "RETURNING term");
    enum status status = STATUS_OK;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        status = postgres_result_fault(store, connection, result, message);
    else if (PQntuples(result) != 1)
        status = refuse(store, message, "runtime.writer has no row: restore a backup");
    else
        *term = strtoull(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return status;
}

enum status postgres_raise_term(const struct postgres_store *store, PGconn *connection,
                                const enum postgres_history *judged, uint64_t *term,
                                char *message) {
    /* Before the first migration there is no such table. */
    PGresult *result =
        postgres_exec(store, connection, "SELECT to_regclass('runtime.writer') IS NULL");
    bool is_absent =
        PQresultStatus(result) == PGRES_TUPLES_OK && strcmp(PQgetvalue(result, 0, 0), "t") == 0;
    PQclear(result);
    *term = 0;
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

enum status postgres_take_lock(const struct postgres_store *store, PGconn *connection,
                               uint64_t *term, char *message) {
    PGresult *result = postgres_exec(
        store, connection,
        "SET lock_timeout = " LOCK_WAIT_MS
        "; SELECT pg_advisory_lock(" TEXT_OF(POSTGRES_WRITER_LOCK) "); SET lock_timeout = 0");
    enum status status = STATUS_OK;
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (code && strcmp(code, "55P03") == 0) {
        say(store, message,
            "another khala server uses this database: end that first, or name another database",
            "");
        status = STATUS_STORE_UNAVAILABLE;
    } else if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        status = postgres_result_fault(store, connection, result, message);
    }
    PQclear(result);
    return status == STATUS_OK ? postgres_raise_term(store, connection, NULL, term, message)
                               : status;
}

enum status postgres_try_lock(const struct postgres_store *store, PGconn *connection,
                              bool *is_taken, char *message) {
    PGresult *result = postgres_exec(
        store, connection, "SELECT pg_try_advisory_lock(" TEXT_OF(POSTGRES_WRITER_LOCK) ")");
    bool is_answered = PQresultStatus(result) == PGRES_TUPLES_OK;
    *is_taken = is_answered && *PQgetvalue(result, 0, 0) == 't';
    enum status status =
        is_answered ? STATUS_OK : postgres_result_fault(store, connection, result, message);
    PQclear(result);
    return status;
}

void postgres_lock_activity(const struct postgres_store *store, PGconn *connection,
                            char text[POSTGRES_ACTIVITY_SIZE]) {
    PGresult *result = postgres_exec(
        store, connection,
        "SELECT l.pid || ' ' || a.state_change FROM pg_locks l JOIN pg_stat_activity a ON a.pid = "
        "l.pid WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM "
        "pg_database WHERE datname = current_database()) AND l.classid::bigint = " TEXT_OF(
            POSTGRES_WRITER_LOCK) " >> 32 AND l.objid::bigint = " LOCK_LOW_HALF);
    bool is_known = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0;
    snprintf(text, POSTGRES_ACTIVITY_SIZE, "%s", is_known ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
}

enum status postgres_limit_silence(const struct postgres_store *store, PGconn *connection,
                                   bool is_limited, char *message) {
    return postgres_execute(store, connection,
                            is_limited ? "SET idle_session_timeout = " SILENCE_MS
                                         "; SET idle_in_transaction_session_timeout = " SILENCE_MS
                                       : "DEALLOCATE ALL; SET idle_session_timeout = 0",
                            message);
}

/* ---- sessions ---- */

void postgres_disconnect(struct postgres_session *session) {
    PQfinish(session->connection);
    session->connection = NULL;
    memset(session->prepared, 0, sizeof(session->prepared));
    session->tail.known = false;
    session->is_read_lost = session->in_transaction;
    if (session->base.mode != STORE_WRITE)
        return;
    session->is_role_lost = true;
    atomic_store(&session->store->is_role_lost, true);
}

static void note_attempt(struct postgres_session *session, enum status status) {
    session->connect_pause_ms = status == STATUS_OK ? 0 : session->connect_pause_ms * 2;
    if (status == STATUS_OK)
        return;
    if (session->connect_pause_ms < PAUSE_MS_MIN)
        session->connect_pause_ms = PAUSE_MS_MIN;
    if (session->connect_pause_ms > PAUSE_MS_MAX)
        session->connect_pause_ms = PAUSE_MS_MAX;
    session->connect_at_ns = clock_now().mono_ns + session->connect_pause_ms * CLOCK_NS_PER_MS;
}

enum status postgres_ensure(struct postgres_session *session) {
    if (session->base.mode == STORE_WRITE && session->is_role_lost)
        return STATUS_WRITER_LOST;
    if (session->connection)
        return STATUS_OK;
    assert(session->base.mode != STORE_WRITE);
    session->reason = REASON_STORE_FAILED;
    if (session->is_read_lost || clock_now().mono_ns < session->connect_at_ns)
        return STATUS_STORE_UNAVAILABLE;
    enum status status =
        postgres_connect(session->store, session->base.mode, &session->connection, session->error);
    note_attempt(session, status);
    return status == STATUS_OK ? STATUS_OK : STATUS_STORE_UNAVAILABLE;
}

/* A server that waited for the role while the store was moved must not get it. */
static enum status check_moved(const struct postgres_store *store, PGconn *connection,
                               char *message) {
    PGresult *result = postgres_exec(store, connection, "SELECT FROM meta WHERE name = 'move_out'");
    enum status status = STATUS_OK;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        status = postgres_result_fault(store, connection, result, message);
    else if (PQntuples(result) > 0)
        status = refuse(store, message, "the store was moved elsewhere");
    PQclear(result);
    return status;
}

/* A connection that took the lock becomes the writer's. */
static enum status begin_term(struct postgres_session *session,
                              const enum postgres_history *history) {
    const struct postgres_store *store = session->store;
    enum status status = check_moved(store, session->connection, session->error);
    if (status == STATUS_OK)
        status = postgres_raise_term(store, session->connection, history, &session->term,
                                     session->error);
    return status == STATUS_OK
               ? postgres_limit_silence(store, session->connection, true, session->error)
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

/* A build must not write a schema that it does not know: a newer build may have changed it while
 * this node followed. */
static enum status check_schema(struct postgres_session *session) {
    PGresult *result =
        postgres_exec(session->store, session->connection,
                      "SELECT value FROM meta WHERE name = 'schema_version' AND value <> '" TEXT_OF(
                          POSTGRES_SCHEMA_VERSION) "'");
    enum status status = STATUS_OK;
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        status = postgres_result_fault(session->store, session->connection, result, session->error);
    } else if (PQntuples(result) > 0) {
        char cause[128];
        snprintf(cause, sizeof(cause), "the schema has version %.20s and this khala writes %d",
                 PQgetvalue(result, 0, 0), POSTGRES_SCHEMA_VERSION);
        status = refuse(session->store, session->error, cause);
        log_event(LOG_WARN, "store.schema_differs", log_str("error", session->error),
                  log_str("effect", "this node does not take the writer role"));
    }
    PQclear(result);
    return status;
}

/* Another session has the lock. The connection stays for the next attempt. */
static enum status stay_follower(struct postgres_session *session) {
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
    /* A process that stops meanwhile must not keep the lock. */
    return postgres_limit_silence(session->store, session->connection, true, session->error);
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
        status = postgres_try_lock(store, session->connection, &is_taken, session->error);
    if (status == STATUS_OK && !is_taken)
        return stay_follower(session);
    if (status == STATUS_OK)
        status = check_schema(session);
    if (status == STATUS_OK)
        status = judge_history(session, &history);
    if (status == STATUS_OK && history == HISTORY_CHANGED)
        return wait_for_nodes(session);
    if (status == STATUS_OK)
        status = begin_term(session, &history);
    note_attempt(session, status);
    session->is_role_elsewhere = false;
    atomic_store(&store->is_role_lost, status != STATUS_OK);
    if (status != STATUS_OK) {
        drop_connection(session);
        return STATUS_WRITER_LOST;
    }
    session->is_role_lost = false;
    session->pinged_ns = clock_now().mono_ns;
    log_event(LOG_INFO, "store.writer_role_taken", log_str("store", store->label),
              log_int("term", (int64_t)session->term));
    return STATUS_OK;
}

enum status postgres_keep_alive(struct store_session *base, int64_t *wait_ms) {
    struct postgres_session *session = postgres_session_of(base);
    *wait_ms = PING_MS;
    if (session->is_role_lost)
        return STATUS_WRITER_LOST;
    int64_t silent_ms = (int64_t)((clock_now().mono_ns - session->pinged_ns) / CLOCK_NS_PER_MS);
    if (silent_ms < PING_MS) {
        *wait_ms = PING_MS - silent_ms;
        return STATUS_OK;
    }
    postgres_begin(session, STATEMENT_PING);
    return postgres_run(session);
}
