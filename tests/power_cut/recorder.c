/* Loaded before a program (LD_PRELOAD), so that every change of the files below POWER_CUT_FOLDER is
 * added to the trace POWER_CUT_TRACE. An operation and its record are made under one lock: the
 * order of the records is the order of the operations, and a sync is in the trace only after it was
 * done and before its caller goes on.
 *
 * Shared memory of SQLite (-shm) is not recorded, because it is rebuilt after every crash. Any
 * other mapped file, and any stream that writes, is recorded as unknown: the C library writes
 * streams without calling a function that a preloaded library could replace. */
/* Every name of these functions is defined here, so none may be replaced by another. */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#include "recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "trace.h"

#define FDS_MAX      65536
#define PATHS_MAX    ((size_t)PATH_MAX)
#define TRACE_FD_MIN 900

static char folder[PATH_MAX];
static size_t folder_size;
static int trace = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Which descriptors are of recorded files; without the lock, because a descriptor in use cannot
 * change. */
static bool recorded[FDS_MAX];

void recorder_begin(const char *place, const char *file) {
    if (!realpath(place, folder))
        abort();
    folder_size = strlen(folder);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT, 0600);
    /* High, so that the program has the low numbers that it expects. */
    trace = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, TRACE_FD_MIN);
    if (trace < 0)
        abort();
    syscall(SYS_close, fd);
}

void recorder_end(void) {
    syscall(SYS_close, trace);
    trace = -1;
}

__attribute__((constructor)) static void begin_preloaded(void) {
    const char *place = getenv(TRACE_FOLDER), *file = getenv(TRACE_FILE);
    if (place && file)
        recorder_begin(place, file);
}

static bool is_recorded(int fd) {
    return trace >= 0 && fd >= 0 && fd < FDS_MAX && recorded[fd];
}

static uint64_t inode_of(int fd) {
    struct stat found;
    return fstat(fd, &found) == 0 ? found.st_ino : 0;
}

struct record {
    enum trace_kind kind;
    uint64_t inode;
    int64_t offset;
    const char *path, *to;
    const void *data;
    size_t size;
};

/* Under the lock. */
static void put(struct record record) {
    struct trace_head head = {.kind = (uint16_t)record.kind,
                              .path_size = (uint16_t)(record.path ? strlen(record.path) : 0),
                              .to_size = (uint16_t)(record.to ? strlen(record.to) : 0),
                              .bytes = (uint32_t)record.size,
                              .inode = record.inode,
                              .offset = record.offset};
    head.size = (uint32_t)(sizeof(head) + head.path_size + head.to_size + record.size);
    struct iovec parts[] = {{&head, sizeof(head)},
                            {(void *)record.path, head.path_size},
                            {(void *)record.to, head.to_size},
                            {(void *)record.data, record.size}};
    int error = errno;
    if (syscall(SYS_writev, trace, parts, 4) != (long)head.size)
        abort();
    errno = error;
}

/* The path below the folder, without links. False: it is elsewhere. */
static bool resolve(int at, const char *path, char out[PATH_MAX]) {
    char parent[PATH_MAX], link[64];
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (trace < 0 || strlen(path) >= PATHS_MAX)
        return false;
    snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path + 1) : 1,
             slash ? path : ".");
    int error = errno;
    int fd = (int)syscall(SYS_openat, at, parent, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) {
        errno = error;
        return false;
    }
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, parent, sizeof(parent) - 1);
    syscall(SYS_close, fd);
    errno = error;
    if (size < (ssize_t)folder_size || strncmp(parent, folder, folder_size) != 0 ||
        (size > (ssize_t)folder_size && parent[folder_size] != '/'))
        return false;
    parent[size] = '\0';
    const char *below = parent[folder_size] ? parent + folder_size + 1 : "";
    return snprintf(out, PATH_MAX, "%s%s%s", below, *below ? "/" : "", name) < PATH_MAX;
}

/* The folder itself, whose parent is not below it. */
static bool is_folder(int at, const char *path) {
    struct stat found, wanted;
    int error = errno;
    bool is_same = trace >= 0 && syscall(SYS_newfstatat, at, path, &found, 0) == 0 &&
                   S_ISDIR(found.st_mode) && stat(folder, &wanted) == 0 &&
                   found.st_ino == wanted.st_ino && found.st_dev == wanted.st_dev;
    errno = error;
    return is_same;
}

static bool is_index(const char *path) {
    size_t size = strlen(path);
    return size > 4 && strcmp(path + size - 4, "-shm") == 0;
}

/* ---- opening ---- */

static int open_recorded(int at, const char *path, int flags, mode_t mode) {
    char below[PATH_MAX];
    /* A file without a name is gone after a crash. */
    bool is_unnamed = (flags & O_TMPFILE) == O_TMPFILE;
    bool is_below = resolve(at, path, below) && !is_index(below);
    if (is_unnamed || (!is_below && !is_folder(at, path))) {
        int other = (int)syscall(SYS_openat, at, path, flags, mode);
        if (other >= 0 && other < FDS_MAX)
            recorded[other] = false;
        return other;
    }
    struct stat before;
    pthread_mutex_lock(&lock);
    bool existed = syscall(SYS_newfstatat, at, path, &before, 0) == 0;
    int fd = (int)syscall(SYS_openat, at, path, flags, mode);
    if (fd >= 0 && fd < FDS_MAX) {
        char name[PATH_MAX], link[64];
        recorded[fd] = true;
        /* A folder may be named with "/", "." or "..". */
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, name, sizeof(name) - 1);
        if (size >= (ssize_t)folder_size && strncmp(name, folder, folder_size) == 0) {
            name[size] = '\0';
            put((struct record){.kind = existed ? TRACE_OPEN : TRACE_CREATE,
                                .inode = inode_of(fd),
                                .path = name[folder_size] ? name + folder_size + 1 : ""});
            if (existed && (flags & O_TRUNC) && S_ISREG(before.st_mode))
                put((struct record){.kind = TRACE_TRUNCATE, .inode = inode_of(fd)});
        } else {
            recorded[fd] = false;
        }
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(arguments, unsigned) : 0;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...) {                                                   \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = mode_of(flags, arguments);                                                   \
        va_end(arguments);                                                                         \
        return open_recorded(AT_FDCWD, path, flags, mode);                                         \
    }
#define OPENAT(name)                                                                               \
    int name(int at, const char *path, int flags, ...) {                                           \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = mode_of(flags, arguments);                                                   \
        va_end(arguments);                                                                         \
        return open_recorded(at, path, flags, mode);                                               \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* Programs that were built with _FORTIFY_SOURCE call these. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int at, const char *path, int flags);
int __openat64_2(int at, const char *path, int flags);

int __open_2(const char *path, int flags) {
    return open_recorded(AT_FDCWD, path, flags, 0);
}

int __open64_2(const char *path, int flags) __attribute__((alias("__open_2")));

int __openat_2(int at, const char *path, int flags) {
    return open_recorded(at, path, flags, 0);
}

int __openat64_2(int at, const char *path, int flags) __attribute__((alias("__openat_2")));

int close(int fd) {
    if (fd == trace && fd >= 0)
        return 0;
    if (fd >= 0 && fd < FDS_MAX)
        recorded[fd] = false;
    return (int)syscall(SYS_close, fd);
}

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

static FILE *open_stream(const char *name, const char *path, const char *mode) {
    char below[PATH_MAX];
    FILE *(*real)(const char *, const char *) = NULL;
    *(void **)&real = next(name);
    if (strpbrk(mode, "wa+") && resolve(AT_FDCWD, path, below)) {
        pthread_mutex_lock(&lock);
        put((struct record){.kind = TRACE_UNKNOWN, .path = below, .data = "stream", .size = 6});
        pthread_mutex_unlock(&lock);
    }
    return real(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return open_stream("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return open_stream("fopen64", path, mode);
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    if ((protection & PROT_WRITE) && (flags & MAP_SHARED) && is_recorded(fd)) {
        pthread_mutex_lock(&lock);
        put((struct record){
            .kind = TRACE_UNKNOWN, .inode = inode_of(fd), .data = "map", .size = 3});
        pthread_mutex_unlock(&lock);
    }
    long result = syscall(SYS_mmap, address, size, protection, flags, fd, offset);
    return (void *)result; /* NOLINT(performance-no-int-to-ptr): the kernel's answer */
}

void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset)
    __attribute__((alias("mmap")));

/* ---- writing ---- */

/* offset < 0: at the descriptor's own position. */
static ssize_t write_recorded(int fd, const struct iovec *parts, int count, off_t offset) {
    pthread_mutex_lock(&lock);
    ssize_t size = offset < 0 ? syscall(SYS_writev, fd, parts, count)
                              : syscall(SYS_pwritev, fd, parts, count, offset, 0);
    off_t at = offset < 0 && size > 0 ? lseek(fd, 0, SEEK_CUR) - size : offset;
    ssize_t left = size;
    for (int i = 0; i < count && left > 0; i++) {
        size_t part = parts[i].iov_len < (size_t)left ? parts[i].iov_len : (size_t)left;
        put((struct record){.kind = TRACE_WRITE,
                            .inode = inode_of(fd),
                            .offset = at,
                            .data = parts[i].iov_base,
                            .size = part});
        at += (off_t)part;
        left -= (ssize_t)part;
    }
    pthread_mutex_unlock(&lock);
    return size;
}

ssize_t write(int fd, const void *bytes, size_t size) {
    struct iovec part = {(void *)bytes, size};
    return is_recorded(fd) ? write_recorded(fd, &part, 1, -1) : syscall(SYS_write, fd, bytes, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return is_recorded(fd) ? write_recorded(fd, parts, count, -1)
                           : syscall(SYS_writev, fd, parts, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    struct iovec part = {(void *)bytes, size};
    return is_recorded(fd) ? write_recorded(fd, &part, 1, offset)
                           : syscall(SYS_pwrite64, fd, bytes, size, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
    __attribute__((alias("pwrite")));

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return is_recorded(fd) ? write_recorded(fd, parts, count, offset)
                           : syscall(SYS_pwritev, fd, parts, count, offset, 0);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
    __attribute__((alias("pwritev")));

static int put_size(int fd, int result, off_t size) {
    if (result == 0)
        put((struct record){.kind = TRACE_TRUNCATE, .inode = inode_of(fd), .offset = size});
    return result;
}

int ftruncate(int fd, off_t size) {
    if (!is_recorded(fd))
        return (int)syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&lock);
    int result = put_size(fd, (int)syscall(SYS_ftruncate, fd, size), size);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate64(int fd, off64_t size) __attribute__((alias("ftruncate")));

static int allocate(int fd, int mode, off_t offset, off_t size) {
    struct stat before;
    if (!is_recorded(fd) || mode != 0)
        return (int)syscall(SYS_fallocate, fd, mode, offset, size);
    pthread_mutex_lock(&lock);
    int result = fstat(fd, &before);
    if (result == 0)
        result = (int)syscall(SYS_fallocate, fd, mode, offset, size);
    if (result == 0 && offset + size > before.st_size)
        put_size(fd, 0, offset + size);
    pthread_mutex_unlock(&lock);
    return result;
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
    return allocate(fd, mode, offset, size);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t size) __attribute__((alias("fallocate")));

int posix_fallocate(int fd, off_t offset, off_t size) {
    int error = errno;
    int result = allocate(fd, 0, offset, size) == 0 ? 0 : errno;
    errno = error;
    return result;
}

int posix_fallocate64(int fd, off64_t offset, off64_t size)
    __attribute__((alias("posix_fallocate")));

static int sync_recorded(long number, int fd) {
    if (!is_recorded(fd))
        return (int)syscall(number, fd);
    pthread_mutex_lock(&lock);
    int result = (int)syscall(number, fd);
    if (result == 0)
        put((struct record){.kind = TRACE_SYNC, .inode = inode_of(fd)});
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) {
    return sync_recorded(SYS_fsync, fd);
}

int fdatasync(int fd) {
    return sync_recorded(SYS_fdatasync, fd);
}

/* ---- names ---- */

static int put_name(enum trace_kind kind, int result, const char *path, const char *to) {
    if (result == 0)
        put((struct record){.kind = kind, .path = path, .to = to});
    return result;
}

int renameat2(int at, const char *path, int to_at, const char *to, unsigned flags) {
    char from_below[PATH_MAX], to_below[PATH_MAX];
    if (!resolve(at, path, from_below) || !resolve(to_at, to, to_below))
        return (int)syscall(SYS_renameat2, at, path, to_at, to, flags);
    pthread_mutex_lock(&lock);
    int result = put_name(TRACE_RENAME, (int)syscall(SYS_renameat2, at, path, to_at, to, flags),
                          from_below, to_below);
    pthread_mutex_unlock(&lock);
    return result;
}

int renameat(int at, const char *path, int to_at, const char *to) {
    return renameat2(at, path, to_at, to, 0);
}

int rename(const char *path, const char *to) {
    return renameat2(AT_FDCWD, path, AT_FDCWD, to, 0);
}

int linkat(int at, const char *path, int to_at, const char *to, int flags) {
    char from_below[PATH_MAX], to_below[PATH_MAX];
    if (!resolve(at, path, from_below) || !resolve(to_at, to, to_below))
        return (int)syscall(SYS_linkat, at, path, to_at, to, flags);
    pthread_mutex_lock(&lock);
    int result = put_name(TRACE_LINK, (int)syscall(SYS_linkat, at, path, to_at, to, flags),
                          from_below, to_below);
    pthread_mutex_unlock(&lock);
    return result;
}

int link(const char *path, const char *to) {
    return linkat(AT_FDCWD, path, AT_FDCWD, to, 0);
}

int unlinkat(int at, const char *path, int flags) {
    char below[PATH_MAX];
    if (!resolve(at, path, below) || is_index(below))
        return (int)syscall(SYS_unlinkat, at, path, flags);
    pthread_mutex_lock(&lock);
    int result = put_name(TRACE_UNLINK, (int)syscall(SYS_unlinkat, at, path, flags), below, NULL);
    pthread_mutex_unlock(&lock);
    return result;
}

int unlink(const char *path) {
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdirat(int at, const char *path, mode_t mode) {
    char below[PATH_MAX];
    if (!resolve(at, path, below))
        return (int)syscall(SYS_mkdirat, at, path, mode);
    struct stat made;
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_mkdirat, at, path, mode);
    if (result == 0 && syscall(SYS_newfstatat, at, path, &made, 0) == 0)
        put((struct record){.kind = TRACE_FOLDER_MADE, .inode = made.st_ino, .path = below});
    pthread_mutex_unlock(&lock);
    return result;
}

int mkdir(const char *path, mode_t mode) {
    return mkdirat(AT_FDCWD, path, mode);
}
