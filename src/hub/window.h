/* The windows of a topic: its newest frames, a ring without gaps in its seqs, and frames that were
 * read again from the store, at a few places of the topic. Subscribers that replay about the same
 * seqs share a place.
 * Thread: any, under the lock of the topic.
 * Memory: a ring that doubles up to frames_max, and a reference to each frame. The newest frame
 * stays at any size. Places are made with the first page and freed with the last subscriber;
 * together they stay within bytes_max, and each has an equal share.
 * Errors: none; a push without memory leaves the window empty, and frames are then read from the
 * store. A page without a place or without memory is not kept, and its reader has it alone.
 * Invariant: a window holds exactly the seqs first_seq … first_seq + count - 1. */
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
    size_t begin;    /* the index of the first frame in the ring */
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

/* ---- replays ---- */

/* A place: 1 to HUB_REPLAY_PLACES_MAX; 0: none. */
typedef uint8_t replay_place;

struct replay;

/* Frames that were read from the store. */
struct replay_page {
    struct frame **frames; /* consecutive */
    size_t count;          /* at least 1 */
};

size_t replay_bytes(const struct replay *replay);
/* The place whose window has that seq, or 0. */
replay_place replay_find(const struct replay *replay, uint64_t seq);
const struct window *replay_window(const struct replay *replay, replay_place place);
/* The subscriber took frames there: it leaves the place that it was at. */
void replay_join(struct replay **replay, replay_place *at, replay_place place);
/* The subscriber replays no more. */
void replay_leave(struct replay **replay, replay_place *at);
/* Adds the page behind the frames of a place, or at a place of its own, and the subscriber joins
 * it. may_open: a new place may begin. False: the page is not kept. */
MUST_CHECK bool replay_add(struct replay **replay, const struct replay_page *page, replay_place *at,
                           bool may_open, size_t bytes_max);
/* As hub_read_ahead_begin; the caller checks the head. */
MUST_CHECK bool replay_read_ahead(struct replay *replay, uint64_t next_seq, size_t near_count,
                                  uint64_t *after_seq);
void replay_read_ahead_end(struct replay *replay, uint64_t after_seq);
void replay_drop_below(struct replay *replay, uint64_t seq);
/* Releases the frames. The subscribers stay where they are. */
void replay_forget(struct replay *replay);

#endif
