/* Another machine around one process, by LD_PRELOAD: a disk with MOVED_FREE_MB left, one that is
 * read-only (MOVED_READ_ONLY), a clock that shows MOVED_CLOCK_S. What is not set is as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>

int statvfs(const char *path, struct statvfs *disk) {
    int (*real)(const char *, struct statvfs *) =
        (int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs");
    const char *free_mb = getenv("MOVED_FREE_MB");
    int failed = real(path, disk);
    if (failed == 0 && free_mb)
        disk->f_bavail = (fsblkcnt_t)(strtoull(free_mb, NULL, 10) * 1048576 / disk->f_frsize);
    if (failed == 0 && getenv("MOVED_READ_ONLY"))
        disk->f_flag |= ST_RDONLY;
    return failed;
}

/* The name if files have 64-bit offsets. Both structures are the same on 64-bit machines. */
int statvfs64(const char *path, struct statvfs64 *disk) {
    return statvfs(path, (struct statvfs *)disk);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *shown_s = getenv("MOVED_CLOCK_S");
    int failed = real(clock, now);
    if (failed == 0 && shown_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec = (time_t)strtoll(shown_s, NULL, 10);
    return failed;
}
