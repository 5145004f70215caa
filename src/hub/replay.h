/* The replay windows of a topic: frames read again from the store, at a few places of the topic.
 * Subscribers that replay about the same seqs share a place.
 * Guarded by the lock of its topic.
 * Memory: made with the first page, freed with the last subscriber. The places together stay within
 * bytes_max; each has an equal share.
 * Errors: a page without a place or without memory is not kept, and its reader has it alone.
 * A place ends, and its frames are freed, when the last subscriber leaves it. */
#ifndef HUB_REPLAY_H
#define HUB_REPLAY_H

#include "hub/window.h"

/* A place: 1 to HUB_REPLAY_PLACES_MAX; 0: none. */
typedef uint8_t replay_place;

struct replay;

/* Frames that were read from the store. */
struct replay_page {
    struct frame *const *frames; /* consecutive */
    size_t count;                /* at least 1 */
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
