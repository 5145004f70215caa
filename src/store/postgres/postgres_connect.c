/* Connections: the settings of a session, and the checks of the server. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/postgres/postgres.h"

#define MS_PER_S         1000
#define TEXT_OF_(number) #number
#define TEXT_OF(number)  TEXT_OF_(number)
#define PAUSE_MS_MIN     100
#define POOLER_WAIT_MS   2000
/* The shortest time that libpq takes. */
#define PROBE_S      "2"
#define PAUSE_MS_MAX 1000

/* A role or a database may limit the time of a statement or a transaction. A limit that the server
 * does not know yet is skipped. The view of the settings is slow, so the limit of a statement goes
 * first. */
#define NO_TIMEOUTS                                                                                \
    "SET statement_timeout = 0; SELECT set_config(name, '0', false) FROM pg_settings WHERE name "  \
    "IN ('lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', "           \
    "'idle_session_timeout'); "
/* Every statement finds its rows by an index. The planner knows nothing about a table that grew
 * since it was last analysed, so the plans that scan whole tables are switched off. The plan that
 * is left does not depend on the parameters. To make it again each time cost as much as to read a
 * page of events. */
#define SETTINGS                                                                                   \
    "SET search_path = runtime; SET jit = off; SET enable_seqscan = off; SET enable_hashjoin = "   \
    "off; SET enable_mergejoin = off; SET enable_bitmapscan = off; SET plan_cache_mode = "         \
    "force_generic_plan; " NO_TIMEOUTS
#define SETTINGS_READ SETTINGS "SET default_transaction_read_only = on"
/* A role or a database may say synchronous_commit = off, which would lose acknowledged events. */
#define SETTINGS_SIDE                                                                              \
    "; SET statement_timeout = 4000; SET idle_in_transaction_session_timeout = 4000"
#define SETTINGS_WRITE                                                                             \
    SETTINGS "SELECT set_config('synchronous_commit', 'on', false) WHERE "                         \
             "current_setting('synchronous_commit') = 'off'"
/* The server ends a statement of a client that is gone, and so frees the writer role. Servers on
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
    {"0A000", STATUS_STORE_UNAVAILABLE, ""}, /* a cached plan whose table was rebuilt */
    {"XX001", STATUS_INTERNAL_ERROR, "; the store is damaged: restore a backup"},
    {"XX002", STATUS_INTERNAL_ERROR, "; the store is damaged: restore a backup"},
    {"3F000", STATUS_INTERNAL_ERROR, ": the schema runtime is missing: restore a backup"},
    {"08", STATUS_STORE_UNAVAILABLE, ""},
    {"25", STATUS_STORE_UNAVAILABLE, ""},
    {"40", STATUS_STORE_UNAVAILABLE, ""},
    {"53", STATUS_STORE_UNAVAILABLE, ""},
    /* Another session has a lock. Only attempts to take the writer role, and migrations, give up.
     */
    {"55P03", STATUS_NOT_WRITER, ""},
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

enum status postgres_refuse(const struct postgres_store *store, char *message, const char *cause) {
    say(store, message, cause, "");
    return STATUS_INVALID_CONFIG;
}

/* The server's version, whether it is a standby, whether it is read-only, its encoding. */
static enum status check_server(const struct postgres_store *store, PGconn *connection,
                                enum store_mode mode, char *message) {
    if (PQserverVersion(connection) < POSTGRES_VERSION_MIN)
        return postgres_refuse(store, message,
                               "the server is older than PostgreSQL 14: upgrade it");
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
        status = postgres_refuse(
            store, message,
            "the server is a standby: let DB_URL name the primary server, for example "
            "with target_session_attrs=read-write");
    else if (mode != STORE_READ && strcmp(PQgetvalue(result, 0, 1), "on") == 0)
        status =
            postgres_refuse(store, message,
                            "default_transaction_read_only is on: reset it for the role and the "
                            "database of DB_URL");
    else if (strcmp(PQgetvalue(result, 0, 2), "UTF8") != 0)
        status =
            postgres_refuse(store, message,
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
        /* libpq knows no SQLSTATE of a failed connection. */
        bool is_full = strstr(cause, "too many") || strstr(cause, "connection slots");
        say(store, message, cause, is_full ? ADVICE_CONNECTIONS : ": check DB_URL");
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
        return postgres_refuse(
            store, message,
            "DB_URL leads through a pooler in transaction mode or statement mode, where "
            "the writer's settings and its commits use different sessions: connect to the "
            "server itself, or use session mode");
    if (is_served)
        return STATUS_OK;
    say(store, message,
        "the pooler at DB_URL gives no second session: raise its pool size, or connect to the "
        "server itself",
        "");
    return STATUS_STORE_UNAVAILABLE;
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
    session->changed_ns = 0;
    session->term = (struct postgres_term){0};
    atomic_store(&session->store->is_unconnected, true);
}

void postgres_note_attempt(struct postgres_session *session, enum status status) {
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
    if (session->base.mode == STORE_WRITE && !postgres_has_role(session))
        return STATUS_WRITER_LOST;
    if (session->connection)
        return STATUS_OK;
    assert(session->base.mode != STORE_WRITE);
    session->reason = REASON_STORE_FAILED;
    if (session->is_read_lost || clock_now().mono_ns < session->connect_at_ns)
        return STATUS_STORE_UNAVAILABLE;
    enum status status =
        postgres_connect(session->store, session->base.mode, &session->connection, session->error);
    postgres_note_attempt(session, status);
    return status == STATUS_OK ? STATUS_OK : STATUS_STORE_UNAVAILABLE;
}
