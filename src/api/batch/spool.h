/* Bytes that wait for a peer to read them, in order: a little in memory, the others in a file
 * without a name in the data folder. Belongs to its owner's loop; the count of file bytes is shared
 * by all loops. Memory: SPOOL_MEMORY_BYTES, and at most one append more. spool_append:
 * STATUS_OUT_OF_MEMORY. spool_take: STATUS_STORE_UNAVAILABLE when the file cannot be read. A disk
 * that is nearly full, or a limit of the files, only ends the room. Bytes come out in the order in
 * which they went in. */
#ifndef API_BATCH_SPOOL_H
#define API_BATCH_SPOOL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buffer.h"
#include "http/unread_answers.h"

/* One file gets at most this part of the bytes of all files, and so does one principal. */
#define SPOOL_FILE_PART 4

/* The files of all spools. */
struct spool_files {
    const char *folder;
    uint64_t bytes_max;
    uint64_t files_max;
    uint64_t disk_free_bytes_min; /* below it no file grows: the store needs the space */
    atomic_size_t bytes;
    atomic_size_t file_count;
    struct unread_answers principals; /* the bytes of the files of each principal */
};

struct spool {
    struct spool_files *files;
    struct slice principal; /* its key; empty: only the limits of one file and of all apply */
    struct buffer memory;   /* behind the bytes of the file */
    int file;               /* -1: none; open only while it holds bytes */
    uint64_t file_begin;    /* offset of the first byte that was not taken */
    uint64_t file_end;
    bool is_full; /* the file cannot grow */
};

/* Before the first spool, when folder, bytes_max, files_max and disk_free_bytes_min are set. */
void spool_files_init(struct spool_files *files);
void spool_files_release(struct spool_files *files);

/* The memory of the principal's key outlives the spool. */
void spool_init(struct spool *spool, struct spool_files *files, struct slice principal,
                size_t append_bytes_max);
void spool_release(struct spool *spool);

bool spool_is_empty(const struct spool *spool);
bool spool_has_file(const struct spool *spool);
/* False: the owner should wait until bytes are taken. An append still succeeds. */
bool spool_has_room(const struct spool *spool);
MUST_CHECK enum status spool_append(struct spool *spool, struct slice bytes);
/* Moves at most bytes_max from the front into an empty buffer, and at least one byte unless the
 * spool is empty. */
MUST_CHECK enum status spool_take(struct spool *spool, size_t bytes_max, struct buffer *out);

#endif
