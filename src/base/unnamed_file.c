#include "base/unnamed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define NAME_BYTES_MAX 64

/* The file never has a name if the file system supports that. Otherwise its name is removed at
 * once; the number keeps two threads from opening the same file. */
int unnamed_file_open(const char *folder, const char *name) {
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
