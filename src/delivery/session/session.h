/* A session: a connection that is pushed to, as a WebSocket or an event stream. It has subscribers,
 * each one topic and one position, and a dialect that encodes what they are sent. Positions,
 * fairness, strikes and time belong to the session; a dialect only encodes and decodes.
 * Thread: its connection's loop.
 * Memory: itself, its subscribers and replies that wait. Of the frames it is sent, only the push
 * that its socket has not taken whole.
 * Errors: a mistake of the peer closes the session with the dialect's code; strikes close a session
 * whose peer does not read.
 * Invariant: frames of a subscriber leave in order, each once, and none after session_close. */
#ifndef DELIVERY_SESSION_SESSION_H
#define DELIVERY_SESSION_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "auth/principal.h"
#include "authority/call.h"
#include "base/list.h"
#include "delivery/delivery.h"
#include "delivery/session/outlet.h"
#include "delivery/subscription.h"
#include "delivery/subscription_quota.h"
#include "delivery/telemetry.h"
#include "spec/metrics.h"

/* ---- strikes ---- */

struct strikes {
    uint64_t sent_bytes; /* at the last check */
    uint64_t lag;
    uint64_t count; /* one after the other */
    bool has_sample;
};

struct strikes_sample {
    bool was_blocked;    /* its socket was full at some time since the last check */
    bool is_blocked;     /* and is now */
    uint64_t sent_bytes; /* all bytes that its socket took */
    uint64_t lag;        /* frames behind, in all its topics */
    uint64_t lag_max;
    uint64_t strikes_max;
};

/* A full socket that took nothing since the last check is a strike. So is a lag above lag_max that
 * is not smaller than at the last check, if the socket was full meanwhile. A check without a strike
 * clears those before. True: that was the last strike. */
bool strikes_check(struct strikes *strikes, const struct strikes_sample *sample);

#define SESSION_NAME_BYTES_MAX 64

struct dialect;
struct framing;
struct session;
struct subscriber_snapshot;

enum subscriber_state {
    SUBSCRIBER_NEW,       /* its dialect has not started it: nothing is sent */
    SUBSCRIBER_BOOTSTRAP, /* the notice that it bootstraps is due */
    SUBSCRIBER_SNAPSHOT,  /* it is sent the parts of a snapshot */
    SUBSCRIBER_REPLAY,    /* it is sent frames, and the notice that it caught up is due */
    SUBSCRIBER_LIVE,      /* it is sent frames as they are committed */
    SUBSCRIBER_LEAVING,   /* it was dropped, and is freed when its read is back */
    SUBSCRIBER_STATE_COUNT,
};

struct subscriber {
    struct subscription subscription;
    struct turn turn;
    struct session *session;
    struct hlist_node node;               /* in the session's subscribers */
    struct subscriber_snapshot *snapshot; /* its beginning; NULL: none */
    const struct page_form *form;
    uint32_t frames_max; /* in one push */
    uint8_t state;       /* enum subscriber_state */
    uint8_t topic_class; /* the one that it is counted under */
};

_Static_assert(sizeof(struct subscriber) <= 240, "every idle connection has a subscriber");

/* Subscribers whose positions are compared with the store in one read: all begin, or none. */
struct session_opening {
    size_t count;
    size_t read_count;  /* subscribers whose positions were compared, in earlier slices */
    enum status status; /* the read's; the subscriptions say which of them are stale */
    void *user;         /* for the dialect */
    struct subscriber *subscribers[];
};

/* Something else that the dialect does with the store; the beginning of its own object. */
struct session_lookup {
    /* On a thread of the store pool. True: another slice must follow. */
    bool (*run)(struct session_lookup *lookup, struct store_session *store);
    /* In place of run: another thread does the work, and ends the call, which began, with
     * call_return_post. NULL: run. */
    void (*begin)(struct session_lookup *lookup, struct call *call);
    /* In place of run, where it may: takes the result of another lookup with the same function,
     * which ran after this one had arrived. NULL: each is run. */
    bool (*copy)(struct session_lookup *lookup, const struct session_lookup *from);
    /* On the loop. status: whether it was run. */
    void (*done)(struct session *session, struct session_lookup *lookup, enum status status);
    /* In place of done, when the session has ended. */
    void (*free)(struct session_lookup *lookup);
};

/* Work of the session that runs on another thread, one at a time. */
enum session_job {
    SESSION_JOB_NONE,
    SESSION_JOB_OPEN,   /* compares the positions of an opening with the store */
    SESSION_JOB_READ,   /* reads frames */
    SESSION_JOB_AHEAD,  /* reads frames that will be needed later */
    SESSION_JOB_PART,   /* reads a part of a snapshot */
    SESSION_JOB_LOOKUP, /* runs a lookup of the dialect */
};

enum session_state {
    SESSION_OPEN,         /* messages go both ways */
    SESSION_CLOSING,      /* its last messages are being written; it has no subscribers */
    SESSION_ENDED,        /* its last messages are written; the peer may still close */
    SESSION_DISCONNECTED, /* the connection is closing, and the outlet must not be used */
    SESSION_RELEASED,     /* the connection is gone; the memory returns with the last job */
    SESSION_STATE_COUNT,
};

/* How messages stand in the bytes of a connection that also receives. */
struct framing_table {
    /* Bytes of the peer. */
    void (*received)(struct session *session, struct slice bytes);
    /* Messages that had to wait may be handled now. */
    void (*resume)(struct session *session);
    /* Everything is sent, the close too. */
    void (*ended)(struct session *session);
    void (*free)(struct framing *framing);
};

/* The beginning of the framing's own object. */
struct framing {
    const struct framing_table *table;
};

/* The work of a session on another thread; allocated while a job waits or is under way. */
struct session_work {
    struct call call;
    struct session *session;
    struct session_opening *opening; /* waits, or under way */
    struct session_lookup *lookup;   /* waits, or under way */
    struct subscriber *reading;      /* the job reads frames or a part for it */
    enum session_job job;
    struct session_work *next; /* the next job that runs in the same task; NULL: none */
    bool has_more;             /* the job needs more than the common task */
};

/* The strikes of a session; allocated from the first full socket until a check finds it clear. */
struct session_strikes {
    struct session *session;
    struct deadline deadline;
    struct strikes strikes;
    uint64_t sent_bytes; /* since then; one more if it had sent some before */
    bool was_blocked;    /* since the last check */
};

/* The end of a session's token; allocated while it is near. */
struct session_expiry {
    struct session *session;
    struct deadline deadline;
};

struct session {
    struct outlet *outlet; /* until SESSION_DISCONNECTED */
    struct delivery_loop *delivery;
    const struct dialect *dialect;
    struct framing *framing; /* NULL: an event stream, which takes nothing from its peer */
    void *dialect_state;
    const struct principal *principal; /* NULL: the peer has not authenticated yet */
    char *bearer;                      /* named by a token that was refused; NULL: not known */
    const char *token_rule;            /* the rule that a refused token breaks, or NULL */
    struct hlist subscribers;
    struct subscription_count subscriptions; /* counted for its principal */
    struct buffer replies;     /* replies and notices, behind the push that the socket is taking */
    struct session_work *work; /* NULL: no job waits or is under way */
    struct deadline heartbeat_deadline;
    struct session_expiry *expiry;   /* NULL: not near */
    struct session_strikes *strikes; /* NULL: none, and no check is due */
    enum session_state state;
    uint16_t close_code;    /* given by the server; 0: none yet */
    bool has_reauth_notice; /* the peer was warned that its token expires */
    bool has_sent;          /* anything */
    struct uuid id;         /* request id; identifies the connection in logs */
    char *given_name;       /* instead of the id, if the peer gave another; NULL: none */
};

_Static_assert(sizeof(struct session) <= 208, "every idle connection has a session");

/* The name of the connection in the log. */
struct slice session_name(const struct session *session, char text[SESSION_NAME_BYTES_MAX]);
/* One of the legal edges; any other asserts. */
void session_set_state(struct session *session, enum session_state state);
static inline bool session_is_open(const struct session *session) {
    return session->state == SESSION_OPEN;
}
static inline bool session_is_connected(const struct session *session) {
    return session->state < SESSION_DISCONNECTED;
}
static inline enum session_job session_job(const struct session *session) {
    return session->work ? session->work->job : SESSION_JOB_NONE;
}
/* An opening or a lookup waits or is under way. */
static inline bool session_is_opening(const struct session *session) {
    return session->work && (session->work->opening || session->work->lookup);
}
static inline uint64_t session_strike_count(const struct session *session) {
    return session->strikes ? session->strikes->strikes.count : 0;
}
static inline bool session_is_blocked(const struct session *session) {
    return outlet_is_blocked(session->outlet);
}

/* The first subscriber, or NULL; the one after another. A walk may drop the one it stands on if it
 * has asked for the next one before. */
struct subscriber *session_first(const struct session *session);
struct subscriber *subscriber_next(const struct subscriber *subscriber);
/* The turn of a subscriber that has not left, whose line has those of the others. NULL: none. */
struct turn *session_turn(const struct session *session);

/* The end of the token is not near any more, or does not matter. */
void session_forget_expiry(struct session *session);

/* Sends the replies as far as the socket takes them now. */
void session_flush(struct session *session);
/* Sends the push, behind the replies and in one piece with them. Takes over the reference. Not
 * while the session is blocked. */
void session_push(struct session *session, struct push *push);
/* Sends the replies that were written with that status; any but STATUS_OK closes the connection,
 * since the peer would wait for what could not be written. */
void session_send(struct session *session, enum status status);

/* ---- dialects ---- */

/* NULL: the dialect has no such notice, or writes it itself. */
struct notice_names {
    const char *stale;
    const char *refused;
    const char *snapshot;
    const char *reauth;
    const char *slow;
    const char *end;
};

struct dialect {
    enum label_dialect label; /* its label in metrics */
    bool has_one_topic;       /* from its beginning; its session counts as one subscription */
    /* Its forms of pages by content, each plain and packed. */
    const struct page_form (*forms)[2];
    /* A message of the peer, from a WebSocket. */
    enum status (*receive)(struct session *session, struct slice text);
    /* The positions of the opening are known. The dialect starts its subscribers, or drops them. */
    void (*opened)(struct session *session, struct session_opening *opening);
    /* In place of opened, when the session has ended: frees the opening's user. */
    void (*opening_gone)(struct session_opening *opening);
    /* A subscriber begins with a bootstrap. */
    enum status (*bootstrap)(struct subscriber *subscriber, struct buffer *out);
    /* A part of the snapshot that the subscriber begins with; NULL: it begins with the journal. */
    enum status (*snapshot)(struct subscriber *subscriber, struct buffer *out);
    /* Nothing is left to replay; sent once, where a page does not say so. With page_covers_range,
     * it covers the hidden frames too. */
    enum status (*caught_up)(struct subscriber *subscriber, struct buffer *out);
    /* Retention overtook the subscriber. */
    enum status (*stale)(struct subscriber *subscriber, struct buffer *out);
    bool restarts_stale;      /* a stale subscriber bootstraps; false: it is dropped */
    bool page_says_caught_up; /* a page says whether it is the last one of the replay */
    bool page_covers_range;   /* a page covers the hidden frames behind its last frame too */
    /* A subscriber ends, and the session continues: the topic that appeared is not the one it may
     * read. NULL: the session ends with it. */
    enum status (*refused)(struct subscriber *subscriber, enum status status, struct buffer *out);
    /* Why the session ends: a subscriber that failed, a token that expired or was revoked. */
    enum status (*failed)(struct session *session, enum status status, struct buffer *out);
    /* The token ends in left_ms, and nothing is delivered after that. */
    enum status (*reauth)(struct session *session, uint64_t left_ms, struct buffer *out);
    /* Covers what each subscriber passed since it was last sent its position. */
    enum status (*heartbeat)(struct session *session, struct buffer *out);
    /* The last strike: the error, before the close. */
    enum status (*slow)(struct session *session, struct buffer *out);
    /* The server ends. */
    enum status (*leaving)(struct session *session, uint64_t retry_after_ms, struct buffer *out);
    void (*state_free)(void *state);
    /* For the notices of notices.h, which have the same body in every dialect: what this one calls
     * them, the message with such a body, and what stands behind the last message. */
    struct notice_names names;
    size_t notice_bytes_max;
    size_t snapshot_bytes_max;
    enum status (*send)(struct session *session, struct buffer *out, const char *name,
                        struct slice body);
    enum status (*send_last)(struct session *session, struct buffer *out, enum close_code code);
};

/* ---- log ---- */

/* Counts one of a metric that has the dialect as its label. */
void session_count(const struct session *session, enum metric metric);
/* The session as a cause; with its topic, if there is a subscriber. */
struct cause session_cause(const struct session *session, const struct subscriber *subscriber,
                           struct cause_names *names);
/* The server is about to end the session. */
void session_log_end(struct session *session, enum status status, unsigned close_code);
/* The client may not have what it asked for; topic data NULL: none. */
void session_log_refused(struct session *session, struct slice topic, enum status status);
/* The versions that the client stated are not served. */
void session_log_incompatible(struct session *session, const struct compatibility_claim *claim,
                              enum status status);
/* A subscriber's cursor is stale. */
void session_log_stale(const struct subscriber *subscriber);
/* An error message is about to be sent. */
void session_log_error(const struct session *session, enum status status);

#endif
