/* The history of the database: its system identifier and its timeline. A failover, a recovery to an
 * earlier time and a restored dump change one of them. Events may be lost then that clients have.
 * The epoch of the log stays only if every node confirms that nothing it read is lost. A node
 * confirms by its row: the node with the writer role marks all rows, and each running node writes
 * its row again with the last event that it has read.
 *
 * A copy of the files of an earlier state that is put back changes neither. A node that runs then
 * finds that the log lacks an event that it has read. The log gets a new epoch in that case too. */
#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/postgres/postgres.h"

/* Nodes whose rows are not in the table have this time to write one. */
#define WAIT_MS_MIN 2000
/* A node that was silent for so long is missing. */
#define WAIT_MS_MAX 6000
#define STEP_MS     100

/* A row that its node has not written since the change. */
#define MARKED "role = 'unconfirmed'"

/* A value of a result with one row; 0 for NULL. */
static uint64_t number(const PGresult *result, int column) {
    return strtoull(PQgetvalue(result, 0, column), NULL, 10);
}

static enum status ask(const struct postgres_store *store, PGconn *connection, const char *sql,
                       PGresult **result, char *message) {
    *result = postgres_exec(store, connection, sql);
    if (PQresultStatus(*result) == PGRES_TUPLES_OK && PQntuples(*result) == 1)
        return STATUS_OK;
    enum status status = postgres_result_fault(store, connection, *result, message);
    PQclear(*result);
    *result = NULL;
    return status == STATUS_OK ? STATUS_STORE_UNAVAILABLE : status;
}

static enum status compare(const struct postgres_store *store, PGconn *connection,
                           enum postgres_history *history, char *message) {
    PGresult *result = NULL;
    /* A schema of before has no nodes. */
    enum status status =
        ask(store, connection, "SELECT to_regclass('runtime.nodes') IS NULL", &result, message);
    bool is_absent = status == STATUS_OK && *PQgetvalue(result, 0, 0) == 't';
    PQclear(result);
    *history = HISTORY_SAME;
    if (status != STATUS_OK || is_absent)
        return status;
    status = ask(store, connection,
                 "SELECT (SELECT (value = " POSTGRES_HISTORY ")::int FROM runtime.meta WHERE name "
                 "= 'database_history')",
                 &result, message);
    if (status != STATUS_OK)
        return status;
    if (PQgetisnull(result, 0, 0))
        *history = HISTORY_UNKNOWN;
    else if (number(result, 0) != 1)
        *history = HISTORY_CHANGED;
    PQclear(result);
    return STATUS_OK;
}

static enum status ask_nodes(const struct postgres_store *store, PGconn *connection,
                             uint64_t waited_ms, enum postgres_history *history, char *message) {
    PGresult *result = NULL;
    enum status status =
        ask(store, connection,
            "SELECT count(*), count(*) FILTER (WHERE " MARKED "), count(*) FILTER (WHERE n.log_id "
            "> 0 AND NOT EXISTS (SELECT FROM runtime.events e WHERE e.log_id = n.log_id AND "
            "e.cursor = n.cursor)) FROM runtime.nodes n",
            &result, message);
    if (status != STATUS_OK)
        return status;
    uint64_t nodes = number(result, 0);
    uint64_t missing = number(result, 1);
    uint64_t ahead = number(result, 2);
    PQclear(result);
    bool is_waiting = waited_ms < WAIT_MS_MIN || (missing > 0 && waited_ms < WAIT_MS_MAX);
    if (ahead == 0 && nodes > 0 && is_waiting)
        return STATUS_OK;
    *history = ahead == 0 && missing == 0 && nodes > 0 ? HISTORY_CONFIRMED : HISTORY_BROKEN;
    log_event(LOG_WARN, "store.history_changed", log_str("store", store->label),
              log_int("nodes", (int64_t)nodes), log_int("nodes_missing", (int64_t)missing),
              log_int("nodes_ahead", (int64_t)ahead),
              log_str("effect", *history == HISTORY_CONFIRMED
                                    ? "the epoch stays: no node has read an event that is lost"
                                    : "a new epoch: clients start again"));
    return STATUS_OK;
}

/* ---- an older copy of the same database ---- */

static enum status find_loss(struct postgres_store *store, PGconn *connection, bool *is_lost,
                             char *message) {
    char sql[600];
    char read[UUID_TEXT_SIZE + 1] = "";
    char followed[UUID_TEXT_SIZE + 1] = "";
    const struct postgres_memory memory = postgres_remember(store);
    PGresult *result = NULL;
    uuid_format(&memory.read.cursor, read);
    uuid_format(&memory.followed.cursor, followed);
    int size = snprintf(sql, sizeof(sql),
                        "SELECT count(*) FROM (VALUES (%" PRIu64 ", '%s'::uuid), (%" PRIu64
                        ", '%s')) p (log_id, cursor) WHERE p.log_id > 0 AND NOT EXISTS (SELECT "
                        "FROM runtime.events e WHERE e.log_id = p.log_id AND e.cursor = p.cursor) "
                        "AND EXISTS (SELECT FROM runtime.meta WHERE name = 'epoch' AND value = "
                        "'%s')",
                        memory.read.log_id, read, memory.followed.log_id, followed, memory.epoch);
    assert(size > 0 && (size_t)size < sizeof(sql));
    (void)size;
    enum status status = ask(store, connection, sql, &result, message);
    *is_lost = status == STATUS_OK && number(result, 0) > 0;
    PQclear(result);
    return status;
}

static void log_loss(const struct postgres_store *store) {
    log_event(LOG_ERROR, "store.events_lost", log_str("store", store->label),
              log_str("reason", "the log lacks an event that this node has read: an older copy of "
                                "the database was put back"),
              log_str("effect", "a new epoch: clients start again"));
}

enum status postgres_report_loss(struct postgres_session *session, const char *epoch) {
    const struct postgres_store *store = session->store;
    char sql[800];
    char next[STORE_EPOCH_SIZE + 1] = "";
    bool is_open = false;
    /* The node with the role asks all nodes then. */
    enum status status =
        postgres_is_history_open(store, session->connection, &is_open, session->error);
    if (status != STATUS_OK || is_open)
        return status;
    status = store_epoch_mint(next);
    if (status != STATUS_OK)
        return status;
    /* The writer's next commit fails. Of several nodes that find the loss, one changes the epoch.
     */
    snprintf(sql, sizeof(sql),
             "WITH ended AS (UPDATE runtime.writer SET term = term + 1, backend_pid = NULL WHERE "
             "id = 1 RETURNING id) "
             "UPDATE runtime.meta SET value = '%s' WHERE name = 'epoch' AND value = '%s' AND "
             "EXISTS (SELECT FROM ended); " POSTGRES_NOTE_UNKNOWN_FORK,
             next, epoch);
    status = postgres_execute(store, session->connection, sql, session->error);
    if (status != STATUS_OK)
        return status;
    log_loss(store);
    snprintf(session->error, sizeof(session->error), "the log has lost events");
    return STATUS_STORE_UNAVAILABLE;
}

enum status postgres_is_history_open(const struct postgres_store *store, PGconn *connection,
                                     bool *is_open, char *message) {
    enum postgres_history history = HISTORY_SAME;
    enum status status = compare(store, connection, &history, message);
    *is_open = history == HISTORY_CHANGED;
    return status;
}

enum status postgres_judge_history(struct postgres_store *store, PGconn *connection,
                                   uint64_t waited_ms, enum postgres_history *history,
                                   char *message) {
    bool is_lost = false;
    enum status status = compare(store, connection, history, message);
    if (status == STATUS_OK && *history == HISTORY_SAME)
        status = find_loss(store, connection, &is_lost, message);
    if (is_lost) {
        *history = HISTORY_SHORTENED;
        log_loss(store);
    }
    if (status != STATUS_OK || *history != HISTORY_CHANGED)
        return status;
    /* The nodes may take longer than a session that has the role may be silent. */
    status = postgres_execute(store, connection,
                              "UPDATE runtime.writer SET seen_at = clock_timestamp() WHERE id = 1 "
                              "AND backend_pid = pg_backend_pid()",
                              message);
    if (status != STATUS_OK)
        return status;
    if (waited_ms > 0)
        return ask_nodes(store, connection, waited_ms, history, message);
    return postgres_execute(store, connection, "UPDATE runtime.nodes SET role = 'unconfirmed'",
                            message);
}

enum status postgres_await_history(struct postgres_store *store, PGconn *connection,
                                   enum postgres_history *history, char *message) {
    uint64_t waited_ms = 0;
    enum status status = postgres_judge_history(store, connection, 0, history, message);
    while (status == STATUS_OK && *history == HISTORY_CHANGED) {
        poll(NULL, 0, STEP_MS);
        waited_ms += STEP_MS;
        status = postgres_judge_history(store, connection, waited_ms, history, message);
    }
    return status;
}

/* A changed database has no new events before this. So its log ends where its histories part, if it
 * is a copy of the log that this process has followed. */
static enum status note_fork(struct postgres_store *store, PGconn *connection,
                             enum postgres_history history, char *message) {
    const struct postgres_memory memory = postgres_remember(store);
    PGresult *result = NULL;
    bool is_known = history == HISTORY_BROKEN;
    enum status status = ask(
        store, connection, "SELECT value FROM runtime.meta WHERE name = 'epoch'", &result, message);
    if (status == STATUS_OK && *memory.epoch)
        is_known &= strcmp(PQgetvalue(result, 0, 0), memory.epoch) == 0;
    PQclear(result);
    if (status != STATUS_OK)
        return status;
    return postgres_execute(store, connection,
                            is_known ? POSTGRES_NOTE_FORK : POSTGRES_NOTE_UNKNOWN_FORK, message);
}

enum status postgres_settle_history(struct postgres_store *store, PGconn *connection,
                                    enum postgres_history history, char *message) {
    char sql[256];
    char epoch[STORE_EPOCH_SIZE + 1] = "";
    if (history == HISTORY_SAME)
        return STATUS_OK;
    enum status status = postgres_execute(
        store, connection,
        "INSERT INTO runtime.meta (name, value) VALUES ('database_history', " POSTGRES_HISTORY
        ") ON CONFLICT (name) DO UPDATE SET value = excluded.value; DELETE FROM runtime.nodes "
        "WHERE " MARKED,
        message);
    if (status != STATUS_OK || (history != HISTORY_BROKEN && history != HISTORY_SHORTENED))
        return status;
    status = note_fork(store, connection, history, message);
    if (status == STATUS_OK)
        status = store_epoch_mint(epoch);
    if (status != STATUS_OK)
        return status;
    snprintf(sql, sizeof(sql), "UPDATE runtime.meta SET value = '%s' WHERE name = 'epoch'", epoch);
    return postgres_execute(store, connection, sql, message);
}

/* ---- the last event that this process has read ---- */

void postgres_note_read(struct postgres_store *store, uint64_t log_id, const struct uuid *cursor) {
    if (log_id <= atomic_load_explicit(&store->read_log_id, memory_order_relaxed))
        return;
    pthread_mutex_lock(&store->read_lock);
    if (log_id > atomic_load(&store->read_log_id)) {
        store->read_cursor = *cursor;
        atomic_store(&store->read_log_id, log_id);
    }
    pthread_mutex_unlock(&store->read_lock);
}

uint64_t postgres_last_read(struct postgres_store *store, struct uuid *cursor) {
    pthread_mutex_lock(&store->read_lock);
    uint64_t log_id = atomic_load(&store->read_log_id);
    *cursor = store->read_cursor;
    pthread_mutex_unlock(&store->read_lock);
    return log_id;
}

struct postgres_memory postgres_remember(struct postgres_store *store) {
    struct postgres_memory memory = {.epoch = ""};
    pthread_mutex_lock(&store->read_lock);
    memory.read = (struct postgres_position){atomic_load(&store->read_log_id), store->read_cursor};
    /* In a log that was shortened, new events may reach the last event that was read before. */
    memory.followed = store->followed;
    memcpy(memory.epoch, store->epoch, sizeof(memory.epoch));
    pthread_mutex_unlock(&store->read_lock);
    return memory;
}

void postgres_note_followed(struct postgres_store *store, const struct store_progress *progress) {
    postgres_note_read(store, progress->log_id, &progress->cursor);
    pthread_mutex_lock(&store->read_lock);
    if (!*store->epoch)
        memcpy(store->epoch, progress->epoch, sizeof(store->epoch));
    if (strcmp(store->epoch, progress->epoch) == 0 && progress->log_id > store->followed.log_id)
        store->followed = (struct postgres_position){progress->log_id, progress->cursor};
    pthread_mutex_unlock(&store->read_lock);
}
