/* The internals of the PostgreSQL store, shared by its files: connections, statements, faults.
 * Thread: as in store.h: a session and its connection belong to one thread at a time.
 * Memory: parameters are gathered in buffers of the session, which keep their memory. A row points
 * into its PGresult, which the caller clears.
 * Errors: a fault of the database becomes a status and a sentence in the session. A write session
 * that lost its connection answers STATUS_WRITER_LOST until postgres_take_role succeeds; a read
 * session connects again by itself.
 * Invariant: between calls no transaction is open, except between store_read_begin and
 * store_read_end. */
#ifndef STORE_POSTGRES_POSTGRES_H
#define STORE_POSTGRES_POSTGRES_H

#include <libpq-fe.h>
#include <pthread.h>

#include "base/buffer.h"
#include "base/limits.h"
#include "store/store_engine.h"

#define POSTGRES_VERSION_MIN      140000
#define POSTGRES_TEXT_OF_(number) #number
#define POSTGRES_TEXT_OF(number)  POSTGRES_TEXT_OF_(number)
/* How long a session that writes may be silent before the server ends it. */
#define POSTGRES_SILENCE_MS 3000
/* An SQL expression that makes the server end the session after such a silence. */
#define POSTGRES_LIMIT_SILENCE                                                                     \
    "set_config('idle_session_timeout', '" POSTGRES_TEXT_OF(                                       \
        POSTGRES_SILENCE_MS) "', false) || set_config('idle_in_transaction_session_timeout', "     \
                             "'" POSTGRES_TEXT_OF(POSTGRES_SILENCE_MS) "', false)"
/* Drifts are notes for people; only the latest are kept. */
#define POSTGRES_DRIFTS_MAX 10000
/* The same of rejected rows of the outbox. */
#define POSTGRES_REJECTED_MAX 10000
/* How many rows of commits are kept for nodes that follow. */
#define POSTGRES_COMMITS_KEPT  20000
#define POSTGRES_ACTIVITY_SIZE 96
/* How long a start waits for the writer role. Longer than a session may be silent: the role of a
 * node that failed is free by then. */
#define POSTGRES_ROLE_WAIT_MS 4000
/* The first schema whose row of the writer names the session that has the role. */
#define POSTGRES_ROLE_VERSION 10
/* A session of pg_stat_activity, as SQL: its name in wanted_by. */
#define POSTGRES_SESSION_OF(row) "(" row ".pid || ' ' || extract(epoch FROM " row ".backend_start))"

/* A commit that does not name the topics it changed. */
#define POSTGRES_UNLISTED_COMMIT "INSERT INTO commits (topic_refs) VALUES (NULL)"

/* The system identifier and the timeline of the database, as SQL. */
#define POSTGRES_HISTORY                                                                           \
    "(SELECT system_identifier::text FROM pg_control_system()) || '/' || "                         \
    "left(pg_walfile_name(pg_current_wal_lsn()), 8)"

enum statement_id {
    STATEMENT_BEGIN,
    STATEMENT_ROLLBACK,
    STATEMENT_READ_BEGIN,
    STATEMENT_KEEP_ROLE,
    STATEMENT_LOCK_TERM,
    STATEMENT_COUNT_POSITIONS,
    STATEMENT_PUT_ENTITIES,
    STATEMENT_ADD_EVENTS,
    STATEMENT_ADD_EVENT_IDS,
    STATEMENT_FIND_SUPPLIED,
    STATEMENT_FIND_MINTED,
    STATEMENT_ADD_KEYS,
    STATEMENT_PUT_TOPICS,
    STATEMENT_COMPARE_SUMMARIES, /* one for each document kind */
    STATEMENT_COMPARE_SUMMARIES_LAST = STATEMENT_COMPARE_SUMMARIES + DOCUMENT_KIND_COUNT - 1,
    STATEMENT_PUT_DOCUMENTS, /* one for each document kind */
    STATEMENT_PUT_DOCUMENTS_LAST = STATEMENT_PUT_DOCUMENTS + DOCUMENT_KIND_COUNT - 1,
    STATEMENT_PUT_CHECKPOINTS,
    STATEMENT_ADD_JOURNAL,
    STATEMENT_PUT_METADATA,
    STATEMENT_OLD_READERS,
    STATEMENT_ADD_DRIFTS,
    STATEMENT_DROP_OLD_DRIFTS,
    STATEMENT_SET_UNPROJECTED,
    STATEMENT_CLEAR_UNPROJECTED,
    STATEMENT_PRUNE_TOPICS,
    STATEMENT_PUT_USAGES,
    STATEMENT_LOAD_USAGE,
    STATEMENT_WALK_USAGES,
    STATEMENT_CHECK_USAGES,
    STATEMENT_PUT_QUOTA,
    STATEMENT_WALK_QUOTAS,
    STATEMENT_PUT_OPERATOR_KEY,
    STATEMENT_DROP_OPERATOR_KEY,
    STATEMENT_WALK_OPERATOR_KEYS,
    STATEMENT_LEAVE_AUDIT_EVENT,
    STATEMENT_PUT_REVOCATIONS,
    STATEMENT_DROP_REVOCATIONS,
    STATEMENT_ADD_SINGLE_USES,
    STATEMENT_DROP_SINGLE_USES,
    STATEMENT_KEEP_SECRET,
    STATEMENT_SECRET,
    STATEMENT_STATE,
    STATEMENT_PREFETCH_ENTITIES,
    STATEMENT_PREFETCH_EVENTS,
    STATEMENT_PREFETCH_STREAMS,
    STATEMENT_ENTITY_BY_ID,
    STATEMENT_ENTITY_BY_REF,
    STATEMENT_EVENT,
    STATEMENT_FIND_CURSOR,
    STATEMENT_TOPIC_BY_NAME,
    STATEMENT_TOPIC_BY_STREAM,
    STATEMENT_MEASURE_EVENTS,
    STATEMENT_MEASURE_JOURNAL,
    STATEMENT_EVENT_TIME,
    STATEMENT_EVENT_TIMES,
    STATEMENT_ROW_TIMES,
    STATEMENT_DOCUMENT,
    STATEMENT_DOCUMENT_LAST = STATEMENT_DOCUMENT + DOCUMENT_KIND_COUNT - 1,
    STATEMENT_CHECKPOINT,
    STATEMENT_WALK_ENTITY_EVENTS,
    STATEMENT_WALK_LOG,
    STATEMENT_WALK_ENTITIES,
    STATEMENT_WALK_TOPICS,
    STATEMENT_LIST_ENTITIES,
    STATEMENT_LIST_TOPICS,
    STATEMENT_WALK_DOCUMENTS,
    STATEMENT_WALK_DOCUMENTS_LAST = STATEMENT_WALK_DOCUMENTS + DOCUMENT_KIND_COUNT - 1,
    STATEMENT_WALK_JOURNAL,
    STATEMENT_WALK_OWNERS,
    STATEMENT_WALK_DRIFTS,
    STATEMENT_WALK_REVOCATIONS,
    STATEMENT_FIND_STRAY,
    STATEMENT_PUT_OUTBOX_LIMITS,
    STATEMENT_READ_OUTBOX,
    STATEMENT_REJECT_OUTBOX,
    STATEMENT_DROP_OLD_REJECTED,
    STATEMENT_DELETE_OUTBOX,
    STATEMENT_OUTBOX_STATE,
    STATEMENT_MEASURE,
    STATEMENT_DROP_FORKS,
    STATEMENT_PROPERTY,
    STATEMENT_PUT_PROPERTY,
    STATEMENT_REMOVE_PROPERTY,
    STATEMENT_ADD_COMMIT,
    STATEMENT_PUT_NODE,
    STATEMENT_DROP_NODE,
    STATEMENT_DROP_OLD_NODES,
    STATEMENT_DROP_OLD_COMMITS,
    STATEMENT_REPORT_DAMAGE,
    STATEMENT_TAKE_DAMAGES,
    STATEMENT_WALK_NODES,
    STATEMENT_PROGRESS,
    STATEMENT_WALK_CHANGED_TOPICS,
    STATEMENT_WALK_NEW_REVOCATIONS,
    STATEMENT_LOCK_REVOCATIONS,
    STATEMENT_LOCK_SECRETS,
    STATEMENT_COUNT,
};

/* A statement and the types of its parameters: n bigint, t text, b bytea, u uuid; in upper case an
 * array of that. The parameters of one statement are all arrays, or none is. A statement of rows
 * has a layout instead: one array for each of the columns. In its text, @ stands for the arrays,
 * and # for the values that they are unnested to. */
struct postgres_statement {
    const char *sql;
    const char *parameters;
    const struct store_layout *layout; /* NULL: parameters are set */
    size_t first_column;               /* of the layout */
    size_t column_count;
};

extern const struct postgres_statement postgres_statements[STATEMENT_COUNT];

/* A term of the writer role. A schema that was created anew may count the same terms, and another
 * log: its table has another number. The term that a connection has taken says that it has the
 * role. */
struct postgres_term {
    uint64_t number; /* 0: the connection has not got the role */
    uint64_t table;
};

/* An event of the log. */
struct postgres_position {
    uint64_t log_id; /* 0: none */
    struct uuid cursor;
};

#define POSTGRES_NODE_ID_SIZE 64
struct postgres_node_id {
    char text[POSTGRES_NODE_ID_SIZE + 1]; /* empty: the process has written no row of a node */
};

struct postgres_store {
    struct store base;
    char *url;       /* may hold a password */
    char label[256]; /* server and database, for messages */
    PGconn *writing; /* of the write session; NULL: opened for reading, or in that session */
    struct postgres_term term; /* that writing has taken, while it is there */
    bool is_exclusive;
    bool is_direct; /* no pooler is between this process and the server */
    bool is_joined; /* a write session may be open without the writer role */
    atomic_bool is_write_session_open;
    atomic_bool is_unconnected; /* the last connection of the write session failed */
    atomic_uint session_count;
    /* The last event that any session has read or written. */
    _Atomic uint64_t read_log_id;
    pthread_mutex_t read_lock;
    struct uuid read_cursor;           /* under read_lock */
    struct postgres_node_id node_id;   /* under read_lock: of the last row that it wrote */
    struct postgres_position followed; /* under read_lock: the end of the log at the last look, */
    char epoch[STORE_EPOCH_SIZE + 1];  /* and its epoch at the first; empty: none yet */
};

/* The end of the log, as the write session knows it. A commit checks order and uniqueness with it,
 * without a query. Every failure discards it. */
struct postgres_tail {
    bool known;
    uint64_t log_id; /* 0: the log is empty */
    struct uuid cursor;
    struct uuid client_id_max; /* zeros: no client supplied an id yet */
    struct id_mark id_mark;
};

/* The last event of an entity, as the write session stored it. An entity has one place, which it
 * shares with others; the last one that was stored has it. */
struct postgres_head {
    uint64_t entity_ref; /* 0: none */
    uint64_t seq;
};
#define POSTGRES_HEADS 16384

/* One parameter that is being gathered. Its buffer fails where it is too large. */
struct postgres_parameter {
    struct buffer bytes;
    uint32_t count; /* elements of an array */
    bool is_null;
};

struct postgres_session {
    struct store_session base;
    struct postgres_store *store;
    PGconn *connection; /* NULL: not connected */
    bool prepared[STATEMENT_COUNT];
    struct postgres_tail tail;
    struct postgres_head *heads; /* POSTGRES_HEADS of them; NULL: none is known */
    struct postgres_term term;   /* that the connection has taken; of a write session */
    uint64_t limits_term;        /* in which the limits of the outbox were stored */
    unsigned limits_edition;     /* which of them */
    bool in_transaction;         /* of store_read_begin, of a walk, or with the lock of secrets */
    bool is_read_lost;           /* the connection was lost inside a transaction */
    bool has_warning;            /* the server sent a warning */
    bool has_old_readers;        /* nodes run that cannot read cut payloads */
    bool is_schema_foreign;      /* it was logged that this build does not write the schema */
    uint64_t changed_ns;    /* since when its term waits for the nodes' answers; 0: it does not */
    uint64_t connect_at_ns; /* no attempt to connect before */
    uint64_t connect_pause_ms;
    uint64_t pinged_ns;
    uint64_t seen_ns; /* when the session last wrote seen_at of its row */
    /* The statement that is being filled. */
    enum statement_id statement;
    struct postgres_parameter parameters[POSTGRES_PARAMETERS_MAX];
    size_t parameter_count;
    size_t next_parameter;
    /* Statements sent in a pipeline whose results were not received; true: a preparation. */
    struct {
        enum statement_id id;
        bool is_preparation;
    } sent[POSTGRES_PIPELINE_MAX];
    size_t sent_count;
    size_t received_count;
    bool is_synced; /* the end of the pipeline was sent */
    char error[STORE_MESSAGE_MAX];
    enum reason reason; /* of the error */
};

static inline struct postgres_session *postgres_session_of(struct store_session *session) {
    return (struct postgres_session *)session;
}

/* The write session may commit. Another one has no connection, follows while another session has
 * the role (no term), or waits for the nodes' answers about its term. */
static inline bool postgres_has_role(const struct postgres_session *session) {
    return session->term.number > 0 && session->changed_ns == 0;
}

/* ---- answers (postgres_wait.c) ----------------------------------------------------------------
 */

/* PQgetResult for a network that may be cut: a connection whose statement the server does not work
 * on is closed, and its result is a fault. */
PGresult *postgres_result(const struct postgres_store *store, PGconn *connection);
/* All results of what was sent; answers the last. */
PGresult *postgres_results(const struct postgres_store *store, PGconn *connection);
/* PQexec in the same way. */
PGresult *postgres_exec(const struct postgres_store *store, PGconn *connection, const char *sql);
/* NULL where an answer does not arrive in this time. The connection is of no use then. */
PGresult *postgres_exec_within(PGconn *connection, const char *sql, uint64_t wait_ms);

/* ---- connections (postgres_connect.c) ---------------------------------------------------- */

/* A connection as the URL describes it; a probe gives up sooner. */
PGconn *postgres_dial(const struct postgres_store *store, bool is_probe);
/* Whether a server answers at the URL, even if it refuses a connection. */
bool postgres_is_reachable(const struct postgres_store *store);
/* Opens a connection for reading or writing and checks the server. On failure *connection is NULL
 * and the message says why. */
MUST_CHECK enum status postgres_connect(const struct postgres_store *store, enum store_mode mode,
                                        PGconn **connection, char *message);
/* Whether the database has the history that the last writer stored (postgres_history.c). */
enum postgres_history {
    HISTORY_SAME,
    HISTORY_UNKNOWN,   /* none was stored yet */
    HISTORY_CHANGED,   /* the nodes are still asked */
    HISTORY_CONFIRMED, /* it changed, and no node has read an event that is lost */
    HISTORY_BROKEN,    /* events that clients have are lost, or may be after a change */
    HISTORY_SHORTENED, /* the log has lost its end, and may have got another since */
};

/* Whether it changed and was not judged yet. A node that starts meanwhile has read nothing before
 * the change: it must not have a row, because that would confirm the log. */
MUST_CHECK enum status postgres_is_history_open(const struct postgres_store *store,
                                                PGconn *connection, bool *is_open, char *message);
/* With the writer role. The first call, with waited_ms 0, asks the nodes where it changed; later
 * calls look at their answers. */
MUST_CHECK enum status postgres_judge_history(struct postgres_store *store, PGconn *connection,
                                              uint64_t waited_ms, enum postgres_history *history,
                                              char *message);
/* Judges, and waits some seconds for the nodes. Never answers HISTORY_CHANGED. */
MUST_CHECK enum status postgres_await_history(struct postgres_store *store, PGconn *connection,
                                              enum postgres_history *history, char *message);
/* Stores the history, in the caller's transaction. A broken one gives the log a new epoch. */
MUST_CHECK enum status postgres_settle_history(struct postgres_store *store, PGconn *connection,
                                               enum postgres_history history, char *message);
/* Any thread. Keeps the last event that this process has read or written. */
void postgres_note_read(struct postgres_store *store, uint64_t log_id, const struct uuid *cursor);
/* Any thread. 0: none. */
uint64_t postgres_last_read(struct postgres_store *store, struct uuid *cursor);
/* What this process knows of the log. A later look at a log of the same epoch finds these events,
 * or the log has lost events. */
struct postgres_memory {
    struct postgres_position read;
    struct postgres_position followed;
    char epoch[STORE_EPOCH_SIZE + 1]; /* empty: nothing is known yet */
};
/* Any thread. */
struct postgres_memory postgres_remember(struct postgres_store *store);
/* Any thread. The log had this end. Does nothing in another epoch than the first time. */
void postgres_note_followed(struct postgres_store *store, const struct store_progress *progress);
/* The log lacks an event that this process has read: an older copy of the database was put back.
 * Gives the log a new epoch and ends the term of the writer, unless another node did so. Does
 * nothing while the history is judged. STATUS_STORE_UNAVAILABLE: nothing may be announced. */
MUST_CHECK enum status postgres_report_loss(struct postgres_session *session, const char *epoch);

/* Writes the cause to the message and answers STATUS_INVALID_CONFIG. */
enum status postgres_refuse(const struct postgres_store *store, char *message, const char *cause);
/* After an attempt to connect: how long until the next. */
void postgres_note_attempt(struct postgres_session *session, enum status status);
/* Refuses a pooler that gives each transaction another session. *is_direct: there is no pooler. */
MUST_CHECK enum status postgres_check_pooler(const struct postgres_store *store, PGconn *connection,
                                             bool *is_direct, char *message);
/* Runs statements without parameters. */
MUST_CHECK enum status postgres_execute(const struct postgres_store *store, PGconn *connection,
                                        const char *sql, char *message);
/* The status of a failed result, and its sentence in the message. */
enum status postgres_result_fault(const struct postgres_store *store, const PGconn *connection,
                                  const PGresult *result, char *message);
/* A session without a connection gets one, where that is allowed now. */
MUST_CHECK enum status postgres_ensure(struct postgres_session *session);
void postgres_disconnect(struct postgres_session *session);

/* ---- the writer role (postgres_role.c) ----------------------------------------------------- */

/* The session that has the role, as another session sees it at one moment. */
struct postgres_holder {
    bool is_free;                          /* the session is gone or silent, or there is none */
    bool is_silent;                        /* it is there, and silent */
    bool is_reserved;                      /* another live session asks for the role */
    bool is_requested;                     /* this session asks for it */
    bool is_moved;                         /* the store was moved elsewhere */
    char schema[16];                       /* the schema version */
    char activity[POSTGRES_ACTIVITY_SIZE]; /* changes with each statement of it; empty: none */
};
MUST_CHECK enum status postgres_look_at_holder(const struct postgres_store *store,
                                               PGconn *connection, struct postgres_holder *holder,
                                               char *message);
struct postgres_claim {
    int schema_version;
    bool refuses_moved; /* a store that was moved elsewhere */
};
/* Takes the role in one transaction, if it is still free and the claim holds: raises the term and
 * names the connection's session in the row. From then on the server ends the session when it is
 * silent. STATUS_NOT_WRITER: it was not free, or another session has locked the row. */
MUST_CHECK enum status postgres_claim_role(const struct postgres_store *store, PGconn *connection,
                                           const struct postgres_claim *claim,
                                           struct postgres_term *term, char *message);
/* Names the connection's session in the row, which the caller's transaction has locked. */
MUST_CHECK enum status postgres_enter_role(const struct postgres_store *store, PGconn *connection,
                                           struct postgres_term *term, char *message);
/* Begins a transaction that holds the row of the role. STATUS_WRITER_LOST, without a transaction:
 * the row has another term. */
MUST_CHECK enum status postgres_begin_in_term(const struct postgres_store *store,
                                              PGconn *connection, const struct postgres_term *term,
                                              char *message);
/* Stores the history in a transaction of its own. judged NULL: judges it first, and may wait for
 * the nodes. */
MUST_CHECK enum status postgres_settle_role(struct postgres_store *store, PGconn *connection,
                                            const struct postgres_term *term,
                                            const enum postgres_history *judged, char *message);
/* Asks the writer for the role, for as long as the connection lives. */
MUST_CHECK enum status postgres_request_role(const struct postgres_store *store, PGconn *connection,
                                             char *message);
/* The message that the role is not to be had, with the session that has it or has locked its row.
 * Answers STATUS_STORE_UNAVAILABLE. */
enum status postgres_refuse_role(const struct postgres_store *store, PGconn *connection,
                                 char *message);
/* The server ends a session that has been silent for too long, and so frees the role. A verb that
 * has no write session open is not silent, and is not seen either. */
MUST_CHECK enum status postgres_limit_silence(const struct postgres_store *store,
                                              PGconn *connection, bool is_limited, char *message);
/* The row has another term: drops the connection. Answers STATUS_WRITER_LOST. */
enum status postgres_lose_role(struct postgres_session *session);
/* The write session has connected: it has a term, or another session has the role. */
void postgres_note_connected(struct postgres_session *session);

/* ---- opening (postgres_open.c) ------------------------------------------------------------- */

enum status postgres_open(struct store **store, const char *location, bool exclusive,
                          struct store_message *message);
enum status postgres_join(struct store **store, const char *location,
                          struct store_message *message);
enum status postgres_migrate(const char *location, struct store_message *message);

/* ---- statements (postgres_statement.c) ------------------------------------------------------ */

/* Begins to gather the parameters of a statement, in order; of arrays row by row. */
void postgres_begin(struct postgres_session *session, enum statement_id id);
void postgres_put_number(struct postgres_session *session, uint64_t number);
void postgres_put_signed(struct postgres_session *session, int64_t number);
/* INT64_MAX for a larger number. */
void postgres_put_bound(struct postgres_session *session, uint64_t number);
/* NULL for 0. */
void postgres_put_optional(struct postgres_session *session, uint64_t number);
/* NULL for an absent text. */
void postgres_put_text(struct postgres_session *session, struct slice text);
/* NULL for a NULL pointer. */
void postgres_put_bytes(struct postgres_session *session, const void *bytes, size_t size);
void postgres_put_uuid(struct postgres_session *session, const struct uuid *uuid);
/* A row of a statement of rows. */
void postgres_put_row(struct postgres_session *session, const void *row);

/* Runs the statement in a round trip of its own. The caller clears *result, which is set with
 * STATUS_OK only. A read session connects again and repeats it once. */
MUST_CHECK enum status postgres_query(struct postgres_session *session, PGresult **result);
/* The same for a statement whose result is not of interest. */
MUST_CHECK enum status postgres_run(struct postgres_session *session);

/* Several statements in one round trip: begin, send each, sync, receive each in order, end. */
MUST_CHECK enum status postgres_pipeline_begin(struct postgres_session *session);
MUST_CHECK enum status postgres_pipeline_send(struct postgres_session *session);
MUST_CHECK enum status postgres_pipeline_sync(struct postgres_session *session);
/* The result of the next statement. The caller clears it. */
MUST_CHECK enum status postgres_pipeline_receive(struct postgres_session *session,
                                                 PGresult **result);
/* Receives all that is left. In every case after begin succeeded. */
void postgres_pipeline_end(struct postgres_session *session);

/* The session's error from a failed result, and its status. */
enum status postgres_fault(struct postgres_session *session, const PGresult *result);
enum status postgres_damaged(struct postgres_session *session, const char *row_name,
                             uint64_t number);

/* ---- rows (postgres_row.c) ------------------------------------------------------------------ */

/* A row of a result. */
struct postgres_row {
    const PGresult *result;
    int row;
};

bool postgres_is_null(struct postgres_row row, int column);
/* 0 for NULL, and for a value that is neither bigint nor smallint. */
uint64_t postgres_number(struct postgres_row row, int column);
/* data NULL for NULL. */
struct slice postgres_text(struct postgres_row row, int column);
/* False: another size. */
MUST_CHECK bool postgres_bytes(struct postgres_row row, int column, void *bytes, size_t size);

/* When an event was recorded, from the column and the event's cursor. */
uint64_t postgres_row_time(struct postgres_row row, int column, const struct uuid *cursor);
void postgres_read_value(struct postgres_row row, int index, const struct store_column *column,
                         struct store_value *value);
/* Reads columns that begin at first into their members. False: the row is damaged. */
MUST_CHECK bool postgres_read_columns(struct postgres_row row, int first,
                                      const struct store_column *columns, size_t count, void *read);
/* The same of all columns of a layout. Other members become zero. */
MUST_CHECK bool postgres_read_row(struct postgres_row row, int first,
                                  const struct store_layout *layout, void *read);
/* Runs a statement that answers one text at most. STATUS_NOT_FOUND: none. */
MUST_CHECK enum status postgres_query_text(struct postgres_session *session, struct arena *arena,
                                           struct slice *value);

/* ---- the engine's functions ------------------------------------------------------------------ */

/* The calls that the engine answers, wherever they are. */
#define POSTGRES_CALL(call) __typeof__(store_##call) postgres_##call;
STORE_CALLS(POSTGRES_CALL)
STORE_SHARED_CALLS(POSTGRES_CALL)

/* Reads the end of the log. */
MUST_CHECK enum status postgres_load_tail(struct postgres_session *session);
/* BEGIN and the check of the term, sent in a pipeline that the caller fills and then finishes. */
MUST_CHECK enum status postgres_write_begin(struct postgres_session *session);
/* Receives the results of postgres_write_begin. STATUS_WRITER_LOST: another session has the role.
 */
MUST_CHECK enum status postgres_write_check(struct postgres_session *session);
/* A transaction in which the caller runs statements one by one. The tail is not read, because that
 * needs a derived table. */
MUST_CHECK enum status postgres_write_open(struct postgres_session *session);
/* Ends the pipeline, if there is one, and commits for STATUS_OK. Otherwise rolls back and returns
 * the status. */
MUST_CHECK enum status postgres_write_end(struct postgres_session *session, enum status status);

/* The session's error about a batch that cannot follow what is stored. Returns the status. */
enum status postgres_contradicts(struct postgres_session *session, enum status status,
                                 const char *subject, uint64_t number);

/* ---- events of a batch (postgres_events.c) --------------------------------------------------- */

/* The events follow the tail. */
MUST_CHECK enum status postgres_check_order(struct postgres_session *session,
                                            const struct store_batch *batch);
/* Sends the check that the first event of each entity in the batch follows a stored one, where the
 * heads do not tell. *expected: how many stored events there must be. */
MUST_CHECK enum status postgres_send_positions(struct postgres_session *session,
                                               const struct store_batch *batch, uint64_t *expected);
/* Sends the rows, the supplied ids, and the checks of all ids. *max: the largest supplied id. */
MUST_CHECK enum status postgres_send_events(struct postgres_session *session,
                                            const struct store_batch *batch, struct uuid *max);
/* The batch is stored. */
void postgres_note_heads(struct postgres_session *session, const struct store_batch *batch);
void postgres_forget_heads(struct postgres_session *session);

/* ---- other rows ------------------------------------------------------------------------------ */

/* Sends the removal of the outbox rows that the batch answers. */
MUST_CHECK enum status postgres_send_outbox(struct postgres_session *session,
                                            const struct store_batch *batch);
enum status postgres_keep_secret(struct store_session *base, struct slice name, struct slice value,
                                 bool replaces);
enum status postgres_load(struct store_session *base, const struct store_query *query,
                          struct arena *arena, void *row);
enum status postgres_walk(struct store_session *base, const struct store_query *query, void *user,
                          store_row_cb *callback);
/* The log's epochs part at its end, unless they do earlier. Derived tables may be missing or of an
 * older schema: the forks of their topics are 0 then. */
#define POSTGRES_FORK_TOPICS POSTGRES_TEXT_OF(STORE_FORK_TOPICS_MAX)
#define POSTGRES_NOTE_FORK                                                                         \
    "DO $$ BEGIN INSERT INTO runtime.meta (name, value) SELECT '" STORE_FORK_PREFIX                \
    "' || topic, head_seq::text FROM runtime.topics WHERE entity_ref IS NULL AND NOT EXISTS "      \
    "(SELECT FROM runtime.meta WHERE name IN ('fork_log_id', 'import_log_id')) ORDER BY ref "      \
    "LIMIT " POSTGRES_FORK_TOPICS " ON CONFLICT DO NOTHING; EXCEPTION WHEN undefined_table OR "    \
    "undefined_column THEN NULL; END $$; INSERT INTO runtime.meta (name, value) SELECT "           \
    "'fork_log_id', coalesce(max(log_id), 0)::text FROM runtime.events ON CONFLICT DO NOTHING"
/* The properties of topics. */
#define POSTGRES_FORKS "starts_with(name, '" STORE_FORK_PREFIX "')"
/* It is not known where they part. */
#define POSTGRES_NOTE_UNKNOWN_FORK                                                                 \
    "INSERT INTO runtime.meta (name, value) VALUES ('fork_log_id', '0') ON CONFLICT (name) DO "    \
    "UPDATE SET value = excluded.value"
enum status postgres_put_properties(struct store_session *base,
                                    const struct store_property *properties, size_t count,
                                    enum store_appending appending);
enum status postgres_read_rows(struct store_session *base, const struct store_value *after,
                               struct store_page *page);
enum status postgres_read_last_row(struct store_session *base, struct store_page *page);
enum status postgres_count_rows(struct store_session *base, const struct store_table *table,
                                uint64_t *count);
enum status postgres_write_rows(struct store_session *base, const struct store_page *page);
enum status postgres_clear_rows(struct store_session *base, const struct store_property *property);
/* Sends the row that names the topics with journal rows which the transaction changed. */
MUST_CHECK enum status postgres_send_commit_row(struct postgres_session *session,
                                                const struct store_batch *batch);

#endif
