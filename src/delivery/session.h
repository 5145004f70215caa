/* A link: a connection that is pushed to, as a WebSocket or an event stream. It has readers, each
 * one topic and one position, and a dialect that puts what they read into bytes.
 * Belongs to its connection's loop. Memory: itself, its readers, replies that wait; of what it is
 * sent only the push its socket has not taken whole.
 * What a peer does wrong closes it with the code the dialect answers; a peer that does not read is
 * closed by its strikes. One read of the store at a time.
 * Frames of a reader leave in order, each once, and none after link_close. */
#ifndef DELIVERY_SESSION_H
#define DELIVERY_SESSION_H

#include "auth/principal.h"
#include "delivery/page.h"
#include "delivery/scheduler.h"
#include "delivery/strikes.h"
#include "http/exchange.h"
#include "delivery/feeds.h"
#include "delivery/session_log.h"
#include "io/loop.h"
#include "io/store_pool.h"
#include "http/admit/single_use.h"

struct dialect;
struct link;
struct link_snapshot;
struct websocket;

struct link_reader {
    struct feed_reader member; /* first */
    struct turn turn;
    struct link *link;
    struct link_reader *previous;
    struct link_reader *next;
    struct subscription subscription;
    struct link_snapshot *snapshot; /* it begins with one; NULL: it reads frames */
    const struct page_form *form;
    size_t frames_max; /* of a push */
    bool is_open;      /* looked at, and reads on by itself */
    bool wants_read;   /* when the link has no other read under way */
    bool is_caught_up; /* and was told so */
    bool is_bootstrap_due;
    bool is_leaving;    /* when its read is back */
    bool serves_frames; /* the dialect's own mark */
};

/* Readers that begin together: looked at in one read, all or none of them. */
struct link_opening {
    size_t count;
    enum status status; /* of the read; the subscriptions say which are stale */
    void *user;         /* the dialect's */
    struct link_reader *readers[];
};

/* A use that is to be the first of its kind and id. */
struct link_use {
    struct single_use use; /* first; kind and expires_at_ms are set */
    struct slice id;
    struct link *link;
};

/* Something else to look up in the store; the beginning of the dialect's own object. */
struct link_call {
    /* On a reader's thread. */
    void (*run)(struct link_call *call, struct store_session *session);
    /* On the loop; status: whether it was run, or what became of the use. */
    void (*done)(struct link *link, struct link_call *call, enum status status);
    /* In place of done, when the link is gone. */
    void (*free)(struct link_call *call);
    struct link_use *use; /* that the writer decides in place of run; NULL: none */
};

enum link_job {
    LINK_JOB_NONE,
    LINK_JOB_OPEN,
    LINK_JOB_READ,
    LINK_JOB_AHEAD,
    LINK_JOB_PART,
    LINK_JOB_CALL,
};

struct link {
    struct conn *conn; /* NULL: gone */
    struct io_loop *loop;
    struct server *server;
    const struct dialect *dialect;
    struct websocket *websocket; /* NULL: an event stream */
    void *state;                 /* the dialect's */
    const struct principal *principal;
    char *bearer; /* whose token was refused, for people to know; NULL: not known */
    struct link_reader *readers;
    size_t reader_count;
    struct buffer own; /* replies and notices, behind what the socket is taking */
    enum link_job job;
    struct link_opening *opening; /* waits, or under way */
    struct link_call *call;       /* waits, or under way */
    enum status call_status;
    struct link_reader *reading;
    struct reader_task task;
    struct loop_task back;
    struct deadline pulse;  /* heartbeats */
    struct deadline look;   /* strikes */
    struct deadline expiry; /* of the token, when it is near */
    struct strikes strikes;
    uint64_t sent_bytes;
    unsigned close_code;                 /* that the server gave; 0: none yet */
    char name[REQUEST_ID_BYTES_MAX + 1]; /* of the connection, for people: its request's id */
    bool is_reauth_told;
    bool was_blocked;
    bool is_closing; /* nothing is sent any more but own */
    bool is_ended;   /* own is out too */
    bool is_lingering;
};

/* ---- life ---- */

struct link_options {
    const struct dialect *dialect;
    const struct principal *principal;
    void *state;       /* taken over, also by a link that could not be made */
    struct slice head; /* what is written first: the response's head */
};

/* The exchange's connection becomes a link; touch the exchange no more. NULL: the exchange has
 * been answered. */
struct link *link_make(struct exchange *exchange, const struct link_options *options);
/* For conn.c: the connection is closing; the memory returns with link_free, or with its read. */
void link_gone(struct link *link);
void link_free(struct link *link);
/* For conn.c: bytes of the peer; what was being written is written; a deadline passed. */
void link_received(struct link *link, struct slice bytes);
void link_writable(struct link *link);
void link_expired(struct link *link, enum deadline_kind kind);
struct link *link_of_pulse(struct deadline *deadline);
struct link *link_of_look(struct deadline *deadline);
struct link *link_of_expiry(struct deadline *deadline);
/* The server ends: the peer is told when to come back. */
void link_leave(struct link *link);

/* ---- for dialects ---- */

/* Sends what is in own, as far as the socket takes it now. */
void link_flush(struct link *link);
/* Ends it for the status: the dialect says so, with the status's close code. */
void link_end(struct link *link, enum status status);
/* The last words are in own: sends them and ends. */
void link_close(struct link *link);
/* Answers whether the topic's reader could be made; it does not read yet. */
MUST_CHECK enum status link_reader_make(struct link *link, struct slice topic,
                                        const struct subscription_options *options,
                                        struct link_reader **reader);
void link_reader_drop(struct link_reader *reader);
/* Has the readers looked at; the dialect's opened follows, always later. Takes over the opening.
 * One at a time: not while link_is_opening. */
void link_open(struct link *link, struct link_opening *opening);
/* The same for one reader. */
MUST_CHECK enum status link_open_one(struct link *link, struct link_reader *reader);
bool link_is_opening(const struct link *link);
/* Has it run, and done follows, always later. Not while link_is_opening, which it then is too. */
void link_call(struct link *link, struct link_call *call);
/* From now on it reads by itself. */
void link_reader_start(struct link_reader *reader);
/* It is worth being asked again. */
void link_reader_ready(struct link_reader *reader);

/* For loop.c: serves those whose turn it is, a bounded number of them. */
void link_serve(struct io_loop *loop);

#endif
