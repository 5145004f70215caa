#include "api/process_stats.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FD_FOLDER           "/proc/self/fd"
#define REFRESHES_PER_COUNT 10

static atomic_uint_fast64_t fds_counted;

static uint64_t entries_of(const char *folder) {
    uint64_t count = 0;
    DIR *entries = opendir(folder);
    if (!entries)
        return 0;
    while (readdir(entries))
        count++;
    closedir(entries);
    /* Does not count ".", ".." and the descriptor of the folder itself. */
    return count > 3 ? count - 3 : 0;
}

/* Since Linux 6.2 the size of the folder is the number of descriptors. Before that it is 0. */
static uint64_t fds_by_kernel(void) {
    struct stat folder;
    return stat(FD_FOLDER, &folder) == 0 && folder.st_size > 0 ? (uint64_t)folder.st_size : 0;
}

void process_stats_refresh(void) {
    static unsigned refreshes;
    if (refreshes++ % REFRESHES_PER_COUNT == 0 && fds_by_kernel() == 0)
        atomic_store(&fds_counted, entries_of(FD_FOLDER));
}

/* The second number of statm, in pages. */
static uint64_t resident_bytes(void) {
    char line[256] = "";
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    const char *second = fgets(line, sizeof(line), file) ? strchr(line, ' ') : NULL;
    fclose(file);
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static uint64_t nanoseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

struct process_stats process_stats_read(void) {
    struct rusage usage = {0};
    struct rlimit limit = {0};
    struct stat threads;
    uint64_t fds = fds_by_kernel();
    (void)getrusage(RUSAGE_SELF, &usage);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    /* Each thread is a link of the folder, which has two further links. */
    bool has_threads = stat("/proc/self/task", &threads) == 0 && threads.st_nlink >= 2;
    return (struct process_stats){
        .resident_bytes = resident_bytes(),
        .cpu_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime),
        .open_fds = fds > 0 ? fds : atomic_load(&fds_counted),
        .max_fds = limit.rlim_cur,
        .threads = has_threads ? threads.st_nlink - 2 : 0,
    };
}
