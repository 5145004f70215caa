/* Opening a store: the URL, the schema with its migrations, the lock. */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/postgres/postgres.h"
#include "store/postgres/postgres_heal.h"
#include "store/postgres/postgres_migrations.h"
#include "store/store_epoch.h"

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

static enum status create_schema(const struct postgres_store *store, PGconn *connection,
                                 struct store_message *message) {
    return postgres_execute(store, connection, "CREATE SCHEMA IF NOT EXISTS runtime",
                            message->text);
}

/* One migration with its new version number, in the caller's transaction. */
static enum status migrate_one(const struct postgres_store *store, PGconn *connection, int version,
                               struct store_message *message) {
    char last[256];
    char epoch[STORE_EPOCH_SIZE + 1] = "";
    enum status status = version == 0 ? store_epoch_mint(epoch) : STATUS_OK;
    int size = version == 0 ? snprintf(last, sizeof(last),
                                       "INSERT INTO meta (name, value) VALUES ('epoch', '%s'), "
                                       "('schema_version', '1')",
                                       epoch)
                            : snprintf(last, sizeof(last),
                                       "UPDATE meta SET value = '%d' WHERE name = 'schema_version'",
                                       version + 1);
    assert(size > 0 && (size_t)size < sizeof(last));
    if (status == STATUS_OK)
        status =
            postgres_execute(store, connection, postgres_migrations[version].sql, message->text);
    return status == STATUS_OK ? postgres_execute(store, connection, last, message->text) : status;
}

/* A migration warns where an administrator has to do something. */
static void log_warning(void *user, const PGresult *result) {
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    (void)user;
    if (severity && strcmp(severity, "WARNING") == 0)
        log_event(LOG_WARN, "store.migration_warning",
                  log_str("message", PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY)));
}

/* All migrations that are missing, or none. */
static enum status migrate(const struct postgres_store *store, PGconn *connection, int version,
                           struct store_message *message) {
    enum status status = postgres_execute(store, connection, "BEGIN", message->text);
    if (status == STATUS_OK && version < 0)
        status = create_schema(store, connection, message);
    PQnoticeReceiver before = PQsetNoticeReceiver(connection, log_warning, NULL);
    for (int next = version < 0 ? 0 : version;
         status == STATUS_OK && next < POSTGRES_SCHEMA_VERSION; next++)
        status = migrate_one(store, connection, next, message);
    PQsetNoticeReceiver(connection, before, NULL);
    if (status == STATUS_OK)
        return postgres_execute(store, connection, "COMMIT", message->text);
    PQclear(postgres_exec(store, connection, "ROLLBACK"));
    return status;
}

/* ---- opening ---- */

/* Between two attempts to take the lock. */
#define JOIN_STEP_MS 20
/* The node with the lock needs some seconds to judge a database that has changed. */
#define HISTORY_WAIT_MS 15000

/* How long 'khala migrate' waits for the writer. A writer looks each second. */
#define HANDOVER_WAIT_MS 15000

enum opening { OPENING_MIGRATE, OPENING_CREATE, OPENING_JOIN, OPENING_EXISTING };

static enum status prepare_schema(const struct postgres_store *store, PGconn *connection,
                                  enum opening opening, struct store_message *message) {
    int version = -1;
    enum status status = read_version(store, connection, &version, message);
    if (status != STATUS_OK)
        return status;
    bool is_migrated = opening == OPENING_MIGRATE || (opening != OPENING_EXISTING && version < 0);
    if (is_migrated && version < POSTGRES_SCHEMA_VERSION)
        return migrate(store, connection, version, message);
    return check_version(store, version, message);
}

/* Whether this process may follow, with the lock elsewhere. */
static enum status may_follow(const struct postgres_store *store, bool *may,
                              struct store_message *message) {
    int version = -1;
    bool is_open = false;
    enum status status = read_version(store, store->writing, &version, message);
    if (status == STATUS_OK && version >= 0)
        status = postgres_is_history_open(store, store->writing, &is_open, message->text);
    *may = status == STATUS_OK && version >= 0 && !is_open;
    if (status == STATUS_OK && !*may)
        snprintf(message->text, sizeof(message->text), "%s: another khala process is %s",
                 store->label,
                 is_open ? "comparing the changed database with the nodes: try again later"
                         : "making the store: try again later");
    return status;
}

/* Tries the lock until it is free, or until the session that holds it has sent another statement
 * and therefore lives. A database without a schema needs the lock. */
static enum status lock_or_follow(struct postgres_store *store, struct store_message *message) {
    char before[POSTGRES_ACTIVITY_SIZE] = "";
    bool may = false;
    for (int waited_ms = 0;; waited_ms += JOIN_STEP_MS) {
        char now[POSTGRES_ACTIVITY_SIZE];
        enum status status =
            postgres_try_lock(store, store->writing, &store->has_lock, message->text);
        if (status != STATUS_OK || store->has_lock)
            return status;
        status = may_follow(store, &may, message);
        if (status != STATUS_OK)
            return status;
        postgres_lock_activity(store, store->writing, now);
        bool is_alive = *before && *now && strcmp(before, now) != 0;
        if (may && (is_alive || waited_ms >= POSTGRES_LOCK_WAIT_MS))
            return STATUS_OK;
        if (waited_ms >= HISTORY_WAIT_MS)
            return STATUS_STORE_UNAVAILABLE;
        if (!*before)
            memcpy(before, now, sizeof(before));
        poll(NULL, 0, JOIN_STEP_MS);
    }
}

/* A schema that needs no step is left to the server that has the lock. Otherwise that server is
 * asked for the lock. */
static enum status lock_to_migrate(struct postgres_store *store, struct store_message *message) {
    int version = -1;
    enum status status = postgres_try_lock(store, store->writing, &store->has_lock, message->text);
    if (status == STATUS_OK)
        status = read_version(store, store->writing, &version, message);
    if (status != STATUS_OK || store->has_lock || version >= POSTGRES_SCHEMA_VERSION)
        return status;
    status = postgres_ask_handover(store, store->writing, message->text);
    if (status == STATUS_OK)
        status = postgres_take_lock(store, store->writing, HANDOVER_WAIT_MS, &store->term,
                                    message->text);
    store->has_lock = status == STATUS_OK;
    return status;
}

static enum status take_lock(struct postgres_store *store, enum opening opening,
                             struct store_message *message) {
    if (opening == OPENING_JOIN)
        return lock_or_follow(store, message);
    if (opening == OPENING_MIGRATE)
        return lock_to_migrate(store, message);
    enum status status = postgres_take_lock(store, store->writing, POSTGRES_LOCK_WAIT_MS,
                                            &store->term, message->text);
    store->has_lock = status == STATUS_OK;
    return status;
}

/* The lock is taken before the schema is looked at. Where the schema is made now, the term is
 * raised after that. */
static enum status open_for_writing(struct postgres_store *store, enum opening opening,
                                    struct store_message *message) {
    struct clock clock;
    clock_init(&clock);
    enum status status = postgres_connect(store, STORE_WRITE, &store->writing, message->text);
    if (status == STATUS_OK)
        status = postgres_check_pooler(store, store->writing, &store->is_direct, message->text);
    if (status == STATUS_OK)
        status = take_lock(store, opening, message);
    if (status == STATUS_OK)
        status = prepare_schema(store, store->writing, store->has_lock ? opening : OPENING_EXISTING,
                                message);
    if (status != STATUS_OK || !store->has_lock)
        return status;
    if (store->term.number == 0)
        status = postgres_raise_term(store, store->writing, NULL, &store->term, message->text);
    return status == STATUS_OK
               ? postgres_heal_damaged_tables(store, store->writing, clock_wall_ms(&clock), message)
               : status;
}

static enum status open_for_reading(struct postgres_store *store, struct store_message *message) {
    PGconn *connection = NULL;
    enum status status = postgres_connect(store, STORE_READ, &connection, message->text);
    if (status == STATUS_OK)
        status = prepare_schema(store, connection, OPENING_EXISTING, message);
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
    if (status == STATUS_OK)
        status = made->is_exclusive ? open_for_writing(made, opening, message)
                                    : open_for_reading(made, message);
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
