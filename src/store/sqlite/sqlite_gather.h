/* The file access of the embedded store: the system's, with the writes to the write-ahead log and
 * those of checkpoints to the database gathered into few and large ones.
 * Thread: any; a file belongs to its connection.
 * Memory: SQLITE_STORE_GATHER_BYTES for each file that is written, freed with it.
 * Errors: those of the system's file access. The error of a gathered write is reported by the sync,
 * or by whatever access made it necessary. The process ends where an error could not be reported:
 * the disk failed, and another program wrote to the database at the same time.
 * Invariant: bytes are in the file before a sync of it begins. */
#ifndef STORE_SQLITE_SQLITE_GATHER_H
#define STORE_SQLITE_SQLITE_GATHER_H

#include <stdint.h>

struct sqlite3;

/* The name to open a connection with. */
#define SQLITE_GATHER_VFS       "khala"
#define SQLITE_GATHER_UNLIMITED INT64_MAX

/* From now on the connection may write that many bytes to its write-ahead log, which is open. A
 * write beyond is SQLITE_FULL. Returns how many of the last limit were left. */
int64_t sqlite_gather_limit(struct sqlite3 *database, int64_t bytes);

/* Once, before the first connection. */
void sqlite_gather_register(void);

#endif
