#include "topic/continuity.h"

#include <assert.h>
#include <inttypes.h>

/* Sequences are unsigned: a cursor before the first event is 0, never minus one. */
static uint64_t subtract_or_zero(uint64_t from, uint64_t number) {
    return from > number ? from - number : 0;
}

static void add_reason(struct continuity *continuity, enum reason reason) {
    assert(continuity->reason_count < CONTINUITY_REASONS_MAX);
    continuity->reasons[continuity->reason_count++] = reason;
    continuity->decision = CONTINUITY_REBOOTSTRAP;
}

struct lineage lineage_of(const struct topic_window *window, const struct position *position,
                          const struct topic_epoch *epoch, const struct topic_fork *fork) {
    bool has_epoch = topic_epoch_is_known(&position->epoch);
    return (struct lineage){
        .epoch_differs =
            has_epoch && position->seq > 0 && !topic_epoch_continues(&position->epoch, epoch),
        .lacks_epoch = !has_epoch && fork->is_set && position->seq > fork->seq,
        .is_ahead = window && position->seq > window->head_seq,
    };
}

struct continuity continuity_plan(const struct topic_window *window, uint64_t after_seq,
                                  bool epoch_differs) {
    return continuity_judge(window, after_seq, (struct lineage){.epoch_differs = epoch_differs});
}

struct continuity continuity_judge(const struct topic_window *window, uint64_t after_seq,
                                   struct lineage lineage) {
    struct continuity plan = {.decision = CONTINUITY_RESUME, .after_seq = after_seq};
    if (lineage.epoch_differs)
        add_reason(&plan, REASON_EPOCH_MISMATCH);
    if (lineage.lacks_epoch)
        add_reason(&plan, REASON_EPOCH_REQUIRED);
    if (lineage.is_ahead)
        add_reason(&plan, REASON_CURSOR_AHEAD_OF_HEAD);
    if (!window)
        return plan;
    plan.oldest_available_cursor = subtract_or_zero(window->oldest_seq, 1);
    plan.head_cursor = window->head_seq;
    plan.replay_lag = subtract_or_zero(window->head_seq, after_seq);
    plan.replay_budget_events = window->replay_budget_events;
    if (after_seq < plan.oldest_available_cursor)
        add_reason(&plan,
                   lineage.is_damaged ? REASON_JOURNAL_DAMAGED : REASON_RETENTION_FLOOR_BREACH);
    if (plan.replay_lag > plan.replay_budget_events)
        add_reason(&plan, REASON_REPLAY_BUDGET_EXCEEDED);
    return plan;
}

void continuity_lift_budget(struct continuity *continuity) {
    assert(continuity->reason_count > 0);
    size_t last = continuity->reason_count - 1;
    assert(continuity->reasons[last] == REASON_REPLAY_BUDGET_EXCEEDED);
    continuity->reason_count = last;
    if (last == 0)
        continuity->decision = CONTINUITY_RESUME;
}

enum status continuity_write_json(struct buffer *out, const struct continuity *continuity) {
    size_t begin = out->size;
    if (continuity->decision == CONTINUITY_RESUME) {
        buffer_printf(out, "{\"decision\":\"resume\",\"after_seq\":%" PRIu64 "}",
                      continuity->after_seq);
        return buffer_end(out, begin);
    }
    assert(continuity->reason_count > 0);
    buffer_append_slice(out, SLICE("{\"decision\":\"rebootstrap\",\"reason_codes\":["));
    for (size_t i = 0; i < continuity->reason_count; i++)
        buffer_printf(out, "%s\"%s\"", i > 0 ? "," : "", reason_code(continuity->reasons[i]));
    buffer_printf(out,
                  "],\"oldest_available_cursor\":%" PRIu64 ",\"head_cursor\":%" PRIu64
                  ",\"replay_lag\":%" PRIu64 ",\"replay_budget_events\":%" PRIu64 "}",
                  continuity->oldest_available_cursor, continuity->head_cursor,
                  continuity->replay_lag, continuity->replay_budget_events);
    return buffer_end(out, begin);
}

enum status continuity_write_text(struct buffer *out, const struct continuity *continuity) {
    bool resumes = continuity->decision == CONTINUITY_RESUME;
    size_t begin = out->size;
    buffer_append_slice(out, resumes ? SLICE("resume") : SLICE("rebootstrap"));
    for (size_t i = 0; i < continuity->reason_count; i++)
        buffer_printf(out, "%c%s", i ? ',' : ' ', reason_code(continuity->reasons[i]));
    return buffer_end(out, begin);
}

struct continuity_bootstrap continuity_bootstrap(const struct topic_window *window) {
    if (!window)
        return (struct continuity_bootstrap){.from_seq = 1, .truncated = false};
    uint64_t retention_cursor = subtract_or_zero(window->oldest_seq, 1);
    uint64_t budget_cursor = subtract_or_zero(window->head_seq, window->replay_budget_events);
    uint64_t after_seq = retention_cursor > budget_cursor ? retention_cursor : budget_cursor;
    assert(after_seq < UINT64_MAX);
    return (struct continuity_bootstrap){.from_seq = after_seq + 1, .truncated = after_seq > 0};
}
