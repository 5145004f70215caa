/* One turn: take all items of the mailbox, run the jobs, and form one batch of the groups that
 * wait. A batch is prefetched, applied, folded, committed, announced and answered, in this order.
 * The next batch gathers while a commit runs, so that no request is delayed to fill a batch. What
 * costs no more than one slice and finds no other group waiting is a batch of its own. All other
 * groups wait in a fair queue (authority/writer_queue.h), which decides what the next batch holds.
 */
#include "authority/writer.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "authority/append.h"
#include "authority/outbox.h"
#include "authority/projection.h"
#include "authority/rules/rules.h"
#include "authority/writer_queue.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/metrics.h"

/* On a disk that is nearly full, commits fail and succeed in quick turns. */
#define FAILURE_LOG_NS ((uint64_t)1000000000)
/* Not a reason: the last commit succeeded. */
#define NOT_FAILING REASON_COUNT
/* While derived rows are refused: each attempt folds all missed events again. */
#define DERIVE_PAUSE_NS ((uint64_t)1000000000)
/* Between two attempts to take the writer role, while no request comes. */
#define ROLE_PAUSE_MS 250

struct writer_counters {
    _Atomic uint64_t commits;
    _Atomic uint64_t events;
    _Atomic uint64_t refused;
    _Atomic uint64_t deduplicated;
    _Atomic uint64_t commit_failures;
    _Atomic uint64_t underived;
    _Atomic uint64_t cursor_ms;
};

struct writer {
    struct writer_options options;
    struct mailbox mailbox;
    struct store_session *session;
    struct ledger ledger;
    struct writer_queue queue;
    struct clock clock;
    pthread_t thread;
    struct writer_counters counters;
    _Atomic uint64_t bytes_waiting; /* held by groups that were posted and not answered */
    _Atomic int failing;            /* the reason why the last commit failed, or NOT_FAILING */
    atomic_bool is_importing;
    struct role role; /* LOST, ELSEWHERE: the session is only asked for the role */
    struct follow follow;
    bool is_failure_logged;     /* once for each outage, */
    uint64_t failure_logged_ns; /* and not again within FAILURE_LOG_NS */
    bool is_underived;          /* the last commit left out the derived rows */
    uint64_t derive_at_ns;      /* until then, events are stored without them */
    struct outbox *outbox;      /* NULL: the store has none, or it is not polled */
    uint64_t poll_at_ns;        /* when the outbox is read next */
};

static struct append_group *group_of(struct mailbox_item *item) {
    return container_of(item, struct append_group, posted.item);
}

/* NULL: a group. */
static struct writer_job *job_of(struct mailbox_item *item) {
    struct writer_job *job = container_of(item, struct writer_job, posted.item);
    return job->posted.is_job ? job : NULL;
}

static void count(_Atomic uint64_t *counter, uint64_t more) {
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

/* ---- committing ---- */

static void note_success(struct writer *writer) {
    atomic_store(&writer->failing, NOT_FAILING);
    if (writer->is_failure_logged)
        log_event(LOG_INFO, "store.commit_recovered",
                  log_int("log_id", (int64_t)writer->ledger.committed_log_id));
    writer->is_failure_logged = false;
}

/* With these the session is lost. Another node may write now, or the batch may be stored, so that
 * nothing in memory can be trusted. */
static bool is_loss(enum status status) {
    return status == STATUS_WRITER_LOST || status == STATUS_APPEND_OUTCOME_UNKNOWN;
}

static bool is_writer(const struct writer *writer) {
    return role_is_writer(role_get(&writer->role));
}

/* Every answer that rests on the batch becomes a failure. */
static void fail_batch(struct writer *writer, enum status status) {
    ledger_forget(&writer->ledger, is_loss(status) || status == STATUS_DISK_RESERVE
                                       ? status
                                       : STATUS_STORE_UNAVAILABLE);
    uint64_t now_ns = clock_mono_ns(&writer->clock);
    enum reason reason =
        status == STATUS_WRITER_LOST ? REASON_WRITER_LOST : store_session_reason(writer->session);
    count(&writer->counters.commit_failures, 1);
    atomic_store(&writer->failing, (int)reason);
    if (!writer->is_failure_logged &&
        (writer->failure_logged_ns == 0 || now_ns >= writer->failure_logged_ns + FAILURE_LOG_NS)) {
        writer->is_failure_logged = true;
        writer->failure_logged_ns = now_ns;
        log_event(
            LOG_ERROR, "store.commit_failed", log_str("status", status_code(status)),
            log_str("error", store_session_error(writer->session)),
            log_str("effect", status == STATUS_WRITER_LOST
                                  ? "appends are refused: this node is not the writer any more"
                                  : "appends are refused until the store can be written"));
    }
    if (is_loss(status))
        role_set(&writer->role, WRITER_ROLE_LOST);
}

static void note_cursor(struct writer *writer) {
    const struct store_state *state = &writer->ledger.state;
    if (state->log_id > 0)
        atomic_store_explicit(&writer->counters.cursor_ms, uuid7_timestamp_ms(&state->cursor),
                              memory_order_relaxed);
}

static enum status commit_rows(struct writer *writer, const struct store_batch *rows) {
    uint64_t begun_ns = clock_now().mono_ns;
    enum status status = store_commit(writer->session, rows);
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

/* Stores the events alone, with a mark that their derived rows are missing. */
static enum status commit_events(struct writer *writer, struct store_batch *rows) {
    const struct projection *projection = writer->options.projection;
    struct ledger_batch *batch = &writer->ledger.batch;
    ledger_batch_fill(batch, rows);
    usages_fill(&writer->ledger.usages, rows);
    rows->unprojected_from = batch->first_log_id;
    enum status status = commit_rows(writer, rows);
    if (status == STATUS_OK)
        projection->unprojected(projection->user, batch->first_log_id);
    return status;
}

/* The rows contradict stored ones, or a derived table is damaged: the same rows would fail again.
 * That does not prevent events from being stored. The tables are repaired now, as far as they can
 * be, and the projection folds the missed events from the log afterwards. */
static enum status commit_underived(struct writer *writer, struct store_batch *rows) {
    struct ledger *ledger = &writer->ledger;
    char error[STORE_MESSAGE_MAX];
    snprintf(error, sizeof(error), "%s", store_session_error(writer->session));
    enum status healed = store_heal(writer->session, ledger->now.wall_ms);
    enum status status = commit_events(writer, rows);
    if (status != STATUS_OK)
        return status;
    count(&writer->counters.underived, 1);
    /* A repair that did not help is not tried again with every commit. */
    if (writer->is_underived || healed != STATUS_OK)
        writer->derive_at_ns = ledger->now.mono_ns + DERIVE_PAUSE_NS;
    if (!writer->is_underived)
        log_event(LOG_ERROR, "store.derived_refused", log_str("error", error),
                  log_str("effect", "events are kept; documents wait for a repair"));
    writer->is_underived = true;
    return STATUS_OK;
}

/* Folds the events of the batch and stores it. Sets *rows to the rows that were stored. */
static enum status fold_and_commit(struct writer *writer, struct store_batch *rows) {
    struct ledger *ledger = &writer->ledger;
    struct ledger_batch *batch = &ledger->batch;
    const struct projection *projection = writer->options.projection;
    ledger_batch_fill(batch, rows);
    usages_fill(&ledger->usages, rows);
    if (!projection || batch->event_count == 0)
        return commit_rows(writer, rows);
    if (ledger->now.mono_ns < writer->derive_at_ns)
        return commit_events(writer, rows);
    uint64_t topic_ref = ledger->state.topic_ref;
    projection->begin(projection->user, writer->session, ledger->now.wall_ms);
    for (size_t i = 0; i < batch->event_count; i++)
        projection->fold(projection->user, &batch->states[i], &batch->events[i]);
    projection->collect(projection->user, &batch->arena, rows, &ledger->state.topic_ref);
    bool is_derived = rows->document_count > 0 || rows->checkpoint_count > 0 ||
                      rows->journal_count > 0 || rows->drift_count > 0 ||
                      rows->topic_count > batch->topic_count;
    enum status status = commit_rows(writer, rows);
    if (status == STATUS_OK) {
        projection->committed(projection->user);
        if (is_derived && writer->is_underived)
            log_event(LOG_INFO, "store.derived_recovered",
                      log_int("log_id", (int64_t)ledger->state.log_id));
        writer->is_underived = writer->is_underived && !is_derived;
        return STATUS_OK;
    }
    projection->abandoned(projection->user);
    bool is_damage = status == STATUS_ALREADY_EXISTS || status == STATUS_SEQUENCE_CONFLICT ||
                     status == STATUS_INTERNAL_ERROR;
    if (!is_damage)
        return status;
    ledger->state.topic_ref = topic_ref;
    return commit_underived(writer, rows);
}

/* Commits the batch, and announces what it holds. */
static void finish_batch(struct writer *writer) {
    struct ledger *ledger = &writer->ledger;
    struct store_batch rows;
    if (ledger->is_sound && ledger->batch.event_count + ledger->batch.outbox_count == 0)
        return;
    enum status status = ledger->is_sound ? fold_and_commit(writer, &rows) : STATUS_OUT_OF_MEMORY;
    if (status != STATUS_OK) {
        fail_batch(writer, status);
        return;
    }
    count(&writer->counters.commits, 1);
    count(&writer->counters.events, ledger->batch.event_count);
    if (ledger->batch.outbox_count > 0)
        outbox_committed(writer->outbox);
    if (ledger->batch.event_count > 0)
        writer_announce(writer, &rows, ledger->batch.states);
    ledger_committed(ledger);
    follow_note(&writer->follow, ledger->state.log_id, &ledger->state.cursor);
    note_cursor(writer);
    note_success(writer);
}

/* ---- the writer role ---- */

/* Announces the commits that others made, before this node makes one. */
static enum status catch_up(struct writer *writer) {
    if (role_get(&writer->role) != WRITER_ROLE_BEHIND)
        return STATUS_OK;
    enum status status = follow_pass(&writer->follow, writer->session);
    if (status == STATUS_OK)
        role_set(&writer->role, WRITER_ROLE_HELD);
    return status;
}

/* Takes the role, if that is possible now. */
static void take_role(struct writer *writer) {
    const struct projection *projection = writer->options.projection;
    enum status status = store_take_role(writer->session);
    role_set(&writer->role, role_answered(status));
    if (status == STATUS_NOT_WRITER) {
        /* Another node writes, which is no failure. */
        atomic_store(&writer->failing, NOT_FAILING);
        writer->is_failure_logged = false;
    }
    if (status != STATUS_OK)
        return;
    clock_tick(&writer->clock);
    status = ledger_begin(&writer->ledger, writer->clock.reading);
    if (status == STATUS_OK)
        status = catch_up(writer);
    if (projection && projection->forget)
        projection->forget(projection->user);
    if (status == STATUS_OK)
        note_success(writer);
    else
        fail_batch(writer, status);
}

/* ---- one batch ---- */

static uint64_t add_waiting(struct writer *writer, uint64_t bytes) {
    metrics_add(METRIC_STORE_QUEUE_GROUPS, METRIC_PLAIN, 1);
    metrics_add(METRIC_STORE_QUEUE_BYTES, METRIC_PLAIN, bytes);
    return atomic_fetch_add(&writer->bytes_waiting, bytes);
}

static void remove_waiting(struct writer *writer, uint64_t bytes) {
    metrics_sub(METRIC_STORE_QUEUE_GROUPS, METRIC_PLAIN, 1);
    metrics_sub(METRIC_STORE_QUEUE_BYTES, METRIC_PLAIN, bytes);
    atomic_fetch_sub(&writer->bytes_waiting, bytes);
}

/* Equal answers that follow each other are counted at once. */
static void count_appends(const struct append_group *group) {
    const struct append_request *requests = group->requests;
    size_t begin = 0;
    for (size_t i = 1; i <= group->request_count; i++) {
        const struct append_request *first = &requests[begin];
        if (i < group->request_count && requests[i].kind == first->kind &&
            requests[i].status == first->status)
            continue;
        metrics_add(METRIC_APPENDS, METRIC_LABELS(append_entity_kind(first->kind), first->status),
                    i - begin);
        begin = i;
    }
}

static void answer_group(struct writer *writer, struct append_group *group) {
    remove_waiting(writer, group->waiting.bytes);
    uint64_t refused = 0;
    uint64_t deduplicated = 0;
    for (size_t i = 0; i < group->request_count; i++) {
        const struct append_request *request = &group->requests[i];
        refused += request->status != STATUS_OK;
        deduplicated += request->deduplicated;
        /* The commit may have failed after the request was applied. */
        if (group->order)
            append_order_note(group->order, request);
        if (writer->options.on_refused && request->status != STATUS_OK)
            writer->options.on_refused(writer->options.user, request);
    }
    count_appends(group);
    metrics_add(METRIC_APPEND_DEDUPLICATED, METRIC_PLAIN, deduplicated);
    if (refused > 0)
        count(&writer->counters.refused, refused);
    if (deduplicated > 0)
        count(&writer->counters.deduplicated, deduplicated);
    group->done(group);
}

/* Reads the store for the batch, once. */
static enum status begin_batch(struct writer *writer, struct mailbox_item *first,
                               const struct mailbox_item *end) {
    struct ledger *ledger = &writer->ledger;
    enum status status = ledger_begin(ledger, writer->clock.reading);
    /* The state includes a derived table, which may have been damaged. */
    if (status == STATUS_STORE_UNAVAILABLE &&
        store_heal(writer->session, clock_wall_ms(&writer->clock)) == STATUS_OK)
        status = ledger_begin(ledger, writer->clock.reading);
    if (status == STATUS_OK)
        status = catch_up(writer);
    if (status != STATUS_OK)
        return status;
    for (struct mailbox_item *item = first; item != end; item = item->next) {
        /* An event among those of an import would end it, and would be part of no other log. */
        if (atomic_load_explicit(&writer->is_importing, memory_order_relaxed))
            append_group_refuse_new(group_of(item), STATUS_IMPORT_IN_PROGRESS);
        ledger_gather(ledger, group_of(item));
    }
    return ledger_prefetch(ledger);
}

static void refuse_groups(struct mailbox_item *first, const struct mailbox_item *end,
                          enum status status) {
    for (struct mailbox_item *item = first; item != end; item = item->next)
        append_group_refuse(group_of(item), status);
}

static void answer_groups(struct writer *writer, struct mailbox_item *first,
                          const struct mailbox_item *end) {
    while (first != end) {
        /* The group may be freed once it is answered. */
        struct mailbox_item *next = first->next;
        answer_group(writer, group_of(first));
        first = next;
    }
}

static void run_batch(struct writer *writer, struct mailbox_item *first,
                      const struct mailbox_item *end) {
    clock_tick(&writer->clock);
    if (!is_writer(writer))
        take_role(writer);
    writer->ledger.batch.is_shared =
        writer_queue_is_shared(&writer->queue, clock_mono_ns(&writer->clock));
    if (!is_writer(writer)) {
        refuse_groups(first, end, role_refusal(role_get(&writer->role)));
        answer_groups(writer, first, end);
        return;
    }
    enum status status = begin_batch(writer, first, end);
    if (status != STATUS_OK)
        refuse_groups(first, end, is_loss(status) ? status : STATUS_STORE_UNAVAILABLE);
    for (struct mailbox_item *item = first; status == STATUS_OK && item != end; item = item->next)
        rules_apply_group(&writer->ledger, group_of(item));
    if (status == STATUS_OK && writer->outbox && group_of(first) == outbox_group(writer->outbox))
        outbox_settle(writer->outbox, &writer->ledger.batch);
    if (status == STATUS_OK)
        finish_batch(writer);
    else
        fail_batch(writer, status);
    answer_groups(writer, first, end);
}

/* ---- turns ---- */

/* Groups that were posted one after the other. */
static void take_groups(struct writer *writer, struct mailbox_item *first,
                        const struct mailbox_item *end) {
    uint64_t cost = 0;
    for (struct mailbox_item *item = first; item != end; item = item->next)
        cost += group_of(item)->waiting.cost;
    if (writer_queue_is_empty(&writer->queue) && (cost <= WRITER_QUANTUM || first->next == end)) {
        run_batch(writer, first, end);
        return;
    }
    clock_tick(&writer->clock);
    if (is_writer(writer))
        writer_queue_find_owners(&writer->queue, first, end, writer->clock.reading);
    for (struct mailbox_item *item = first, *next; item != end; item = next) {
        struct append_group *group = group_of(item);
        next = item->next;
        enum status status = writer_queue_add(&writer->queue, group, clock_mono_ns(&writer->clock));
        if (status == STATUS_OK)
            continue;
        metrics_add(METRIC_APPEND_OVERLOAD, METRIC_LABELS(status), 1);
        append_group_refuse(group, status);
        answer_group(writer, group);
    }
}

static void announce_step(void *user, const struct store_batch *batch) {
    writer_announce(user, batch, NULL);
}

/* After how long healing wants to continue. */
static int64_t heal(struct writer *writer) {
    const struct projection *projection = writer->options.projection;
    if (!projection || !is_writer(writer))
        return MAILBOX_FOREVER;
    clock_tick(&writer->clock);
    const struct projection_step step = {
        .session = writer->session,
        .now_ms = clock_wall_ms(&writer->clock),
        .mono_ms = clock_mono_ms(&writer->clock),
        .user = writer,
        .announce = announce_step,
    };
    int64_t wait_ms = projection->heal(projection->user, &step);
    if (wait_ms == PROJECTION_IS_WHOLE)
        return MAILBOX_FOREVER;
    ledger_refresh(&writer->ledger);
    return wait_ms;
}

/* ---- the outbox ---- */

/* One batch of the outbox, where it is time. How long until the next. */
static int64_t poll_outbox(struct writer *writer) {
    const int64_t poll_ms = (int64_t)writer->options.outbox_poll_ms;
    if (!writer->outbox || !is_writer(writer))
        return MAILBOX_FOREVER;
    clock_tick(&writer->clock);
    uint64_t now_ns = clock_mono_ns(&writer->clock);
    if (now_ns < writer->poll_at_ns)
        return (int64_t)((writer->poll_at_ns - now_ns) / CLOCK_NS_PER_MS) + 1;
    writer->poll_at_ns = now_ns + (uint64_t)poll_ms * CLOCK_NS_PER_MS;
    if (atomic_load_explicit(&writer->is_importing, memory_order_relaxed))
        return poll_ms;
    bool is_shared = writer_queue_is_shared(&writer->queue, now_ns);
    enum status status = outbox_read(writer->outbox, writer->session,
                                     is_shared ? APPEND_SLICE_REQUESTS_MAX : OUTBOX_ROWS_MAX);
    if (is_loss(status))
        fail_batch(writer, status);
    struct append_group *group = outbox_group(writer->outbox);
    if (status != STATUS_OK || group->request_count == 0)
        return poll_ms;
    (void)add_waiting(writer, 0);
    run_batch(writer, &group->posted.item, NULL);
    if (!outbox_is_progressing(writer->outbox))
        return poll_ms;
    writer->poll_at_ns = 0;
    return 0;
}

static int64_t sooner(int64_t a_ms, int64_t b_ms) {
    if (a_ms == MAILBOX_FOREVER || b_ms == MAILBOX_FOREVER)
        return a_ms == MAILBOX_FOREVER ? b_ms : a_ms;
    return a_ms < b_ms ? a_ms : b_ms;
}

/* How long the writer may wait for work. */
static int64_t idle(struct writer *writer) {
    int64_t heal_ms = heal(writer);
    int64_t poll_ms = poll_outbox(writer);
    int64_t role_ms = MAILBOX_FOREVER;
    if (!is_writer(writer))
        take_role(writer);
    else if (is_loss(store_keep_alive(writer->session, &role_ms)))
        fail_batch(writer, STATUS_WRITER_LOST);
    if (!is_writer(writer))
        role_ms = ROLE_PAUSE_MS;
    int64_t follow_ms = follow_turn(&writer->follow);
    return sooner(sooner(heal_ms, poll_ms), sooner(role_ms, follow_ms));
}

static void *writer_main(void *argument) {
    struct writer *writer = argument;
    struct mailbox_item *items;
    bool is_open = true;
    while (is_open || !writer_queue_is_empty(&writer->queue)) {
        int64_t idle_ms = idle(writer);
        if (!writer_queue_is_empty(&writer->queue))
            idle_ms = 0;
        is_open = mailbox_wait(&writer->mailbox, idle_ms, &items) == STATUS_OK;
        while (items) {
            struct writer_job *job = job_of(items);
            /* A job or group may be freed once it was run or answered. */
            struct mailbox_item *end = items->next;
            while (!job && end && !job_of(end))
                end = end->next;
            if (job) {
                bool any_node = job->any_node;
                job->run(job,
                         any_node && writer->follow.side ? writer->follow.side : writer->session);
                if (is_writer(writer) && !any_node)
                    ledger_refresh(&writer->ledger);
            } else {
                take_groups(writer, items, end);
            }
            items = end;
        }
        if (writer_queue_is_empty(&writer->queue))
            continue;
        /* One batch of the groups that wait. */
        struct mailbox_item *abandoned;
        clock_tick(&writer->clock);
        struct mailbox_item *first =
            writer_queue_take(&writer->queue, clock_mono_ns(&writer->clock), &abandoned);
        answer_groups(writer, abandoned, NULL);
        if (first)
            run_batch(writer, first, NULL);
    }
    return NULL;
}

/* ---- life ---- */

static enum status open_ledger(struct writer *writer) {
    const struct writer_options *options = &writer->options;
    enum status status = store_session_open(options->store, STORE_WRITE, &writer->session);
    if (status != STATUS_OK)
        return status;
    uint64_t entity_count_max = options->entity_count_max;
    struct ledger_options ledger_options = {
        .session = writer->session,
        .policies = options->policies,
        .quotas = options->quotas,
        .has_documents = options->projection && options->projection->has_documents,
        .entity_count_max = entity_count_max > 0 ? entity_count_max : LEDGER_ENTITIES_DEFAULT,
    };
    /* Nothing was announced yet, so that a node which finds the role free is behind no one. */
    bool is_shared = writer->follow.side != NULL;
    status = is_shared ? store_take_role(writer->session) : STATUS_OK;
    role_init(&writer->role, status == STATUS_OK ? WRITER_ROLE_HELD : role_answered(status),
              is_shared);
    ledger_options.is_unread = status != STATUS_OK;
    status = STATUS_OK;
    if (options->outbox_poll_ms > 0 && store_has_outbox(writer->session))
        status = outbox_open(&writer->outbox, options->outbox_row_bytes_max, options->policies);
    if (status == STATUS_OK)
        status = ledger_init(&writer->ledger, &ledger_options);
    if (status != STATUS_OK) {
        outbox_close(writer->outbox);
        store_session_close(writer->session);
        return status;
    }
    if (is_writer(writer))
        follow_note(&writer->follow, writer->ledger.state.log_id, &writer->ledger.state.cursor);
    return STATUS_OK;
}

static void writer_free(struct writer *writer) {
    follow_close(&writer->follow);
    outbox_close(writer->outbox);
    writer_queue_release(&writer->queue);
    ledger_release(&writer->ledger);
    store_session_close(writer->session);
    mailbox_release(&writer->mailbox);
    free(writer);
}

enum status writer_start(struct writer **writer, const struct writer_options *options) {
    assert(options->store && options->policies && options->group_max > 0 && options->bytes_max > 0);
    struct writer *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->options = *options;
    atomic_init(&made->failing, NOT_FAILING);
    struct follow_hooks hooks = options->follow;
    if (!hooks.commit) {
        hooks.user = options->user;
        hooks.commit = options->on_commit;
    }
    enum status status =
        follow_open(&made->follow, options->store, &made->role, &hooks, options->follow_poll_ms);
    if (status != STATUS_OK) {
        free(made);
        return status;
    }
    if (made->follow.side)
        status = follow_begin(&made->follow);
    if (status == STATUS_OK)
        status = open_ledger(made);
    if (status != STATUS_OK) {
        follow_close(&made->follow);
        free(made);
        return status;
    }
    note_cursor(made);
    clock_init_source(&made->clock, options->clock_user, options->clock_read);
    writer_queue_init(&made->queue, &made->ledger, options->group_max, options->bytes_max);
    mailbox_init(&made->mailbox, options->group_max, NULL, NULL);
    if (pthread_create(&made->thread, NULL, writer_main, made) != 0) {
        writer_free(made);
        return STATUS_SYSTEM_ERROR;
    }
    *writer = made;
    return STATUS_OK;
}

enum status writer_post_silently(struct writer *writer, struct append_group *group) {
    assert(group->done && group->request_count <= APPEND_GROUP_REQUESTS_MAX);
    uint64_t bytes = group->arena.bytes_held + group->request_count * sizeof(group->requests[0]);
    uint64_t before = add_waiting(writer, bytes);
    enum status status = STATUS_LIMIT_REACHED;
    group->waiting = (struct fair_item){.cost = append_group_cost(group), .bytes = bytes};
    group->posted.is_job = false;
    if (before == 0 || before + bytes <= writer->options.bytes_max)
        status = mailbox_post_silently(&writer->mailbox, &group->posted.item);
    if (status != STATUS_OK) {
        remove_waiting(writer, bytes);
        metrics_add(METRIC_APPEND_OVERLOAD, METRIC_LABELS(status), 1);
    }
    return status;
}

void writer_wake_for_posts(struct writer *writer) {
    mailbox_wake_for_items(&writer->mailbox);
}

enum status writer_post_job(struct writer *writer, struct writer_job *job) {
    assert(job->run);
    enum writer_role role = role_get(&writer->role);
    if (!job->any_node && !role_is_writer(role))
        return role_refusal(role);
    job->posted.is_job = true;
    return mailbox_post_uncounted(&writer->mailbox, &job->posted.item);
}

void writer_follow_post(struct writer *writer, struct follow_wait *wait) {
    follow_wait_post(&writer->follow, wait);
    mailbox_wake(&writer->mailbox);
}

void writer_hint_post(struct writer *writer) {
    follow_hint(&writer->follow);
    mailbox_wake(&writer->mailbox);
}

void writer_beat_post(struct writer *writer) {
    follow_ask_beat(&writer->follow);
    mailbox_wake(&writer->mailbox);
}

bool writer_has_role(const struct writer *writer) {
    return is_writer(writer);
}

bool writer_is_elsewhere(const struct writer *writer) {
    return role_get(&writer->role) == WRITER_ROLE_ELSEWHERE;
}

const struct projection *writer_projection(const struct writer *writer) {
    return writer->options.projection;
}

void writer_announce(struct writer *writer, const struct store_batch *batch,
                     const struct store_entity *states) {
    if (writer->options.on_commit)
        writer->options.on_commit(writer->options.user, batch, states);
}

void writer_stop(struct writer *writer) {
    mailbox_close(&writer->mailbox);
    int error = pthread_join(writer->thread, NULL);
    assert(error == 0);
    (void)error;
    writer_free(writer);
}

bool writer_set_importing(struct writer *writer, bool is_importing) {
    bool before = !is_importing;
    return atomic_compare_exchange_strong(&writer->is_importing, &before, is_importing);
}

bool writer_is_failing(const struct writer *writer, enum reason *reason) {
    int failing = atomic_load(&writer->failing);
    if (failing == NOT_FAILING)
        return false;
    *reason = (enum reason)failing;
    return true;
}

struct writer_stats writer_stats(const struct writer *writer) {
    const struct writer_counters *counters = &writer->counters;
    return (struct writer_stats){
        .commits = atomic_load_explicit(&counters->commits, memory_order_relaxed),
        .events = atomic_load_explicit(&counters->events, memory_order_relaxed),
        .refused = atomic_load_explicit(&counters->refused, memory_order_relaxed),
        .deduplicated = atomic_load_explicit(&counters->deduplicated, memory_order_relaxed),
        .commit_failures = atomic_load_explicit(&counters->commit_failures, memory_order_relaxed),
        .underived = atomic_load_explicit(&counters->underived, memory_order_relaxed),
        .cursor_ms = atomic_load_explicit(&counters->cursor_ms, memory_order_relaxed),
    };
}
