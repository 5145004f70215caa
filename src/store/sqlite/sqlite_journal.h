/* The repair of one journal, inside a transaction of the caller.
 * The thread of the database connection.
 * Allocates nothing that stays.
 * Answers a code of SQLite.
 * The floor of a journal is never lowered. */
#ifndef STORE_SQLITE_SQLITE_JOURNAL_H
#define STORE_SQLITE_SQLITE_JOURNAL_H

#include "store/sqlite/sqlite_repair.h"

/* Raises the floor of a topic behind its last hole and behind lost_seq. */
int sqlite_journal_raise_floor(struct heal *heal, struct slice topic, uint64_t lost_seq);

#endif
