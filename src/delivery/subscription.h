/* A subscription: a position in one topic, as a member of the topic's feed. There is no queue: its
 * owner, a subscriber or a poll, asks for the next frames when the connection has room for them.
 * Thread: its feed's loop. Reads run on the store pool, one at a time and one ahead. While one is
 * under way, its thread may write place.
 * Memory: itself, where it begins until the client knows that, and a page of frames between a read
 * and the next request. The page stays longer only if the hub has no room for it.
 * Errors: STATUS_OUT_OF_MEMORY for one that cannot be made. A failed subscription says why in
 * status, and stays failed.
 * Invariant: a batch covers (after_seq, through_seq] and begins at the last position that the
 * client was sent. Frames that the principal may not read, or did not ask for, are missing from it;
 * a batch without any frame is not sent. With a selection, a frame that says only that a document
 * left it has the kind "removed". A position that retention overtook is reported, never
 * moved silently.
 *
 * A name or stream id may be subscribed before its topic exists. When the topic appears, the store
 * is read again: a stream id is bound to the topic's name, which the principal must be entitled to
 * (STATUS_FORBIDDEN_TOPIC); the name of another topic of that stream id cannot appear any more
 * (STATUS_STREAM_ID_CONFLICT). A run or worker of another owner is pending like one that does not
 * exist, and nothing that a client can see tells them apart. It never begins: owners do not change.
 */
#ifndef DELIVERY_SUBSCRIPTION_H
#define DELIVERY_SUBSCRIPTION_H

#include "auth/grant.h"
#include "base/limits.h"
#include "delivery/feed.h"
#include "delivery/journal_read.h"
#include "delivery/selection.h"
#include "delivery/stale.h"

struct subscription_options {
    const struct principal *principal; /* outlives the subscription */
    /* On the log: which frames the client asked for; NULL: all that the principal may read. */
    bool (*wants)(const void *user, const struct frame_content *content);
    const void *wants_user;
    /* On a summary topic: the documents that the client asked for, and how often; NULL: all. The
     * subscription takes a reference of its own. */
    struct selection *selection;
    uint64_t after_seq;               /* with has_cursor */
    struct topic_epoch epoch;         /* the cursor's; empty: not given */
    struct event_cursor event_cursor; /* with has_event_cursor */
    uint64_t since_ms;                /* with has_since */
    enum grant_view view;             /* which frames it gets */
    bool has_cursor;       /* false: a bootstrap; on the log (LOG_TOPIC), from the first event */
    bool has_event_cursor; /* instead, on the log (LOG_TOPIC) */
    bool has_since;        /* instead; once it is placed, it is the cursor */
    bool from_head;        /* a bootstrap that skips everything there is */
    bool replay_all;       /* everything that the log has: without floor and budget */
    bool keeps_epoch;      /* the client names the epoch beside its positions */
    bool folds;            /* frames may be folded; not with replay_all, nor on the log */
};

/* Where a subscription begins: what was asked for, and what the store answered. It is freed when
 * the client knows that, because most subscriptions of a busy server are idle. */
struct subscription_start {
    struct subscription_options asked;
    struct topic_window window; /* as last read from the store */
    struct continuity_bootstrap bootstrap;
};

/* What only a subscription to the log has. */
struct subscription_log {
    bool (*wants)(const void *user, const struct frame_content *content);
    const void *wants_user;
    struct uuid cursor; /* the event cursor of the position; 0: none yet */
};

/* What only a subscription with a selection has. */
struct subscription_selected {
    struct selection *selection;
    uint64_t unread_seq; /* the last frame that it passed and the principal may not read; 0: none */
    /* For its owner, if it is served at most every conflate_ms: */
    uint64_t until_seq; /* it is served up to here before it waits again */
    uint64_t due_ms;    /* not before that; monotonic */
    struct deadline deadline;
    struct subscription *subscription;
};

enum subscription_state {
    SUBSCRIPTION_UNPLACED, /* its position has not been compared with the store */
    SUBSCRIPTION_PLACING,  /* the read that does so is requested or under way */
    SUBSCRIPTION_OPEN,     /* it has a position, and takes frames from memory */
    SUBSCRIPTION_READING,  /* a read of older frames is requested or under way */
    SUBSCRIPTION_STALE,    /* retention overtook the position, or it is of another history */
    SUBSCRIPTION_FAILED,   /* it cannot continue */
    SUBSCRIPTION_STATE_COUNT,
};

struct subscription {
    struct feed_member member;
    struct feed_topic *topic;
    const struct principal *principal;
    struct subscription_start *start;       /* NULL: the client knows where it began */
    struct subscription_log *log;           /* NULL: another topic */
    struct subscription_selected *selected; /* NULL: it gets all that its principal may read */
    uint64_t next_seq;
    uint64_t sent_seq;          /* the position that the client was last sent; below next_seq */
    uint64_t head_seq;          /* the newest head known */
    struct shared_epoch *epoch; /* the topic's; NULL until the position is known */
    /* PLACING and READING: the read. OPEN: frames to be taken, or NULL. STALE: the reasons. */
    struct journal_read *read;
    struct journal_read *ahead; /* under way: frames that will be asked for later */
    enum status status;         /* the reason of SUBSCRIPTION_FAILED */
    uint8_t state;              /* enum subscription_state */
    uint8_t view;               /* enum grant_view: which frames it gets */
    bool replay_all;            /* as in the options */
    bool owns_topic;            /* bound to the name of the topic that appeared for a stream id */
    bool is_absent;             /* no topic has the name or stream id yet, as far as it may know */
    bool is_settled;            /* it reached the head since its position was set */
    bool is_sparse;             /* its last read passed over frames of others */
    bool is_replaying;          /* it gets frames that are read from the store */
    bool is_bootstrap;          /* it began with a bootstrap */
    bool keeps_epoch : 1;       /* as in the options */
    bool has_fork : 1;          /* the log has had several epochs */
    bool folds : 1;             /* as in the options */
    bool folds_well : 1;        /* its last frames became a few: it takes more at once */
    replay_place place;         /* in the hub, of frames that other replays share; 0: none */
};

_Static_assert(sizeof(struct subscription) <= 144, "every idle connection has a subscription");

/* What the owner of a subscription does with each result. */
struct subscription_sink {
    /* Frames, or a range without any for this principal. The sink releases the batch. */
    void (*frames)(struct subscription *subscription, struct delivery_batch *batch);
    /* There is nothing more for now. The member's advanced is called when the topic advances. */
    void (*at_head)(struct subscription *subscription);
    /* Have subscription_read_run run on the store pool, then call subscription_read_done. */
    void (*read)(struct subscription *subscription);
    /* The frames are being read ahead: serve again after subscription_ahead_done. NULL for a sink
     * that does not read ahead. */
    void (*ahead)(struct subscription *subscription);
    /* The position is stale: see subscription_continuity. subscription_restart bootstraps. */
    void (*stale)(struct subscription *subscription);
    /* See the subscription's status. */
    void (*failed)(struct subscription *subscription);
};

/* Rules of the server, the same for all subscriptions. */
struct subscription_rules {
    const struct policy_table *policies;
    struct writer *writer; /* raises the floor of a damaged journal */
};

/* Joins the feed of the topic. member.advanced is set by the caller before. */
MUST_CHECK enum status subscription_open(struct subscription *subscription, struct feeds *feeds,
                                         struct slice topic, const struct subscription_rules *rules,
                                         const struct subscription_options *options);
/* Not while a read is under way, or one ahead. */
void subscription_close(struct subscription *subscription);
/* Takes one step, which ends in exactly one call of the sink. Not while a read is under way. */
void subscription_serve(struct subscription *subscription, size_t frames_max, size_t bytes_max,
                        const struct subscription_sink *sink);

/* ---- reads ---- */

/* A read is requested or under way. */
static inline bool subscription_is_reading(const struct subscription *subscription) {
    return subscription->state == SUBSCRIPTION_PLACING ||
           subscription->state == SUBSCRIPTION_READING;
}
/* Requests a read that only compares the position with the store, so that a client can be refused
 * before anything is sent. STATUS_OUT_OF_MEMORY: subscription_read_done must follow with it. */
MUST_CHECK enum status subscription_ask_position(struct subscription *subscription);
/* On a thread of the store pool. True: it must be run again, before subscription_read_done. */
bool subscription_read_run(struct subscription *subscription, struct store_session *store);
/* status: STATUS_OK, or why the read could not be run. */
void subscription_read_done(struct subscription *subscription, enum status status);
/* After frames. True: the frames behind those in memory are to be read now. Have
 * subscription->ahead run on the store pool, then call subscription_ahead_done, also if it could
 * not be run. */
MUST_CHECK bool subscription_ask_ahead(struct subscription *subscription,
                                       const struct delivery_batch *batch);
void subscription_ahead_done(struct subscription *subscription);

/* ---- what the client was sent ---- */

/* The client knows where it begins. */
void subscription_begun(struct subscription *subscription);
/* Whether the client was last sent after_seq, and the next frame would be taken from memory. */
bool subscription_is_at(const struct subscription *subscription, uint64_t after_seq);
/* The client was sent its position up to seq. */
void subscription_sent(struct subscription *subscription, uint64_t seq);
/* Takes that batch, which another subscription took, and which the client is sent now. */
void subscription_pass(struct subscription *subscription, const struct delivery_batch *batch,
                       uint64_t head_seq);
/* Moves the position over frames that the feed knows to be hidden. */
void subscription_skip_hidden(struct subscription *subscription);
/* The client has everything up to after_seq from a snapshot of this epoch: continues behind it. */
void subscription_place(struct subscription *subscription, uint64_t after_seq,
                        const struct topic_epoch *epoch);
/* Stale: starts again with a bootstrap. */
void subscription_restart(struct subscription *subscription);
/* Releases the frames it holds: it will not be served for a while. */
void subscription_idle(struct subscription *subscription);
/* It cannot continue, for that reason. */
void subscription_fail(struct subscription *subscription, enum status status);

/* ---- what it knows ---- */

/* It waits for its run or worker, which does not exist, or belongs to another. */
bool subscription_is_pending(const struct subscription *subscription);
/* The newest head of the topic, of which the hub may know more than the subscription. */
uint64_t subscription_newest_head(const struct subscription *subscription);
/* How many frames it is behind, by the newest head that it knows. */
uint64_t subscription_lag(const struct subscription *subscription);
/* The same by the present head, without frames that are known to be hidden: on a shared topic,
 * after the subscription has reached the head once. */
uint64_t subscription_own_lag(const struct subscription *subscription);
/* The frames behind it include hidden ones: it shares its topic with other owners, and has not
 * reached the head. */
bool subscription_hides_lag(const struct subscription *subscription);
/* The epoch of the topic; empty until the position is known. */
const struct topic_epoch *subscription_epoch(const struct subscription *subscription);
/* The epoch that positions are given out with: a client that keeps none could not come back with a
 * number alone. NULL: numbers do. */
const struct topic_epoch *subscription_given_epoch(const struct subscription *subscription);
/* Stale: the reasons. */
const struct continuity *subscription_continuity(const struct subscription *subscription);
/* The same for the answer to the client. It points into the subscription. */
struct stale_topic subscription_stale(const struct subscription *subscription);

/* ---- for subscription.c and the tests of its steps ---- */

enum subscription_step {
    STEP_FRAMES, /* the batch has frames; with none, the position passed hidden frames */
    STEP_WAIT,   /* at the head: ask again when the watch has advanced */
    STEP_READ,   /* subscription->read is to be run */
    STEP_AHEAD,  /* the frames are being read */
    STEP_STALE,
    STEP_FAILED,
};

/* A subscription whose owner watches the topic in the hub, without a feed. */
MUST_CHECK enum status subscription_init(struct subscription *subscription,
                                         struct feed_topic *topic,
                                         const struct subscription_options *options);
void subscription_release(struct subscription *subscription);
MUST_CHECK enum subscription_step subscription_next(struct subscription *subscription,
                                                    struct delivery_batch *batch);
/* One of the legal edges; any other asserts. */
void subscription_set_state(struct subscription *subscription, enum subscription_state state);

#endif
