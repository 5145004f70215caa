/* Walks over the connections of all loops, each on its own loop. The sweep is such a walk: it ends
 * the requests and sessions of revoked principals. A session's dialect reports the reason to a
 * peer that still reads.
 * Thread: conn_walk_post and sweep_post may be called from any thread. done runs on one of the
 * loops' threads, or on the caller's thread.
 * Memory: the caller keeps the struct until done. A loop that has ended has no connections.
 * Invariant: every connection that is open from the post until done is visited once. If the caller
 * adds the revocation to memory, or drops the operator key, before the sweep, later requests are
 * refused at admission, and earlier ones are an exchange or a session that the sweep finds. So
 * after done the server delivers nothing to a revoked principal. */
#ifndef HTTP_CONN_WALK_H
#define HTTP_CONN_WALK_H

#include <stdatomic.h>

#include "http/http.h"

struct conn;
struct conn_walk;

struct conn_walk_part {
    struct loop_task task;
    struct conn_walk *walk;
    struct io_loop *loop;
};

struct conn_walk {
    struct http *http;
    /* In the order of the connections' numbers. May close the connection. False ends the walk of
     * this loop. */
    bool (*visit)(struct conn_walk *walk, struct conn *conn);
    void (*done)(struct conn_walk *walk);
    atomic_size_t loops_left;
    struct conn_walk_part parts[HTTP_LOOPS_MAX];
};

/* http, visit and done are set. */
void conn_walk_post(struct conn_walk *walk);

struct sweep {
    struct conn_walk walk;
    void (*done)(struct sweep *sweep);
    uint64_t now_ms;             /* when it was posted */
    atomic_size_t session_count; /* out: sessions ended */
    atomic_size_t request_count; /* out: requests under way ended */
};

/* done is set. */
void sweep_post(struct sweep *sweep, struct http *http);

#endif
