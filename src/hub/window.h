/* A window: the newest frames of a topic, a ring without gaps in its seqs.
 * Guarded by the lock of its topic.
 * Memory: a ring that doubles up to frames_max, and a reference to each frame. The newest frame
 * stays at any size. A push without memory leaves the window empty; frames are then read from the
 * store. It holds exactly the seqs first_seq … first_seq + count - 1. */
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

/* Releases all frames and the ring. The window can be used again. */
void window_clear(struct window *window);
/* Takes over the reference. A frame that does not follow the last one empties the window first. */
void window_push(struct window *window, struct frame *frame, const struct window_limits *limits);
/* Takes over the reference of the frame before the first one, or of the first one of an empty
 * window. False, and the reference stays with the caller, if the window has no room for it. */
bool window_push_front(struct window *window, struct frame *frame,
                       const struct window_limits *limits);
/* Releases the oldest frames, until the rest and the ring fit. The newest frame stays. */
void window_trim(struct window *window, size_t bytes_max);
/* Releases the frames below a seq. */
void window_drop_below(struct window *window, uint64_t seq);
/* The frame with that seq, or NULL. */
struct frame *window_at(const struct window *window, uint64_t seq);

#endif
