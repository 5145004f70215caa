#include "delivery/replay_budget.h"

#include "base/limits.h"
#include "delivery/viewer.h"

/* ---- frames of the reader ---- */

struct count {
    struct viewer viewer;
    uint64_t own_max; /* counting ends above it */
    uint64_t skip;    /* frames of the reader before the one of found_seq */
    uint64_t rows;
    uint64_t own;
    uint64_t found_seq; /* 0: none */
    bool is_cut;        /* a damaged row ended the count */
};

static enum status count_one(struct count *count, uint64_t seq, uint64_t entity_ref,
                             const struct store_event *event) {
    bool may_read;
    enum status status = viewer_check(&count->viewer, entity_ref, event, &may_read);
    if (status != STATUS_OK)
        return status;
    if (may_read && count->own == count->skip)
        count->found_seq = seq;
    count->rows++;
    count->own += may_read;
    return count->own > count->own_max ? STATUS_LIMIT_REACHED : STATUS_OK;
}

static enum status count_row(void *user, const struct store_journal_row *row,
                             const struct store_event *event) {
    return count_one(user, row->seq, row->entity_ref, event);
}

static enum status count_event(void *user, const struct store_event *event) {
    return count_one(user, event->seq, event->entity_ref, event);
}

static bool is_filtered(const struct replay_reader *reader) {
    return reader->view == GRANT_VIEW_OWN && !reader->principal->read_all;
}

/* A damaged row is mended by the read of frames that gets there, not by a count. */
static enum status walk(struct count *count, struct store_session *session,
                        const struct store_topic *topic, uint64_t after_seq, uint64_t rows_max) {
    enum status status =
        topic->entity_ref > 0
            ? store_walk_entity_events(session, topic->entity_ref, after_seq, rows_max, count,
                                       count_event)
            : store_walk_journal(session, topic->ref, after_seq, rows_max, count, count_row);
    count->is_cut = status == STATUS_INTERNAL_ERROR;
    return status == STATUS_LIMIT_REACHED || count->is_cut ? STATUS_OK : status;
}

static enum status judge_own(struct store_session *session, const struct store_topic *topic,
                             const struct replay_reader *reader, struct continuity *plan) {
    struct count count = {.own_max = plan->replay_budget_events};
    viewer_init(&count.viewer, session, reader->principal, reader->view);
    enum status status = walk(&count, session, topic, plan->after_seq, REPLAY_COUNT_ROWS_MAX);
    viewer_release(&count.viewer);
    if (status != STATUS_OK || count.rows == REPLAY_COUNT_ROWS_MAX)
        return status;
    plan->replay_lag = count.own;
    if (count.own <= count.own_max)
        continuity_lift_budget(plan);
    return STATUS_OK;
}

enum status replay_lag_count(struct store_session *session, struct slice topic,
                             const struct replay_reader *reader, uint64_t after_seq,
                             struct replay_lag *lag) {
    struct count count = {.own_max = UINT64_MAX};
    struct store_topic row;
    struct arena arena;
    arena_init(&arena, JOURNAL_READ_ARENA_BYTES_MAX);
    viewer_init(&count.viewer, session, reader->principal, reader->view);
    enum status status = store_load_topic(session, topic, &arena, &row);
    if (status == STATUS_OK)
        status = walk(&count, session, &row, after_seq, REPLAY_LAG_ROWS_MAX);
    viewer_release(&count.viewer);
    arena_release(&arena);
    *lag = (struct replay_lag){count.own, count.is_cut || count.rows == REPLAY_LAG_ROWS_MAX};
    return status;
}

/* ---- bootstraps ---- */

/* The first frame of the reader from from_seq on, or the first of its last budget frames. */
static enum status find_first(struct count *count, struct store_session *session,
                              const struct store_topic *topic, uint64_t from_seq, uint64_t budget) {
    uint64_t rows_max = topic->head_seq - from_seq + 1;
    enum status status = walk(count, session, topic, from_seq - 1, rows_max);
    if (status != STATUS_OK || count->own <= budget)
        return status;
    count->skip = count->own_max = count->own - budget;
    count->own = 0;
    return walk(count, session, topic, from_seq - 1, rows_max);
}

enum status replay_budget_bootstrap(struct store_session *session, const struct store_topic *topic,
                                    const struct replay_reader *reader,
                                    struct continuity_bootstrap *bootstrap) {
    struct count count = {.own_max = UINT64_MAX};
    uint64_t rows_max = REPLAY_BOOTSTRAP_ROWS_MAX;
    uint64_t from_seq = topic->head_seq > rows_max ? topic->head_seq - rows_max + 1 : 1;
    if (from_seq < topic->oldest_seq)
        from_seq = topic->oldest_seq;
    if (!is_filtered(reader) || policy_has_snapshot(reader->policy) ||
        from_seq >= bootstrap->from_seq)
        return STATUS_OK;
    viewer_init(&count.viewer, session, reader->principal, reader->view);
    enum status status =
        find_first(&count, session, topic, from_seq, reader->policy->replay_budget_events);
    viewer_release(&count.viewer);
    bool is_found = !count.is_cut && count.found_seq > 0;
    if (status == STATUS_OK && is_found && count.found_seq < bootstrap->from_seq)
        *bootstrap = (struct continuity_bootstrap){count.found_seq, count.found_seq > 1};
    return status;
}

/* ---- the age of the next frame ---- */

static enum status note_row(void *user, const struct store_journal_row *row,
                            const struct store_event *event) {
    uint64_t *published_at_ms = user;
    (void)event;
    *published_at_ms = row->published_at_ms;
    return STATUS_OK;
}

static enum status judge_age(struct store_session *session, const struct store_topic *topic,
                             const struct replay_reader *reader, struct continuity *plan) {
    uint64_t age_ms_max = 2 * 1000 * reader->policy->snapshot_cadence_seconds;
    uint64_t published_at_ms = 0;
    enum status status =
        store_walk_journal(session, topic->ref, plan->after_seq, 1, &published_at_ms, note_row);
    if (status == STATUS_OK && published_at_ms + age_ms_max > reader->now_ms)
        continuity_lift_budget(plan);
    return status;
}

enum status replay_budget_judge(struct store_session *session, const struct store_topic *topic,
                                const struct replay_reader *reader, struct continuity *plan) {
    enum status status = STATUS_OK;
    bool is_over = plan->reason_count == 1 && plan->reasons[0] == REASON_REPLAY_BUDGET_EXCEEDED;
    if (is_over && policy_has_snapshot(reader->policy) && topic->entity_ref == 0)
        status = judge_age(session, topic, reader, plan);
    if (status == STATUS_OK && is_over && plan->reason_count > 0 && is_filtered(reader))
        status = judge_own(session, topic, reader, plan);
    return status;
}
