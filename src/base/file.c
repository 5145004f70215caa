#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES_MAX 64

/* The file never has a name if the file system supports that. Otherwise its name is removed at
 * once; the number keeps two threads from opening the same file. */
int file_open_unnamed(const char *folder, const char *name) {
    static atomic_uint number;
    char numbered[NAME_BYTES_MAX];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0)
        return -1;
    snprintf(numbered, sizeof(numbered), "%s.%u.tmp", name, atomic_fetch_add(&number, 1));
    fd = openat(folder_fd, numbered, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)unlinkat(folder_fd, numbered, 0);
    int error = errno;
    close(folder_fd);
    errno = error;
    return fd;
}

bool file_inherit_owner(const char *folder, int fd) {
    struct stat owner;
    return geteuid() != 0 ||
           (stat(folder, &owner) == 0 && fchown(fd, owner.st_uid, owner.st_gid) == 0);
}

static bool write_whole(int fd, struct slice text) {
    while (text.size > 0) {
        ssize_t size = write(fd, text.data, text.size);
        if (size < 0 && errno != EINTR)
            return false;
        if (size > 0)
            text = slice_from(text, (size_t)size);
    }
    return fsync(fd) == 0;
}

bool file_sync_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_synced = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return is_synced;
}

enum status file_replace(const char *path, struct slice text) {
    char fresh[PATH_MAX];
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int size = snprintf(fresh, sizeof(fresh), "%s.new", path);
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path + 1) : 1,
             slash ? path : ".");
    if (size < 0 || (size_t)size >= sizeof(fresh)) {
        errno = ENAMETOOLONG;
        return STATUS_SYSTEM_ERROR;
    }
    unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return STATUS_SYSTEM_ERROR;
    bool is_written = file_inherit_owner(folder, fd) && write_whole(fd, text);
    int error = errno;
    close(fd);
    if (is_written && rename(fresh, path) == 0)
        return file_sync_folder(folder) ? STATUS_OK : STATUS_SYSTEM_ERROR;
    if (is_written)
        error = errno;
    unlink(fresh);
    errno = error;
    return STATUS_SYSTEM_ERROR;
}
