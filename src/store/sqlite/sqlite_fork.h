/* Where the epochs of a log part: noted before the log gets another epoch, and carried over from a
 * store that is replaced.
 * Thread: that of the connections.
 * Memory: allocates nothing that outlives a call.
 * Errors: a code of SQLite, of the store that is written.
 * Invariant: a fork that cannot be found is noted lower than it is, never higher. */
#ifndef SQLITE_FORK_H
#define SQLITE_FORK_H

#include <sqlite3.h>

/* In the caller's transaction: the end of the log, unless a place is noted already. */
int sqlite_fork_note(sqlite3 *database);
/* In the caller's transaction on the copy: the lowest of its own fork, that of the store which it
 * replaces, and the last event that both have. replaced NULL: it cannot be read. */
int sqlite_fork_carry(sqlite3 *copy, sqlite3 *replaced);

#endif
