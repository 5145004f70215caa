/* What the kernel says of this process.
 * process_stats_look belongs to a thread that nobody waits for, the rest to any. Allocates nothing.
 * Cannot fail: what the kernel does not tell is 0.
 * Reading is cheap enough for an io loop, however many descriptors are open. */
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
/* Once a second: counts descriptors now and then where the kernel does not, which takes a
 * microsecond for each. */
void process_stats_look(void);

#endif
