/* The sweep: ends the requests and sessions of revoked principals, on every loop.
 * sweep_post may be called from any thread. Each loop sweeps its own connections. done runs on one
 * of the loops' threads, or on the caller's thread. Memory: the caller keeps the struct until done.
 * A loop that has ended has nothing to sweep. Errors: none. A session's dialect reports the reason
 * to a peer that still reads. The caller adds the revocation to memory first, or drops the operator
 * key. Later requests are then refused at admission, and earlier ones are an exchange or a session
 * that the sweep finds. So after done the server delivers nothing to a revoked principal. */
#ifndef HTTP_SWEEP_H
#define HTTP_SWEEP_H

#include "http/conn_walk.h"

struct sweep {
    struct conn_walk walk;
    void (*done)(struct sweep *sweep);
    uint64_t now_ms;             /* of the post */
    atomic_size_t session_count; /* out: sessions ended */
    atomic_size_t request_count; /* out: requests under way ended */
};

/* done is set. */
void sweep_post(struct sweep *sweep, struct http *http);

#endif
