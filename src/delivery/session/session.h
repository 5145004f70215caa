/* A session: a connection that is pushed to, as a WebSocket or an event stream. It has subscribers,
 * each one topic and one position, and a dialect that encodes what they are sent.
 * Belongs to its connection's loop.
 * Memory: itself, its subscribers and replies that wait. Of the frames it is sent, only the push
 * that its socket has not taken whole.
 * Errors: a mistake of the peer closes the session with the dialect's code; strikes close a session
 * whose peer does not read.
 * Frames of a subscriber leave in order, each once, and none after session_close. */
#ifndef DELIVERY_SESSION_SESSION_H
#define DELIVERY_SESSION_SESSION_H

#include "auth/principal.h"
#include "base/list.h"
#include "delivery/delivery.h"
#include "delivery/driver.h"
#include "delivery/session/outlet.h"
#include "delivery/session/strikes.h"
#include "delivery/subscription_quota.h"
#include "io/call.h"

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
    struct driver driver;
    struct turn turn;
    struct session *session;
    struct hlist_node node;               /* in the session's subscribers */
    struct subscriber_snapshot *snapshot; /* that it begins with; NULL: none */
    const struct page_form *form;
    uint32_t frames_max; /* of a push */
    enum subscriber_state state;
};

_Static_assert(sizeof(struct subscriber) <= 232, "every idle connection has a subscriber");

/* Subscribers whose positions are compared with the store in one read: all begin, or none. */
struct session_opening {
    size_t count;
    size_t read_count;  /* subscribers whose positions were compared, in earlier slices */
    enum status status; /* of the read; the subscriptions say which of them are stale */
    void *user;         /* the dialect's */
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
    struct subscriber *reading;      /* whose read or part the job is */
    enum session_job job;
    struct session_work *next; /* of the jobs that run together; NULL: the last one */
    bool has_more;             /* the job needs more than the common task */
};

/* The strikes of a session; allocated from the first full socket until a check finds it clear. */
struct session_strikes {
    struct session *session;
    struct deadline deadline;
    struct strikes strikes;
    uint64_t sent_bytes; /* since then; one more where it had sent some before */
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
    struct subscription_count subscriptions; /* that count for its principal */
    struct buffer replies;     /* replies and notices, behind the push that the socket is taking */
    struct session_work *work; /* NULL: no job waits or is under way */
    struct deadline heartbeat_deadline;
    struct session_expiry *expiry;   /* NULL: not near */
    struct session_strikes *strikes; /* NULL: none, and no check is due */
    enum session_state state;
    uint16_t close_code;    /* that the server gave; 0: none yet */
    bool has_reauth_notice; /* the peer was warned that its token expires */
    bool has_sent;          /* anything */
    struct uuid id;         /* of its request, which names the connection in the log */
    char *given_name;       /* instead of the id, where the peer gave another; NULL: none */
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
/* Of a subscriber that has not left: its line has those of the others. NULL: there is none. */
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

#endif
