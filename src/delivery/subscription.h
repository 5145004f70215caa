/* A subscription: one reader of one topic, held as a position. There is no queue: whoever writes
 * asks for the next frames when there is room for them.
 * Belongs to its watch's thread, which also runs no reads: those are handed to readers, one at a
 * time and one ahead. Memory: itself; a page of frames between a read and the next ask, and after
 * it only where the hub, which keeps what was read within its budget, has no room.
 * A subscription that failed says why in status, and stays so.
 * Each batch covers (after_seq, through_seq] and begins where the one before ended; what is missing
 * from it was not the principal's to read, or not asked for. A position that retention overtook is
 * told, never moved silently. */
#ifndef DELIVERY_SUBSCRIPTION_H
#define DELIVERY_SUBSCRIPTION_H

#include "auth/grant.h"
#include "base/limits.h"
#include "delivery/journal_read.h"
#include "hub/hub.h"

#define DELIVERY_FRAMES_MAX JOURNAL_READ_FRAMES_MAX

struct subscription_options {
    struct hub_watch *watch; /* opened before; outlives the subscription, as do the next three */
    struct slice topic;
    const struct policy *policy;
    const struct principal *principal;
    enum grant_view view; /* which frames it gets */
    bool has_cursor;      /* without any it begins with a bootstrap; the log at its first event */
    uint64_t after_seq;
    bool epoch_differs;    /* the cursor is of another epoch */
    bool has_event_cursor; /* instead, on the log (LOG_TOPIC) */
    struct event_cursor event_cursor;
    bool from_head; /* a bootstrap that begins with what is still to come */
    /* Which frames the reader asked for; NULL: all it may read. */
    bool (*wants)(const void *user, const struct frame_content *content);
    const void *wants_user;
};

struct subscription {
    struct subscription_options options;
    uint64_t next_seq;
    struct topic_window window; /* as last seen in the store, with the newest head known */
    struct uuid cursor;         /* a position behind the last frame passed; 0: none yet */
    struct continuity_bootstrap bootstrap;
    /* Asked for, under way, or with frames to be taken; while it is stale, what says why. */
    struct journal_read *read;
    struct journal_read *ahead; /* under way, of frames that will be asked for */
    enum status status;
    bool is_open;
    bool is_reading;
    bool is_replaying; /* and counted as such in the hub */
    bool is_stale;
    bool is_bootstrap; /* it began with one */
};

enum subscription_step {
    SUBSCRIPTION_FRAMES, /* the batch has them, or covers a range without any for this principal */
    SUBSCRIPTION_WAIT,   /* at the head: ask again when the watch has advanced */
    SUBSCRIPTION_READ,   /* have a reader run subscription->read, then subscription_read_done */
    SUBSCRIPTION_AHEAD,  /* what it needs is under way: ask again after subscription_ahead_done */
    SUBSCRIPTION_STALE,  /* tell the client why; subscription_restart bootstraps */
    SUBSCRIPTION_FAILED, /* see status */
};

struct delivery_batch {
    size_t count_max; /* asked: at most DELIVERY_FRAMES_MAX */
    size_t bytes_max; /* of payloads; one frame is given whatever its size */
    uint64_t after_seq;
    uint64_t through_seq;
    struct uuid through_cursor; /* the position there: names no event that is not the principal's */
    size_t count;
    struct frame *frames[DELIVERY_FRAMES_MAX];
};

void subscription_init(struct subscription *subscription,
                       const struct subscription_options *options);
/* Not while a read is under way, nor one ahead. */
void subscription_release(struct subscription *subscription);
MUST_CHECK enum subscription_step subscription_next(struct subscription *subscription,
                                                    struct delivery_batch *batch);
/* The read was run. */
void subscription_read_done(struct subscription *subscription);
/* The read could not be run. */
void subscription_read_failed(struct subscription *subscription, enum status status);
/* After frames: true when those behind what is in memory are to be read meanwhile. Have a reader
 * run subscription->ahead, then subscription_ahead_done, also when it could not be run. */
MUST_CHECK bool subscription_ask_ahead(struct subscription *subscription,
                                       const struct delivery_batch *batch);
void subscription_ahead_done(struct subscription *subscription);
/* It will not be asked for a while: holds no frames until it is. */
void subscription_rest(struct subscription *subscription);
/* Asks for a read that only looks where it would begin, so that a subscription can be refused
 * before it began: STATUS_OUT_OF_MEMORY, and then subscription_read_failed is due all the same. */
MUST_CHECK enum status subscription_ask_place(struct subscription *subscription);
/* Whether the next frame it would take from memory is the one behind after_seq. */
bool subscription_stands_at(const struct subscription *subscription, uint64_t after_seq);
/* It was sent that batch, which somebody else took. */
void subscription_pass(struct subscription *subscription, const struct delivery_batch *batch,
                       uint64_t head_seq);
/* It has everything up to after_seq from elsewhere, and goes on behind it. */
void subscription_place(struct subscription *subscription, uint64_t after_seq);
/* Why it is stale. */
const struct continuity *subscription_continuity(const struct subscription *subscription);
/* After SUBSCRIPTION_STALE: begins anew with a bootstrap. */
void subscription_restart(struct subscription *subscription);

void delivery_batch_release(struct delivery_batch *batch);

#endif
