/* A read of a topic from the store: where a position stands, and a page of frames from there on.
 * Made on one thread, run once on a reader's, looked at on the first again. Frames are the
 * reader's until they are taken; the names asked for are the maker's.
 * status: the store's errors; STATUS_INTERNAL_ERROR for a journal with a hole in it.
 * The frames begin at next_seq and have no gap; a floor that rose above next_seq meanwhile is
 * said (is_stale), whether or not rows could still be read. A bootstrap is never stale; nor is the
 * log (LOG_TOPIC), which is never pruned and has no budget, but for a cursor of another epoch. */
#ifndef DELIVERY_JOURNAL_READ_H
#define DELIVERY_JOURNAL_READ_H

#include "base/limits.h"
#include "hub/hub.h"
#include "topic/continuity.h"
#include "topic/policy.h"

enum journal_read_mode {
    JOURNAL_READ_RESUME,    /* a cursor comes in: judged by floor and budget */
    JOURNAL_READ_BOOTSTRAP, /* no cursor: begin where the topic allows */
    JOURNAL_READ_CONTINUE,  /* a reader goes on: judged by the floor alone */
    /* The log by event_cursor: begins behind the last event at or before it. A cursor of the future
     * begins behind the head. */
    JOURNAL_READ_RESUME_CURSOR,
};

struct journal_read {
    /* Asked. */
    struct slice topic;
    const struct policy *policy;
    enum journal_read_mode mode;
    uint64_t after_seq;
    uint64_t below_seq; /* frames from here on are in memory, and not read */
    size_t frames_max;  /* 0: only where the position stands */
    bool epoch_differs; /* the cursor is of another epoch */
    struct event_cursor event_cursor;
    struct hub_watch *watch; /* JOURNAL_READ_CONTINUE: not read when the hub has it by then */
    /* Answered. */
    enum status status;
    bool is_in_memory; /* nothing was read */
    bool exists;
    struct topic_window window; /* all 0 when the topic does not exist */
    bool is_stale;
    struct continuity continuity;          /* why */
    struct continuity_bootstrap bootstrap; /* of that mode */
    uint64_t next_seq;
    struct frame *frames[JOURNAL_READ_FRAMES_MAX];
    size_t count;
    size_t taken; /* of the frames, by the looker */
    bool is_kept; /* the hub has the frames too */
};

void journal_read_run(struct journal_read *read, struct store_session *session);
/* Lets go of the frames not taken. */
void journal_read_release(struct journal_read *read);

#endif
