/* A session: a connection that is pushed to, as a WebSocket or an event stream. It has subscribers,
 * each one topic and one position, and a dialect that puts what they read into bytes. Belongs to
 * its connection's loop. Memory: itself, its subscribers, replies that wait; of what it is sent
 * only the push its socket has not taken whole. What a peer does wrong closes it with the code the
 * dialect answers; a peer that does not read is closed by its strikes. One read of the store at a
 * time. Frames of a subscriber leave in order, each once, and none after session_close. */
#ifndef DELIVERY_SESSION_H
#define DELIVERY_SESSION_H

#include "auth/principal.h"
#include "delivery/feeds.h"
#include "delivery/outlet.h"
#include "delivery/page.h"
#include "delivery/scheduler.h"
#include "delivery/session_log.h"
#include "delivery/strikes.h"
#include "http/admit/single_use.h"
#include "io/loop.h"
#include "io/store_pool.h"

struct dialect;
struct session;
struct subscriber_snapshot;

#define SESSION_NAME_BYTES_MAX 64

struct subscriber {
    struct feed_member member; /* first */
    struct turn turn;
    struct session *session;
    struct subscriber *previous;
    struct subscriber *next;
    struct subscription subscription;
    struct subscriber_snapshot *snapshot; /* it begins with one; NULL: it reads frames */
    const struct page_form *form;
    size_t frames_max; /* of a push */
    bool is_open;      /* looked at, and reads on by itself */
    bool wants_read;   /* when the session has no other read under way */
    bool is_caught_up; /* and was told so */
    bool is_bootstrap_due;
    bool is_leaving;    /* when its read is back */
    bool serves_frames; /* the dialect's own mark */
};

/* Readers that begin together: looked at in one read, all or none of them. */
struct session_opening {
    size_t count;
    enum status status; /* of the read; the subscriptions say which are stale */
    void *user;         /* the dialect's */
    struct subscriber *subscribers[];
};

/* A use that is to be the first of its kind and id. */
struct session_use {
    struct single_use use; /* first; kind and expires_at_ms are set */
    struct slice id;
    struct session *session;
};

/* Something else to look up in the store; the beginning of the dialect's own object. */
struct session_lookup {
    /* On a subscriber's thread. */
    void (*run)(struct session_lookup *call, struct store_session *store);
    /* On the loop; status: whether it was run, or what became of the use. */
    void (*done)(struct session *session, struct session_lookup *call, enum status status);
    /* In place of done, when the session is gone. */
    void (*free)(struct session_lookup *call);
    struct session_use *use; /* that the writer decides in place of run; NULL: none */
};

enum session_job {
    SESSION_JOB_NONE,
    SESSION_JOB_OPEN,
    SESSION_JOB_READ,
    SESSION_JOB_AHEAD,
    SESSION_JOB_PART,
    SESSION_JOB_LOOKUP,
};

struct framing;

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

struct session {
    struct outlet *outlet; /* NULL: the connection is gone */
    struct io_loop *loop;
    struct server *server;
    const struct dialect *dialect;
    struct framing *framing; /* NULL: an event stream, which takes nothing from its peer */
    void *state;             /* the dialect's */
    const struct principal *principal;
    char *bearer; /* whose token was refused, for people to know; NULL: not known */
    struct subscriber *subscribers;
    size_t subscriber_count;
    struct buffer replies; /* replies and notices, behind what the socket is taking */
    enum session_job job;
    struct session_opening *opening; /* waits, or under way */
    struct session_lookup *call;     /* waits, or under way */
    enum status call_status;
    struct subscriber *reading;
    struct store_task task;
    struct loop_task back;
    struct deadline heartbeat_deadline; /* heartbeats */
    struct deadline strike_deadline;    /* strikes */
    struct deadline expiry_deadline;    /* of the token, when it is near */
    struct strikes strikes;
    uint64_t sent_bytes;
    unsigned close_code;                   /* that the server gave; 0: none yet */
    char name[SESSION_NAME_BYTES_MAX + 1]; /* of the connection, in the log: its request's id */
    bool is_reauth_told;
    bool was_blocked;
    bool is_closing; /* nothing is sent any more but own */
    bool is_ended;   /* own is out too */
    bool is_lingering;
};

/* ---- life ---- */

struct session_options {
    struct io_loop *loop;
    struct outlet *outlet;
    struct slice name; /* of the connection; at most SESSION_NAME_BYTES_MAX */
    const struct dialect *dialect;
    const struct principal *principal; /* NULL: the peer authenticates later */
    void *state;                       /* taken over, also by a session that could not be made */
    struct slice head;                 /* what is written first: the response's head */
};

/* NULL: no memory. */
struct session *session_new(const struct session_options *options);
/* For conn.c: the connection is closing; the memory returns with session_free, or with its read. */
void session_disconnected(struct session *session);
void session_free(struct session *session);
/* For conn.c: bytes of the peer; what was being written is written; a deadline passed. */
void session_received(struct session *session, struct slice bytes);
void session_writable(struct session *session);
void session_expired(struct session *session, enum deadline_kind kind);
/* The server ends: the peer is told when to come back. */
void session_drain(struct session *session);

/* ---- for dialects ---- */

/* Sends what is in own, as far as the socket takes it now. */
void session_flush(struct session *session);
/* Ends it for the status: the dialect says so, with the status's close code. */
void session_end(struct session *session, enum status status);
/* The last words are in own: sends them and ends. */
void session_close(struct session *session);
/* Answers whether the topic's subscriber could be made; it does not read yet. */
MUST_CHECK enum status subscriber_new(struct session *session, struct slice topic,
                                      const struct subscription_options *options,
                                      struct subscriber **subscriber);
void subscriber_drop(struct subscriber *subscriber);
/* Has the subscribers looked at; the dialect's opened follows, always later. Takes over the
 * opening. One at a time: not while session_is_opening. */
void session_open(struct session *session, struct session_opening *opening);
/* The same for one subscriber. */
MUST_CHECK enum status session_open_one(struct session *session, struct subscriber *subscriber);
bool session_is_opening(const struct session *session);
/* Has it run, and done follows, always later. Not while session_is_opening, which it then is too.
 */
void session_look_up(struct session *session, struct session_lookup *call);
/* From now on it reads by itself. */
void subscriber_start(struct subscriber *subscriber);
/* It is worth being asked again. */
void subscriber_ready(struct subscriber *subscriber);

/* For loop.c: serves those whose turn it is, a bounded number of them. */
bool sessions_serve(struct io_loop *loop);
void sessions_open_loop(struct io_loop *loop, struct server *server);
void sessions_close_loop(struct io_loop *loop);

#endif
