#include "io/descriptors.h"

#include <sys/resource.h>

/* Each loop has a few descriptors, and each session of the store has three. */
#define DESCRIPTORS_RESERVED 1024

uint64_t descriptors_for(uint64_t connections) {
    return connections + DESCRIPTORS_RESERVED;
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
