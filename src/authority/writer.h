/* The writer: the one thread that sequences, folds and commits.
 * Thread: the writer has its own, on which hooks and the done of groups run. The main thread starts
 * and stops it. Any thread may post.
 * Memory: a bounded cache of entities, and one batch. The mailbox is bounded.
 * Errors: STATUS_LIMIT_REACHED if the mailbox is full, STATUS_SHUTTING_DOWN after writer_stop: the
 * group then stays the caller's. While the store cannot be written, groups are answered with
 * STATUS_STORE_UNAVAILABLE, and the writer recovers when the cause is gone. On a node that is not
 * the writer, groups and most jobs are answered as the role says (cluster/role.h). A commit of
 * which the store does not say whether it succeeded is answered with
 * STATUS_APPEND_OUTCOME_UNKNOWN. Damaged derived rows refuse nothing.
 * Invariant: groups take turns by principal (authority/writer_queue.h). Sequences, cursors and
 * answers of one principal follow the order of posting. A group beyond its principal's share of the
 * queue is answered with STATUS_LIMIT_REACHED.
 */
#ifndef AUTHORITY_WRITER_H
#define AUTHORITY_WRITER_H

#include "authority/append.h"
#include "base/clock.h"
#include "cluster/follow.h"
#include "topic/policy.h"

struct projection; /* authority/projection.h: how the writer folds, without knowing the projector */
struct writer;

/* Other work with the write session. It must not change the log or its entities. The writer does
 * not touch the job after run. */
struct writer_job {
    struct writer_item posted;
    /* Writes revocations, single uses or secrets, which need no writer role. It also runs while
     * another node is the writer, and gets the side session of a store that has one. */
    bool any_node;
    void (*run)(struct writer_job *job, struct store_session *session);
};

struct writer_options {
    struct store *store;
    const struct policy_table *policies;
    struct quota_table *quotas;          /* NULL: nothing is limited */
    const struct projection *projection; /* NULL: nothing is derived */
    /* After a commit, on the writer's thread, before the answers; for the hub. states[i] is the
     * entity of batch->events[i] as of that event. May be NULL. */
    void (*on_commit)(void *user, const struct store_batch *batch,
                      const struct store_entity *states);
    /* A request is refused, on the writer's thread, before it is answered. May be NULL. */
    void (*on_refused)(void *user, const struct append_request *request);
    void *user; /* of both */
    /* Groups that may wait, in the mailbox and again by turns; principals have shares of them. */
    uint64_t group_max;
    uint64_t bytes_max; /* memory that waiting groups may hold; one alone may always wait */
    /* Time from elsewhere, for tests. NULL: the system's. */
    clock_read_cb *clock_read;
    void *clock_user;
    uint64_t follow_poll_ms; /* between two reads of the log without a hint; 0: one node alone */
    struct follow_hooks follow;
    uint64_t outbox_poll_ms;       /* between two reads of an empty outbox; 0: it is not read */
    uint64_t outbox_row_bytes_max; /* a larger row is rejected */
    uint64_t entity_count_max;     /* entities kept in memory; 0: as many as usual */
};

struct writer_stats {
    uint64_t commits;
    uint64_t events;
    uint64_t refused;
    uint64_t deduplicated;
    uint64_t commit_failures;
    uint64_t underived; /* commits without their derived rows, which the store refused */
    uint64_t cursor_ms; /* the time of the last event's cursor; 0: no event */
};

MUST_CHECK enum status writer_start(struct writer **writer, const struct writer_options *options);
/* Posts without waking the writer, which may be asleep until writer_wake_for_posts. A thread that
 * posts several groups wakes the writer once for all, so that one commit holds them. */
MUST_CHECK enum status writer_post_silently(struct writer *writer, struct append_group *group);
void writer_wake_for_posts(struct writer *writer);
MUST_CHECK static inline enum status writer_post(struct writer *writer,
                                                 struct append_group *group) {
    enum status status = writer_post_silently(writer, group);
    if (status == STATUS_OK)
        writer_wake_for_posts(writer);
    return status;
}
/* Runs between two batches. Jobs run in order of posting, but groups that were posted before a job
 * may wait longer than it. Appends wait while it runs, so long work is posted in pieces. Takes no
 * place in the queue of appends: a job is the one job of its caller. */
MUST_CHECK enum status writer_post_job(struct writer *writer, struct writer_job *job);
/* NULL: nothing is derived. Its functions belong to the writer's thread. */
const struct projection *writer_projection(const struct writer *writer);
/* For jobs: announces their commits as the writer announces its own. */
void writer_announce(struct writer *writer, const struct store_batch *batch,
                     const struct store_entity *states);
/* Any thread. done runs on the writer's thread after a pass over the log that began later than this
 * call, or soon with the role. The wait is the writer's until then. */
void writer_follow_post(struct writer *writer, struct follow_wait *wait);
/* Any thread: another node may have extended the log. */
void writer_hint_post(struct writer *writer);
/* Any thread: the row of this node, or a revocation, may be new. */
void writer_beat_post(struct writer *writer);
/* Any thread: this node may write. */
bool writer_has_role(const struct writer *writer);
/* Any thread: the store said that another node may write. */
bool writer_is_elsewhere(const struct writer *writer);
/* Finishes all posted items, then ends the thread. */
void writer_stop(struct writer *writer);
/* Any thread. From a call with true until one with false, requests that import nothing are refused
 * with STATUS_IMPORT_IN_PROGRESS. False: another import is in progress, and nothing changes. */
MUST_CHECK bool writer_set_importing(struct writer *writer, bool is_importing);
/* Any thread: false when the last commit succeeded; otherwise the reason why it failed. */
bool writer_is_failing(const struct writer *writer, enum reason *reason);
/* Any thread. */
struct writer_stats writer_stats(const struct writer *writer);

#endif
