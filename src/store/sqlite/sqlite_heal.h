/* The repair of damaged derived tables, of the table of topics and of journals.
 * Thread: that of the database connection.
 * Memory: allocates only while it runs.
 * Errors: a code of SQLite; the caller undoes the transaction after a failure.
 * Invariant: the log and the entities are never written. Each repair is recorded as drift, and
 * logged before it is committed. */
#ifndef STORE_SQLITE_SQLITE_HEAL_H
#define STORE_SQLITE_SQLITE_HEAL_H

#include "store/sqlite/sqlite.h"

/* ---- tools, inside one transaction of the caller ---- */

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
    bool are_topics_made; /* the table of topics was rebuilt */
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

/* ---- the table of topics ---- */

/* Adds the rows that are missing. A topic of an entity follows from the entity. A topic with
 * journal rows gets its counter from them and a new epoch, because frames after the last row may
 * have been delivered. */
int sqlite_heal_topics(struct heal *heal);

/* ---- one journal ---- */

/* Raises the floor of a topic behind its last hole and behind lost_seq. It is never lowered. */
int sqlite_journal_raise_floor(struct heal *heal, struct slice topic, uint64_t lost_seq);

/* ---- a store that is opened or migrated ---- */

/* The derived tables have had their names since this version of the schema. */
#define SQLITE_HEAL_VERSION_MIN 8

/* All repairs of a store of that version, in the caller's transaction, so that the next migration
 * finds each table with its columns. After a failure the caller rolls back. Nothing for a version
 * before SQLITE_HEAL_VERSION_MIN. */
int sqlite_heal_before(sqlite3 *database, size_t version, uint64_t now_ms);
/* All repairs in a transaction of its own, if a table is damaged. After a failure nothing has
 * changed. */
int sqlite_heal_damaged_tables(sqlite3 *database, uint64_t now_ms);

#endif
