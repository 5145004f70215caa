/* The bare loop: a baseline that only writes to as many loopback sockets as the server has
 * subscribers.
 * One thread. The sockets block, so a loop that is too fast waits without using CPU.
 * Memory: an array of descriptors. A failed write ends the benchmark.
 * Every frame is written completely. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include "receivers.h"

struct bare {
    int *fds;
    unsigned count;
    struct receivers receivers;
};

/* Connects receivers with these options, except for port and dialect. */
void bare_open(struct bare *bare, const struct receiver_options *options);
/* Writes the same bytes to every socket, with one write each. */
void bare_write(const struct bare *bare, struct slice bytes);
void bare_close(struct bare *bare);
/* CPU time of the calling thread. */
double bare_cpu_seconds(void);

#endif
