/* A read of a topic from the store: checks a position, and reads a page of frames from there.
 * Made and used on a loop, run on threads of the store pool in between, in one slice or several.
 * Memory: the frames belong to the read until they are taken; the names belong to its maker.
 * status: the store's errors; STATUS_INTERNAL_ERROR for a journal with a gap;
 * STATUS_STREAM_ID_CONFLICT for a topic that cannot exist, because another has its stream id.
 * The frames cover everything from next_seq to through_seq. Without is_sparse they have no gap;
 * with it, frames are missing that the principal may not read. A floor that rose above next_seq
 * during the read is reported (is_stale), even if rows could still be read. A bootstrap is never
 * stale. With GRANT_VIEW_PENDING, a run or worker of another owner does not exist for the read, and
 * view becomes GRANT_VIEW_NONE. The log (LOG_TOPIC) is stale only for a cursor of another history:
 * it is never pruned and has no budget.
 */
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
    JOURNAL_READ_CONTINUE,  /* a reader goes on: judged by the floor alone */
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
    struct slice topic; /* that was asked for; data NULL: none yet */
    struct topic_address address;
    struct store_state state;
};

struct journal_read {
    /* Asked. */
    struct slice topic;              /* or a stream id of the kind ADDRESS_STORED_STREAM */
    struct slice projection_version; /* as struct frame_topic */
    const struct policy *policy;
    enum journal_read_mode mode;
    uint64_t after_seq;
    uint64_t below_seq;             /* frames from here on are in memory, and not read */
    uint64_t edition;               /* of the topic in the hub, before the read */
    size_t frames_max;              /* 0: reads the position only */
    struct topic_epoch given_epoch; /* of the cursor or of the reader; empty: not given */
    bool is_unfounded;              /* the topic did not exist when the cursor came in */
    bool replay_all; /* without floor and budget; STATUS_REPLAY_ALL_UNAVAILABLE for a journal */
    struct event_cursor event_cursor;
    uint64_t since_ms;
    const struct principal *principal; /* a reference; NULL: all frames count for the budget */
    enum grant_view view;        /* GRANT_VIEW_PENDING: the read finds the owner, and answers it */
    struct writer *writer;       /* raises the floor of a damaged journal; NULL: an error instead */
    struct owner_map *owner_map; /* learns the owners of a shared topic's frames; NULL: none does */
    bool may_skip;               /* frames of others, where their owners are known */
    /* JOURNAL_READ_CONTINUE: frames that the hub has by then are not read, and those that were read
     * are added to it. NULL: neither. */
    struct hub_watch *watch;
    replay_place *place;             /* of the reader in the hub; NULL: it does not join one */
    struct replay_progress progress; /* of a position that is found in several slices */
    struct journal_rows *rows;       /* of a read of the position only; NULL: not shared */
    /* Answered. */
    enum status status;
    bool is_in_memory; /* nothing was read */
    bool exists;
    bool is_damaged; /* the first row after the frames is missing or cannot be read */
    uint64_t damaged_seq;
    char found_text[TOPIC_NAME_BYTES_MAX];
    struct slice found; /* the topic of a stream id, if it exists */
    /* Of the topic; for JOURNAL_READ_CONTINUE only if is_unfounded or is_stale. */
    struct topic_epoch epoch;
    bool has_fork;              /* the log has had several epochs; as epoch */
    struct topic_window window; /* all 0 when the topic does not exist */
    bool is_stale;
    struct continuity continuity;          /* why */
    struct continuity_bootstrap bootstrap; /* of that mode */
    uint64_t next_seq;
    uint64_t through_seq;
    bool is_sparse;
    struct uuid head_cursor; /* of the last event of the log; zero: none, or another topic */
    struct frame **frames;   /* room for frames_max; NULL: none was read */
    size_t count;
    size_t taken; /* number of frames that were taken */
    bool is_kept; /* the hub has the frames too */
};

void journal_rows_init(struct journal_rows *rows);
void journal_rows_release(struct journal_rows *rows);
/* Runs one slice of the read. True: another slice must follow, before anything is answered. */
bool journal_read_run(struct journal_read *read, struct store_session *session);
/* Releases the principal and the frames that were not taken. */
void journal_read_release(struct journal_read *read);

#endif
