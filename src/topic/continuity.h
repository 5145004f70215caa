/* Continuity: whether a cursor can resume, and where a client starts when it cannot.
 * Thread: any.
 * Memory: values; texts go to the caller's buffer.
 * Errors: a full buffer keeps its old content. A decision cannot fail.
 * Invariant: resuming from the start of a bootstrap is never stale, so a client cannot loop. */
#ifndef TOPIC_CONTINUITY_H
#define TOPIC_CONTINUITY_H

#include <stdint.h>

#include "base/buffer.h"
#include "topic/position.h"

/* The range of events in the journal of a topic. An empty journal has oldest_seq = head_seq + 1. A
 * topic without any event so far has head_seq 0. */
struct topic_window {
    uint64_t oldest_seq;
    uint64_t head_seq;
    uint64_t replay_budget_events;
};

enum continuity_decision { CONTINUITY_RESUME, CONTINUITY_REBOOTSTRAP };

/* The fork point of a topic. Up to it the topic is the same in all epochs of its log: it is the
 * lowest head at which a later epoch began. Not set in a log with one epoch. */
struct topic_fork {
    bool is_set;
    uint64_t seq;
};

/* Whether a cursor belongs to the history of its topic. */
struct lineage {
    bool epoch_differs; /* the client named another epoch than the topic's */
    bool lacks_epoch;   /* the client named none, and the cursor may count another history */
    bool is_ahead;      /* the cursor is beyond the head */
    bool is_damaged;    /* frames after the cursor were lost by damage */
};

/* window: NULL for a topic that does not exist. A cursor before the first frame, 0, belongs to
 * every history. */
struct lineage lineage_of(const struct topic_window *window, const struct position *position,
                          const struct topic_epoch *epoch, const struct topic_fork *fork);

#define CONTINUITY_REASONS_MAX 6

struct continuity {
    enum continuity_decision decision;
    uint64_t after_seq;
    /* In this order: epoch_mismatch or epoch_required, cursor_ahead_of_head,
     * retention_floor_breach or journal_damaged, replay_budget_exceeded. */
    enum reason reasons[CONTINUITY_REASONS_MAX];
    size_t reason_count;
    /* From the window; all are 0 without a window. */
    uint64_t oldest_available_cursor;
    uint64_t head_cursor;
    uint64_t replay_lag;
    uint64_t replay_budget_events;
};

/* The decision by lineage, floor and budget. A cursor without a window (NULL) resumes in the same
 * epoch. */
struct continuity continuity_judge(const struct topic_window *window, uint64_t after_seq,
                                   struct lineage lineage);
/* The same for a window that a client knows: it may be older than the cursor. So a cursor ahead of
 * the head resumes, with a lag of 0. */
struct continuity continuity_plan(const struct topic_window *window, uint64_t after_seq,
                                  bool epoch_differs);
/* {"decision":"resume","after_seq":5}, or the rebootstrap with its reasons and numbers. */
MUST_CHECK enum status continuity_write_json(struct buffer *out,
                                             const struct continuity *continuity);
/* The same as text: "resume", or "rebootstrap" and its reasons with commas between. */
MUST_CHECK enum status continuity_write_text(struct buffer *out,
                                             const struct continuity *continuity);

/* The budget does not apply to this cursor: removes that reason, which is the last one. */
void continuity_lift_budget(struct continuity *continuity);

/* The first event that a client without a cursor gets from a topic without snapshots. */
struct continuity_bootstrap {
    uint64_t from_seq;
    /* Events before from_seq existed and are not sent. */
    bool truncated;
};

struct continuity_bootstrap continuity_bootstrap(const struct topic_window *window);

#endif
