/* Statistics of this process from the kernel.
 * Thread: process_stats_refresh belongs to the main thread, which may block; process_stats_read to
 * any.
 * Errors: an unknown value is 0.
 * Invariant: process_stats_read is cheap enough for an io loop, however many descriptors are
 * open. */
#ifndef API_PROCESS_STATS_H
#define API_PROCESS_STATS_H

#include <stdint.h>

struct process_stats {
    uint64_t resident_bytes;
    uint64_t cpu_ns; /* user and system */
    uint64_t open_fds;
    uint64_t max_fds;
    uint64_t threads;
};

struct process_stats process_stats_read(void);
/* Called once a second. Kernels before 6.2 do not report the number of open descriptors. There it
 * counts them every ten seconds, which takes a microsecond for each. */
void process_stats_refresh(void);

#endif
