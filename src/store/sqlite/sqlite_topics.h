/* The repair of the table of topics: adds the rows that are missing.
 * The thread of the database connection, inside its transaction.
 * Memory for one name at a time.
 * Answers a code of SQLite.
 * A topic of an entity follows from the entity. A topic with journal rows gets its counter from
 * them and a new epoch, because frames after the last row may have been delivered. */
#ifndef STORE_SQLITE_SQLITE_TOPICS_H
#define STORE_SQLITE_SQLITE_TOPICS_H

#include "store/sqlite/sqlite_repair.h"

int sqlite_heal_topics(struct heal *heal);

#endif
