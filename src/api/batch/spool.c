#include "api/batch/spool.h"

#include <assert.h>
#include <errno.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"

void spool_files_init(struct spool_files *files) {
    unread_answers_init(&files->principals, files->bytes_max / SPOOL_FILE_PART);
}

void spool_files_release(struct spool_files *files) {
    unread_answers_release(&files->principals);
}

void spool_init(struct spool *spool, struct spool_files *files, struct slice principal,
                size_t append_bytes_max) {
    *spool = (struct spool){.files = files, .principal = principal, .file = -1};
    buffer_init(&spool->memory, SPOOL_MEMORY_BYTES + append_bytes_max);
}

static void give_back(struct spool *spool, size_t bytes) {
    atomic_fetch_sub_explicit(&spool->files->bytes, bytes, memory_order_relaxed);
    if (spool->principal.size > 0 && bytes > 0)
        unread_answers_drop(&spool->files->principals, spool->principal, bytes);
}

/* Gives the space back, and the descriptor. */
static void close_file(struct spool *spool) {
    if (spool->file < 0)
        return;
    close(spool->file);
    spool->file = -1;
    give_back(spool, spool->file_end);
    atomic_fetch_sub_explicit(&spool->files->file_count, 1, memory_order_relaxed);
    spool->file_begin = spool->file_end = 0;
}

void spool_release(struct spool *spool) {
    close_file(spool);
    buffer_release(&spool->memory);
}

bool spool_is_empty(const struct spool *spool) {
    return spool->memory.size == 0 && spool->file_begin == spool->file_end;
}

bool spool_has_file(const struct spool *spool) {
    return spool->file >= 0;
}

/* Takes amount of a limit that all spools share, before it is used. */
static bool reserve(atomic_size_t *used, size_t amount, uint64_t used_max) {
    size_t before = atomic_fetch_add_explicit(used, amount, memory_order_relaxed);
    if (before + amount <= used_max)
        return true;
    atomic_fetch_sub_explicit(used, amount, memory_order_relaxed);
    return false;
}

static bool open_file(struct spool *spool) {
    struct spool_files *files = spool->files;
    if (spool->file >= 0)
        return true;
    if (!reserve(&files->file_count, 1, files->files_max))
        return false;
    spool->file = file_open_unnamed(files->folder, "answers");
    if (spool->file < 0)
        atomic_fetch_sub_explicit(&files->file_count, 1, memory_order_relaxed);
    return spool->file >= 0;
}

/* A file system that does not count its blocks sets no limit. */
static bool disk_has_room(const struct spool *spool, size_t bytes) {
    struct statvfs disk;
    if (fstatvfs(spool->file, &disk) != 0)
        return false;
    return disk.f_blocks == 0 ||
           (uint64_t)disk.f_bavail * disk.f_frsize >= spool->files->disk_free_bytes_min + bytes;
}

bool spool_has_room(const struct spool *spool) {
    return !spool->is_full && spool->files->bytes_max > 0;
}

static size_t write_at(int file, struct slice bytes, uint64_t offset) {
    size_t written = 0;
    while (written < bytes.size) {
        ssize_t size =
            pwrite(file, bytes.data + written, bytes.size - written, (off_t)(offset + written));
        if (size < 0 && errno == EINTR)
            continue;
        if (size <= 0)
            break;
        written += (size_t)size;
    }
    return written;
}

static bool reserve_bytes(struct spool *spool, size_t bytes) {
    struct spool_files *files = spool->files;
    if (!reserve(&files->bytes, bytes, files->bytes_max))
        return false;
    if (spool->principal.size == 0 ||
        unread_answers_hold(&files->principals, spool->principal, bytes, true) == STATUS_OK)
        return true;
    atomic_fetch_sub_explicit(&files->bytes, bytes, memory_order_relaxed);
    return false;
}

static bool file_takes(struct spool *spool, struct slice bytes) {
    if (spool->file_end + bytes.size > spool->files->bytes_max / SPOOL_FILE_PART)
        return false;
    if (!open_file(spool) || !disk_has_room(spool, bytes.size) || !reserve_bytes(spool, bytes.size))
        return false;
    if (write_at(spool->file, bytes, spool->file_end) == bytes.size)
        return true;
    give_back(spool, bytes.size);
    return false;
}

/* The bytes stay in memory where the file cannot take them. */
static void move_to_file(struct spool *spool) {
    struct slice bytes = buffer_slice(&spool->memory);
    if (file_takes(spool, bytes)) {
        spool->file_end += bytes.size;
        buffer_release(&spool->memory);
        return;
    }
    spool->is_full = true;
    if (spool->file_end == 0)
        close_file(spool);
}

enum status spool_append(struct spool *spool, struct slice bytes) {
    enum status status = buffer_append_slice(&spool->memory, bytes);
    if (status == STATUS_OK && spool->memory.size > SPOOL_MEMORY_BYTES && spool_has_room(spool))
        move_to_file(spool);
    return status;
}

static enum status take_from_file(struct spool *spool, size_t bytes_max, struct buffer *out) {
    uint64_t left = spool->file_end - spool->file_begin;
    size_t wanted = left < bytes_max ? (size_t)left : bytes_max;
    ssize_t size;
    enum status status = buffer_reserve(out, wanted);
    if (status != STATUS_OK)
        return status;
    do
        size = pread(spool->file, out->data, wanted, (off_t)spool->file_begin);
    while (size < 0 && errno == EINTR);
    if (size <= 0)
        return STATUS_STORE_UNAVAILABLE;
    out->size = (size_t)size;
    spool->file_begin += (uint64_t)size;
    if (spool->file_begin == spool->file_end) {
        close_file(spool);
        spool->is_full = false;
    }
    return STATUS_OK;
}

enum status spool_take(struct spool *spool, size_t bytes_max, struct buffer *out) {
    assert(out->size == 0);
    if (spool->file_begin < spool->file_end)
        return take_from_file(spool, bytes_max, out);
    struct slice bytes = buffer_slice(&spool->memory);
    if (bytes.size > bytes_max)
        bytes.size = bytes_max;
    enum status status = buffer_append_slice(out, bytes);
    if (status == STATUS_OK)
        buffer_consume(&spool->memory, bytes.size);
    if (spool->memory.size == 0) {
        buffer_release(&spool->memory);
        spool->is_full = false;
    }
    return status;
}
