#include "http/admit/conn_tickets.h"

void conn_tickets_init(struct conn_tickets *tickets, struct conn_limits *limits) {
    tickets->limits = limits;
    list_init(&tickets->unauthenticated);
    list_init(&tickets->reserved);
}

size_t conn_limits_count(const struct conn_limits *limits) {
    size_t count = 0;
    for (size_t rank = CONN_RANK_NONE + 1; rank < CONN_RANK_COUNT; rank++)
        count += atomic_load(&limits->counts[rank]);
    return count;
}

static struct list *list_of(struct conn_tickets *tickets, enum conn_rank rank) {
    if (rank == CONN_RANK_UNAUTHENTICATED)
        return &tickets->unauthenticated;
    return rank == CONN_RANK_RESERVED ? &tickets->reserved : NULL;
}

/* Counts before it stops counting, so that the sum is never too small for another loop. */
static void set_rank(struct conn_ticket *ticket, enum conn_rank rank) {
    struct conn_limits *limits = ticket->tickets->limits;
    struct list *list = list_of(ticket->tickets, rank);
    if (rank != CONN_RANK_NONE)
        atomic_fetch_add(&limits->counts[rank], 1);
    if (ticket->rank != CONN_RANK_NONE)
        atomic_fetch_sub(&limits->counts[ticket->rank], 1);
    if (list_node_is_linked(&ticket->node))
        list_remove(&ticket->node);
    if (list)
        list_push_back(list, &ticket->node);
    ticket->rank = rank;
}

static size_t count_of(const struct conn_limits *limits, enum conn_rank one, enum conn_rank other) {
    return atomic_load(&limits->counts[one]) + atomic_load(&limits->counts[other]);
}

static bool is_over(const struct conn_limits *limits) {
    return atomic_load(&limits->counts[CONN_RANK_UNAUTHENTICATED]) > limits->unauthenticated_max ||
           count_of(limits, CONN_RANK_UNAUTHENTICATED, CONN_RANK_ADMITTED) > limits->conn_max;
}

/* The one that was silent longest, other than the ticket; or NULL. */
static struct conn_ticket *oldest_other(const struct list *list, const struct conn_ticket *ticket) {
    struct list_node *first = list_first(list);
    struct conn_ticket *oldest = first ? container_of(first, struct conn_ticket, node) : NULL;
    return oldest == ticket ? NULL : oldest;
}

static struct conn_ticket *reserve(struct conn_ticket *ticket, enum conn_rank rank) {
    const struct conn_limits *limits = ticket->tickets->limits;
    set_rank(ticket, rank);
    if (count_of(limits, CONN_RANK_RESERVED, CONN_RANK_OPERATOR) <= limits->reserved_max)
        return NULL;
    struct conn_ticket *oldest = oldest_other(&ticket->tickets->reserved, ticket);
    return oldest ? oldest : ticket;
}

struct conn_ticket *conn_ticket_take(struct conn_tickets *tickets, struct conn_ticket *ticket,
                                     bool is_operators) {
    ticket->tickets = tickets;
    set_rank(ticket, is_operators ? CONN_RANK_ADMITTED : CONN_RANK_UNAUTHENTICATED);
    if (!is_over(tickets->limits))
        return NULL;
    struct conn_ticket *oldest = oldest_other(&tickets->unauthenticated, ticket);
    if (oldest)
        return oldest;
    return reserve(ticket, is_operators ? CONN_RANK_OPERATOR : CONN_RANK_RESERVED);
}

struct conn_ticket *conn_ticket_reserve(struct conn_tickets *tickets, struct conn_ticket *ticket) {
    ticket->tickets = tickets;
    return reserve(ticket, CONN_RANK_RESERVED);
}

void conn_ticket_touch(struct conn_ticket *ticket) {
    struct list *list = ticket->tickets ? list_of(ticket->tickets, ticket->rank) : NULL;
    if (!list)
        return;
    list_remove(&ticket->node);
    list_push_back(list, &ticket->node);
}

void conn_ticket_admit(struct conn_ticket *ticket) {
    if (ticket->rank == CONN_RANK_UNAUTHENTICATED)
        set_rank(ticket, CONN_RANK_ADMITTED);
    else if (ticket->rank == CONN_RANK_RESERVED)
        set_rank(ticket, CONN_RANK_OPERATOR);
}

void conn_ticket_return(struct conn_ticket *ticket) {
    if (ticket->rank != CONN_RANK_NONE)
        set_rank(ticket, CONN_RANK_NONE);
}
