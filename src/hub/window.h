/* A window: the newest frames of a topic, a ring without gaps in its seqs.
 * Owned by whoever holds the lock of its topic. Memory: a ring that doubles up to frames_max, and
 * a reference to each frame; at least the newest frame stays, whatever its size.
 * A push that finds no memory leaves the window empty: readers then ask the store.
 * It holds exactly the seqs first_seq … first_seq + count - 1. */
#ifndef HUB_WINDOW_H
#define HUB_WINDOW_H

#include "hub/frame.h"

struct window_limits {
    size_t frames_max;
    size_t bytes_max;
};

struct window {
    struct frame **ring;
    size_t capacity; /* a power of two, or 0 */
    size_t begin;    /* of the first frame in the ring */
    size_t count;
    uint64_t first_seq;
    size_t bytes;
};

void window_release(struct window *window);
/* Forgets all frames and the ring. */
void window_clear(struct window *window);
/* Takes over the reference. A frame that does not follow the last begins the window anew. */
void window_push(struct window *window, struct frame *frame, const struct window_limits *limits);
/* Lets go of the frames below a seq. */
void window_drop_below(struct window *window, uint64_t seq);
/* The frame with that seq, or NULL. */
struct frame *window_at(const struct window *window, uint64_t seq);

#endif
