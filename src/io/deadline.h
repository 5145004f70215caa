/* Deadlines of a loop: a few kinds, each with one usual delay and one callback.
 * Deadlines belong to their loop's thread.
 * Memory: a deadline is a member of its owner, and must be all zeroes before its first use.
 * Errors: none.
 * Each kind is a list in order of time, so its first deadline is its earliest. Setting, moving or
 * dropping a deadline takes a few instructions. */
#ifndef IO_DEADLINE_H
#define IO_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

enum deadline_kind {
    DEADLINE_REQUEST,      /* a request must arrive, or an answer must be read */
    DEADLINE_IDLE,         /* nothing happened between two requests */
    DEADLINE_LINGER,       /* the last answer is sent and the peer has not closed */
    DEADLINE_SILENCE,      /* the peer of a WebSocket has sent nothing */
    DEADLINE_HEARTBEAT,    /* the next heartbeat of a session is due */
    DEADLINE_STRIKE_CHECK, /* a session that is behind is checked again */
    DEADLINE_EXPIRY,       /* the token of a session ends soon */
    DEADLINE_WAIT,         /* a long poll ends without an event; each has its own delay */
    DEADLINE_KIND_COUNT,
};

struct deadline {
    struct list_node node;
    uint64_t at_ms; /* 0: not set */
    enum deadline_kind kind;
};

struct deadline_queue {
    struct {
        struct list deadlines; /* earliest first */
        uint64_t delay_ms;
        void (*expired)(struct deadline *deadline);
    } kinds[DEADLINE_KIND_COUNT];
};

void deadline_queue_init(struct deadline_queue *queue);
/* Sets the usual delay of a kind, and the callback for a deadline of that kind that passes. */
void deadline_queue_define(struct deadline_queue *queue, enum deadline_kind kind, uint64_t delay_ms,
                           void (*expired)(struct deadline *deadline));
/* Searches for the position from the latest deadline backwards. That is slow for a kind with many
 * different delays, so such kinds are few. */
void deadline_set_at(struct deadline_queue *queue, struct deadline *deadline,
                     enum deadline_kind kind, uint64_t at_ms);
void deadline_drop(struct deadline *deadline);
/* Removes and returns one deadline that has passed, or NULL. The caller runs its kind's callback.
 */
struct deadline *deadline_expired(struct deadline_queue *queue, uint64_t now_ms);
/* The time of the next deadline; UINT64_MAX when no deadline is set. */
uint64_t deadline_next_ms(const struct deadline_queue *queue);

#endif
