/* `khala cursor migrate`: reads a file of topic cursors, prints their stream cursors and the result
 * of resuming from them. Main thread; reads the whole file, at most CURSOR_FILE_BYTES_MAX.
 * The file is a list of topic/cursor_list.h, as one JSON text or one cursor a line; each may
 * include the window to compare it with. A bad cursor is reported by its number; the others are
 * still printed, and the exit code is 1. */
#ifndef CLI_CURSOR_FILE_H
#define CLI_CURSOR_FILE_H

#include <stdbool.h>

#include "cli/remote.h"

#define CURSOR_FILE_BYTES_MAX ((size_t)64 << 20)

/* options NULL: each cursor is compared with the window in the file. Otherwise the server plans
 * them against its store. */
int cursor_migrate_file(const char *path, bool json, const struct remote_options *options);

#endif
