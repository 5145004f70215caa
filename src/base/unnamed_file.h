/* Files without a name, for bytes that need not outlive the process.
 * Any thread. The caller closes the descriptor; the space is free again then, also after a crash.
 * Allocates nothing.
 * -1 with errno when the file cannot be made.
 * Only the owner of the process may read the file. */
#ifndef BASE_UNNAMED_FILE_H
#define BASE_UNNAMED_FILE_H

/* name: a prefix for file systems that need a name for a moment. */
int unnamed_file_open(const char *folder, const char *name);

#endif
