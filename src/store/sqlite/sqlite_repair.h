/* The tools of repairs of derived tables, inside one transaction of the caller.
 * The thread of the database connection.
 * Allocates only while it runs.
 * Functions answer a code of SQLite; the caller undoes the transaction after a failure.
 * The log and the entities are never written. Each repair is recorded as drift. */
#ifndef STORE_SQLITE_SQLITE_REPAIR_H
#define STORE_SQLITE_SQLITE_REPAIR_H

#include "store/sqlite/sqlite.h"

#define SQLITE_TABLE_TOPICS  "topics"
#define SQLITE_TABLE_JOURNAL "journal"

/* The topic refs of the journal, one search of the index for each. */
#define SQLITE_JOURNAL_REFS                                                                        \
    "WITH RECURSIVE refs(r) AS MATERIALIZED (SELECT min(topic_ref) FROM journal UNION "            \
    "ALL SELECT (SELECT min(topic_ref) FROM journal WHERE topic_ref > r) FROM refs "               \
    "WHERE r IS NOT NULL) "

struct heal {
    sqlite3 *database;
    size_t version;     /* of the schema */
    sqlite3 *reference; /* in memory: the schema and the built-in topics as they should be */
    uint64_t now_ms;
    bool is_changed;
    bool are_topics_made; /* the table of topics was made again */
};

struct heal_note {
    enum reason reason;
    struct slice subject; /* a topic or a table */
    int64_t expected_seq;
    int64_t actual_seq;
};

/* Runs statements made by sqlite3_mprintf. */
int sqlite_heal_run(const struct heal *heal, const char *format, ...);
/* Records a repair as drift, in the log of the server and in the metrics. */
int sqlite_heal_note(struct heal *heal, const struct heal_note *note);
/* Calls visit for each row of a query. */
int sqlite_heal_each(struct heal *heal, const char *query,
                     int (*visit)(struct heal *heal, sqlite3_stmt *row));

/* A number that no journal of this store has had. */
int sqlite_take_journal_epoch(struct heal *heal, sqlite3_int64 *epoch);

#endif
