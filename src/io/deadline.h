/* Deadlines of a loop's connections: a few kinds, each with one fixed delay, so that each kind is
 * a queue in order of time and setting, moving or dropping a deadline is a few instructions.
 * Belongs to its loop's thread. Intrusive: allocates nothing. Cannot fail.
 * The head of a queue is always its earliest deadline. */
#ifndef IO_DEADLINE_H
#define IO_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

enum deadline_kind {
    DEADLINE_REQUEST,      /* a request arrives, an answer is read */
    DEADLINE_IDLE,         /* nothing happens between requests */
    DEADLINE_LINGER,       /* the last answer is out, and the peer does not end */
    DEADLINE_SILENCE,      /* a WebSocket whose peer says nothing */
    DEADLINE_HEARTBEAT,    /* a session's next heartbeat */
    DEADLINE_STRIKE_CHECK, /* whether a session that is behind catches up */
    DEADLINE_EXPIRY,       /* a session's token is about to end; only those that soon will */
    DEADLINE_WAIT,         /* a poll that waits for news; each has its own delay */
    DEADLINE_KIND_COUNT,
};

struct deadline {
    struct deadline *previous;
    struct deadline *next;
    uint64_t at_ms; /* 0: not set */
    enum deadline_kind kind;
};

struct deadline_queue {
    struct deadline heads[DEADLINE_KIND_COUNT];
    uint64_t delays_ms[DEADLINE_KIND_COUNT];
};

void deadline_queue_init(struct deadline_queue *queue);
void deadline_set(struct deadline_queue *queue, struct deadline *deadline, enum deadline_kind kind,
                  uint64_t now_ms);
/* With a delay of its own: found by walking back from the latest, so kinds whose delays differ
 * are few. */
void deadline_set_at(struct deadline_queue *queue, struct deadline *deadline,
                     enum deadline_kind kind, uint64_t at_ms);
void deadline_drop(struct deadline *deadline);
/* Takes out one deadline that has passed, or answers NULL. */
struct deadline *deadline_expired(struct deadline_queue *queue, uint64_t now_ms);
/* When to look again; UINT64_MAX when nothing is set. */
uint64_t deadline_next_ms(const struct deadline_queue *queue);

#endif
