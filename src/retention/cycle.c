/* A pass goes by pages. A page inspects topics in one short read until they fill a batch. Then the
 * read ends, the batch is pruned, and the report gets the topics. A topic with more expired rows
 * than the batch took comes first in the next page. */
#include "retention/cycle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

#define PAGE_TOPICS_MAX PRUNE_BATCH_TOPICS_MAX
#define MS_PER_SECOND   1000u
#define NOT_PRUNED      SIZE_MAX

struct inspected {
    struct retention_topic topic;
    uint64_t due_ms;
    size_t prune; /* its index in the batch, or NOT_PRUNED */
};

struct cycle {
    const struct cycle_options *options;
    struct retention_report *report;
    uint64_t next_ref;
    uint64_t last_ref; /* the last topic when the pass began */
    bool is_full;      /* the page ended because the batch was full */
    bool is_damaged;   /* a topic is damaged; the others are still inspected */
    struct arena names;
    struct inspected page[PAGE_TOPICS_MAX];
    size_t page_count;
    struct prune_batch batch;
};

/* Inspects a topic: adds it to the page, and to the batch if it has expired frames. */
static enum status walk_topic(void *user, const struct store_topic *topic) {
    struct cycle *cycle = user;
    const struct cycle_options *options = cycle->options;
    struct prune_batch *batch = &cycle->batch;
    if (topic->ref > cycle->last_ref)
        return STATUS_LIMIT_REACHED;
    const struct policy *policy = policy_of(options->policies, topic->name);
    uint64_t age_ms = policy->retention_seconds * MS_PER_SECOND;
    const struct store_expiry_query query = {
        .before_ms = options->now_ms > age_ms ? options->now_ms - age_ms : 0,
        .now_ms = options->now_ms,
        .limit = batch->work_max - batch->work,
    };
    struct store_expiry expiry;
    enum status status = store_find_expired(options->session, topic, &query, &expiry);
    if (status == STATUS_INTERNAL_ERROR) {
        cycle->is_damaged = true;
        cycle->next_ref = topic->ref + 1;
        return STATUS_OK;
    }
    if (status != STATUS_OK)
        return status;
    struct inspected *inspected = &cycle->page[cycle->page_count];
    /* The topic is due when its first frame expires, or when a frame published now would. */
    uint64_t published_ms = expiry.first_at_ms > 0 ? expiry.first_at_ms : options->now_ms;
    *inspected = (struct inspected){
        .topic = {.ref = topic->ref,
                  .topic = arena_copy(&cycle->names, topic->name),
                  .policy = policy,
                  .oldest_seq = topic->oldest_seq,
                  .head_seq = topic->head_seq},
        .due_ms = published_ms + age_ms + 1,
        .prune = NOT_PRUNED,
    };
    if (!inspected->topic.topic.data)
        return STATUS_OUT_OF_MEMORY;
    if (expiry.first_seq > topic->oldest_seq) {
        bool has_rows = topic->entity_ref == 0;
        uint64_t expired = expiry.first_seq - topic->oldest_seq;
        /* Frames dated in the future go with the expired frame behind them, so that there may be
         * more of both than fit. */
        if (has_rows && expired > batch->work_max - batch->work)
            expired = batch->work_max - batch->work;
        inspected->prune = batch->count++;
        batch->names[inspected->prune] = inspected->topic.topic;
        batch->prunes[inspected->prune] = (struct store_prune){
            .topic_ref = topic->ref, .below_seq = expiry.first_seq, .limit = expired};
        batch->work += has_rows ? 1 + expired : 1;
    }
    cycle->page_count++;
    cycle->is_full = batch->work >= batch->work_max;
    cycle->next_ref = topic->ref + 1;
    return cycle->is_full ? STATUS_LIMIT_REACHED : STATUS_OK;
}

/* Inspects topics until they fill a batch, and prunes it. Then reports each topic, and notes when
 * it is due again. */
static enum status run_page(struct cycle *cycle) {
    const struct cycle_options *options = cycle->options;
    uint64_t first_ref = cycle->next_ref;
    uint64_t count = PAGE_TOPICS_MAX;
    enum status status = options->may_continue ? options->may_continue(options->user) : STATUS_OK;
    if (status != STATUS_OK)
        return status;
    if (options->due)
        count = due_run(options->due, first_ref, PAGE_TOPICS_MAX, options->now_ms);
    arena_reset(&cycle->names);
    cycle->page_count = 0;
    cycle->batch.count = 0;
    cycle->batch.work = 0;
    cycle->is_full = false;
    status = store_walk_topics(options->session, first_ref - 1, count, cycle, walk_topic);
    /* Refs may have gaps. An empty page is the end. */
    if (cycle->next_ref == first_ref)
        cycle->next_ref = cycle->last_ref + 1;
    if (status == STATUS_LIMIT_REACHED)
        status = STATUS_OK;
    if (status == STATUS_OK && cycle->batch.count > 0)
        status = options->prune(options->user, &cycle->batch);
    for (size_t i = 0; status == STATUS_OK && i < cycle->page_count; i++) {
        const struct inspected *inspected = &cycle->page[i];
        struct retention_topic *topic = &cycle->page[i].topic;
        bool is_pinned = false;
        if (inspected->prune != NOT_PRUNED) {
            const struct store_prune *prune = &cycle->batch.prunes[inspected->prune];
            topic->deleted = prune->pruned;
            topic->oldest_seq = prune->oldest_seq;
            topic->head_seq = prune->head_seq;
            /* A full batch left expired rows of its last topic. */
            topic->has_more =
                cycle->is_full && inspected->prune == cycle->batch.count - 1 && prune->pruned > 0;
            is_pinned = prune->pruned < prune->limit;
        }
        retention_report_add(cycle->report, topic);
        if (topic->has_more)
            cycle->next_ref = topic->ref;
        /* A pinned topic is tried again in every pass. */
        if (options->due)
            due_set(options->due, topic->ref, is_pinned || topic->has_more ? 0 : inspected->due_ms);
    }
    return status;
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

/* ---- due times -------------------------------------------------------------------------- */

#define REFS_FIRST 1024
#define REFS_MAX   (RETENTION_DUE_BYTES_MAX / sizeof(uint64_t))

void due_clear(struct due *due) {
    free(due->at_ms);
    *due = (struct due){NULL, 0};
}

void due_set(struct due *due, uint64_t ref, uint64_t at_ms) {
    if (ref >= due->capacity) {
        size_t capacity = due->capacity > 0 ? due->capacity : REFS_FIRST;
        if (ref >= REFS_MAX)
            return;
        while (capacity <= ref)
            capacity *= 2;
        uint64_t *grown = realloc(due->at_ms, capacity * sizeof(*grown));
        if (!grown)
            return;
        memset(grown + due->capacity, 0, (capacity - due->capacity) * sizeof(*grown));
        due->at_ms = grown;
        due->capacity = capacity;
    }
    due->at_ms[ref] = at_ms;
}

bool due_is(const struct due *due, uint64_t ref, uint64_t now_ms) {
    return ref >= due->capacity || due->at_ms[ref] <= now_ms;
}

uint64_t due_next(const struct due *due, uint64_t ref, uint64_t last, uint64_t now_ms) {
    while (ref <= last && !due_is(due, ref, now_ms))
        ref++;
    return ref;
}

uint64_t due_run(const struct due *due, uint64_t ref, uint64_t count_max, uint64_t now_ms) {
    uint64_t count = 0;
    while (count < count_max && due_is(due, ref + count, now_ms))
        count++;
    return count;
}

/* ---- the pace beside appends ------------------------------------------------------------ */

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high) {
    if (value < low)
        return low;
    return value < high ? value : high;
}

void pace_init(struct pace *pace, uint64_t work_min, uint64_t work_max) {
    *pace = (struct pace){work_min, work_max, clamp(1000, work_min, work_max)};
}

uint64_t pace_update(struct pace *pace, const struct pace_batch *batch, bool is_busy) {
    uint64_t computed_ns = batch->computed_ns > 0 ? batch->computed_ns : 1;
    uint64_t fitting = batch->work * PACE_BATCH_NS / computed_ns;
    /* A quick batch counts only if it was at least half as large as allowed. One batch changes the
     * size by a factor of two at most. */
    if (computed_ns > PACE_BATCH_NS || batch->work >= pace->work_next / 2)
        pace->work_next = clamp(clamp(fitting, pace->work_next / 2, pace->work_next * 2),
                                pace->work_min, pace->work_max);
    return is_busy ? clamp(batch->took_ns * (PACE_SHARE - 1), 0, PACE_PAUSE_NS_MAX) : 0;
}
