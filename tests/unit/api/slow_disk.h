/* Holds up and fails the reads and writes of files, for tests of what goes on meanwhile. The test
 * is linked with --wrap of both. Operations pass while the disk is not held. */
#ifndef SLOW_DISK_H
#define SLOW_DISK_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include <uv.h>

#include "test.h"

struct slow_disk {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held;
    int error; /* of every operation; 0: none */
    size_t arrived_count;
    pthread_t arrived; /* the thread of the last operation */
};

static struct slow_disk slow_disk = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                     .changed = PTHREAD_COND_INITIALIZER};

/* Holds operations up from now on, or lets all pass, or fail with the error. */
static inline void disk_set(bool is_held, int error) {
    pthread_mutex_lock(&slow_disk.lock);
    slow_disk.is_held = is_held;
    slow_disk.error = error;
    pthread_cond_broadcast(&slow_disk.changed);
    pthread_mutex_unlock(&slow_disk.lock);
}

/* Waits until so many operations have arrived since the start. Returns the thread of the last. */
static inline pthread_t disk_wait(size_t arrived_count) {
    pthread_mutex_lock(&slow_disk.lock);
    while (slow_disk.arrived_count < arrived_count)
        pthread_cond_wait(&slow_disk.changed, &slow_disk.lock);
    pthread_t arrived = slow_disk.arrived;
    pthread_mutex_unlock(&slow_disk.lock);
    return arrived;
}

static inline size_t disk_count(void) {
    pthread_mutex_lock(&slow_disk.lock);
    size_t count = slow_disk.arrived_count;
    pthread_mutex_unlock(&slow_disk.lock);
    return count;
}

static inline bool disk_passes(void) {
    pthread_mutex_lock(&slow_disk.lock);
    slow_disk.arrived_count++;
    slow_disk.arrived = pthread_self();
    pthread_cond_broadcast(&slow_disk.changed);
    while (slow_disk.is_held)
        pthread_cond_wait(&slow_disk.changed, &slow_disk.lock);
    int error = slow_disk.error;
    pthread_mutex_unlock(&slow_disk.lock);
    errno = error;
    return error == 0;
}

/* The linker makes these names. The C library calls a function with or without 64, and both are the
 * same. NOLINTBEGIN(bugprone-reserved-identifier) */
ssize_t __real_pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset);
ssize_t __real_pread(int fd, void *data, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t size, off_t offset);
ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t offset);

ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset) {
    return disk_passes() ? __real_pwrite(fd, data, size, offset) : -1;
}

ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset) {
    return __wrap_pwrite(fd, data, size, offset);
}

ssize_t __wrap_pread(int fd, void *data, size_t size, off_t offset) {
    return disk_passes() ? __real_pread(fd, data, size, offset) : -1;
}

ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t offset) {
    return __wrap_pread(fd, data, size, offset);
}
/* NOLINTEND(bugprone-reserved-identifier) */

#endif
