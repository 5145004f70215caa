/* The table of functions that each engine of the store provides, the queries that it answers, and
 * the structs that it extends. store_open.c lists the engines by URL scheme.
 * Thread, Memory, Errors: those of store.h.
 * Invariant: an engine's own structs begin with struct store, struct store_session and struct
 * store_restore, so that a pointer to one is a pointer to the other. Every function is set, except
 * those marked. */
#ifndef STORE_STORE_ENGINE_H
#define STORE_STORE_ENGINE_H

#include <stdatomic.h>

#include "store/store_maintenance.h"
#include "store/store_nodes.h"
#include "store/store_rows.h"

/* Writes a drift that a commit found into the server's log and the metrics. */
void store_report_drift(const struct store_drift *drift);

/* What has a number that none can follow, because a row was put there by hand; NULL: nothing. */
const char *store_false_number(const struct store_state *state, uint64_t *number);

/* A document d whose version is missing. Commits ask this, so that they notice a missing table too.
 */
#define STORE_DOCUMENT_LACKS_METADATA                                                              \
    "OR (d.metadata_hash IS NOT NULL AND NOT EXISTS (SELECT 1 FROM summary_metadata v WHERE "      \
    "v.entity_ref = d.entity_ref AND v.metadata_hash = d.metadata_hash)) "
/* A condition of a version v of summary_metadata: no document has it. */
#define STORE_NO_DOCUMENT_OF(kind, name, table, ...)                                               \
    " AND NOT EXISTS (SELECT 1 FROM " table " d WHERE d.entity_ref = v.entity_ref AND "            \
    "d.metadata_hash = v.metadata_hash)"
#define STORE_NO_DOCUMENT_HAS DOCUMENT_KINDS(STORE_NO_DOCUMENT_OF)

/* Owners whose stored usage is not the counted one: the owner, what is stored, and what is counted.
 * The limit follows. */
#define STORE_STORED_USAGE(name, ...)       "coalesce(u." #name ", 0)"
#define STORE_NEXT_STORED_USAGE(name, ...)  ", coalesce(u." #name ", 0)"
#define STORE_COUNTED_USAGE(name, ...)      "coalesce(c." #name ", 0)"
#define STORE_NEXT_COUNTED_USAGE(name, ...) ", coalesce(c." #name ", 0)"
#define STORE_STORED_USAGES                 STORE_USAGE_COUNTED(STORE_STORED_USAGE, STORE_NEXT_STORED_USAGE)
#define STORE_COUNTED_USAGES                STORE_USAGE_COUNTED(STORE_COUNTED_USAGE, STORE_NEXT_COUNTED_USAGE)
#define STORE_CHECK_USAGES                                                                         \
    "SELECT coalesce(u.owner, c.owner), " STORE_STORED_USAGES ", " STORE_COUNTED_USAGES            \
    " FROM owner_usage u FULL JOIN owner_usage_counted c ON c.owner = u.owner WHERE "              \
    "(" STORE_STORED_USAGES ") <> (" STORE_COUNTED_USAGES ") LIMIT "

/* Whether users may append in their own transactions from now on. */
enum store_appending { STORE_APPENDING_KEPT, STORE_APPENDING_CLOSED, STORE_APPENDING_OPENED };

/* ---- queries ----------------------------------------------------------------------------------
 */

enum store_query_id {
    /* One row. */
    STORE_ENTITY_BY_ID,
    STORE_ENTITY_BY_REF,
    STORE_EVENT_BY_NUMBER,
    STORE_TOPIC_BY_NAME,
    STORE_TOPIC_BY_STREAM,
    STORE_DOCUMENT,
    STORE_CHECKPOINT,
    /* Walks. */
    STORE_WALK_ENTITY_EVENTS,
    STORE_WALK_ENTITY_FRAMES,
    STORE_WALK_LOG,
    STORE_WALK_ENTITIES,
    STORE_LIST_ENTITIES,
    STORE_WALK_TOPICS,
    STORE_LIST_TOPICS,
    STORE_WALK_CHANGED_TOPICS, /* of a store that servers share, like new revocations */
    STORE_WALK_DOCUMENTS,
    STORE_WALK_JOURNAL,
    STORE_WALK_OWNERS,
    STORE_WALK_DRIFTS,
    STORE_WALK_REVOCATIONS,
    STORE_WALK_NEW_REVOCATIONS,
    STORE_WALK_USAGES,
    STORE_WALK_QUOTAS,
    STORE_WALK_OPERATOR_KEYS,
    STORE_QUERY_COUNT,
};

/* Which rows: each query uses some of these. The statement of an engine names them by letters, in
 * the order of its parameters. */
struct store_query {
    enum store_query_id id;
    enum document_kind document; /* of documents; 'p': its name */
    uint64_t scope;              /* 's': a kind, an entity, a topic or a time */
    struct slice name;           /* 'n': of the row; or the first name of a list */
    uint64_t after;              /* 'a': the rows after this one */
    struct slice after_name;     /* 't': the same of lists by name */
    uint64_t limit;              /* 'l' */
};

/* A row of a walk. */
union store_row {
    struct store_event event;
    struct store_entity entity;
    struct store_topic topic;
    struct store_document document;
    struct {
        struct store_journal_row row;
        struct store_event event;
    } journal;
    struct store_owner_row owner;
    struct store_drift drift;
    struct store_revocation revocation;
    struct store_usage usage;
    struct store_quota quota;
    struct store_operator_key operator_key;
};

typedef enum status store_row_cb(void *user, const union store_row *row);

/* The layout of the query's rows; those of a journal begin with it. */
const struct store_layout *store_query_layout(const struct store_query *query);

/* ---- the engine --------------------------------------------------------------------------------
 */

/* The calls of store.h, store_nodes.h and store_maintenance.h that an engine answers under the same
 * name with the same parameters. store_calls.c checks first what holds for all engines. */
#define STORE_CALLS(CALL)                                                                          \
    CALL(close)                                                                                    \
    CALL(session_open)                                                                             \
    CALL(session_close)                                                                            \
    CALL(session_error)                                                                            \
    CALL(session_reason)                                                                           \
    CALL(check_location)                                                                           \
    CALL(measure)                                                                                  \
    CALL(keep_alive)                                                                               \
    CALL(prefetch)                                                                                 \
    CALL(commit)                                                                                   \
    CALL(heal)                                                                                     \
    CALL(repair_journal)                                                                           \
    CALL(rebuild_journal)                                                                          \
    CALL(find_stray_row)                                                                           \
    CALL(prune_topics)                                                                             \
    CALL(put_revocations)                                                                          \
    CALL(use_once)                                                                                 \
    CALL(put_quotas)                                                                               \
    CALL(load_usages)                                                                              \
    CALL(check_usages)                                                                             \
    CALL(put_operator_key)                                                                         \
    CALL(drop_operator_key)                                                                        \
    CALL(note_fork)                                                                                \
    CALL(lower_fork)                                                                               \
    CALL(load_property)                                                                            \
    CALL(read_begin)                                                                               \
    CALL(read_end)                                                                                 \
    CALL(read_state)                                                                               \
    CALL(find_cursor)                                                                              \
    CALL(measure_replay)                                                                           \
    CALL(find_expired)                                                                             \
    CALL(check_derived)                                                                            \
    CALL(list_rows)                                                                                \
    CALL(count_listed)
/* Those of a store on a disk of its own; NULL: the disk is another server's. */
#define STORE_DISK_CALLS(CALL)                                                                     \
    CALL(set_reserve)                                                                              \
    CALL(check_room)                                                                               \
    CALL(disk)                                                                                     \
    CALL(restore_copy)                                                                             \
    CALL(restore_apply)                                                                            \
    CALL(restore_end)                                                                              \
    CALL(check_pages)
/* Those of a store that servers share; NULL: it has one server. */
#define STORE_SHARED_CALLS(CALL)                                                                   \
    CALL(take_role)                                                                                \
    CALL(read_outbox)                                                                              \
    CALL(outbox_state)                                                                             \
    CALL(lock_secrets)                                                                             \
    CALL(commit_secrets)                                                                           \
    CALL(load_secret)                                                                              \
    CALL(leave_audit_event)                                                                        \
    CALL(put_node)                                                                                 \
    CALL(tidy_nodes)                                                                               \
    CALL(report_damage)                                                                            \
    CALL(take_damages)                                                                             \
    CALL(drop_node)                                                                                \
    CALL(walk_nodes)                                                                               \
    CALL(read_progress)
/* A member of the engine's table for each call. */
#define STORE_MEMBER(call) __typeof__(store_##call) *(call);

struct store_engine {
    STORE_CALLS(STORE_MEMBER)
    STORE_DISK_CALLS(STORE_MEMBER)
    STORE_SHARED_CALLS(STORE_MEMBER)

    const char *scheme;       /* of its URLs; the rest of the URL is the location given below */
    const char *scheme_alias; /* another scheme of the same URLs; NULL: none */
    int schema_version;
    enum status (*open)(struct store **store, const char *location, bool exclusive,
                        struct store_message *message);
    /* NULL: servers cannot share the store. */
    enum status (*join)(struct store **store, const char *location, struct store_message *message);
    enum status (*migrate)(const char *location, struct store_message *message);
    /* After work of the write session has failed. STATUS_OK: it failed because there was no room,
     * and there is more now. Otherwise the status to answer. NULL: the disk is another server's. */
    enum status (*make_room)(struct store_session *session, enum store_room room_least);
    /* NULL: secrets are files of the data folder. */
    enum status (*keep_secret)(struct store_session *session, struct slice name, struct slice value,
                               bool replaces);
    /* Closed: STATUS_ALREADY_EXISTS where rows of users' transactions wait for the writer. */
    enum status (*put_properties)(struct store_session *session,
                                  const struct store_property *properties, size_t count,
                                  enum store_appending appending);
    /* For moves. Adds rows after the key, in the order of the key, until the page is full or there
     * are no more. after NULL: from the first row on. */
    enum status (*read_rows)(struct store_session *session, const struct store_value *after,
                             struct store_page *page);
    /* Adds the row with the last key. STATUS_NOT_FOUND: there is no row. */
    enum status (*read_last_row)(struct store_session *session, struct store_page *page);
    enum status (*count_rows)(struct store_session *session, const struct store_table *table,
                              uint64_t *count);
    /* The write session: the rows of the page in one transaction. */
    enum status (*write_rows)(struct store_session *session, const struct store_page *page);
    /* The write session: removes the rows that a new store has, together with its generated
     * secrets, and sets the property, in one transaction. */
    enum status (*clear_rows)(struct store_session *session, const struct store_property *property);
    enum status (*load)(struct store_session *session, const struct store_query *query,
                        struct arena *arena, void *row);
    enum status (*walk)(struct store_session *session, const struct store_query *query, void *user,
                        store_row_cb *callback);

    /* Maintenance. NULL: the database has tools of its own, which this sentence names. */
    const char *maintenance_advice;
    enum status (*backup)(const char *location, const char *file,
                          const struct store_copy_options *options, struct store_copy *copy,
                          struct store_message *message);
    enum status (*restore_begin)(const char *location, const char *file,
                                 const struct store_copy_options *options,
                                 struct store_restore **restore, struct store_message *message);
    pid_t (*lock_holder)(const char *location);
};

/* SQLite in a folder of its own, which is the location of its URLs. */
extern const struct store_engine store_engine_sqlite;
/* PostgreSQL, over libpq, in the schema runtime of one database. The location is the URL without
 * its scheme. It may hold a password, which no message shows. */
extern const struct store_engine store_engine_postgres;

struct store {
    const struct store_engine *engine;
};

struct store_restore {
    const struct store_engine *engine;
};

struct store_session {
    const struct store_engine *engine;
    enum store_mode mode;
    bool in_read;                    /* between store_read_begin and store_read_end */
    atomic_uint_fast64_t rows_read;  /* written by the session's thread alone */
    const atomic_bool *is_cancelled; /* NULL: reads are never cancelled */
};

/* ---- the rule of expiry: the first frame of a topic that stays
 * -----------------------------------
 *
 * Frames carry the wall clock's time, which may step in both directions. The first frame that is
 * young enough keeps all frames after it. A frame dated in the future does not: it goes with the
 * first later frame that goes. The engine reads the times of frames in order, from
 * store_expiry.first_seq on, until the walk has ended. */

struct expiry_walk {
    struct store_expiry_query query;
    struct store_expiry *expiry;
    uint64_t counted;
    bool is_ended;
};

/* The time of the cursor of an entity's event. */
typedef enum status expiry_cursor_cb(void *session, uint64_t entity_ref, uint64_t seq,
                                     uint64_t *at_ms);

/* Begins at the oldest frame. Events need not all be read: the time of an event's cursor never
 * falls and is never before its recorded_at. So a binary search by cursors finds events that have
 * all expired, and the walk begins behind them. */
MUST_CHECK enum status expiry_begin(struct expiry_walk *walk, const struct store_topic *topic,
                                    const struct store_expiry_query *query,
                                    struct store_expiry *expiry, void *session,
                                    expiry_cursor_cb *cursor_time);
void expiry_take(struct expiry_walk *walk, uint64_t seq, uint64_t at_ms);

/* For a move: opens the store whatever the marks of moves in it are. */
MUST_CHECK enum status store_open_unchecked(struct store **store, const char *url, bool exclusive,
                                            struct store_message *message);

/* For engines: counts a row that was read. Only the session's thread writes the counter, so no
 * locked instruction is needed. */
static inline void store_session_count_row(struct store_session *session) {
    uint64_t rows_read = atomic_load_explicit(&session->rows_read, memory_order_relaxed);
    atomic_store_explicit(&session->rows_read, rows_read + 1, memory_order_relaxed);
}

/* For engines: asked before each row, or before each page of rows. */
static inline bool store_session_is_cancelled(const struct store_session *session) {
    return session->is_cancelled &&
           atomic_load_explicit(session->is_cancelled, memory_order_relaxed);
}

#endif
