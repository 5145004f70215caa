/* SQLite writes a frame of the write-ahead log in two pieces, 24 bytes and a page, with a call of
 * the system for each. Here they collect in memory until the log is synced, and reach the file in
 * pieces of SQLITE_STORE_GATHER_BYTES.
 *
 * A frame is visible to others only after its commit was synced, because every connection has
 * synchronous=FULL; so no reader can miss bytes that are still here. Where a write may damage the
 * bytes around it, SQLite fills the sector behind the sync, and nothing is gathered. A crash loses
 * gathered bytes, as it may lose any frame that was not synced. After a failed write SQLite rolls
 * the transaction back, and writes the next frames to the same place.
 *
 * A checkpoint copies pages from the log into the database in the order of their numbers, with a
 * call of the system for each page. The write of one page at the end of the file takes 4 us. In a
 * large write a page takes 1.2 us. The pages collect here between the two messages that SQLite
 * sends to the file before and after the copy. Other connections read these pages from the log
 * until SQLite has counted them as copied, after the second message.
 *
 * SQLite takes no error from the answer to that message. But after a copy of the whole log it
 * truncates and syncs the file, and an error of these calls ends the checkpoint without effect. So
 * an error of the last write is returned there, and a copy of a part of the log is not gathered.
 * The file grows before pages are gathered, so that a full disk is found early. */
#include "store/sqlite/sqlite_gather.h"

#include <stdlib.h>

#include "base/log.h"
#include "store/sqlite/sqlite.h"

/* In the index of a write-ahead log, by SQLite's description of its files: the number of the last
 * frame, and of the last one that the running checkpoint copies. */
#define INDEX_BYTES       32768
#define INDEX_LAST_FRAME  (16 / sizeof(uint32_t))
#define INDEX_LAST_COPIED (128 / sizeof(uint32_t))

struct gathered_file {
    sqlite3_file base;
    sqlite3_file *file; /* the system's, in the memory behind this */
    bool is_gathering;
    char *bytes; /* NULL: nothing was written yet */
    int size;
    sqlite3_int64 offset; /* of the first byte */
    int64_t bytes_left;   /* that may be written to the log */
    /* Of the database during a checkpoint. */
    sqlite3_int64 end;      /* the file has space for all bytes before */
    sqlite3_int64 end_next; /* what the file grows to */
    int error;              /* of the last bytes of the checkpoint, not returned yet */
};

static sqlite3_vfs vfs;
static sqlite3_vfs *system_vfs;

static struct gathered_file *gathered(sqlite3_file *file) {
    return (struct gathered_file *)file;
}

static sqlite3_file *system_file(sqlite3_file *file) {
    return gathered(file)->file;
}

static int system_write(struct gathered_file *file, const void *bytes, int size,
                        sqlite3_int64 offset) {
    return file->file->pMethods->xWrite(file->file, bytes, size, offset);
}

/* Also returns an error that could not be returned before. */
static int flush(sqlite3_file *base) {
    struct gathered_file *file = gathered(base);
    int size = file->size;
    int code = file->error;
    file->size = 0;
    file->error = SQLITE_OK;
    if (code == SQLITE_OK && size > 0)
        code = system_write(file, file->bytes, size, file->offset);
    return code;
}

/* Makes space for the bytes before that end. */
static int grow(struct gathered_file *file, sqlite3_int64 end) {
    int code = file->end < end ? flush(&file->base) : SQLITE_OK;
    while (code == SQLITE_OK && file->end < end) {
        sqlite3_int64 wanted = (file->end_next > end ? file->end_next : end) - file->end;
        int size = wanted < SQLITE_STORE_GATHER_BYTES ? (int)wanted : SQLITE_STORE_GATHER_BYTES;
        memset(file->bytes, 0, (size_t)size);
        code = system_write(file, file->bytes, size, file->end);
        file->end += size;
    }
    return code;
}

static bool has_buffer(struct gathered_file *file) {
    if (!file->bytes)
        file->bytes = malloc(SQLITE_STORE_GATHER_BYTES);
    return file->bytes;
}

static int write_bytes(sqlite3_file *base, const void *bytes, int size, sqlite3_int64 offset) {
    struct gathered_file *file = gathered(base);
    int code = SQLITE_OK;
    if (size > file->bytes_left)
        return SQLITE_FULL;
    file->bytes_left -= size;
    if (file->size > 0 &&
        (offset != file->offset + file->size || size > SQLITE_STORE_GATHER_BYTES - file->size))
        code = flush(base);
    if (code != SQLITE_OK)
        return code;
    if (!file->is_gathering || !has_buffer(file) || size > SQLITE_STORE_GATHER_BYTES)
        return system_write(file, bytes, size, offset);
    code = grow(file, offset + size);
    if (code != SQLITE_OK)
        return code;
    if (file->size == 0)
        file->offset = offset;
    memcpy(file->bytes + file->size, bytes, (size_t)size);
    file->size += size;
    return SQLITE_OK;
}

static int read_bytes(sqlite3_file *file, void *bytes, int size, sqlite3_int64 offset) {
    int code = flush(file);
    return code == SQLITE_OK
               ? system_file(file)->pMethods->xRead(system_file(file), bytes, size, offset)
               : code;
}

static int truncate_file(sqlite3_file *file, sqlite3_int64 size) {
    int code = flush(file);
    return code == SQLITE_OK ? system_file(file)->pMethods->xTruncate(system_file(file), size)
                             : code;
}

static int sync_file(sqlite3_file *file, int flags) {
    int code = flush(file);
    return code == SQLITE_OK ? system_file(file)->pMethods->xSync(system_file(file), flags) : code;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size) {
    int code = flush(file);
    return code == SQLITE_OK ? system_file(file)->pMethods->xFileSize(system_file(file), size)
                             : code;
}

static int close_file(sqlite3_file *file) {
    int flushed = flush(file);
    int code = system_file(file)->pMethods->xClose(system_file(file));
    free(gathered(file)->bytes);
    return flushed == SQLITE_OK ? code : flushed;
}

static int lock_file(sqlite3_file *file, int level) {
    return system_file(file)->pMethods->xLock(system_file(file), level);
}

static int unlock_file(sqlite3_file *file, int level) {
    return system_file(file)->pMethods->xUnlock(system_file(file), level);
}

static int check_lock(sqlite3_file *file, int *is_reserved) {
    return system_file(file)->pMethods->xCheckReservedLock(system_file(file), is_reserved);
}

static int control_file(sqlite3_file *file, int operation, void *argument) {
    return system_file(file)->pMethods->xFileControl(system_file(file), operation, argument);
}

static int sector_size(sqlite3_file *file) {
    return system_file(file)->pMethods->xSectorSize(system_file(file));
}

static int characteristics(sqlite3_file *file) {
    return system_file(file)->pMethods->xDeviceCharacteristics(system_file(file));
}

/* ---- the database ---- */

static bool takes_whole_log(struct gathered_file *file) {
    void volatile *memory = NULL;
    int code = file->file->pMethods->xShmMap(file->file, 0, INDEX_BYTES, 0, &memory);
    const uint32_t volatile *index = memory;
    return code == SQLITE_OK && index && index[INDEX_LAST_COPIED] == index[INDEX_LAST_FRAME];
}

/* The pages would count as copied, and are not. */
static void end_process(const struct gathered_file *file) {
    log_event(LOG_ERROR, "store.checkpoint_failed", log_int("code", file->error),
              log_str("effect", "the process ends; the write-ahead log has every event"));
    abort();
}

static int control_database(sqlite3_file *base, int operation, void *argument) {
    struct gathered_file *file = gathered(base);
    if (operation == SQLITE_FCNTL_CKPT_START) {
        /* A page that is written directly would be behind the end that the file grows from. So a
         * checkpoint gathers all of its pages or none. */
        file->is_gathering = takes_whole_log(file) && has_buffer(file);
        file->end = INT64_MAX;
    } else if (operation == SQLITE_FCNTL_SIZE_HINT && file->is_gathering) {
        /* SQLite sends this where a checkpoint adds pages. */
        sqlite3_int64 end = 0;
        file->end_next = *(const sqlite3_int64 *)argument;
        if (file->file->pMethods->xFileSize(file->file, &end) == SQLITE_OK)
            file->end = end;
        else
            file->is_gathering = false;
    } else if (operation == SQLITE_FCNTL_CKPT_DONE) {
        /* SQLite ignores the answer. If another connection has added to the log meanwhile, it does
         * not truncate the file either. */
        file->error = flush(base);
        if (file->error != SQLITE_OK && file->is_gathering && !takes_whole_log(file))
            end_process(file);
        file->is_gathering = false;
    }
    return control_file(base, operation, argument);
}

static int map_shared(sqlite3_file *file, int region, int size, int is_extended,
                      void volatile **memory) {
    return system_file(file)->pMethods->xShmMap(system_file(file), region, size, is_extended,
                                                memory);
}

static int lock_shared(sqlite3_file *base, int number, int count, int flags) {
    struct gathered_file *file = gathered(base);
    if (file->error != SQLITE_OK)
        end_process(file);
    return file->file->pMethods->xShmLock(file->file, number, count, flags);
}

static void order_shared(sqlite3_file *file) {
    system_file(file)->pMethods->xShmBarrier(system_file(file));
}

static int unmap_shared(sqlite3_file *file, int is_removed) {
    return system_file(file)->pMethods->xShmUnmap(system_file(file), is_removed);
}

/* ---- opening ---- */

/* Version 1 has no shared memory, and version 2 no mapped files. */
#define METHODS(version, control)                                                                  \
    .iVersion = (version), .xClose = close_file, .xRead = read_bytes, .xWrite = write_bytes,       \
    .xTruncate = truncate_file, .xSync = sync_file, .xFileSize = file_size, .xLock = lock_file,    \
    .xUnlock = unlock_file, .xCheckReservedLock = check_lock, .xFileControl = (control),           \
    .xSectorSize = sector_size, .xDeviceCharacteristics = characteristics

static const sqlite3_io_methods log_methods = {METHODS(1, control_file)};
static const sqlite3_io_methods database_methods = {
    METHODS(2, control_database), .xShmMap = map_shared,     .xShmLock = lock_shared,
    .xShmBarrier = order_shared,  .xShmUnmap = unmap_shared,
};

static int open_file(sqlite3_vfs *unused, const char *name, sqlite3_file *base, int flags,
                     int *flags_out) {
    (void)unused;
    if (!(flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_DB)))
        return system_vfs->xOpen(system_vfs, name, base, flags, flags_out);
    struct gathered_file *file = gathered(base);
    *file = (struct gathered_file){.file = (sqlite3_file *)(file + 1),
                                   .bytes_left = SQLITE_GATHER_UNLIMITED,
                                   .end = INT64_MAX};
    int code = system_vfs->xOpen(system_vfs, name, file->file, flags, flags_out);
    if (code != SQLITE_OK)
        return code;
    if (!(flags & SQLITE_OPEN_WAL)) {
        file->base.pMethods = &database_methods;
        return SQLITE_OK;
    }
    file->base.pMethods = &log_methods;
    file->is_gathering = characteristics(base) & SQLITE_IOCAP_POWERSAFE_OVERWRITE;
    return SQLITE_OK;
}

int64_t sqlite_gather_limit(sqlite3 *database, int64_t bytes) {
    sqlite3_file *log = NULL;
    int code = sqlite3_file_control(database, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    if (code != SQLITE_OK || !log || log->pMethods != &log_methods)
        return 0;
    int64_t left = gathered(log)->bytes_left;
    gathered(log)->bytes_left = bytes;
    return left;
}

void sqlite_gather_register(void) {
    system_vfs = sqlite3_vfs_find(NULL);
    if (!system_vfs)
        return;
    vfs = *system_vfs;
    vfs.zName = SQLITE_GATHER_VFS;
    vfs.pNext = NULL;
    vfs.szOsFile += (int)sizeof(struct gathered_file);
    vfs.xOpen = open_file;
    sqlite3_vfs_register(&vfs, 0);
}
