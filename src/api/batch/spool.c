#include "api/batch/spool.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/unnamed_file.h"

void spool_init(struct spool *spool, struct spool_files *files, size_t append_bytes_max) {
    *spool = (struct spool){.files = files, .file = -1};
    buffer_init(&spool->memory, SPOOL_MEMORY_BYTES + append_bytes_max);
}

static void uncharge(struct spool *spool) {
    atomic_fetch_sub_explicit(&spool->files->bytes, spool->file_end, memory_order_relaxed);
    spool->file_begin = spool->file_end = 0;
}

void spool_release(struct spool *spool) {
    uncharge(spool);
    if (spool->file >= 0)
        close(spool->file);
    spool->file = -1;
    buffer_release(&spool->memory);
}

bool spool_is_empty(const struct spool *spool) {
    return spool->memory.size == 0 && spool->file_begin == spool->file_end;
}

/* Reserves room in the files of all spools before it is used. */
static bool charge(struct spool *spool, size_t bytes) {
    size_t before = atomic_fetch_add_explicit(&spool->files->bytes, bytes, memory_order_relaxed);
    if (before + bytes <= spool->files->bytes_max)
        return true;
    atomic_fetch_sub_explicit(&spool->files->bytes, bytes, memory_order_relaxed);
    return false;
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

/* The bytes stay in memory where the file cannot take them. */
static void move_to_file(struct spool *spool) {
    struct slice bytes = buffer_slice(&spool->memory);
    if (spool->file < 0)
        spool->file = unnamed_file_open(spool->files->folder, "answers");
    if (spool->file < 0 || !charge(spool, bytes.size)) {
        spool->is_full = true;
        return;
    }
    if (write_at(spool->file, bytes, spool->file_end) < bytes.size) {
        atomic_fetch_sub_explicit(&spool->files->bytes, bytes.size, memory_order_relaxed);
        spool->is_full = true;
        return;
    }
    spool->file_end += bytes.size;
    buffer_release(&spool->memory);
}

enum status spool_append(struct spool *spool, struct slice bytes) {
    enum status status = buffer_append_slice(&spool->memory, bytes);
    if (status == STATUS_OK && spool->memory.size > SPOOL_MEMORY_BYTES && spool_has_room(spool))
        move_to_file(spool);
    return status;
}

/* A file that was read to its end gives its space back. */
static enum status empty_file(struct spool *spool) {
    uncharge(spool);
    spool->is_full = false;
    return ftruncate(spool->file, 0) == 0 ? STATUS_OK : STATUS_STORE_UNAVAILABLE;
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
    return spool->file_begin == spool->file_end ? empty_file(spool) : STATUS_OK;
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
