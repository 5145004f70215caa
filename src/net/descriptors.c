#include "net/descriptors.h"

#include <dirent.h>
#include <sys/resource.h>

/* Each loop has a few descriptors, and each session of the store has three. */
#define DESCRIPTORS_RESERVED 1024
#define FILES_RESERVE_MIN    32
#define FILES_RESERVE_MAX    512

uint64_t descriptors_for(uint64_t connections) {
    return connections + DESCRIPTORS_RESERVED;
}

/* A count that cannot be read is taken to be this. */
#define OPEN_GUESS 128

static uint64_t open_count(void) {
    DIR *folder = opendir("/proc/self/fd");
    uint64_t count = 0;
    if (!folder)
        return OPEN_GUESS;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* Snapshots, imports, sinks and the service manager need descriptors while the server runs. */
static uint64_t files_reserve(uint64_t limit) {
    uint64_t reserve = limit / 8;
    if (reserve < FILES_RESERVE_MIN)
        return FILES_RESERVE_MIN;
    return reserve < FILES_RESERVE_MAX ? reserve : FILES_RESERVE_MAX;
}

uint64_t descriptors_left(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT32_MAX;
    uint64_t used = open_count() + files_reserve(limit.rlim_cur);
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t descriptors_for_answers(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return FILES_RESERVE_MAX / 4;
    return files_reserve(limit.rlim_cur) / 4;
}

uint64_t descriptors_raise(uint64_t wanted) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    if (limit.rlim_cur >= wanted)
        return limit.rlim_cur;
    struct rlimit raised = {.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted,
                            .rlim_max = limit.rlim_max};
    return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}
