/* SQLite writes a frame of the write-ahead log in two pieces, 24 bytes and a page, with a call of
 * the system for each. Here they collect in memory until the log is synced, and reach the file in
 * pieces of SQLITE_STORE_GATHER_BYTES.
 *
 * A frame is visible to others only after its commit was synced, because every connection has
 * synchronous=FULL; so no reader can miss bytes that are still here. Where a write may damage the
 * bytes around it, SQLite fills the sector behind the sync, and nothing is gathered. A crash loses
 * gathered bytes, as it may lose any frame that was not synced. After a failed write SQLite rolls
 * the transaction back, and writes the next frames to the same place. */
#include "store/sqlite/sqlite_gather.h"

#include <stdlib.h>

#include "store/sqlite/sqlite.h"

struct gathered_file {
    sqlite3_file base;
    sqlite3_file *file; /* the system's, in the memory behind this */
    bool is_direct;     /* nothing is gathered */
    char *bytes;        /* NULL: nothing was written yet */
    int size;
    sqlite3_int64 offset; /* of the first byte */
};

static sqlite3_vfs vfs;
static sqlite3_vfs *system_vfs;

static struct gathered_file *gathered(sqlite3_file *file) {
    return (struct gathered_file *)file;
}

static sqlite3_file *system_file(sqlite3_file *file) {
    return gathered(file)->file;
}

static int flush(sqlite3_file *base) {
    struct gathered_file *file = gathered(base);
    int size = file->size;
    file->size = 0;
    return size > 0 ? file->file->pMethods->xWrite(file->file, file->bytes, size, file->offset)
                    : SQLITE_OK;
}

static int write_bytes(sqlite3_file *base, const void *bytes, int size, sqlite3_int64 offset) {
    struct gathered_file *file = gathered(base);
    int code = SQLITE_OK;
    if (file->size > 0 &&
        (offset != file->offset + file->size || size > SQLITE_STORE_GATHER_BYTES - file->size))
        code = flush(base);
    if (code != SQLITE_OK)
        return code;
    if (!file->bytes && !file->is_direct)
        file->bytes = malloc(SQLITE_STORE_GATHER_BYTES);
    if (!file->bytes || size > SQLITE_STORE_GATHER_BYTES)
        return file->file->pMethods->xWrite(file->file, bytes, size, offset);
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

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = close_file,
    .xRead = read_bytes,
    .xWrite = write_bytes,
    .xTruncate = truncate_file,
    .xSync = sync_file,
    .xFileSize = file_size,
    .xLock = lock_file,
    .xUnlock = unlock_file,
    .xCheckReservedLock = check_lock,
    .xFileControl = control_file,
    .xSectorSize = sector_size,
    .xDeviceCharacteristics = characteristics,
};

static int open_file(sqlite3_vfs *unused, const char *name, sqlite3_file *base, int flags,
                     int *flags_out) {
    (void)unused;
    if (!(flags & SQLITE_OPEN_WAL))
        return system_vfs->xOpen(system_vfs, name, base, flags, flags_out);
    struct gathered_file *file = gathered(base);
    *file = (struct gathered_file){.file = (sqlite3_file *)(file + 1)};
    int code = system_vfs->xOpen(system_vfs, name, file->file, flags, flags_out);
    if (code != SQLITE_OK)
        return code;
    file->base.pMethods = &methods;
    file->is_direct = !(characteristics(base) & SQLITE_IOCAP_POWERSAFE_OVERWRITE);
    return SQLITE_OK;
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
