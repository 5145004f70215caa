/* Deadlines of a loop: a few kinds, each with one usual delay and one callback, so that a kind is a
 * list in order of time. Setting, moving or dropping a deadline takes a few instructions.
 * Deadlines belong to their loop's thread.
 * Memory: intrusive; the queue allocates nothing.
 * Errors: none.
 * The first deadline of a kind is always its earliest. */
#ifndef IO_DEADLINE_H
#define IO_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

enum deadline_kind {
    DEADLINE_REQUEST,      /* a request must arrive, or an answer must be read */
    DEADLINE_IDLE,         /* nothing happened between two requests */
    DEADLINE_LINGER,       /* the last answer is sent and the peer has not closed */
    DEADLINE_SILENCE,      /* the peer of a WebSocket has sent nothing */
    DEADLINE_HEARTBEAT,    /* the next heartbeat of a session is due */
    DEADLINE_STRIKE_CHECK, /* a session that is behind is checked again */
    DEADLINE_EXPIRY,       /* the token of a session ends soon */
    DEADLINE_WAIT,         /* a long poll has waited enough; each has its own delay */
    DEADLINE_KIND_COUNT,
};

struct deadline {
    struct deadline *previous;
    struct deadline *next;
    uint64_t at_ms; /* 0: not set */
    enum deadline_kind kind;
};

struct deadline_queue {
    struct {
        struct deadline head;
        uint64_t delay_ms;
        void (*expired)(struct deadline *deadline);
    } kinds[DEADLINE_KIND_COUNT];
};

void deadline_queue_init(struct deadline_queue *queue);
/* What happens when a deadline of the kind passes, and its usual delay. */
void deadline_queue_define(struct deadline_queue *queue, enum deadline_kind kind, uint64_t delay_ms,
                           void (*expired)(struct deadline *deadline));
/* With the kind's usual delay. */
void deadline_set(struct deadline_queue *queue, struct deadline *deadline, enum deadline_kind kind,
                  uint64_t now_ms);
/* Finds its position from the latest deadline backwards, so kinds whose delays differ are few. */
void deadline_set_at(struct deadline_queue *queue, struct deadline *deadline,
                     enum deadline_kind kind, uint64_t at_ms);
void deadline_drop(struct deadline *deadline);
/* Takes out one deadline that has passed; NULL: none has. The caller runs its kind's callback. */
struct deadline *deadline_expired(struct deadline_queue *queue, uint64_t now_ms);
/* When the next deadline passes; UINT64_MAX when none is set. */
uint64_t deadline_next_ms(const struct deadline_queue *queue);

#endif
