/* The sweep: what is under way for principals that were revoked ends, on every loop.
 * sweep_post from any thread; each loop sweeps its own connections; done runs on any of their
 * threads, or the poster's.
 * The memory is the poster's until done. A loop that has ended has nothing to sweep.
 * Cannot fail; a session's dialect says why where its peer still takes anything.
 * The revocation must be in memory before: who is admitted later is refused, and whoever was
 * admitted before is a connection's exchange or session by the time its loop sweeps. So nothing is
 * left between the two, and after done nothing is delivered to them. */
#ifndef HTTP_SWEEP_H
#define HTTP_SWEEP_H

#include <stdatomic.h>

#include "http/http.h"

struct sweep;

struct sweep_part {
    struct loop_task task;
    struct sweep *sweep;
    struct io_loop *loop;
};

struct sweep {
    struct http *http;
    void (*done)(struct sweep *sweep);
    atomic_size_t loops_left;
    atomic_size_t session_count; /* out: sessions ended */
    atomic_size_t request_count; /* out: requests under way ended */
    struct sweep_part parts[HTTP_LOOPS_MAX];
};

/* http and done are set. */
void sweep_post(struct sweep *sweep);

#endif
