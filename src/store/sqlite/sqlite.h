/* The internals of the embedded store, shared by its files: connections, statements, faults.
 * Thread: as in store.h; a session and all its statements belong to one thread at a time.
 * Memory: a session prepares each statement on first use and keeps it. A row points into its
 * statement until the statement is stepped or reset.
 * Errors: faults of SQLite become a status and a sentence in the session.
 * Invariant: between calls no statement is active, and only store_read_begin leaves a transaction
 * open. */
#ifndef STORE_SQLITE_SQLITE_H
#define STORE_SQLITE_SQLITE_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "store/store_engine.h"

/* "Khal": marks the databases of Khala. */
#define SQLITE_STORE_APPLICATION_ID 0x4b68616c
#define SQLITE_STORE_FILE           "khala.db"
#define SQLITE_STORE_LOCK_FILE      "khala.lock"
#define SQLITE_STORE_RESERVE_FILE   "khala.reserve"
/* 4 KiB pages: the log is written back from 32 MB on and truncated to 64 MB. Writing 32 MB back
 * takes about 25 ms, which an append of another principal must not wait for; so while several of
 * them append it is written back from 2 MB on. For one alone the large pieces are cheaper, because
 * pages that many commits change are written once: runs 6.2 us an event, with 2 MB 7.2 us. */
#define SQLITE_STORE_WAL_PAGES        8192
#define SQLITE_STORE_WAL_PAGES_SHARED 512
#define SQLITE_STORE_WAL_BYTES_MAX    67108864
#define SQLITE_STORE_WRITE_CACHE_KB   32768
#define SQLITE_STORE_READ_CACHE_KB    4096
#define SQLITE_STORE_BUSY_MS          5000
/* A smaller count writes the large table of positions more often. A larger count makes each write
 * of the small table cost more. */
#define SQLITE_STORE_RECENT_POSITIONS_MAX 16384
/* Drifts are notes for people; only the latest are kept. */
#define SQLITE_STORE_DRIFTS_MAX 10000
/* Bytes of the write-ahead log that are written at once. SQLite writes less than 128 KiB in a call.
 */
#define SQLITE_STORE_GATHER_BYTES (124 << 10)
/* Positions of a commit that are written together. */
#define SQLITE_STORE_RANGES_MAX 1024
/* Entities whose last seq the write session keeps, by their refs. */
#define SQLITE_STORE_HEADS 4096

enum statement_id {
    STATEMENT_BEGIN,
    STATEMENT_COMMIT,
    STATEMENT_ROLLBACK,
    STATEMENT_READ_BEGIN,
    STATEMENT_READ_TOUCH,
    STATEMENT_PUT_ENTITY,
    STATEMENT_ADD_EVENTS,
    STATEMENT_ADD_POSITIONS,
    STATEMENT_MOVE_POSITIONS,
    STATEMENT_CLEAR_POSITIONS,
    STATEMENT_ADD_EVENT_IDS,
    STATEMENT_ADD_KEY,
    STATEMENT_PUT_TOPIC,
    STATEMENT_COMPARE_SUMMARIES, /* one for each document kind */
    STATEMENT_COMPARE_SUMMARIES_LAST = STATEMENT_COMPARE_SUMMARIES + DOCUMENT_KIND_COUNT - 1,
    STATEMENT_PUT_DOCUMENTS, /* one for each document kind */
    STATEMENT_PUT_DOCUMENTS_LAST = STATEMENT_PUT_DOCUMENTS + DOCUMENT_KIND_COUNT - 1,
    STATEMENT_PUT_CHECKPOINTS,
    STATEMENT_ADD_JOURNAL,
    STATEMENT_PUT_METADATA,
    STATEMENT_ADD_DRIFT,
    STATEMENT_DROP_OLD_DRIFTS,
    STATEMENT_SET_UNPROJECTED,
    STATEMENT_CLEAR_UNPROJECTED,
    STATEMENT_PUT_USAGE,
    STATEMENT_ADD_USAGE,
    STATEMENT_LOAD_USAGE,
    STATEMENT_WALK_USAGES,
    STATEMENT_CHECK_USAGES,
    STATEMENT_PUT_QUOTA,
    STATEMENT_WALK_QUOTAS,
    STATEMENT_PUT_OPERATOR_KEY,
    STATEMENT_DROP_OPERATOR_KEY,
    STATEMENT_WALK_OPERATOR_KEYS,
    STATEMENT_PUT_REVOCATION,
    STATEMENT_DROP_REVOCATIONS,
    STATEMENT_ADD_SINGLE_USE,
    STATEMENT_DROP_SINGLE_USES,
    STATEMENT_PRUNE_JOURNAL,
    STATEMENT_PRUNE_METADATA,
    STATEMENT_RAISE_OLDEST,
    STATEMENT_STATE,
    STATEMENT_TAIL,
    STATEMENT_CURSOR_AT,
    STATEMENT_HEAD_SEQ,
    STATEMENT_COUNTS,
    STATEMENT_PAGES,
    STATEMENT_LOG_END,
    STATEMENT_EVENT_ID,
    STATEMENT_KEY,
    STATEMENT_FIRST_EVENT,
    STATEMENT_STREAM_TAKEN,
    STATEMENT_ENTITY_BY_ID,
    STATEMENT_ENTITY_BY_REF,
    STATEMENT_EVENT,
    STATEMENT_TOPIC_BY_REF,
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
    STATEMENT_WALK_ENTITY_FRAMES,
    STATEMENT_ENTITY_NAME,
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
    STATEMENT_DROP_FORKS,
    STATEMENT_PROPERTY,
    STATEMENT_PUT_PROPERTY,
    STATEMENT_REMOVE_PROPERTY,
    STATEMENT_COUNT,
};

/* The database, its log, and the memory that connections share. */
enum sqlite_file { SQLITE_FILE_DATABASE, SQLITE_FILE_WAL, SQLITE_FILE_SHM, SQLITE_FILE_COUNT };

struct sqlite_identity {
    dev_t device;
    ino_t inode;
};

/* The last seq of an entity. */
struct sqlite_head {
    uint64_t entity_ref; /* 0: none */
    uint64_t seq;
};

/* The disk reserve (sqlite_reserve.c). Of the write session's thread, but for the numbers that any
 * thread may read. */
struct sqlite_reserve {
    uint64_t wanted_bytes;  /* 0: nothing is reserved, and appends are not stopped */
    int fd;                 /* of the file; -1: not opened yet */
    bool is_whole;          /* the file has its size */
    bool is_limit_reached;  /* by the last commit of appends */
    int64_t room_bytes;     /* that appends may write to the log before the next measurement */
    int64_t measured_bytes; /* the room at the last one */
    int64_t tried_bytes;    /* the room that the last commit had */
    int64_t log_bytes;      /* of the write-ahead log at the last measurement */
    uint64_t piece_bytes;   /* of the file that is given back next; 0: the usual */
    uint64_t kept_bytes;    /* of the file, which the work under way leaves to other work */
    int64_t resume_bytes;   /* while appends are stopped: the room that they wait for */
    uint64_t checked_at_ms;
    atomic_bool is_stopped;
    atomic_uint_fast64_t free_bytes;
    atomic_uint_fast64_t line_bytes;
    atomic_uint_fast64_t held_bytes;
};

struct sqlite_store {
    struct store base;
    char *path; /* of the database */
    /* As the write session found them. */
    struct sqlite_identity files[SQLITE_FILE_COUNT];
    int lock_fd; /* -1: opened without the lock */
    atomic_bool write_session_open;
    struct sqlite_reserve reserve;
    struct sqlite_head
        heads[SQLITE_STORE_HEADS]; /* of the write session, while its tail is known */
};

/* Events of an entity that follow each other in the log. */
struct sqlite_range {
    uint64_t entity_ref;
    uint64_t seq; /* of the first */
    uint64_t log_id;
    uint64_t count;
};

/* The end of the log, as the write session knows it. A commit checks order and uniqueness with it,
 * without a query. Every failure discards it. */
struct sqlite_tail {
    bool known;
    uint64_t log_id; /* 0: the log is empty */
    struct uuid cursor;
    struct uuid client_id_max; /* zeros: no client chose an id yet */
    struct id_mark id_mark;
    uint64_t recent_positions;
};

struct sqlite_source;
struct sqlite_frame_walk;

struct sqlite_session {
    struct store_session base;
    struct sqlite_store *store;
    sqlite3 *database;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    struct sqlite_tail tail;
    struct sqlite_range ranges[SQLITE_STORE_RANGES_MAX]; /* of the commit, not written yet */
    size_t range_count;
    const struct sqlite_source *source;   /* of the statement that runs; NULL: none */
    struct sqlite_frame_walk *frame_walk; /* that runs; NULL: none */
    char error[STORE_MESSAGE_MAX];
    enum reason reason; /* of the error */
    int copied_pages;   /* the length of the log at the last checkpoint */
    bool is_shared;     /* the commit: see struct store_batch */
    bool is_checkpoint_failing;
};

static inline struct sqlite_session *sqlite_session_of(struct store_session *session) {
    return (struct sqlite_session *)session;
}

/* ---- connections (sqlite_open.c, sqlite.c) ------------------------------------- */

enum status sqlite_status(int code);
/* Opens and configures a connection; with create an absent file is made. On failure *database is
 * NULL and the message, of STORE_MESSAGE_MAX, says why. */
MUST_CHECK enum status sqlite_connect(const char *path, enum store_mode mode, bool create,
                                      sqlite3 **database, char *message);

/* Runs a pragma and checks that it answers wanted, which may be NULL. A code of SQLite's. */
int sqlite_pragma(sqlite3 *database, const char *text, const char *wanted);
/* Writes SQLite's error with the file's name into the message. The status of the code. */
enum status sqlite_connect_fault(const char *path, sqlite3 *database, int code, char *message);
/* Writes errno's text with the file's name and the action into the message. */
enum status sqlite_system_fault(struct store_message *message, const char *path,
                                const char *action);
/* NULL when there is no memory. */
char *sqlite_path_in(const char *folder, const char *name);
MUST_CHECK enum status sqlite_make_folder(const char *folder, struct store_message *message);
MUST_CHECK enum status sqlite_sync_folder(const char *path, struct store_message *message);
/* file_inherit_owner, with a message. */
MUST_CHECK enum status sqlite_inherit_owner(const char *folder, int fd,
                                            struct store_message *message);
/* The lock is held until the descriptor is closed. */
MUST_CHECK enum status sqlite_take_lock(const char *folder, int *lock_fd,
                                        struct store_message *message);
/* Brings a file that holds a store up to date; refuses any other. */
MUST_CHECK enum status sqlite_update_schema(const char *path, struct store_message *message);

/* ---- statements (sqlite_statement.c) -------------------------------------------------- */

MUST_CHECK enum status sqlite_statement(struct sqlite_session *session, enum statement_id id,
                                        sqlite3_stmt **statement);
/* Runs a bound statement that yields no row, and resets it. */
MUST_CHECK enum status sqlite_run(struct sqlite_session *session, sqlite3_stmt *statement);
/* Both of the above, for a statement without parameters. */
MUST_CHECK enum status sqlite_execute(struct sqlite_session *session, enum statement_id id);
/* Steps to the next row, or STATUS_NOT_FOUND at the end. */
MUST_CHECK enum status sqlite_next(struct sqlite_session *session, sqlite3_stmt *statement);
/* Records a damaged row in the session. STATUS_INTERNAL_ERROR. */
enum status sqlite_damaged(struct sqlite_session *session, const char *row_name, uint64_t number);

void sqlite_bind_number(sqlite3_stmt *statement, int index, uint64_t number);
/* For numbers of a caller: one that SQLite cannot hold becomes the largest one that it can. */
void sqlite_bind_bound(sqlite3_stmt *statement, int index, uint64_t number);
/* 0 is stored as NULL. */
void sqlite_bind_optional(sqlite3_stmt *statement, int index, uint64_t number);
void sqlite_bind_text(sqlite3_stmt *statement, int index, struct slice text);
void sqlite_bind_bytes(sqlite3_stmt *statement, int index, const void *bytes, size_t size);

static inline uint64_t sqlite_number(sqlite3_stmt *statement, int column) {
    return (uint64_t)sqlite3_column_int64(statement, column);
}

struct slice sqlite_value_text(sqlite3_value *value);
/* False when the value does not have that many bytes. */
MUST_CHECK bool sqlite_value_bytes(sqlite3_value *value, void *bytes, size_t size);
/* The same of a column. */
struct slice sqlite_text(sqlite3_stmt *statement, int column);
MUST_CHECK bool sqlite_bytes(sqlite3_stmt *statement, int column, void *bytes, size_t size);

/* Whether SQLite's code, or the error of the system behind it, says that there is no room. */
bool sqlite_lacks_space(sqlite3 *database, int code);

/* ---- rows (sqlite_row.c) ------------------------------------------------------------------- */

void sqlite_read_value(sqlite3_stmt *statement, int index, const struct store_column *column,
                       struct store_value *value);
/* Reads columns that begin at first into their members. False: the row is damaged. */
MUST_CHECK bool sqlite_read_columns(sqlite3_stmt *statement, int first,
                                    const struct store_column *columns, size_t count, void *row);
/* The same of all columns of a layout. Other members become zero. */
MUST_CHECK bool sqlite_read_row(sqlite3_stmt *statement, int first,
                                const struct store_layout *layout, void *row);
/* When an event was recorded, from the column and the event's cursor. */
uint64_t sqlite_row_time(sqlite3_stmt *statement, int column, const struct uuid *cursor);
void sqlite_bind_value(sqlite3_stmt *statement, int index, const struct store_column *column,
                       const struct store_value *value);
/* Runs a statement whose parameters are these columns of the row. */
MUST_CHECK enum status sqlite_run_row(struct sqlite_session *session, enum statement_id id,
                                      const struct store_column *columns, size_t count,
                                      const void *row);

/* ---- the engine's functions, by file --------------------------------------------------------- */

/* The calls that the engine answers, wherever they are. */
#define SQLITE_CALL(call) __typeof__(store_##call) sqlite_##call;
STORE_CALLS(SQLITE_CALL)
STORE_DISK_CALLS(SQLITE_CALL)

/* sqlite_commit.c */
/* Reads the end of the log again. */
MUST_CHECK enum status sqlite_load_tail(struct sqlite_session *session);
/* A transaction of the write session. The end returns the status of the work, or of the commit. */
MUST_CHECK enum status sqlite_begin(struct sqlite_session *session);
MUST_CHECK enum status sqlite_end(struct sqlite_session *session, enum status status);

/* sqlite_reserve.c */
/* Gives a piece of the reserve file back to the disk. False: it has none. */
bool sqlite_reserve_give(struct sqlite_store *store);
void sqlite_reserve_open(struct sqlite_session *session);
/* Around a commit of events, in its transaction: limits it to the room, unless it may use the
 * reserve, and counts what it takes. */
void sqlite_reserve_begin(struct sqlite_session *session, enum store_room room_least);
void sqlite_reserve_end(struct sqlite_session *session, enum store_room room_least);
/* Pages of the write-ahead log from which on it is written back. */
int sqlite_reserve_wal_pages(const struct sqlite_store *store);
enum status sqlite_make_room(struct store_session *base, enum store_room room_least);

/* sqlite_source.c */
/* Makes the virtual table of sqlite_source.h known to the connection. */
MUST_CHECK enum status sqlite_source_register(struct sqlite_session *session);

/* sqlite_walk.c */
/* The entity's part of its events; entity_id is absent where there is no such entity. It stays
 * valid, and the store as it was, until the statement is reset. */
MUST_CHECK enum status sqlite_entity_name(struct sqlite_session *session, uint64_t entity_ref,
                                          sqlite3_stmt **statement, struct store_event *name);
/* A walk over an entity that ends before its limit has seen all events that the positions cover, or
 * some are lost. */
MUST_CHECK enum status sqlite_check_covered(struct sqlite_session *session, uint64_t last_seq,
                                            uint64_t covered_seq);

/* sqlite_frames.c */
/* Makes the function of its statement known to the connection. */
MUST_CHECK enum status sqlite_frames_register(struct sqlite_session *session);
MUST_CHECK enum status sqlite_walk_frames(struct sqlite_session *session,
                                          const struct store_query *query, void *user,
                                          store_row_cb *callback);

/* sqlite_positions.c */
/* The log has every event that a recent position names, or its end is lost. */
MUST_CHECK enum status sqlite_positions_check(struct sqlite_session *session);
void sqlite_positions_forget(struct sqlite_session *session);
/* STATUS_SEQUENCE_CONFLICT: the event does not follow the entity's last one, whose seq is answered.
 */
MUST_CHECK enum status sqlite_positions_add(struct sqlite_session *session,
                                            const struct store_event *event, uint64_t *head_seq);
/* Writes the positions of the commit, and moves the recent ones where they are many. */
MUST_CHECK enum status sqlite_positions_end(struct sqlite_session *session);

/* sqlite_location.c */
/* The sizes of the store's files. False: errno says why one was not found. */
MUST_CHECK bool sqlite_measure_files(const struct sqlite_store *store,
                                     uint64_t bytes[SQLITE_FILE_COUNT]);
/* Called by the write session after its first read, when all three files exist. */
MUST_CHECK enum status sqlite_record_location(struct sqlite_store *store, char *message);
MUST_CHECK enum status sqlite_session_check_location(struct sqlite_session *session);

/* sqlite_open.c */
enum status sqlite_open(struct store **store, const char *folder, bool exclusive,
                        struct store_message *message);
enum status sqlite_migrate(const char *folder, struct store_message *message);
pid_t sqlite_lock_holder(const char *folder);

/* sqlite_maintenance.c */
enum status sqlite_backup(const char *folder, const char *file,
                          const struct store_copy_options *options, struct store_copy *copy,
                          struct store_message *message);
enum status sqlite_restore_begin(const char *folder, const char *file,
                                 const struct store_copy_options *options,
                                 struct store_restore **restore, struct store_message *message);

/* sqlite_auth.c */
MUST_CHECK enum status sqlite_put_usages(struct sqlite_session *session,
                                         const struct store_batch *batch);

/* sqlite_rows.c */
enum status sqlite_put_properties(struct store_session *base,
                                  const struct store_property *properties, size_t count,
                                  enum store_appending appending);
enum status sqlite_read_rows(struct store_session *base, const struct store_value *after,
                             struct store_page *page);
enum status sqlite_read_last_row(struct store_session *base, struct store_page *page);
enum status sqlite_count_rows(struct store_session *base, const struct store_table *table,
                              uint64_t *count);
enum status sqlite_write_rows(struct store_session *base, const struct store_page *page);
enum status sqlite_clear_rows(struct store_session *base, const struct store_property *property);

/* sqlite_find.c */
/* Among the events whose id is their cursor's: searches the log by the id's time. */
enum status sqlite_find_server_id(struct sqlite_session *session, const struct uuid *event_id,
                                  uint64_t *log_id);

/* sqlite_prefetch.c */
/* Among the ids that clients supplied. */
enum status sqlite_find_client_id(struct sqlite_session *session, const struct uuid *event_id,
                                  uint64_t *log_id);

/* sqlite_walk.c */
enum status sqlite_load(struct store_session *base, const struct store_query *query,
                        struct arena *arena, void *row);
enum status sqlite_walk(struct store_session *base, const struct store_query *query, void *user,
                        store_row_cb *callback);

#endif
