#include "http/admit/conn_tickets.h"

#include <assert.h>

#define SINCE_MS_MAX ((UINT64_C(1) << 56) - 1)

static void queue_init(struct conn_queue *queue) {
    list_init(&queue->tickets);
    atomic_store(&queue->silent_since_ms, UINT64_MAX);
    atomic_store(&queue->asked, 0);
}

void conn_tickets_init(struct conn_tickets *tickets, struct conn_limits *limits) {
    assert(limits->loop_count < LISTEN_SOCKETS_MAX);
    limits->loops[limits->loop_count++] = tickets;
    tickets->limits = limits;
    tickets->table_count = &limits->table_count;
    atomic_store(&tickets->own_count, 0);
    queue_init(&tickets->unauthenticated);
    queue_init(&tickets->reserved);
}

void conn_tickets_own_table(struct conn_tickets *tickets) {
    tickets->table_count = &tickets->own_count;
}

size_t conn_limits_count(const struct conn_limits *limits) {
    size_t count = 0;
    for (size_t rank = CONN_RANK_NONE + 1; rank < CONN_RANK_COUNT; rank++)
        count += atomic_load(&limits->counts[rank]);
    return count;
}

static struct conn_queue *queue_of(struct conn_tickets *tickets, enum conn_rank rank) {
    if (rank == CONN_RANK_UNAUTHENTICATED)
        return &tickets->unauthenticated;
    return rank == CONN_RANK_RESERVED ? &tickets->reserved : NULL;
}

static enum conn_rank rank_of(const struct conn_ticket *ticket) {
    return (enum conn_rank)ticket->rank;
}

static struct conn_ticket *first_of(const struct conn_queue *queue) {
    struct list_node *node = list_first(&queue->tickets);
    return node ? container_of(node, struct conn_ticket, node) : NULL;
}

/* For the other loops. */
static void queue_changed(struct conn_queue *queue) {
    const struct conn_ticket *first = first_of(queue);
    atomic_store(&queue->silent_since_ms, first ? first->silent_since_ms : UINT64_MAX);
}

static bool is_regular(enum conn_rank rank) {
    return rank == CONN_RANK_UNAUTHENTICATED || rank == CONN_RANK_ADMITTED;
}

/* Counts before it stops counting, so that the sum is never too small for another loop. */
static void set_rank(struct conn_ticket *ticket, enum conn_rank rank) {
    struct conn_tickets *tickets = ticket->tickets;
    struct conn_queue *before = queue_of(tickets, rank_of(ticket));
    struct conn_queue *after = queue_of(tickets, rank);
    if (rank != CONN_RANK_NONE)
        atomic_fetch_add(&tickets->limits->counts[rank], 1);
    if (ticket->rank != CONN_RANK_NONE)
        atomic_fetch_sub(&tickets->limits->counts[ticket->rank], 1);
    if (is_regular(rank) && !is_regular(rank_of(ticket)))
        atomic_fetch_add(tickets->table_count, 1);
    if (!is_regular(rank) && is_regular(rank_of(ticket)))
        atomic_fetch_sub(tickets->table_count, 1);
    ticket->rank = rank & UINT8_MAX;
    if (before) {
        list_remove(&ticket->node);
        queue_changed(before);
    }
    if (after) {
        list_push_back(&after->tickets, &ticket->node);
        queue_changed(after);
    }
}

/* ---- limits ---- */

static size_t count_of(const struct conn_limits *limits, enum conn_rank one, enum conn_rank other) {
    return atomic_load(&limits->counts[one]) + atomic_load(&limits->counts[other]);
}

/* Connections that a loop was asked to close do not count. */
static bool is_over(const struct conn_limits *limits, enum conn_rank rank) {
    size_t asked = atomic_load(&limits->asked[rank]);
    if (rank == CONN_RANK_RESERVED)
        return count_of(limits, CONN_RANK_RESERVED, CONN_RANK_OPERATOR) >
               limits->reserved_max + asked;
    return atomic_load(&limits->counts[CONN_RANK_UNAUTHENTICATED]) >
               limits->unauthenticated_max + asked ||
           count_of(limits, CONN_RANK_UNAUTHENTICATED, CONN_RANK_ADMITTED) >
               limits->conn_max + asked;
}

static bool is_table_over(const struct conn_tickets *tickets) {
    size_t conn_max = tickets->limits->table_conn_max;
    return conn_max > 0 && atomic_load(tickets->table_count) > conn_max;
}

/* ---- displacing ---- */

/* The loop, other than this one, with the connection that has been silent since before that time;
 * or NULL. */
static struct conn_tickets *silent_before(const struct conn_tickets *tickets, enum conn_rank rank,
                                          uint64_t before_ms) {
    struct conn_limits *limits = tickets->limits;
    struct conn_tickets *oldest = NULL;
    for (size_t i = 0; i < limits->loop_count; i++) {
        struct conn_tickets *other = limits->loops[i];
        uint64_t since_ms = atomic_load(&queue_of(other, rank)->silent_since_ms);
        if (other == tickets || since_ms >= before_ms)
            continue;
        oldest = other;
        before_ms = since_ms;
    }
    return oldest;
}

/* Takes one of the few closes that other loops may owe: they may be busy. */
static bool ask(struct conn_tickets *elsewhere, enum conn_rank rank) {
    atomic_size_t *asked = &elsewhere->limits->asked[rank];
    if (atomic_fetch_add(asked, 1) >= CONN_ASKED_MAX) {
        atomic_fetch_sub(asked, 1);
        return false;
    }
    atomic_fetch_add(&queue_of(elsewhere, rank)->asked, 1);
    return true;
}

/* The connection of that rank that was silent longest, other than the ticket. If this loop's
 * descriptor table is full, only one of this loop makes room. */
static struct conn_displaced displace(struct conn_ticket *ticket, enum conn_rank rank,
                                      bool is_local) {
    struct conn_tickets *tickets = ticket->tickets;
    struct conn_displaced displaced = {.ticket = first_of(queue_of(tickets, rank))};
    if (displaced.ticket == ticket)
        displaced.ticket = NULL;
    uint64_t since_ms = displaced.ticket ? displaced.ticket->silent_since_ms : UINT64_MAX;
    struct conn_tickets *elsewhere = is_local ? NULL : silent_before(tickets, rank, since_ms);
    if (elsewhere && ask(elsewhere, rank))
        return (struct conn_displaced){.elsewhere = elsewhere};
    return displaced;
}

static bool is_none(struct conn_displaced displaced) {
    return !displaced.ticket && !displaced.elsewhere;
}

static struct conn_displaced reserve(struct conn_ticket *ticket, enum conn_rank rank) {
    set_rank(ticket, rank);
    if (!is_over(ticket->tickets->limits, CONN_RANK_RESERVED))
        return (struct conn_displaced){NULL, NULL};
    struct conn_displaced displaced = displace(ticket, CONN_RANK_RESERVED, false);
    return is_none(displaced) ? (struct conn_displaced){.ticket = ticket} : displaced;
}

struct conn_displaced conn_ticket_take(struct conn_tickets *tickets, struct conn_ticket *ticket,
                                       bool is_operators, uint64_t now_ms) {
    ticket->tickets = tickets;
    ticket->silent_since_ms = now_ms & SINCE_MS_MAX;
    set_rank(ticket, is_operators ? CONN_RANK_ADMITTED : CONN_RANK_UNAUTHENTICATED);
    bool is_local = is_table_over(tickets);
    if (!is_local && !is_over(tickets->limits, CONN_RANK_UNAUTHENTICATED))
        return (struct conn_displaced){NULL, NULL};
    struct conn_displaced displaced = displace(ticket, CONN_RANK_UNAUTHENTICATED, is_local);
    if (!is_none(displaced))
        return displaced;
    return reserve(ticket, is_operators ? CONN_RANK_OPERATOR : CONN_RANK_RESERVED);
}

struct conn_displaced conn_ticket_reserve(struct conn_tickets *tickets, struct conn_ticket *ticket,
                                          uint64_t now_ms) {
    ticket->tickets = tickets;
    ticket->silent_since_ms = now_ms & SINCE_MS_MAX;
    return reserve(ticket, CONN_RANK_RESERVED);
}

struct conn_ticket *conn_tickets_asked(struct conn_tickets *tickets) {
    static const enum conn_rank ranks[] = {CONN_RANK_UNAUTHENTICATED, CONN_RANK_RESERVED};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        struct conn_queue *queue = queue_of(tickets, ranks[i]);
        while (atomic_load(&queue->asked) > 0) {
            atomic_fetch_sub(&queue->asked, 1);
            atomic_fetch_sub(&tickets->limits->asked[ranks[i]], 1);
            struct conn_ticket *first = first_of(queue);
            if (first && is_over(tickets->limits, ranks[i]))
                return first;
        }
    }
    return NULL;
}

/* ---- life ---- */

void conn_ticket_touch(struct conn_ticket *ticket, uint64_t now_ms) {
    struct conn_queue *queue = ticket->tickets ? queue_of(ticket->tickets, rank_of(ticket)) : NULL;
    if (!queue)
        return;
    ticket->silent_since_ms = now_ms & SINCE_MS_MAX;
    list_remove(&ticket->node);
    list_push_back(&queue->tickets, &ticket->node);
    queue_changed(queue);
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
