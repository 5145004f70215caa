#include "delivery/replay_budget.h"

#include "base/limits.h"
#include "delivery/access.h"

/* ---- frames of the reader ---- */

struct count {
    const struct replay_reader *reader;
    const struct store_topic *topic;
    struct viewer viewer; /* decides about the events of an entity */
    struct replay_progress *at;
    uint64_t own_max; /* counting ends above it */
    bool is_cut;      /* a damaged row ended the count */
};

static enum status count_one(struct count *count, uint64_t seq, bool may_read) {
    struct replay_progress *at = count->at;
    if (may_read && at->own == at->skip)
        at->found_seq = seq;
    at->after_seq = seq;
    at->rows++;
    at->own += may_read;
    return at->own > count->own_max ? STATUS_LIMIT_REACHED : STATUS_OK;
}

static enum status count_row(void *user, uint64_t seq, const struct owner *owner) {
    struct count *count = user;
    const struct replay_reader *reader = count->reader;
    const struct owner_map_journal journal = {count->topic->ref, count->topic->journal_epoch};
    /* A row beyond the head is a stray, and may become another one. */
    if (reader->owner_map && seq <= count->topic->head_seq)
        owner_map_note(reader->owner_map, &journal, seq, owner);
    return count_one(count, seq, grant_may_read(reader->principal, reader->view, owner));
}

static enum status count_event(void *user, const struct store_event *event) {
    struct count *count = user;
    bool may_read;
    enum status status = viewer_check(&count->viewer, event->entity_ref, event, &may_read);
    return status == STATUS_OK ? count_one(count, event->seq, may_read) : status;
}

static bool is_filtered(const struct replay_reader *reader) {
    return reader->view == GRANT_VIEW_OWN && !reader->principal->read_all;
}

/* A slice of a count that examines rows_max rows in total. A damaged row is repaired by the read of
 * frames that gets there, not by a count. */
static enum status walk(struct count *count, struct store_session *session, uint64_t rows_max) {
    const struct store_topic *topic = count->topic;
    struct replay_progress *at = count->at;
    uint64_t before = at->rows;
    uint64_t limit = rows_max - before < STORE_TASK_ROWS ? rows_max - before : STORE_TASK_ROWS;
    viewer_init(&count->viewer, session, count->reader->principal, count->reader->view);
    enum status status =
        topic->entity_ref > 0
            ? store_walk_entity_events(session, topic->entity_ref, at->after_seq, limit, count,
                                       count_event)
            : store_walk_owners(session, topic->ref, at->after_seq, limit, count, count_row);
    viewer_release(&count->viewer);
    count->is_cut = status == STATUS_INTERNAL_ERROR;
    at->is_short = status == STATUS_OK && at->rows == rows_max;
    at->has_more = status == STATUS_OK && at->rows - before == limit && !at->is_short;
    return status == STATUS_LIMIT_REACHED || count->is_cut ? STATUS_OK : status;
}

static void begin(struct replay_progress *progress, uint64_t after_seq) {
    if (!progress->is_begun)
        *progress = (struct replay_progress){.is_begun = true, .after_seq = after_seq};
}

/* How many frames behind after_seq may be the reader's, counted until there are more than max. */
static uint64_t count_known(const struct store_topic *topic, const struct replay_reader *reader,
                            uint64_t after_seq, uint64_t max) {
    const struct owner_map_journal journal = {topic->ref, topic->journal_epoch};
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    const struct owner_map_keys own = {keys, principal_keys(reader->principal, keys)};
    uint64_t count = 0;
    for (uint64_t seq = after_seq + 1; seq <= topic->head_seq && count <= max;) {
        struct owner_map_run run =
            owner_map_next(reader->owner_map, &journal, own, seq, topic->head_seq + 1);
        seq = run.seq + run.count;
        count += run.count;
    }
    return count;
}

static enum status judge_own(struct store_session *session, const struct store_topic *topic,
                             const struct replay_reader *reader, struct continuity *plan,
                             struct replay_progress *progress) {
    struct count count = {
        .reader = reader, .topic = topic, .at = progress, .own_max = plan->replay_budget_events};
    /* Not beyond rows_max, because the answer must not depend on what is known. */
    bool may_know = reader->owner_map && topic->head_seq - plan->after_seq <= reader->rows_max;
    uint64_t known =
        may_know ? count_known(topic, reader, plan->after_seq, count.own_max) : UINT64_MAX;
    if (known <= count.own_max) {
        *progress = (struct replay_progress){0};
        plan->replay_lag = known;
        continuity_lift_budget(plan);
        return STATUS_OK;
    }
    begin(progress, plan->after_seq);
    enum status status = walk(&count, session, reader->rows_max);
    progress->is_begun = progress->has_more;
    if (status != STATUS_OK || progress->has_more || progress->is_short)
        return status;
    plan->replay_lag = progress->own;
    if (progress->own <= count.own_max)
        continuity_lift_budget(plan);
    return STATUS_OK;
}

enum status replay_lag_count(struct store_session *session, struct slice topic,
                             const struct replay_reader *reader, uint64_t after_seq,
                             struct replay_progress *progress, struct replay_lag *lag) {
    struct store_topic row;
    struct count count = {.reader = reader, .topic = &row, .at = progress, .own_max = UINT64_MAX};
    struct arena arena;
    begin(progress, after_seq);
    arena_init(&arena, JOURNAL_READ_ARENA_BYTES_MAX);
    enum status status = store_load_topic(session, topic, &arena, &row);
    if (status == STATUS_OK)
        status = walk(&count, session, REPLAY_LAG_ROWS_MAX);
    arena_release(&arena);
    *lag = (struct replay_lag){progress->own, count.is_cut || progress->is_short};
    return status;
}

/* ---- bootstraps ---- */

/* The first frame of the reader from from_seq on, or the first of its last budget frames. That one
 * is found by a second walk, which skips the frames before. */
static enum status find_first(struct count *count, struct store_session *session, uint64_t budget) {
    struct replay_progress *at = count->at;
    bool is_second = at->skip > 0;
    count->own_max = is_second ? at->skip : UINT64_MAX;
    enum status status = walk(count, session, at->until_seq - at->from_seq + 1);
    if (status != STATUS_OK || at->has_more || is_second || count->is_cut || at->own <= budget)
        return status;
    at->skip = at->own - budget;
    at->own = at->rows = 0;
    at->after_seq = at->from_seq - 1;
    at->has_more = true;
    return STATUS_OK;
}

enum status replay_budget_bootstrap(struct store_session *session, const struct store_topic *topic,
                                    const struct replay_reader *reader,
                                    struct continuity_bootstrap *bootstrap,
                                    struct replay_progress *progress) {
    struct count count = {.reader = reader, .topic = topic, .at = progress};
    uint64_t rows_max = REPLAY_BOOTSTRAP_ROWS_MAX;
    uint64_t from_seq = topic->head_seq > rows_max ? topic->head_seq - rows_max + 1 : 1;
    if (from_seq < topic->oldest_seq)
        from_seq = topic->oldest_seq;
    if (!is_filtered(reader) || policy_has_snapshot(reader->policy) ||
        (!progress->is_begun && from_seq >= bootstrap->from_seq)) {
        *progress = (struct replay_progress){0};
        return STATUS_OK;
    }
    if (!progress->is_begun) {
        begin(progress, from_seq - 1);
        progress->from_seq = from_seq;
        progress->until_seq = topic->head_seq;
    }
    enum status status = find_first(&count, session, reader->policy->replay_budget_events);
    progress->is_begun = progress->has_more;
    /* Rows may have been pruned since the first slice. */
    bool is_found = !progress->has_more && !count.is_cut &&
                    progress->found_seq >= topic->oldest_seq && progress->found_seq > 0;
    if (status == STATUS_OK && is_found && progress->found_seq < bootstrap->from_seq)
        *bootstrap = (struct continuity_bootstrap){progress->found_seq, progress->found_seq > 1};
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
                                const struct replay_reader *reader, struct continuity *plan,
                                struct replay_progress *progress) {
    enum status status = STATUS_OK;
    bool is_over = plan->reason_count == 1 && plan->reasons[0] == REASON_REPLAY_BUDGET_EXCEEDED;
    if (is_over && policy_has_snapshot(reader->policy) && topic->entity_ref == 0)
        status = judge_age(session, topic, reader, plan);
    if (status == STATUS_OK && is_over && plan->reason_count > 0 && is_filtered(reader))
        return judge_own(session, topic, reader, plan, progress);
    /* Also a count that began before the cursor became stale for another reason. */
    *progress = (struct replay_progress){0};
    return status;
}
