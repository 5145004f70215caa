/* A walk over the connections of all loops, each on its own loop.
 * conn_walk_post may be called from any thread. done runs on one of the loops' threads, or on the
 * caller's thread. Memory: the caller keeps the struct until done. A loop that has ended has no
 * connections. Errors: none.
 * Every connection that is open from the post until done is visited once. */
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

#endif
