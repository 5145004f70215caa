/* Files of the data directory: one that is replaced as a whole, and one without a name.
 * Thread: any; two threads do not replace the same file at the same time.
 * Errors: errno is set.
 * Invariant: after a crash at any moment a replaced file has its old content or its new one. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/slice.h"
#include "spec/codes.h"

/* Opens a file without a name, for reading and writing. Its space is free again when the descriptor
 * is closed, also after a crash. name: a prefix for file systems that need a name for a moment. -1:
 * it cannot be made. */
int file_open_unnamed(const char *folder, const char *name);

/* Gives the open file to the owner of the folder, if this process is root. Otherwise the service,
 * which runs as that owner, could not open it. False: errno says why. */
MUST_CHECK bool file_inherit_owner(const char *folder, int fd);

/* A new name in a folder is durable only after the folder is synced. False: errno says why. */
MUST_CHECK bool file_sync_folder(const char *folder);

/* Gives the file this content. Only the folder's owner may read it. STATUS_SYSTEM_ERROR: the
 * content was not stored, or not durably. */
MUST_CHECK enum status file_replace(const char *path, struct slice text);

#endif
