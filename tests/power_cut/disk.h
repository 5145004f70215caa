/* A disk that a trace is replayed on, and that can lose its power. It knows the synced content of
 * each file and every change since, and the same for the names in each folder.
 *
 * A cut keeps all bytes of a file that were synced before. Of later writes it keeps a random part,
 * in pieces of 512 bytes and in any order. Sizes change in their order, because file systems keep
 * them in a journal. A piece that was added and not kept holds zeros or garbage. In a folder, a cut
 * keeps all names of the last sync, and some later changes: the first ones, all but one, or any. A
 * rename is atomic. The sync of a file does not keep its name.
 *
 * Thread: one.
 * Memory: of the process; the bytes of writes stay in the trace.
 * Errors: a trace that cannot be replayed, or a folder that cannot be written, ends the process. */
#ifndef POWER_CUT_DISK_H
#define POWER_CUT_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace.h"

struct disk;
struct disk_file;

/* A disk on which the content of the folder is synced. */
struct disk *disk_load(const char *folder);

/* The syncs of paths that end in the text have no effect, as if the program had left them out; a
 * folder's path ends in "/", and that of the whole disk is "./". */
void disk_ignore_syncs(struct disk *disk, const char *text);
size_t disk_ignored_syncs(const struct disk *disk);

/* Applies a record; its paths are not terminated. */
void disk_apply(struct disk *disk, const struct trace_head *head);

/* The file as programs see it, which is NULL if there is none. */
const struct disk_file *disk_find(const struct disk *disk, const char *path);
/* Changes with each change of the content. */
uint64_t disk_file_version(const struct disk_file *file);
/* Its content. */
const uint8_t *disk_file_bytes(const struct disk_file *file, size_t *size);

/* Cuts the power now, and writes the files that are left into the empty folder. */
void disk_cut(const struct disk *disk, uint64_t seed, const char *folder);

#endif
