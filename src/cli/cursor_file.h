/* `khala cursor migrate`: a file of topic cursors in, their stream cursors and what resuming from
 * them would do out. Main thread; reads the whole file, at most CURSOR_FILE_BYTES_MAX.
 * The file is a list of topic/cursor_list.h, as one JSON text or one cursor a line; each may bring
 * the window to judge it by. A bad one is named by its number; the others are still answered, and
 * the exit code is 1. */
#ifndef CLI_CURSOR_FILE_H
#define CLI_CURSOR_FILE_H

#include <stdbool.h>

#define CURSOR_FILE_BYTES_MAX ((size_t)64 << 20)

int cursor_migrate_file(const char *path, bool json);

#endif
