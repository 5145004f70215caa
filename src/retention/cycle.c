/* A page: topics are walked and looked at in one short read, until they are enough for a batch.
 * Then the read is over, the batch is pruned, and the report gets them all. A topic with more rows
 * to go than the batch took is looked at again first. */
#include "retention/cycle.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"

#define PAGE_TOPICS_MAX PRUNE_BATCH_TOPICS_MAX
#define MS_PER_SECOND   1000u
#define NOT_PRUNED      SIZE_MAX

struct looked_at {
    struct retention_topic topic;
    uint64_t due_ms;
    size_t prune; /* its place in the batch */
};

struct cycle {
    const struct cycle_options *options;
    struct retention_report *report;
    uint64_t next_ref;
    uint64_t last_ref; /* of all topics when the pass began */
    bool is_full;      /* the page ended for want of room in the batch */
    bool is_damaged;   /* some topic is: the others are looked at all the same */
    struct arena names;
    struct looked_at page[PAGE_TOPICS_MAX];
    size_t page_count;
    struct prune_batch batch;
};

/* ---- looking ---- */

static uint64_t retention_ms(const struct policy *policy) {
    return policy->retention_seconds * MS_PER_SECOND;
}

static void plan_prune(struct cycle *cycle, struct looked_at *looked, uint64_t first_seq,
                       bool has_rows) {
    struct prune_batch *batch = &cycle->batch;
    uint64_t expired = first_seq - looked->topic.oldest_seq;
    looked->prune = batch->count++;
    batch->names[looked->prune] = looked->topic.topic;
    batch->prunes[looked->prune] = (struct store_prune){
        .topic_ref = looked->topic.ref, .below_seq = first_seq, .limit = expired};
    batch->work += has_rows ? 1 + expired : 1;
}

/* What is due next: its first frame, or one that would be born now. */
static uint64_t due_ms(const struct cycle *cycle, const struct policy *policy,
                       const struct store_expiry *expiry) {
    uint64_t born_ms = expiry->first_at_ms > 0 ? expiry->first_at_ms : cycle->options->now_ms;
    return born_ms + retention_ms(policy) + 1;
}

static enum status look(struct cycle *cycle, const struct store_topic *topic) {
    const struct cycle_options *options = cycle->options;
    struct prune_batch *batch = &cycle->batch;
    const struct policy *policy = policy_of(options->policies, topic->name);
    uint64_t age_ms = retention_ms(policy);
    uint64_t before_ms = options->now_ms > age_ms ? options->now_ms - age_ms : 0;
    struct store_expiry expiry;
    enum status status = store_find_expired(options->session, topic, before_ms,
                                            batch->work_max - batch->work, &expiry);
    if (status != STATUS_OK)
        return status;
    struct looked_at *looked = &cycle->page[cycle->page_count];
    *looked = (struct looked_at){
        .topic = {.ref = topic->ref,
                  .topic = arena_copy(&cycle->names, topic->name),
                  .policy = policy,
                  .oldest_seq = topic->oldest_seq,
                  .head_seq = topic->head_seq},
        .due_ms = due_ms(cycle, policy, &expiry),
        .prune = NOT_PRUNED,
    };
    if (!looked->topic.topic.data)
        return STATUS_OUT_OF_MEMORY;
    if (expiry.first_seq > topic->oldest_seq)
        plan_prune(cycle, looked, expiry.first_seq, topic->entity_ref == 0);
    cycle->page_count++;
    return STATUS_OK;
}

static enum status walk_topic(void *user, const struct store_topic *topic) {
    struct cycle *cycle = user;
    if (topic->ref > cycle->last_ref)
        return STATUS_LIMIT_REACHED;
    enum status status = look(cycle, topic);
    if (status == STATUS_INTERNAL_ERROR)
        cycle->is_damaged = true;
    else if (status != STATUS_OK)
        return status;
    cycle->is_full = cycle->batch.work >= cycle->batch.work_max;
    cycle->next_ref = topic->ref + 1;
    return cycle->is_full ? STATUS_LIMIT_REACHED : STATUS_OK;
}

static enum status read_page(struct cycle *cycle) {
    const struct cycle_options *options = cycle->options;
    uint64_t first_ref = cycle->next_ref;
    uint64_t count = PAGE_TOPICS_MAX;
    if (options->due)
        count = due_run(options->due, first_ref, PAGE_TOPICS_MAX, options->now_ms);
    arena_reset(&cycle->names);
    cycle->page_count = 0;
    cycle->batch.count = 0;
    cycle->batch.work = 0;
    cycle->is_full = false;
    enum status status =
        store_walk_topics(options->session, first_ref - 1, count, cycle, walk_topic);
    /* Refs need not be dense; a page without any is the end of them. */
    if (cycle->next_ref == first_ref)
        cycle->next_ref = cycle->last_ref + 1;
    return status == STATUS_LIMIT_REACHED ? STATUS_OK : status;
}

/* ---- pruning ---- */

/* Whether a batch that was full has left some of its last topic. */
static bool has_more(const struct cycle *cycle, const struct looked_at *looked) {
    const struct prune_batch *batch = &cycle->batch;
    return cycle->is_full && looked->prune == batch->count - 1 &&
           batch->prunes[looked->prune].pruned > 0;
}

static void note_topic(struct cycle *cycle, struct looked_at *looked) {
    bool is_held = false;
    if (looked->prune != NOT_PRUNED) {
        const struct store_prune *prune = &cycle->batch.prunes[looked->prune];
        looked->topic.deleted = prune->pruned;
        looked->topic.oldest_seq = prune->oldest_seq;
        looked->topic.head_seq = prune->head_seq;
        looked->topic.has_more = has_more(cycle, looked);
        is_held = prune->pruned < prune->limit;
    }
    retention_report_add(cycle->report, &looked->topic);
    if (looked->topic.has_more)
        cycle->next_ref = looked->topic.ref;
    /* What is pinned is tried again with every pass. */
    if (cycle->options->due)
        due_set(cycle->options->due, looked->topic.ref,
                is_held || looked->topic.has_more ? 0 : looked->due_ms);
}

static enum status run_page(struct cycle *cycle) {
    const struct cycle_options *options = cycle->options;
    enum status status = options->may_go_on ? options->may_go_on(options->user) : STATUS_OK;
    if (status == STATUS_OK)
        status = read_page(cycle);
    if (status == STATUS_OK && cycle->batch.count > 0)
        status = options->prune(options->user, &cycle->batch);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < cycle->page_count; i++)
        note_topic(cycle, &cycle->page[i]);
    return STATUS_OK;
}

enum status retention_cycle(const struct cycle_options *options, struct retention_report *report) {
    struct store_state state;
    report->now_ms = options->now_ms;
    assert(options->work_max > 0 && options->work_max <= PRUNE_BATCH_WORK_MAX);
    enum status status = store_read_state(options->session, &state);
    if (status != STATUS_OK)
        return status;
    struct cycle *cycle = calloc(1, sizeof(*cycle));
    if (!cycle)
        return STATUS_OUT_OF_MEMORY;
    cycle->options = options;
    cycle->report = report;
    cycle->last_ref = state.topic_ref;
    cycle->batch.work_max = options->work_max;
    cycle->next_ref = 1;
    arena_init(&cycle->names, RETENTION_CYCLE_NAMES_BYTES_MAX);
    while (status == STATUS_OK && cycle->next_ref <= cycle->last_ref) {
        if (options->due)
            cycle->next_ref =
                due_next(options->due, cycle->next_ref, cycle->last_ref, options->now_ms);
        if (cycle->next_ref <= cycle->last_ref)
            status = run_page(cycle);
    }
    if (status == STATUS_OK && cycle->is_damaged)
        status = STATUS_INTERNAL_ERROR;
    arena_release(&cycle->names);
    free(cycle);
    return status;
}
