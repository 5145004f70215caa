/* The repair of damaged derived tables when a store is opened.
 * The thread of the database connection.
 * Allocates only while it runs.
 * Answers a code of SQLite; after a failure nothing has changed.
 * The log and the entities are never written. */
#ifndef STORE_SQLITE_SQLITE_HEAL_H
#define STORE_SQLITE_SQLITE_HEAL_H

#include "store/sqlite/sqlite.h"

/* All repairs in a transaction of its own, if a table is damaged. */
int sqlite_heal_damaged_tables(sqlite3 *database, uint64_t now_ms);

#endif
