/* A read of a topic from the store: checks a position, and reads a page of frames from there.
 * Thread: made and used on a loop, run on threads of the store pool in between, in one slice or
 * several.
 * Memory: the frames belong to the read until they are taken; the names belong to its maker.
 * Errors: the store's; STATUS_INTERNAL_ERROR for a journal with a gap; STATUS_STREAM_ID_CONFLICT
 * for a topic that cannot exist, because another has its stream id.
 * Invariant: the frames cover everything from next_seq to through_seq. Unless is_sparse they have
 * no gap; with it, frames are missing that the principal may not read. A floor that rose above
 * next_seq during the read makes it stale, even if rows could still be read. A bootstrap is never
 * stale.
 *
 * With GRANT_VIEW_PENDING, a run or worker of another owner does not exist for the read, and view
 * becomes GRANT_VIEW_NONE. The log (LOG_TOPIC) is stale only for a cursor of another history: it is
 * never pruned and has no budget. */
#ifndef DELIVERY_JOURNAL_READ_H
#define DELIVERY_JOURNAL_READ_H

#include "auth/grant.h"
#include "base/limits.h"
#include "delivery/access.h"
#include "delivery/replay_budget.h"
#include "hub/hub.h"
#include "topic/continuity.h"
#include "topic/policy.h"
#include "topic/position.h"
#include "topic/topic_name.h"

enum journal_read_mode {
    /* A cursor comes in: judged by lineage, floor and budget. A stale cursor before the first frame
     * becomes a bootstrap, and the mode with it. */
    JOURNAL_READ_RESUME,
    JOURNAL_READ_BOOTSTRAP, /* no cursor: begin where the topic allows */
    JOURNAL_READ_CONTINUE,  /* a reader continues: judged by the floor alone */
    /* The log by event_cursor: begins behind the last event at or before it. A cursor later than
     * the last event, or of an event that the log has lost, is stale. */
    JOURNAL_READ_RESUME_CURSOR,
    /* A time: begins with the first frame of since_ms or later. On a topic it is judged like a
     * cursor, but a stale one never becomes a bootstrap. On the log it is never stale. */
    JOURNAL_READ_RESUME_TIME,
};

/* The rows of a topic as one of several reads found them. The reads run one after the other on one
 * thread, and all of them arrived before the first began. So the others need not read the rows
 * again, and each is still judged by what the store had after it arrived. */
struct journal_rows {
    struct arena arena;
    struct slice topic; /* as asked; data NULL: none yet */
    struct topic_address address;
    struct store_state state;
};

/* What is read, and for which reader. */
struct journal_request {
    struct slice topic;                  /* or a stream id of the kind ADDRESS_STORED_STREAM */
    struct slice projection_version;     /* as in struct frame_topic */
    const struct policy *policy;         /* of the topic, as its name is known before the read */
    const struct policy_table *policies; /* NULL: that policy holds for a topic that is found too */
    enum journal_read_mode mode;
    enum grant_view view; /* GRANT_VIEW_PENDING: the read finds the owner, and answers it */
    uint64_t after_seq;
    uint64_t below_seq;             /* frames from here on are in memory, and not read */
    uint64_t edition;               /* the hub's edition of the topic, before the read */
    size_t frames_max;              /* 0: reads the position only */
    struct topic_epoch given_epoch; /* the cursor's or the reader's; empty: not given */
    struct event_cursor event_cursor;
    uint64_t since_ms;
    bool is_unfounded; /* the topic did not exist when the cursor came in */
    bool replay_all;   /* without floor and budget; STATUS_REPLAY_ALL_UNAVAILABLE for a journal */
    bool may_skip;     /* frames of others whose owners are known */
    bool folds;        /* folded frames that the hub has by then are as good */
    const struct principal *principal; /* a reference; NULL: all frames count for the budget */
    struct writer *writer;       /* raises the floor of a damaged journal; NULL: an error instead */
    struct owner_map *owner_map; /* learns the owners of a shared topic's frames; NULL: none does */
    /* JOURNAL_READ_CONTINUE: frames that the hub has by then are not read, and those that were read
     * are added to it. NULL: neither. */
    struct hub_watch *watch;
    replay_place *place; /* the reader's in the hub; NULL: it does not join one */
};

enum journal_read_state {
    JOURNAL_NEW,     /* not run yet */
    JOURNAL_RUNNING, /* on a thread of the store pool */
    JOURNAL_PLACING, /* the slice is over and the position is not known: another must follow */
    JOURNAL_DAMAGED, /* the row of damaged_seq is missing or cannot be read; it is repaired next */
    JOURNAL_STALE,   /* the position cannot continue: see continuity */
    JOURNAL_DONE,    /* the position is known, and the frames are here */
    JOURNAL_IN_MEMORY, /* nothing was read: the hub has the frames by now */
    JOURNAL_FAILED,    /* see status */
    JOURNAL_STATE_COUNT,
};

struct journal_read {
    struct journal_request asked;
    struct journal_rows *rows; /* shared by reads of the position only; NULL: not shared */
    enum journal_read_state state;
    enum status status;              /* with JOURNAL_FAILED: why; else STATUS_OK */
    enum journal_read_mode mode;     /* as asked, or the bootstrap that it became */
    enum grant_view view;            /* as asked, or what the owner allows */
    struct replay_progress progress; /* for a position that is found in several slices */
    /* The topic. For JOURNAL_READ_CONTINUE the epoch is known only if it was unfounded or is stale.
     */
    bool exists;
    bool has_fork; /* the log has had several epochs; known with the epoch */
    char found_text[TOPIC_NAME_BYTES_MAX];
    struct slice found; /* the topic of a stream id, if it exists */
    struct topic_epoch epoch;
    struct topic_window window; /* all 0 if the topic does not exist */
    struct uuid head_cursor;    /* the last event of the log; zero: none, or another topic */
    /* The position. */
    struct continuity continuity;
    struct continuity_bootstrap bootstrap; /* in that mode */
    uint64_t next_seq;
    uint64_t through_seq;
    uint64_t damaged_seq;
    /* The page. */
    struct frame **frames; /* room for frames_max; NULL: none was read */
    size_t count;
    size_t taken; /* number of frames that were taken */
    bool is_sparse;
    bool is_kept; /* the hub has the frames too */
};

void journal_rows_init(struct journal_rows *rows);
void journal_rows_release(struct journal_rows *rows);
/* Runs one slice of the read. True: another slice must follow, before anything is answered. */
bool journal_read_run(struct journal_read *read, struct store_session *session);
/* Releases the principal and the frames that were not taken. */
void journal_read_release(struct journal_read *read);

#endif
