#include "server/process_stats.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t entries_of(const char *folder) {
    uint64_t count = 0;
    DIR *entries = opendir(folder);
    if (!entries)
        return 0;
    while (readdir(entries))
        count++;
    closedir(entries);
    /* Without itself, its parent and the folder just opened. */
    return count > 3 ? count - 3 : 0;
}

/* Linux tells the number of descriptors as the folder's size since 6.2; before, they are counted.
 */
static uint64_t count_fds(void) {
    struct stat folder;
    if (stat("/proc/self/fd", &folder) == 0 && folder.st_size > 0)
        return (uint64_t)folder.st_size;
    return entries_of("/proc/self/fd");
}

static uint64_t resident_bytes(void) {
    unsigned long long size = 0;
    unsigned long long resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t count_threads(void) {
    struct stat folder;
    /* Each is a link of the folder, beside itself and its parent's name for it. */
    if (stat("/proc/self/task", &folder) != 0 || folder.st_nlink < 2)
        return 0;
    return folder.st_nlink - 2;
}

static uint64_t nanoseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

struct process_stats process_stats_read(void) {
    struct rusage usage = {0};
    struct rlimit limit = {0};
    (void)getrusage(RUSAGE_SELF, &usage);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return (struct process_stats){
        .resident_bytes = resident_bytes(),
        .cpu_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime),
        .open_fds = count_fds(),
        .max_fds = limit.rlim_cur,
        .threads = count_threads(),
    };
}
