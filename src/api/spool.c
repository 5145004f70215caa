/* The file of a spool has at most one operation, of which state says the kind. The loop gives the
 * file to the file thread with it, and has it back when the call returns:
 *
 *   memory is over SPOOL_MEMORY_BYTES: memory becomes moving, which is written behind the file
 *   a take finds no bytes ahead:       the front of the file is read into ahead
 *
 * So bytes leave in their order: ahead, the file, moving, memory. A file that was read to its end
 * is closed at once, because descriptors and disk space are limits that all spools share. */
#include "api/spool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "authority/call.h"
#include "base/file.h"
#include "base/limits.h"

/* The file, and the one operation on it. The loop sets the operation, then the file thread has all
 * of it until the call returns. It outlives its spool until it is closed. */
struct spool_file {
    struct file_task task;
    struct call call;
    struct spool *spool;
    struct spool_files *files;
    int fd; /* -1: not open */
    uint64_t offset;
    char *data;
    size_t size;
    bool is_last;      /* the read takes the last bytes */
    size_t held_bytes; /* its part of the limits that all spools share */
    size_t key_size;
    char key[]; /* the key of the principal */
};

void spool_files_init(struct spool_files *files) {
    unread_answers_init(&files->principals, files->bytes_max / SPOOL_FILE_PART);
}

void spool_files_release(struct spool_files *files) {
    unread_answers_release(&files->principals);
}

/* ---- on the file thread -------------------------------------------------------------------- */

/* Takes amount of a limit that all spools share, before it is used. */
static bool reserve(atomic_size_t *used, size_t amount, uint64_t used_max) {
    size_t before = atomic_fetch_add_explicit(used, amount, memory_order_relaxed);
    if (before + amount <= used_max)
        return true;
    atomic_fetch_sub_explicit(used, amount, memory_order_relaxed);
    return false;
}

static void give_back(struct spool_file *file, size_t bytes) {
    atomic_fetch_sub_explicit(&file->files->bytes, bytes, memory_order_relaxed);
    if (file->key_size > 0 && bytes > 0)
        unread_answers_drop(&file->files->principals, (struct slice){file->key, file->key_size},
                            bytes);
    file->held_bytes -= bytes;
}

/* Gives the space back, and the descriptor. */
static void close_file(struct spool_file *file) {
    if (file->fd < 0)
        return;
    close(file->fd);
    file->fd = -1;
    give_back(file, file->held_bytes);
    atomic_fetch_sub_explicit(&file->files->file_count, 1, memory_order_relaxed);
}

static bool write_whole(const struct spool_file *file) {
    size_t written = 0;
    while (written < file->size) {
        ssize_t size = pwrite(file->fd, file->data + written, file->size - written,
                              (off_t)(file->offset + written));
        if (size < 0 && errno == EINTR)
            continue;
        if (size <= 0)
            return false;
        written += (size_t)size;
    }
    return true;
}

/* Writes the bytes, within all limits. */
static bool file_takes(struct spool_file *file) {
    struct spool_files *files = file->files;
    struct slice principal = {file->key, file->key_size};
    struct statvfs disk;
    if (file->offset + file->size > files->bytes_max / SPOOL_FILE_PART)
        return false;
    if (file->fd < 0) {
        if (!reserve(&files->file_count, 1, files->files_max))
            return false;
        file->fd = file_open_unnamed(files->folder, "answers");
        if (file->fd < 0) {
            atomic_fetch_sub_explicit(&files->file_count, 1, memory_order_relaxed);
            return false;
        }
    }
    /* A file system that does not count its blocks sets no limit. */
    if (fstatvfs(file->fd, &disk) != 0 ||
        (disk.f_blocks > 0 &&
         (uint64_t)disk.f_bavail * disk.f_frsize < files->disk_free_bytes_min + file->size))
        return false;
    if (!reserve(&files->bytes, file->size, files->bytes_max))
        return false;
    if (principal.size > 0 &&
        unread_answers_hold(&files->principals, principal, file->size, true) != STATUS_OK) {
        atomic_fetch_sub_explicit(&files->bytes, file->size, memory_order_relaxed);
        return false;
    }
    file->held_bytes += file->size;
    if (write_whole(file))
        return true;
    give_back(file, file->size);
    return false;
}

static void run_write(struct file_task *task) {
    struct spool_file *file = container_of(task, struct spool_file, task);
    if (!file_takes(file)) {
        file->call.status = STATUS_LIMIT_REACHED;
        if (file->held_bytes == 0)
            close_file(file);
    }
    call_return_post(&file->call);
}

static void run_read(struct file_task *task) {
    struct spool_file *file = container_of(task, struct spool_file, task);
    ssize_t size;
    do
        size = pread(file->fd, file->data, file->size, (off_t)file->offset);
    while (size < 0 && errno == EINTR);
    if (size <= 0)
        file->call.status = STATUS_STORE_UNAVAILABLE;
    else if (file->is_last && (size_t)size == file->size)
        close_file(file);
    file->size = size > 0 ? (size_t)size : 0;
    call_return_post(&file->call);
}

static void run_close(struct file_task *task) {
    struct spool_file *file = container_of(task, struct spool_file, task);
    close_file(file);
    free(file);
}

/* ---- on the loop --------------------------------------------------------------------------- */

static void begin(struct spool *spool, enum spool_state state) {
    struct spool_file *file = spool->file;
    assert(spool->state == SPOOL_IDLE && state != SPOOL_IDLE);
    spool->state = state;
    file->task.run = state == SPOOL_WRITING ? run_write : run_read;
    call_begin(&file->call, spool->loop);
    spool->events->begun(spool);
    file_thread_post(spool->files->thread, &file->task);
}

static void on_returned(struct call *call);

/* The bytes stay in memory if the file cannot take them. */
static void begin_write(struct spool *spool) {
    if (!spool->file) {
        struct slice key = spool->principal;
        struct spool_file *file = calloc(1, sizeof(*file) + key.size);
        if (!file) {
            spool->is_full = true;
            return;
        }
        file->spool = spool;
        file->files = spool->files;
        file->call.done = on_returned;
        file->fd = -1;
        file->key_size = key.size;
        if (key.size > 0)
            memcpy(file->key, key.data, key.size);
        spool->file = file;
    }
    if (spool->moving.size == 0) {
        buffer_release(&spool->moving);
        spool->moving = spool->memory;
        buffer_init(&spool->memory, SPOOL_MEMORY_BYTES + spool->append_bytes_max);
    }
    spool->file->offset = spool->file_end;
    spool->file->data = spool->moving.data;
    spool->file->size = spool->moving.size;
    begin(spool, SPOOL_WRITING);
}

static void begin_read(struct spool *spool) {
    uint64_t left = spool->file_end - spool->file_begin;
    size_t size = left < spool->wanted_bytes ? (size_t)left : spool->wanted_bytes;
    buffer_release(&spool->ahead);
    buffer_init(&spool->ahead, size);
    spool->status = buffer_reserve(&spool->ahead, size);
    if (spool->status != STATUS_OK)
        return;
    spool->file->offset = spool->file_begin;
    spool->file->data = spool->ahead.data;
    spool->file->size = size;
    spool->file->is_last = size == left;
    begin(spool, SPOOL_READING);
}

/* A take that waits comes before the next write, so that a client that reads is served. */
static void begin_next(struct spool *spool) {
    if (spool->state != SPOOL_IDLE || spool->is_closed || spool->status != STATUS_OK)
        return;
    if (spool->wanted_bytes > 0 && spool->ahead.size == 0 && spool->file_begin < spool->file_end)
        begin_read(spool);
    else if (!spool->is_full && spool->files->bytes_max > 0 &&
             spool->moving.size + spool->memory.size > SPOOL_MEMORY_BYTES)
        begin_write(spool);
}

static void on_returned(struct call *call) {
    struct spool_file *file = container_of(call, struct spool_file, call);
    struct spool *spool = file->spool;
    enum spool_state state = spool->state;
    spool->state = SPOOL_IDLE;
    if (state == SPOOL_READING) {
        spool->status = call->status;
        spool->ahead.size = file->size;
        spool->file_begin += file->size;
        if (spool->file_begin == spool->file_end) {
            spool->file_begin = spool->file_end = 0;
            spool->is_full = false;
        }
    } else if (call->status == STATUS_OK) {
        spool->file_end += spool->moving.size;
        buffer_release(&spool->moving);
    } else {
        spool->is_full = true;
    }
    if (file->fd < 0) {
        spool->file = NULL;
        free(file);
    }
    begin_next(spool);
    spool->events->returned(spool);
}

void spool_init(struct spool *spool, struct spool_files *files, struct slice principal,
                size_t append_bytes_max, struct io_loop *loop, const struct spool_events *events) {
    *spool = (struct spool){.events = events,
                            .loop = loop,
                            .files = files,
                            .principal = principal,
                            .append_bytes_max = append_bytes_max,
                            .status = STATUS_OK};
    buffer_init(&spool->ahead, append_bytes_max);
    buffer_init(&spool->moving, SPOOL_MEMORY_BYTES + append_bytes_max);
    buffer_init(&spool->memory, SPOOL_MEMORY_BYTES + append_bytes_max);
}

void spool_close(struct spool *spool) {
    spool->is_closed = true;
}

void spool_release(struct spool *spool) {
    assert(spool->state == SPOOL_IDLE);
    if (spool->file) {
        spool->file->task.run = run_close;
        file_thread_post(spool->files->thread, &spool->file->task);
        spool->file = NULL;
    }
    buffer_release(&spool->ahead);
    buffer_release(&spool->moving);
    buffer_release(&spool->memory);
}

bool spool_is_empty(const struct spool *spool) {
    return spool->ahead.size == 0 && spool->file_begin == spool->file_end &&
           spool->moving.size == 0 && spool->memory.size == 0;
}

bool spool_has_file(const struct spool *spool) {
    return spool->file != NULL;
}

size_t spool_memory_bytes(const struct spool *spool) {
    return spool->ahead.capacity + spool->moving.capacity + spool->memory.capacity;
}

bool spool_has_room(const struct spool *spool) {
    return !spool->is_full && spool->files->bytes_max > 0 && spool->status == STATUS_OK &&
           spool->memory.size <= SPOOL_MEMORY_BYTES;
}

enum status spool_append(struct spool *spool, struct slice bytes) {
    enum status status = buffer_append_slice(&spool->memory, bytes);
    if (status == STATUS_OK)
        begin_next(spool);
    return status;
}

static enum status take_from(struct buffer *front, size_t bytes_max, struct buffer *out) {
    struct slice bytes = buffer_slice(front);
    if (bytes.size > bytes_max)
        bytes.size = bytes_max;
    enum status status = buffer_append_slice(out, bytes);
    if (status == STATUS_OK)
        buffer_consume(front, bytes.size);
    if (front->size == 0)
        buffer_release(front);
    return status;
}

enum status spool_take(struct spool *spool, size_t bytes_max, struct buffer *out) {
    assert(out->size == 0 && bytes_max > 0);
    if (spool->status != STATUS_OK)
        return spool->status;
    spool->wanted_bytes = 0;
    if (spool->ahead.size > 0)
        return take_from(&spool->ahead, bytes_max, out);
    if (spool->file_begin < spool->file_end || spool->state == SPOOL_WRITING) {
        spool->wanted_bytes = bytes_max;
        begin_next(spool);
        return spool->status;
    }
    enum status status =
        take_from(spool->moving.size > 0 ? &spool->moving : &spool->memory, bytes_max, out);
    if (spool->moving.size == 0 && spool->memory.size == 0)
        spool->is_full = false;
    return status;
}
