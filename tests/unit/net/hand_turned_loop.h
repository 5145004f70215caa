/* An io loop without listeners and connections. The test turns it by hand. */
#ifndef HAND_TURNED_LOOP_H
#define HAND_TURNED_LOOP_H

#include "net/loop.h"
#include "test.h"

static inline void hand_turned_event(struct io_loop *io) {
    (void)io;
}

static inline bool hand_turned_is_busy(struct io_loop *io) {
    (void)io;
    return false;
}

static inline void hand_turned_loop_open(struct io_loop *io) {
    static const struct io_loop_hooks hooks = {.drain = hand_turned_event,
                                               .close_all = hand_turned_event,
                                               .before_sleep = hand_turned_is_busy,
                                               .ended = hand_turned_event};
    static struct io_backoff backoff;
    memset(io, 0, sizeof(*io));
    assert_ok(io_loop_open(
        io, &(struct io_loop_options){.hooks = &hooks, .backoff = &backoff, .fds = {-1, -1}}));
}

/* Runs what was posted until now; later posts fail. The caller then closes the loop. */
static inline void hand_turned_loop_end(struct io_loop *io) {
    io_loop_end_post(io);
    io_loop_run(io);
}

#endif
