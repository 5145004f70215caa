/* The repair of damaged derived tables when a store is opened or migrated.
 * The thread of the database connection.
 * Allocates only while it runs.
 * Answers a code of SQLite. Repairs are logged as they are made, before they are committed.
 * The log and the entities are never written. */
#ifndef STORE_SQLITE_SQLITE_HEAL_H
#define STORE_SQLITE_SQLITE_HEAL_H

#include "store/sqlite/sqlite.h"

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
