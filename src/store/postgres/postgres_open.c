/* Opening a store: the URL, the schema with its migrations, the writer role. */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/postgres/postgres.h"
#include "store/postgres/postgres_heal.h"
#include "store/postgres/postgres_migrations.h"

/* ---- the URL ---- */

static const char *option(const PQconninfoOption *options, const char *name) {
    for (; options->keyword; options++)
        if (strcmp(options->keyword, name) == 0 && options->val && *options->val)
            return options->val;
    return "";
}

/* The message of libpq is not shown, because it may quote a part of the password. */
static enum status read_url(struct postgres_store *store, struct store_message *message) {
    PQconninfoOption *options = PQconninfoParse(store->url, NULL);
    const char *port = options ? option(options, "port") : "";
    if (!options || port[strspn(port, "0123456789,")] != '\0') {
        PQconninfoFree(options);
        snprintf(message->text, sizeof(message->text),
                 "DB_URL is not a URL of PostgreSQL: write "
                 "postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the "
                 "password as %%XX");
        return STATUS_INVALID_CONFIG;
    }
    const char *host = option(options, "host");
    snprintf(store->label, sizeof(store->label), "postgres://%.100s%s%.10s/%.100s", host,
             *port ? ":" : "", port, option(options, "dbname"));
    PQconninfoFree(options);
    return STATUS_OK;
}

/* ---- the schema ---- */

/* -1: there is no store yet. */
static enum status read_version(const struct postgres_store *store, PGconn *connection,
                                int *version, struct store_message *message) {
    *version = -1;
    PGresult *result =
        postgres_exec(store, connection,
                      "SELECT to_regnamespace('runtime') IS NOT NULL AND EXISTS (SELECT 1 "
                      "FROM pg_class WHERE relnamespace = to_regnamespace('runtime')), "
                      "to_regclass('runtime.meta') IS NOT NULL");
    enum status status = STATUS_OK;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        status = postgres_result_fault(store, connection, result, message->text);
    bool has_schema = status == STATUS_OK && *PQgetvalue(result, 0, 0) == 't';
    bool has_meta = status == STATUS_OK && *PQgetvalue(result, 0, 1) == 't';
    PQclear(result);
    if (status != STATUS_OK || !has_schema)
        return status;
    result = has_meta ? postgres_exec(store, connection,
                                      "SELECT value FROM runtime.meta WHERE name = "
                                      "'schema_version'")
                      : NULL;
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1) {
        *version = (int)strtol(PQgetvalue(result, 0, 0), NULL, 10);
    } else if (has_meta && PQresultStatus(result) != PGRES_TUPLES_OK) {
        status = postgres_result_fault(store, connection, result, message->text);
    } else {
        snprintf(message->text, sizeof(message->text),
                 "%s has a schema runtime of another application; name another database",
                 store->label);
        status = STATUS_INVALID_CONFIG;
    }
    PQclear(result);
    return status;
}

static enum status check_version(const struct postgres_store *store, int version,
                                 struct store_message *message) {
    if (version > POSTGRES_SCHEMA_VERSION)
        snprintf(message->text, sizeof(message->text),
                 "%s has schema version %d and this khala knows %d: run a newer khala",
                 store->label, version, POSTGRES_SCHEMA_VERSION);
    else if (version < 0)
        snprintf(message->text, sizeof(message->text),
                 "%s holds no store yet: 'khala serve' or 'khala migrate' makes one", store->label);
    else if (version < POSTGRES_SCHEMA_VERSION)
        snprintf(message->text, sizeof(message->text),
                 "%s has schema version %d and this khala needs %d: run 'khala migrate'",
                 store->label, version, POSTGRES_SCHEMA_VERSION);
    else
        return STATUS_OK;
    return version < 0 ? STATUS_STORE_UNAVAILABLE : STATUS_INVALID_CONFIG;
}

/* A migration warns where an administrator has to do something. */
static void log_warning(void *user, const PGresult *result) {
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    (void)user;
    if (severity && strcmp(severity, "WARNING") == 0)
        log_event(LOG_WARN, "store.migration_warning",
                  log_str("message", PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY)));
}

/* How long a migration waits for a transaction that has locked the row of the writer, or that keeps
 * a table from being changed. The second is shorter, because others wait behind the migration. */
#define ROW_WAIT   "15 s"
#define TABLE_WAIT "4 s"

/* Begins the transaction of the migrations. Other sessions can commit nothing until its end, and
 * the writer of before, of any release, cannot commit after it, because its term has ended.
 * *is_current: no other process has changed the schema or taken the role meanwhile. */
static enum status begin_migration(const struct postgres_store *store, PGconn *connection,
                                   int version, bool *is_current, struct store_message *message) {
    char sql[900];
    const char *lock = "";
    unsigned long long term = store->term.number;
    /* Of several processes that create a store at once, one gets the unique names of the first
     * objects. The others wait for its transaction. */
    if (version < 0)
        lock = "CREATE SCHEMA IF NOT EXISTS runtime";
    /* The row names no session that could be asked, so its writer may be committing. With the lock
     * of the row alone, a commit that waits for the row would keep the steps from the table. */
    else if (version < POSTGRES_ROLE_VERSION)
        lock = "LOCK TABLE runtime.writer IN EXCLUSIVE MODE; UPDATE runtime.writer SET term = term "
               "+ 1 WHERE id = 1; ";
    int size = snprintf(sql, sizeof(sql),
                        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '" ROW_WAIT
                        "'; SET LOCAL idle_in_transaction_session_timeout = '" POSTGRES_TEXT_OF(
                            POSTGRES_SILENCE_MS) "'; %s",
                        lock);
    if (version >= 0)
        size += snprintf(sql + size, sizeof(sql) - (size_t)size,
                         "SET LOCAL lock_timeout = '" TABLE_WAIT "'; SELECT FROM runtime.meta m, "
                         "runtime.writer w WHERE m.name = 'schema_version' AND m.value = '%d' AND "
                         "w.id = 1 AND (%d < %d OR w.term = %llu) FOR UPDATE OF w",
                         version, version, POSTGRES_ROLE_VERSION, term);
    assert(size > 0 && (size_t)size < sizeof(sql));
    PGresult *result = postgres_exec(store, connection, sql);
    ExecStatusType answered = PQresultStatus(result);
    enum status status = answered == PGRES_TUPLES_OK || answered == PGRES_COMMAND_OK
                             ? STATUS_OK
                             : postgres_result_fault(store, connection, result, message->text);
    *is_current = status == STATUS_OK && (version < 0 || PQntuples(result) == 1);
    PQclear(result);
    return status;
}

/* All migrations that are missing, or none. The process that made them has the writer role. Does
 * nothing, with STATUS_OK, where another process was faster. */
static enum status migrate(struct postgres_store *store, int version,
                           struct store_message *message) {
    PGconn *connection = store->writing;
    struct postgres_term term = {0};
    bool is_current = false;
    enum status status = begin_migration(store, connection, version, &is_current, message);
    PQnoticeReceiver before = PQsetNoticeReceiver(connection, log_warning, NULL);
    for (int next = version < 0 ? 0 : version;
         status == STATUS_OK && is_current && next < POSTGRES_SCHEMA_VERSION; next++) {
        char last[256];
        char epoch[STORE_EPOCH_SIZE + 1] = "";
        if (next == 0)
            status = store_epoch_mint(epoch);
        int size = next == 0 ? snprintf(last, sizeof(last),
                                        "INSERT INTO meta (name, value) VALUES ('epoch', '%s'), "
                                        "('schema_version', '1')",
                                        epoch)
                             : snprintf(last, sizeof(last),
                                        "UPDATE meta SET value = '%d' WHERE name = "
                                        "'schema_version'",
                                        next + 1);
        assert(size > 0 && (size_t)size < sizeof(last));
        if (status == STATUS_OK)
            status =
                postgres_execute(store, connection, postgres_migrations[next].sql, message->text);
        if (status == STATUS_OK)
            status = postgres_execute(store, connection, last, message->text);
    }
    PQsetNoticeReceiver(connection, before, NULL);
    if (status == STATUS_OK && is_current)
        status = postgres_enter_role(store, connection, &term, message->text);
    if (status == STATUS_OK && is_current)
        status = postgres_execute(store, connection, "COMMIT", message->text);
    bool is_done = status == STATUS_OK && is_current;
    store->term = is_done ? term : (struct postgres_term){0};
    if (!is_done)
        PQclear(postgres_exec(store, connection, "ROLLBACK"));
    return status == STATUS_NOT_WRITER ? postgres_refuse_role(store, connection, message->text)
                                       : status;
}

/* ---- opening ---- */

/* Between two attempts to take the role. */
#define JOIN_STEP_MS 20
/* The node with the role needs some seconds to judge a database that has changed. */
#define HISTORY_WAIT_MS 15000

/* How long 'khala migrate' waits for the writer. A writer looks each second. */
#define HANDOVER_WAIT_MS 15000

enum opening { OPENING_MIGRATE, OPENING_CREATE, OPENING_JOIN, OPENING_EXISTING };

/* Takes the role of a schema of this version, if it is free. */
static enum status try_role(struct postgres_store *store, int version,
                            struct postgres_holder *holder, struct store_message *message) {
    const struct postgres_claim claim = {.schema_version = version};
    struct postgres_term term = {0};
    enum status status = postgres_look_at_holder(store, store->writing, holder, message->text);
    if (status != STATUS_OK || !holder->is_free || holder->is_reserved)
        return status;
    status = postgres_claim_role(store, store->writing, &claim, &term, message->text);
    store->term = status == STATUS_OK ? term : (struct postgres_term){0};
    return status == STATUS_NOT_WRITER ? STATUS_OK : status;
}

/* Tries the role until it is free, or until the session that has it has sent another statement and
 * therefore lives. */
static enum status take_role_or_follow(struct postgres_store *store,
                                       struct store_message *message) {
    char before[POSTGRES_ACTIVITY_SIZE] = "";
    bool is_open = false;
    uint64_t begun_ns = clock_now().mono_ns;
    for (;;) {
        struct postgres_holder holder;
        enum status status = try_role(store, POSTGRES_SCHEMA_VERSION, &holder, message);
        if (status != STATUS_OK || store->term.number > 0)
            return status;
        status = postgres_is_history_open(store, store->writing, &is_open, message->text);
        if (status != STATUS_OK)
            return status;
        if (is_open)
            snprintf(message->text, sizeof(message->text),
                     "%s: another khala process is comparing the changed database with the nodes: "
                     "try again later",
                     store->label);
        bool is_alive = *before && *holder.activity && strcmp(before, holder.activity) != 0;
        uint64_t waited_ms = (clock_now().mono_ns - begun_ns) / CLOCK_NS_PER_MS;
        if (!is_open && (is_alive || waited_ms >= POSTGRES_ROLE_WAIT_MS))
            return STATUS_OK;
        if (waited_ms >= HISTORY_WAIT_MS)
            return STATUS_STORE_UNAVAILABLE;
        if (!*before)
            memcpy(before, holder.activity, sizeof(before));
        poll(NULL, 0, JOIN_STEP_MS);
    }
}

/* Waits until the role is free. With is_asked the writer is asked for it. */
static enum status await_role(struct postgres_store *store, int version, bool is_asked,
                              struct store_message *message) {
    uint64_t wait_ms = is_asked ? HANDOVER_WAIT_MS : POSTGRES_ROLE_WAIT_MS;
    uint64_t end_ns = clock_now().mono_ns + wait_ms * CLOCK_NS_PER_MS;
    for (;;) {
        struct postgres_holder holder;
        enum status status = try_role(store, version, &holder, message);
        if (status != STATUS_OK || store->term.number > 0)
            return status;
        if (clock_now().mono_ns >= end_ns)
            return postgres_refuse_role(store, store->writing, message->text);
        if (is_asked && !holder.is_requested && !holder.is_reserved)
            status = postgres_request_role(store, store->writing, message->text);
        if (status != STATUS_OK)
            return status;
        poll(NULL, 0, JOIN_STEP_MS);
    }
}

/* Runs the migrations that are missing, where this opening may do so. A schema of before has no row
 * that names the writer's session: the migration ends its term without asking. */
static enum status prepare_schema(struct postgres_store *store, enum opening opening,
                                  struct store_message *message) {
    int version = -1;
    enum status status = read_version(store, store->writing, &version, message);
    while (status == STATUS_OK && store->term.number == 0 && version < POSTGRES_SCHEMA_VERSION &&
           (version < 0 || opening == OPENING_MIGRATE)) {
        int before = version;
        if (version >= POSTGRES_ROLE_VERSION)
            status = await_role(store, version, true, message);
        if (status == STATUS_OK)
            status = migrate(store, version, message);
        /* Another process may have been faster, so that this one failed. */
        struct store_message reread;
        enum status read = read_version(store, store->writing, &version, &reread);
        if (read != STATUS_OK || (status != STATUS_OK && version == before))
            return status != STATUS_OK ? status : read;
        status = STATUS_OK;
    }
    return status == STATUS_OK ? check_version(store, version, message) : status;
}

/* Whether the store can be read by this build. Its connections open when they are needed. */
static enum status check_existing(struct postgres_store *store, struct store_message *message) {
    PGconn *connection = NULL;
    int version = -1;
    enum status status = postgres_connect(store, STORE_READ, &connection, message->text);
    if (status == STATUS_OK)
        status = read_version(store, connection, &version, message);
    if (status == STATUS_OK)
        status = check_version(store, version, message);
    PQfinish(connection);
    return status;
}

static enum status open_store(const char *location, enum opening opening,
                              struct postgres_store **store, struct store_message *message) {
    struct postgres_store *made = calloc(1, sizeof(*made));
    snprintf(message->text, sizeof(message->text), "no memory");
    if (!made || asprintf(&made->url, "postgres:%s", location) < 0) {
        free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    made->base.engine = &store_engine_postgres;
    pthread_mutex_init(&made->read_lock, NULL);
    made->is_exclusive = opening != OPENING_EXISTING;
    made->is_joined = opening == OPENING_JOIN;
    enum status status = read_url(made, message);
    if (status == STATUS_OK && opening == OPENING_EXISTING)
        status = check_existing(made, message);
    else if (status == STATUS_OK)
        status = postgres_connect(made, STORE_WRITE, &made->writing, message->text);
    if (status == STATUS_OK && made->writing)
        status = postgres_check_pooler(made, made->writing, &made->is_direct, message->text);
    if (status == STATUS_OK && made->writing)
        status = prepare_schema(made, opening, message);
    /* A schema that needs no step is left to the server that has the role. */
    struct postgres_holder holder;
    if (status == STATUS_OK && made->writing && made->term.number == 0)
        status = opening == OPENING_JOIN ? take_role_or_follow(made, message)
                 : opening == OPENING_MIGRATE
                     ? try_role(made, POSTGRES_SCHEMA_VERSION, &holder, message)
                     : await_role(made, POSTGRES_SCHEMA_VERSION, false, message);
    /* With the role: settles the history, and repairs what is damaged. */
    bool has_role = status == STATUS_OK && made->term.number > 0;
    if (has_role)
        status = postgres_settle_role(made, made->writing, &made->term, NULL, message->text);
    if (status == STATUS_OK && has_role)
        status = postgres_heal_damaged_tables(made, made->writing, clock_now().wall_ms, message);
    if (status == STATUS_OK && has_role && !made->is_joined)
        status = postgres_limit_silence(made, made->writing, false, message->text);
    if (status == STATUS_OK)
        *store = made;
    else
        store_close(&made->base);
    return status;
}

enum status postgres_open(struct store **store, const char *location, bool exclusive,
                          struct store_message *message) {
    struct postgres_store *opened = NULL;
    enum status status =
        open_store(location, exclusive ? OPENING_CREATE : OPENING_EXISTING, &opened, message);
    if (status == STATUS_OK) {
        *store = &opened->base;
        message->text[0] = '\0';
    }
    return status;
}

enum status postgres_join(struct store **store, const char *location,
                          struct store_message *message) {
    struct postgres_store *opened = NULL;
    enum status status = open_store(location, OPENING_JOIN, &opened, message);
    if (status == STATUS_OK) {
        *store = &opened->base;
        message->text[0] = '\0';
    }
    return status;
}

enum status postgres_migrate(const char *location, struct store_message *message) {
    struct postgres_store *opened = NULL;
    enum status status = open_store(location, OPENING_MIGRATE, &opened, message);
    if (status == STATUS_OK) {
        store_close(&opened->base);
        message->text[0] = '\0';
    }
    return status;
}
