/* Tickets: which connections may be open, and which one gives way to a new one.
 * struct conn_limits is shared by all loops; struct conn_tickets and its tickets belong to a loop.
 * Memory: a ticket is a member of its connection, and must be all zeroes before its first use.
 * Errors: none; the caller closes the connection that a new one displaces.
 * After every accept at most conn_max connections are regular, at most unauthenticated_max of them
 * have shown no key or token, and at most reserved_max are beyond them. */
#ifndef HTTP_ADMIT_CONN_TICKETS_H
#define HTTP_ADMIT_CONN_TICKETS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"

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

struct conn_limits {
    size_t conn_max;
    size_t unauthenticated_max;
    size_t reserved_max;
    atomic_size_t counts[CONN_RANK_COUNT];
};

/* The connections that may be displaced, the one that was silent longest first. */
struct conn_tickets {
    struct conn_limits *limits;
    struct list unauthenticated;
    struct list reserved;
};

struct conn_ticket {
    struct list_node node;
    struct conn_tickets *tickets;
    enum conn_rank rank;
};

void conn_tickets_init(struct conn_tickets *tickets, struct conn_limits *limits);
/* All connections. */
size_t conn_limits_count(const struct conn_limits *limits);

/* Counts a new connection. Returns the one that the caller must close: NULL, another one that was
 * silent longest, or the new one. */
struct conn_ticket *conn_ticket_take(struct conn_tickets *tickets, struct conn_ticket *ticket,
                                     bool is_operators);
/* The same for a connection that another limit refuses: only its operator key could admit it. */
struct conn_ticket *conn_ticket_reserve(struct conn_tickets *tickets, struct conn_ticket *ticket);
/* The peer has sent bytes. */
void conn_ticket_touch(struct conn_ticket *ticket);
/* The peer has shown a key or token; a reserved connection, the operator key. */
void conn_ticket_admit(struct conn_ticket *ticket);
/* The connection closes. */
void conn_ticket_return(struct conn_ticket *ticket);

static inline bool conn_ticket_is_reserved(const struct conn_ticket *ticket) {
    return ticket->rank == CONN_RANK_RESERVED;
}

#endif
