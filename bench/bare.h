/* The bare other side: as many loopback sockets as the server has subscribers, written by a loop
 * that does nothing else.
 * One thread; the sockets block, so that a loop which is too fast waits and uses no CPU meanwhile.
 * Memory: an array of descriptors. A failed write ends the benchmark.
 * Every frame is written whole. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include "receivers.h"

struct bare {
    int *fds;
    unsigned count;
    struct receivers receivers;
};

/* Connects receivers, as options say but for their port and dialect. */
void bare_open(struct bare *bare, const struct receiver_options *options);
/* The same bytes to every socket, one write each. */
void bare_write(const struct bare *bare, struct slice bytes);
void bare_close(struct bare *bare);
/* Of this thread. */
double bare_cpu_seconds(void);

#endif
