/* Tickets: which connections may be open, and which one gives way to a new one.
 * Thread: struct conn_limits is shared by all loops; struct conn_tickets and its tickets belong to
 * a loop.
 * Memory: a ticket is a member of its connection, and must be all zeroes before its first use.
 * Errors: none; the caller closes the connection that a new one displaces.
 * Invariant: after every accept at most conn_max connections are regular, at most
 * unauthenticated_max of them have shown no key or token, and at most reserved_max are beyond
 * them. While another loop is asked to close one, it may be CONN_ASKED_MAX more. */
#ifndef HTTP_ADMIT_CONN_TICKETS_H
#define HTTP_ADMIT_CONN_TICKETS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/list.h"
#include "net/listen.h"

/* When a refused client may try again. */
#define CONN_RETRY_MS 1000

enum conn_rank {
    CONN_RANK_NONE,            /* not counted */
    CONN_RANK_UNAUTHENTICATED, /* regular; has shown no key or token */
    CONN_RANK_ADMITTED,        /* regular; has shown one, or came to the operator's listener */
    CONN_RANK_RESERVED,        /* beyond the limits; waits for the operator key or a refusal */
    CONN_RANK_OPERATOR,        /* beyond the limits; the operator's */
    CONN_RANK_COUNT,
};

struct conn_tickets;

struct conn_limits {
    size_t conn_max;
    size_t unauthenticated_max;
    size_t reserved_max;
    size_t table_conn_max; /* regular connections in one descriptor table; 0: no limit */
    atomic_size_t counts[CONN_RANK_COUNT];
    atomic_size_t asked[CONN_RANK_COUNT];           /* connections that a loop was asked to close */
    atomic_size_t table_count;                      /* in loops that share a descriptor table */
    struct conn_tickets *loops[LISTEN_SOCKETS_MAX]; /* complete before the first loop starts */
    size_t loop_count;
};

/* Connections that may be displaced, the one that was silent longest first. */
struct conn_queue {
    struct list tickets;
    atomic_uint_fast64_t
        silent_since_ms; /* since when the first is silent; UINT64_MAX: none; other loops read it */
    atomic_size_t asked; /* how many this loop was asked to close */
};

struct conn_tickets {
    struct conn_limits *limits;
    struct conn_queue unauthenticated;
    struct conn_queue reserved;
    atomic_size_t own_count;
    atomic_size_t *table_count; /* regular connections in the loop's descriptor table */
};

struct conn_ticket {
    struct list_node node;
    struct conn_tickets *tickets;
    /* One word, because every idle connection has a ticket. */
    uint64_t silent_since_ms : 56;
    uint64_t rank : 8; /* enum conn_rank */
};

/* The connection that gives way to a new one. Both NULL: none. */
struct conn_displaced {
    struct conn_ticket *ticket; /* the caller closes it; it may be the new one */
    /* The loop of these tickets was asked to close the one that was silent longest. The caller
     * wakes it up, and it calls conn_tickets_asked. */
    struct conn_tickets *elsewhere;
};

/* Before the loops start. */
void conn_tickets_init(struct conn_tickets *tickets, struct conn_limits *limits);
/* The loop has a descriptor table of its own. Called before its first ticket. */
void conn_tickets_own_table(struct conn_tickets *tickets);
/* All connections. */
size_t conn_limits_count(const struct conn_limits *limits);

/* Counts a new connection. */
MUST_CHECK struct conn_displaced conn_ticket_take(struct conn_tickets *tickets,
                                                  struct conn_ticket *ticket, bool is_operators,
                                                  uint64_t now_ms);
/* The same for a connection that another limit refuses: only its operator key could admit it. */
MUST_CHECK struct conn_displaced conn_ticket_reserve(struct conn_tickets *tickets,
                                                     struct conn_ticket *ticket, uint64_t now_ms);
/* The next connection that this loop was asked to close and that is still too many, or NULL. */
MUST_CHECK struct conn_ticket *conn_tickets_asked(struct conn_tickets *tickets);
/* The peer has sent bytes. */
void conn_ticket_touch(struct conn_ticket *ticket, uint64_t now_ms);
/* The peer has shown a key or token; a reserved connection, the operator key. */
void conn_ticket_admit(struct conn_ticket *ticket);
/* The connection closes. */
void conn_ticket_return(struct conn_ticket *ticket);

static inline bool conn_ticket_is_reserved(const struct conn_ticket *ticket) {
    return ticket->rank == CONN_RANK_RESERVED;
}

#endif
