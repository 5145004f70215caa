/* The groups that wait for the writer, and which of them the next commit holds. A commit takes one
 * turn of each principal (base/fair_queue.h), so a single append waits behind at most one slice of
 * each other principal. A group waits by the principal of its token. The operator writes for
 * others, so a group of the operator waits by the owner of the entity of its first request. Owners
 * and principals with the same name share a lane, and everything without an owner shares one. A
 * batch of the operator that mixes owners is not split: its answers are in order, so its parts
 * would wait for one another. Each slice waits by its own first item, but never in another lane
 * than an earlier slice of its batch that still waits. A principal that has had the queue to
 * itself for WRITER_ALONE_NS gets commits of any size up to the limits of a batch. Larger commits
 * cost less, because they write each summary once.
 * Thread: the writer's.
 * Memory: the groups' own, and a lane for each principal with groups.
 * Errors: STATUS_LIMIT_REACHED for a group beyond the share of its principal,
 * STATUS_OUT_OF_MEMORY.
 * Invariant: the groups of one principal, and of one batch, keep their order. */
#ifndef AUTHORITY_WRITER_QUEUE_H
#define AUTHORITY_WRITER_QUEUE_H

#include "authority/ledger.h"

/* The cost of a slice. */
#define WRITER_QUANTUM  (APPEND_SLICE_REQUESTS_MAX * APPEND_EVENT_COST + APPEND_SLICE_BYTES_MAX)
#define WRITER_ALONE_NS ((uint64_t)10 * 1000000000)

struct writer_queue {
    struct fair_queue groups;
    struct ledger *ledger;    /* knows owners */
    uint64_t shared_until_ns; /* two principals waited at once not long ago */
};

/* The queue may not move. */
void writer_queue_init(struct writer_queue *queue, struct ledger *ledger, size_t group_max,
                       uint64_t bytes_max);
/* The queue is empty. */
void writer_queue_release(struct writer_queue *queue);

static inline bool writer_queue_is_empty(const struct writer_queue *queue) {
    return queue->groups.count == 0;
}

/* Before groups of the list are added, between two batches: reads the entities that decide where
 * they wait, so that they are in memory. */
void writer_queue_find_owners(struct writer_queue *queue, struct mailbox_item *first,
                              const struct mailbox_item *end, struct clock_reading now);
/* The group's bytes and cost are set. */
MUST_CHECK enum status writer_queue_add(struct writer_queue *queue, struct append_group *group,
                                        uint64_t now_ns);
/* The groups of the next commit, in order; NULL: there are none. Groups whose batch was abandoned
 * are refused and listed apart. */
struct mailbox_item *writer_queue_take(struct writer_queue *queue, uint64_t now_ns,
                                       struct mailbox_item **abandoned);
/* Several principals write, so that no commit should be long. */
bool writer_queue_is_shared(const struct writer_queue *queue, uint64_t now_ns);

#endif
