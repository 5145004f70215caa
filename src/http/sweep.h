/* The sweep: ends the requests and sessions of revoked principals, on every loop.
 * sweep_post may be called from any thread. Each loop sweeps its own connections. done runs on one
 * of the loops' threads, or on the caller's thread. Memory: the caller keeps the struct until done.
 * A loop that has ended has nothing to sweep. Errors: none. A session's dialect reports the reason
 * to a peer that still reads. The caller adds the revocation to memory first. Later requests are
 * then refused at admission, and earlier ones are an exchange or a session that the sweep finds. So
 * after done the server delivers nothing to a revoked principal. */
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
