#include "authority/committer.h"

#include <stdio.h>

#include "base/log.h"
#include "base/metrics.h"

/* While derived rows are refused: each attempt folds all missed events again. */
#define DERIVE_PAUSE_NS ((uint64_t)1000000000)

static enum status commit_rows(struct committer *committer, const struct store_batch *rows) {
    uint64_t begun_ns = clock_now().mono_ns;
    enum status status = store_commit(committer->ledger->session, rows);
    bool failed = status != STATUS_OK;
    metrics_observe(METRIC_STORE_COMMIT_DURATION_SECONDS, METRIC_PLAIN,
                    clock_now().mono_ns - begun_ns, 1);
    metrics_add(METRIC_STORE_COMMITS,
                METRIC_LABELS(failed ? LABEL_OUTCOME_FAILED : LABEL_OUTCOME_OK), 1);
    if (failed)
        return status;
    metrics_observe(METRIC_STORE_COMMIT_EVENTS, METRIC_PLAIN, rows->event_count, 1);
    metrics_add(METRIC_APPEND_EVENTS, METRIC_PLAIN, rows->event_count);
    return STATUS_OK;
}

static void fold(const struct projection *projection, struct ledger *ledger,
                 struct store_batch *rows) {
    struct ledger_batch *batch = &ledger->batch;
    projection->begin(projection->user, ledger->session, ledger->now.wall_ms);
    for (size_t i = 0; i < batch->event_count; i++)
        projection->fold(projection->user, &batch->states[i], &batch->events[i]);
    projection->collect(projection->user, &batch->arena, rows, &ledger->state.topic_ref);
}

/* Stores the events alone, with a mark that their derived rows are missing. */
static enum status commit_events(struct committer *committer, struct store_batch *rows) {
    const struct projection *projection = committer->projection;
    struct ledger_batch *batch = &committer->ledger->batch;
    ledger_batch_fill(batch, rows);
    usages_fill(&committer->ledger->usages, rows);
    rows->unprojected_from = batch->first_log_id;
    enum status status = commit_rows(committer, rows);
    if (status == STATUS_OK)
        projection->unprojected(projection->user, batch->first_log_id);
    return status;
}

enum status committer_commit(struct committer *committer, struct store_batch *rows) {
    struct ledger *ledger = committer->ledger;
    struct ledger_batch *batch = &ledger->batch;
    const struct projection *projection = committer->projection;
    ledger_batch_fill(batch, rows);
    usages_fill(&ledger->usages, rows);
    if (!projection || batch->event_count == 0)
        return commit_rows(committer, rows);
    if (ledger->now.mono_ns < committer->derive_at_ns)
        return commit_events(committer, rows);
    uint64_t topic_ref = ledger->state.topic_ref;
    fold(projection, ledger, rows);
    bool is_derived = rows->document_count > 0 || rows->checkpoint_count > 0 ||
                      rows->journal_count > 0 || rows->drift_count > 0 ||
                      rows->topic_count > batch->topic_count;
    enum status status = commit_rows(committer, rows);
    if (status == STATUS_OK) {
        projection->committed(projection->user);
        if (is_derived && committer->is_underived)
            log_event(LOG_INFO, "store.derived_recovered",
                      log_int("log_id", (int64_t)ledger->state.log_id));
        committer->is_underived = committer->is_underived && !is_derived;
        return status;
    }
    projection->abandoned(projection->user);
    /* The rows contradict stored ones, or a table is damaged: the same rows would fail again. */
    bool is_damage = status == STATUS_ALREADY_EXISTS || status == STATUS_SEQUENCE_CONFLICT ||
                     status == STATUS_INTERNAL_ERROR;
    if (!is_damage)
        return status;
    ledger->state.topic_ref = topic_ref;
    /* Damaged derived tables do not prevent events from being stored. The tables are repaired now,
     * as far as they can be, and the projection folds the missed events from the log afterwards. */
    char error[STORE_MESSAGE_MAX];
    snprintf(error, sizeof(error), "%s", store_session_error(ledger->session));
    enum status healed = store_heal(ledger->session, ledger->now.wall_ms);
    status = commit_events(committer, rows);
    if (status != STATUS_OK)
        return status;
    atomic_fetch_add_explicit(&committer->underived, 1, memory_order_relaxed);
    /* A repair that did not help is not tried again with every commit. */
    if (committer->is_underived || healed != STATUS_OK)
        committer->derive_at_ns = ledger->now.mono_ns + DERIVE_PAUSE_NS;
    if (!committer->is_underived)
        log_event(LOG_ERROR, "store.derived_refused", log_str("error", error),
                  log_str("effect", "events are kept; documents wait for a repair"));
    committer->is_underived = true;
    return STATUS_OK;
}
