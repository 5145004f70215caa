/* Whether a cursor can continue where it is, and where to begin when it cannot.
 * Any thread. Values in, values out; only the texts go to the caller's buffer.
 * Deciding cannot fail; a buffer that is full is left as it was.
 * Resuming after a bootstrap's start is never stale, so a client cannot loop. */
#ifndef TOPIC_CONTINUITY_H
#define TOPIC_CONTINUITY_H

#include <stdint.h>

#include "base/buffer.h"

/* What the journal of a topic holds. Pruned to nothing, its oldest_seq is head_seq + 1; a topic
 * that never had an event has head_seq 0. */
struct topic_window {
    uint64_t oldest_seq;
    uint64_t head_seq;
    uint64_t replay_budget_events;
};

enum continuity_decision { CONTINUITY_RESUME, CONTINUITY_REBOOTSTRAP };

#define CONTINUITY_REASONS_MAX 3

struct continuity {
    enum continuity_decision decision;
    uint64_t after_seq;
    /* In this order: epoch_mismatch, retention_floor_breach, replay_budget_exceeded. */
    enum reason reasons[CONTINUITY_REASONS_MAX];
    size_t reason_count;
    /* Of the window; all 0 without one. */
    uint64_t oldest_available_cursor;
    uint64_t head_cursor;
    uint64_t replay_lag;
    uint64_t replay_budget_events;
};

/* No window (NULL) resumes. A cursor ahead of the head resumes too, with a lag of 0.
 * epoch_differs: the client named an epoch, and it is not the store's. */
struct continuity continuity_plan(const struct topic_window *window, uint64_t after_seq,
                                  bool epoch_differs);
/* {"decision":"resume","after_seq":5}, or the rebootstrap with its reasons and numbers. */
MUST_CHECK enum status continuity_write_json(struct buffer *out,
                                             const struct continuity *continuity);
/* The same for people: "resume", or "rebootstrap" and its reasons with commas between. */
MUST_CHECK enum status continuity_write_text(struct buffer *out,
                                             const struct continuity *continuity);

/* Where a topic without snapshots begins for a client that has nothing. */
struct continuity_bootstrap {
    uint64_t from_seq;
    /* Events before from_seq existed and will not be sent. */
    bool truncated;
};

struct continuity_bootstrap continuity_bootstrap(const struct topic_window *window);

#endif
