/* Bytes that wait for a peer to read them, in order: a little in memory, the others in a file
 * without a name in the data folder.
 *
 *   append ──▶ memory ──▶ moving ──▶ file ──▶ ahead ──▶ take
 *
 * Thread: a spool belongs to its owner's loop, which never waits for the disk: the file thread
 * opens, writes, reads and closes the file (api/file_thread.h). A spool has at most one such
 * operation at a time, and the owner keeps it until the operation has returned. All loops share
 * the counts of files and of their bytes.
 * Memory: SPOOL_MEMORY_BYTES and one append, twice while a write is under way, and the bytes that
 * a take wants.
 * Errors: spool_append: STATUS_OUT_OF_MEMORY. spool_take: the same, and STATUS_STORE_UNAVAILABLE
 * when the file cannot be read. A disk that is nearly full, or a limit of the files, only ends the
 * room.
 * Invariant: bytes come out in the order in which they went in. */
#ifndef API_SPOOL_H
#define API_SPOOL_H

#include <stdatomic.h>
#include <stdint.h>

#include "api/file_thread.h"
#include "base/buffer.h"
#include "http/unread_answers.h"
#include "net/loop.h"

/* One file gets at most this part of the bytes of all files, and so does one principal. */
#define SPOOL_FILE_PART 4

/* The files of all spools. Bytes and files count until the file is closed. */
struct spool_files {
    struct file_thread *thread;
    const char *folder;
    uint64_t bytes_max;
    uint64_t files_max;
    uint64_t disk_free_bytes_min; /* below it no file grows: the store needs the space */
    atomic_size_t bytes;
    atomic_size_t file_count;
    struct unread_answers principals; /* the bytes of the files of each principal */
};

struct spool;
struct spool_file;

struct spool_events {
    /* The file thread has an operation of the spool: the spool must stay until returned. */
    void (*begun)(struct spool *spool);
    /* In a later turn: there may be room again, or bytes to take. May release the spool. */
    void (*returned)(struct spool *spool);
};

enum spool_state { SPOOL_IDLE, SPOOL_WRITING, SPOOL_READING };

struct spool {
    const struct spool_events *events;
    struct io_loop *loop;
    struct spool_files *files;
    struct slice principal;  /* its key; empty: only the limits of one file and of all apply */
    enum spool_state state;  /* the one operation of the file thread */
    struct spool_file *file; /* NULL: none; exists only while it holds bytes or gets its first */
    uint64_t file_begin;     /* offset of the first byte that was not read */
    uint64_t file_end;
    struct buffer ahead;  /* read from the file */
    struct buffer moving; /* behind the bytes of the file, which gets them next */
    struct buffer memory; /* behind those */
    size_t append_bytes_max;
    size_t wanted_bytes; /* a take waits for so many bytes of the file */
    bool is_full;        /* the file cannot grow */
    bool is_closed;      /* the file thread gets no further operation */
    enum status status;  /* the failure of a read */
};

/* Before the first spool, when all settings are set. */
void spool_files_init(struct spool_files *files);
/* After the file thread has stopped. */
void spool_files_release(struct spool_files *files);

/* The memory of the principal's key outlives the spool. */
void spool_init(struct spool *spool, struct spool_files *files, struct slice principal,
                size_t append_bytes_max, struct io_loop *loop, const struct spool_events *events);
/* The bytes are not needed any more. No append and no take follows. */
void spool_close(struct spool *spool);
/* While no operation is under way. The file thread closes the file. */
void spool_release(struct spool *spool);

bool spool_is_empty(const struct spool *spool);
bool spool_has_file(const struct spool *spool);
/* Memory of the spool, also of the operation under way. */
size_t spool_memory_bytes(const struct spool *spool);
/* False: the owner should wait until bytes are taken, or until the operation under way has
 * returned. An append still succeeds once. */
bool spool_has_room(const struct spool *spool);
MUST_CHECK enum status spool_append(struct spool *spool, struct slice bytes);
/* Moves at most bytes_max from the front into an empty buffer. None: the spool is empty, or its
 * file must be read first, and the owner takes again when that has returned. */
MUST_CHECK enum status spool_take(struct spool *spool, size_t bytes_max, struct buffer *out);

#endif
