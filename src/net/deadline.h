/* Deadlines of a loop: a few kinds, each with one usual delay and one callback.
 * Thread: the loop's.
 * Memory: a deadline is a member of its owner, and must be all zeroes before its first use.
 * Invariant: all deadlines are one pairing heap: setting one takes a few instructions; moving,
 * dropping or expiring one takes O(log n) steps on average, whatever their delays are. */
#ifndef NET_DEADLINE_H
#define NET_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

enum deadline_kind {
    DEADLINE_FIRST,        /* a new connection has not sent the head of a request */
    DEADLINE_REQUEST,      /* a request must arrive */
    DEADLINE_UNREAD,       /* an answer must be read */
    DEADLINE_IDLE,         /* nothing happened between two requests */
    DEADLINE_LINGER,       /* the last answer is sent and the peer has not closed */
    DEADLINE_PEER_CHECK,   /* whether the peer is gone is checked while its answer is due */
    DEADLINE_PEERS_CHECK,  /* the connections of a loop are checked for peers that have vanished */
    DEADLINE_BATCH,        /* a batch must have moved what it holds */
    DEADLINE_BATCH_PEER,   /* whether the client is gone is checked while its batch is read */
    DEADLINE_DELAY,        /* the answer to a wrong key or token is due */
    DEADLINE_TURN,         /* a connection with more requests waits for its next turn */
    DEADLINE_SILENCE,      /* the peer of a WebSocket has sent nothing */
    DEADLINE_HEARTBEAT,    /* the next heartbeat of a session is due */
    DEADLINE_STRIKE_CHECK, /* a session that is behind is checked again */
    DEADLINE_EXPIRY,       /* the token of a session ends soon */
    DEADLINE_CONFLATE,     /* a subscription may be served again; each has its own delay */
    DEADLINE_WAIT,         /* a long poll ends without an event; each has its own delay */
    DEADLINE_ACCEPT,       /* a listener that is paused tries again */
    DEADLINE_UPSTREAM,     /* a kept connection to another node was not used */
    DEADLINE_FORWARD,      /* the next step of a forwarded request is due */
    DEADLINE_KIND_COUNT,
};

struct deadline {
    struct deadline *child;    /* the first of the deadlines below it, none of which is earlier */
    struct deadline *sibling;  /* the next one below the same parent */
    struct deadline **pointer; /* the one pointer to this deadline */
    /* One word, because every idle connection has several deadlines. */
    uint64_t at_ms : 56; /* 0: not set */
    uint64_t kind : 8;   /* enum deadline_kind */
};

/* May not move while a deadline is set. */
struct deadline_queue {
    struct deadline *earliest; /* NULL: no deadline is set */
    struct {
        uint64_t delay_ms;
        void (*expired)(struct deadline *deadline);
    } kinds[DEADLINE_KIND_COUNT];
};

void deadline_queue_init(struct deadline_queue *queue);
/* Sets the usual delay of a kind, and the callback for a deadline of that kind that passes. */
void deadline_queue_define(struct deadline_queue *queue, enum deadline_kind kind, uint64_t delay_ms,
                           void (*expired)(struct deadline *deadline));
void deadline_set_at(struct deadline_queue *queue, struct deadline *deadline,
                     enum deadline_kind kind, uint64_t at_ms);
void deadline_drop(struct deadline *deadline);
/* Removes and returns the earliest deadline if it has passed, else NULL. The caller runs its kind's
 * callback. */
struct deadline *deadline_expired(struct deadline_queue *queue, uint64_t now_ms);
/* The time of the next deadline; UINT64_MAX when no deadline is set. */
uint64_t deadline_next_ms(const struct deadline_queue *queue);

#endif
