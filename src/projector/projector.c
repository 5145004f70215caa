/* A commit goes through five steps. project_begin starts it. project_fold folds each event into the
 * change of its entity, which begins with the cached summary, else with the stored document, else
 * with the log. project_collect builds documents, checkpoints, journal rows and drifts from the
 * changes and gives them to the sink. After the commit, project_settle makes the new summaries the
 * cached ones, or drops them. An entity that could not be projected is folded from the log with the
 * next commit; a table that could not be read is left to the healer. */
#include "projector/projector.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/metrics.h"
#include "projector/repair.h"
#include "projector/summary_cache.h"
#include "projector/update.h"

/* The change of one entity in a commit. */
struct change {
    struct list_node node; /* in projector.changes */
    struct cache_entry *entry;
    const struct store_entity *entity;
    union any_summary summary;
    struct slice document;
    /* The committed rows; a document_version of 0: there is none. */
    struct store_summary_rows rows;
    bool are_rows_cached; /* they were not read now, so the commit compares them */
    bool has_document;    /* it was read from the store */
    bool has_checkpoint;
    struct store_checkpoint checkpoint;
    uint64_t first_seq;       /* seq of the first event of this commit */
    uint64_t log_id;          /* log id of the last event */
    struct slice fields_were; /* in the last frame of the document; absent: not known */
    bool is_first_frame;      /* the document had none */
    bool has_drift;
    enum reason drift;
    unsigned attempts;
    bool has_failed;
    bool is_skipped;
};

struct shared_event {
    const struct change *change;
    struct sink_shared_event event;
};

struct retry {
    uint64_t ref;
    enum document_kind kind;
    unsigned attempts;
};

struct counters {
    atomic_uint_fast64_t updates;
    atomic_uint_fast64_t skipped;
    atomic_uint_fast64_t drifts;
    atomic_uint_fast64_t failures;
    atomic_uint_fast64_t given_up;
    atomic_uint_fast64_t cache_misses;
    atomic_uint_fast64_t cache_bytes;
};

struct projector {
    struct projection projection;
    struct slice version;
    char *version_text;
    const struct sink *sink;
    struct summary_cache cache;
    struct update_scratch scratch;
    struct retry retries[PROJECTOR_RETRY_MAX];
    size_t retry_count;
    struct counters counters;
    struct healer healer;
    /* The current commit. */
    struct store_session *session;
    uint64_t now_ms;
    struct arena arena;
    struct buffer shared_events; /* an array of struct shared_event */
    struct list changes;         /* ordered by their last events */
    size_t change_count;
    uint64_t first_log_id; /* 0: no event yet */
    bool is_sunk;          /* the sink has the commit and waits for settle */
    bool is_damaged;       /* a derived table could not be read */
};

static void count(atomic_uint_fast64_t *counter) {
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static struct change *change_at(struct list_node *node) {
    return node ? container_of(node, struct change, node) : NULL;
}

static struct change *change_first(const struct projector *projector) {
    return change_at(list_first(&projector->changes));
}

static struct change *change_next(const struct projector *projector, const struct change *change) {
    return change_at(list_next(&projector->changes, &change->node));
}

static void change_fail(struct projector *projector, struct change *change, enum status status) {
    change->has_failed = true;
    projector->is_damaged = projector->is_damaged || status == STATUS_INTERNAL_ERROR;
    count(&projector->counters.failures);
    log_event(LOG_WARN, "projector.entity_failed", log_slice("entity_id", change->entity->id),
              log_str("entity", entity_kind_name(change->entity->kind)),
              log_str("status", status_code(status)),
              log_str("store", store_session_error(projector->session)));
}

static void change_drift(struct change *change, enum reason reason) {
    if (!change->has_drift)
        change->drift = reason;
    change->has_drift = true;
}

/* ---- the summary a change starts from ---------------------------------------------------- */

static void start_empty(struct change *change) {
    summary_init(fold_layout(change->entry->kind), &change->summary.common, change->entity->id);
}

/* seq: the first event of this commit. */
static enum status start_stored(struct projector *projector, struct change *change, uint64_t seq) {
    enum document_kind kind = change->entry->kind;
    uint64_t ref = change->entry->ref;
    struct store_document document;
    count(&projector->counters.cache_misses);
    enum status found = store_load_checkpoint(projector->session, kind, ref, &projector->arena,
                                              &change->checkpoint);
    if (found != STATUS_OK && !store_is_lost(found))
        return found;
    change->has_checkpoint = found == STATUS_OK;
    found = store_load_document(projector->session, kind, ref, &projector->arena, &document);
    if (found != STATUS_OK && !store_is_lost(found))
        return found;
    change->has_document = found == STATUS_OK;
    /* A document has at most one version for each event, so the seq of the last event is a safe
     * version if the document is lost. */
    change->rows.document_version = change->has_document ? document.version : seq - 1;
    if (change->has_document)
        memcpy(change->rows.document_hash, document.payload_hash, SHA256_BYTES);
    if (change->has_checkpoint) {
        change->rows.last_runtime_seq = change->checkpoint.last_runtime_seq;
        memcpy(change->rows.summary_hash, change->checkpoint.summary_hash, SHA256_BYTES);
    }
    start_empty(change);
    /* Another projection version may fold by other rules. */
    if (!change->has_checkpoint ||
        !slice_equal(change->checkpoint.projection_version, projector->version))
        return STATUS_OK;
    if (found == STATUS_OK &&
        fold_document(&document, &change->checkpoint, change->entity->id, &change->summary))
        return STATUS_OK;
    change_drift(change, REASON_SUMMARY_HASH_MISMATCH);
    start_empty(change);
    return STATUS_OK;
}

/* ---- catching up from the log ------------------------------------------------------------- */

static enum status add_shared_event(struct projector *projector, const struct change *change,
                                    const struct store_event *event) {
    enum topic_kind topic = entity_row(change->entity->kind)->shared_topic;
    struct shared_event row = {change, {topic, event->log_id, change->entry->ref, {0}}};
    if (topic == TOPIC_NONE)
        return STATUS_OK;
    memcpy(row.event.payload_hash, event->payload_hash, SHA256_BYTES);
    return buffer_append(&projector->shared_events, &row, sizeof(row));
}

struct catch_up {
    struct projector *projector;
    struct change *change;
    uint64_t sent_seq; /* frames exist for the events up to here */
    enum status status;
};

static void on_missed_event(void *user, const struct store_event *event) {
    struct catch_up *catch_up = user;
    struct change *change = catch_up->change;
    change->log_id = event->log_id;
    if (event->seq > catch_up->sent_seq && catch_up->status == STATUS_OK &&
        event->log_id >= catch_up->projector->healer.unprojected_from)
        catch_up->status = add_shared_event(catch_up->projector, change, event);
}

/* Folds the committed events up to until_seq that the summary misses. */
static enum status change_catch_up(struct projector *projector, struct change *change,
                                   uint64_t until_seq) {
    struct catch_up catch_up = {.projector = projector, .change = change};
    struct fold fold;
    if (change->summary.common.latest_seq >= until_seq)
        return STATUS_OK;
    catch_up.sent_seq = change->has_checkpoint ? change->checkpoint.last_runtime_seq : 0;
    /* Unknown without a checkpoint. A document shows that there were frames. */
    if (!change->has_checkpoint && change->has_document)
        catch_up.sent_seq = UINT64_MAX;
    fold_init(&fold, change->entry->kind, change->entity->id);
    fold.summary = change->summary;
    enum status status = fold_from_log(&fold, projector->session, change->entry->ref, until_seq,
                                       &catch_up, on_missed_event);
    if (status == STATUS_OK)
        status = catch_up.status;
    if (status == STATUS_OK)
        status = fold_move(fold.kind, &fold.summary, &projector->arena);
    change->summary = fold.summary;
    fold_release(&fold);
    return status;
}

/* ---- one commit --------------------------------------------------------------------------- */

static void project_begin(void *user, struct store_session *session, uint64_t now_ms) {
    struct projector *projector = user;
    assert(list_is_empty(&projector->changes));
    projector->session = session;
    projector->now_ms = now_ms;
    arena_reset(&projector->arena);
    buffer_clear(&projector->shared_events);
    /* The end of a commit would be too early: its rows may still point into the cache. */
    summary_cache_trim(&projector->cache);
    atomic_store_explicit(&projector->counters.cache_bytes, projector->cache.bytes,
                          memory_order_relaxed);
}

/* Notes the fields of the document that the last frame has, before events are folded into it. A
 * summary that begins empty tells only of an entity without any rows that it had no frame. */
static enum status note_fields(struct projector *projector, struct change *change, uint64_t seq) {
    const struct summary *summary = &change->summary.common;
    struct buffer *text = &projector->scratch.text;
    if (summary->latest_seq == 0) {
        change->is_first_frame = seq == 1 && !change->has_document && !change->has_checkpoint;
        return STATUS_OK;
    }
    buffer_clear(text);
    enum status status = summary_write_fields(fold_layout(change->entry->kind), summary, text);
    if (status == STATUS_OK)
        change->fields_were = arena_copy(&projector->arena, buffer_slice(text));
    return status == STATUS_OK && !change->fields_were.data ? STATUS_OUT_OF_MEMORY : status;
}

/* The change of the entity in this commit, with all events before seq folded. NULL: no memory. */
static struct change *change_of(struct projector *projector, const struct store_entity *entity,
                                enum document_kind kind, uint64_t seq) {
    struct cache_entry *entry = summary_cache_find(&projector->cache, entity->ref);
    if (entry && entry->change)
        return entry->change;
    struct change *change = arena_alloc(&projector->arena, sizeof(*change));
    bool is_cached = entry != NULL;
    if (!entry)
        entry = summary_cache_add(&projector->cache, entity->ref, kind);
    if (!change || !entry) {
        if (entry && !is_cached)
            summary_cache_drop(&projector->cache, entry);
        return NULL;
    }
    *change = (struct change){.entry = entry, .entity = entity, .first_seq = seq};
    entry->change = change;
    list_push_back(&projector->changes, &change->node);
    projector->change_count++;
    enum status status = STATUS_OK;
    /* The store may have kept a commit that was reported as failed. Then the cache is behind the
     * log, and the stored rows are used. */
    if (is_cached && entry->now->summary.common.latest_seq + 1 == seq) {
        const struct cached_document *now = entry->now;
        change->summary = now->summary;
        change->summary.common.entity_id = entity->id;
        change->rows = now->rows;
        change->are_rows_cached = true;
        change->has_checkpoint = true;
        change->checkpoint.last_runtime_seq = now->rows.last_runtime_seq;
        change->checkpoint.projection_version = projector->version;
        memcpy(change->checkpoint.summary_hash, now->rows.summary_hash, SHA256_BYTES);
    } else {
        status = start_stored(projector, change, seq);
    }
    /* A summary ahead of the log cannot be continued. */
    if (status == STATUS_OK && change->summary.common.latest_seq >= seq)
        start_empty(change);
    if (status == STATUS_OK)
        status = note_fields(projector, change, seq);
    if (status == STATUS_OK)
        status = change_catch_up(projector, change, seq - 1);
    if (status != STATUS_OK)
        change_fail(projector, change, status);
    return change;
}

static void project_fold(void *user, const struct store_entity *entity,
                         const struct store_event *event) {
    struct projector *projector = user;
    enum document_kind kind = entity_row(entity->kind)->summary;
    if (!projector->sink->write || kind == DOCUMENT_NONE)
        return;
    if (projector->first_log_id == 0)
        projector->first_log_id = event->log_id;
    struct change *change = change_of(projector, entity, kind, event->seq);
    if (!change) {
        count(&projector->counters.failures);
        count(&projector->counters.given_up);
        return;
    }
    if (change->has_failed)
        return;
    change->entity = entity;
    change->log_id = event->log_id;
    list_remove(&change->node);
    list_push_back(&projector->changes, &change->node);
    enum status status = STATUS_INTERNAL_ERROR;
    if (event->seq == change->summary.common.latest_seq + 1)
        status = fold_event(kind, &change->summary, event, &projector->arena);
    if (status == STATUS_OK)
        status = add_shared_event(projector, change, event);
    if (status != STATUS_OK)
        change_fail(projector, change, status);
}

/* Folds an entity from the log that an earlier commit could not project. An event of this commit
 * may have done so already. */
static void retry_entity(struct projector *projector, const struct retry *retry) {
    struct cache_entry *entry = summary_cache_find(&projector->cache, retry->ref);
    if (entry && entry->change) {
        entry->change->attempts = retry->attempts;
        return;
    }
    struct store_entity *entity = arena_alloc(&projector->arena, sizeof(*entity));
    enum status status = STATUS_OUT_OF_MEMORY;
    if (entity)
        status = store_load_entity_ref(projector->session, retry->ref, &projector->arena, entity);
    struct change *change = NULL;
    if (status == STATUS_OK && entity->head_seq > 0)
        change = change_of(projector, entity, retry->kind, entity->head_seq + 1);
    if (!change) {
        count(&projector->counters.given_up);
        return;
    }
    change->attempts = retry->attempts;
    uint64_t sent_seq = change->has_checkpoint ? change->checkpoint.last_runtime_seq : 0;
    change->first_seq = sent_seq < entity->head_seq ? sent_seq + 1 : entity->head_seq;
}

/* Builds the rows of a change, and the cache entry that becomes valid with the commit. */
static enum status change_build(struct projector *projector, struct change *change,
                                struct arena *arena, struct sink_update *update) {
    uint64_t sent_seq = change->has_checkpoint ? change->checkpoint.last_runtime_seq : 0;
    const struct update_source source = {
        .kind = change->entry->kind,
        .summary = &change->summary,
        .entity_ref = change->entry->ref,
        .owner = change->entity->owner,
        .version = change->rows.document_version + 1,
        .log_id = change->log_id,
        .first_seq = sent_seq + 1,
        .projection_version = projector->version,
        .now_ms = projector->now_ms,
        .stored_metadata = change->are_rows_cached ? &change->entry->now->metadata : NULL,
        .is_first_frame = change->is_first_frame,
        .fields_were = change->fields_were,
    };
    enum status status = update_build(&source, &projector->scratch, arena, update);
    if (status != STATUS_OK)
        return status;
    const struct checkpoint_incoming incoming = {
        .first_seq = change->first_seq,
        .last_seq = change->summary.common.latest_seq,
        .projection_version = projector->version,
        .summary_hash = update->checkpoint.summary_hash,
    };
    struct checkpoint_decision decision =
        checkpoint_decide(change->has_checkpoint ? &change->checkpoint : NULL, &incoming);
    if (change->are_rows_cached)
        update->checkpoint.replaced = &change->rows;
    /* A document that does not agree with its checkpoint is written again. */
    change->is_skipped = decision.action == CHECKPOINT_SKIP && !change->has_drift;
    /* The document cannot match a checkpoint that is ahead. That is not a drift of its own. */
    if (decision.has_drift && decision.drift == REASON_CHECKPOINT_AHEAD)
        change->has_drift = false;
    if (decision.has_drift)
        change_drift(change, decision.drift);
    status = summary_cache_prepare(&projector->cache, change->entry, &change->summary,
                                   update->document.payload, &projector->scratch.marks);
    if (status != STATUS_OK)
        return status;
    struct store_summary_rows *rows = &change->entry->next->rows;
    *rows = change->rows;
    if (change->is_skipped)
        return STATUS_OK;
    const struct store_cut *cut = update->document.cut;
    if (cut) {
        struct update_metadata *metadata = &change->entry->next->metadata;
        const struct summary_layout *layout = fold_layout(change->entry->kind);
        metadata->text = summary_metadata(layout, &change->entry->next->summary.common);
        memcpy(metadata->hash, cut->metadata_hash, SHA256_BYTES);
    }
    rows->last_runtime_seq = update->checkpoint.last_runtime_seq;
    rows->document_version = update->document.version;
    memcpy(rows->summary_hash, update->checkpoint.summary_hash, SHA256_BYTES);
    memcpy(rows->document_hash, update->document.payload_hash, SHA256_BYTES);
    return STATUS_OK;
}

static void project_collect(void *user, struct arena *arena, struct store_batch *batch,
                            uint64_t *last_topic_ref) {
    struct projector *projector = user;
    for (size_t i = 0; i < projector->retry_count; i++)
        retry_entity(projector, &projector->retries[i]);
    if (list_is_empty(&projector->changes))
        return;
    const struct shared_event *events = (const void *)projector->shared_events.data;
    size_t event_count = projector->shared_events.size / sizeof(*events);
    struct sink_update *updates = arena_alloc(arena, projector->change_count * sizeof(*updates));
    struct store_drift *drifts = arena_alloc(arena, projector->change_count * sizeof(*drifts));
    struct sink_shared_event *rows = arena_alloc(arena, event_count * sizeof(*rows));
    bool has_memory = updates && drifts && rows;
    struct sink_commit commit = {
        .now_ms = projector->now_ms,
        .session = projector->session,
        .updates = updates,
        .drifts = drifts,
        .shared_events = rows,
        .arena = arena,
        .batch = batch,
        .last_topic_ref = last_topic_ref,
    };
    for (struct change *change = change_first(projector); has_memory && change;
         change = change_next(projector, change)) {
        if (change->has_failed)
            continue;
        enum status built = change_build(projector, change, arena, &updates[commit.update_count]);
        if (built != STATUS_OK) {
            change_fail(projector, change, built);
            continue;
        }
        commit.update_count += !change->is_skipped;
        if (!change->has_drift)
            continue;
        drifts[commit.drift_count++] = (struct store_drift){
            .kind = change->entry->kind,
            .entity_ref = change->entry->ref,
            .entity_id = change->entity->id,
            .reason = change->drift,
            .expected_seq = change->has_checkpoint ? change->checkpoint.last_runtime_seq + 1 : 1,
            .actual_seq = change->first_seq,
            .seen_at_ms = projector->now_ms,
        };
        log_event(LOG_WARN, "projector.drift", log_str("reason", reason_code(change->drift)),
                  log_slice("entity_id", change->entity->id));
    }
    for (size_t i = 0; has_memory && i < event_count; i++)
        if (!events[i].change->has_failed)
            rows[commit.shared_event_count++] = events[i].event;
    projector->is_sunk = has_memory;
    enum status status =
        has_memory ? projector->sink->write(projector->sink->user, &commit) : STATUS_OUT_OF_MEMORY;
    for (struct change *change = change_first(projector); change && status != STATUS_OK;
         change = change_next(projector, change))
        if (!change->has_failed)
            change_fail(projector, change, status);
    if (projector->is_damaged && projector->first_log_id > 0)
        batch->unprojected_from = projector->first_log_id;
}

/* ---- the end of a commit ------------------------------------------------------------------ */

static void project_settle(struct projector *projector, bool committed) {
    if (projector->is_sunk && projector->sink->settle)
        projector->sink->settle(projector->sink->user, committed);
    if (committed)
        projector->retry_count = 0;
    for (struct list_node *node; (node = list_pop_front(&projector->changes));) {
        const struct change *change = change_at(node);
        struct cache_entry *entry = change->entry;
        if (committed && change->has_failed) {
            if (change->attempts + 1 < PROJECTOR_ATTEMPTS_MAX &&
                projector->retry_count < PROJECTOR_RETRY_MAX)
                projector->retries[projector->retry_count++] =
                    (struct retry){entry->ref, entry->kind, change->attempts + 1};
            else
                count(&projector->counters.given_up);
            summary_cache_drop(&projector->cache, entry);
            continue;
        }
        if (committed)
            count(change->is_skipped ? &projector->counters.skipped : &projector->counters.updates);
        if (committed && change->has_drift) {
            count(&projector->counters.drifts);
            metrics_add(METRIC_KHALA_PROJECTION_DRIFT, METRIC_LABELS(change->drift), 1);
        }
        summary_cache_settle(&projector->cache, entry, committed);
    }
    if (committed && projector->is_damaged && projector->first_log_id > 0)
        healer_note(&projector->healer, projector->first_log_id);
    projector->change_count = 0;
    projector->first_log_id = 0;
    projector->is_damaged = false;
    projector->is_sunk = false;
    projector->session = NULL;
}

static void project_committed(void *user) {
    project_settle(user, true);
}

static void project_abandoned(void *user) {
    project_settle(user, false);
}

static void project_unprojected(void *user, uint64_t first_log_id) {
    struct projector *projector = user;
    healer_note(&projector->healer, first_log_id);
}

static int64_t project_heal(void *user, const struct projection_step *step) {
    struct projector *projector = user;
    if (!projector->sink->write)
        return PROJECTION_IS_WHOLE;
    return healer_step(&projector->healer, step);
}

static enum status project_repair(void *user, const struct projection_step *step,
                                  const struct store_damage *damage) {
    struct projector *projector = user;
    const struct repair_options options = {step, projector->version,
                                           projector->healer.unprojected_from};
    if (damage->kind == DOCUMENT_NONE)
        return repair_journal(&options, damage->topic, damage->seq);
    if (!projector->sink->write)
        return STATUS_NOT_FOUND;
    enum status status = repair_document(&options, damage->entity_ref);
    projector_forget(projector, damage->entity_ref);
    return status;
}

static void project_forget(void *user) {
    struct projector *projector = user;
    summary_cache_clear(&projector->cache);
    projector->retry_count = 0;
    healer_restart(&projector->healer);
}

static void on_repaired(void *user, uint64_t entity_ref) {
    projector_forget(user, entity_ref);
}

enum status projector_open(struct projector **projector, const struct projector_options *options) {
    struct slice version = options->projection_version;
    if (!version.data)
        version = SLICE(PROJECTION_VERSION_DEFAULT);
    enum status status = STATUS_OUT_OF_MEMORY;
    struct projector *made = calloc(1, sizeof(*made));
    char *text = malloc(version.size + 1);
    if (!made || !text)
        goto out;
    memcpy(text, version.data, version.size);
    made->version_text = text;
    made->version = (struct slice){text, version.size};
    made->sink = options->sink ? options->sink : &sink_tables;
    summary_cache_init(&made->cache, options->cache_bytes_max ? options->cache_bytes_max
                                                              : PROJECTOR_CACHE_BYTES_DEFAULT);
    update_scratch_init(&made->scratch);
    list_init(&made->changes);
    arena_init(&made->arena, PROJECTOR_TURN_BYTES_MAX);
    buffer_init(&made->shared_events, PROJECTOR_SHARED_EVENTS_BYTES_MAX);
    made->healer =
        (struct healer){.projection_version = made->version, .user = made, .repaired = on_repaired};
    made->projection = (struct projection){
        .user = made,
        .begin = project_begin,
        .fold = project_fold,
        .collect = project_collect,
        .committed = project_committed,
        .abandoned = project_abandoned,
        .forget = project_forget,
        .unprojected = project_unprojected,
        .heal = project_heal,
        .has_documents = made->sink->write != NULL,
        .repair = project_repair,
    };
    *projector = made;
    made = NULL;
    text = NULL;
    status = STATUS_OK;
out:
    free(text);
    free(made);
    return status;
}

void projector_close(struct projector *projector) {
    if (!projector)
        return;
    assert(list_is_empty(&projector->changes));
    summary_cache_release(&projector->cache);
    update_scratch_release(&projector->scratch);
    arena_release(&projector->arena);
    buffer_release(&projector->shared_events);
    free(projector->version_text);
    free(projector);
}

const struct projection *projector_projection(const struct projector *projector) {
    return &projector->projection;
}

void projector_forget(struct projector *projector, uint64_t entity_ref) {
    assert(list_is_empty(&projector->changes));
    struct cache_entry *entry = summary_cache_find(&projector->cache, entity_ref);
    if (entry)
        summary_cache_drop(&projector->cache, entry);
}

struct projector_stats projector_stats(const struct projector *projector) {
    const struct counters *counters = &projector->counters;
    return (struct projector_stats){
        .updates = atomic_load_explicit(&counters->updates, memory_order_relaxed),
        .skipped = atomic_load_explicit(&counters->skipped, memory_order_relaxed),
        .drifts = atomic_load_explicit(&counters->drifts, memory_order_relaxed),
        .failures = atomic_load_explicit(&counters->failures, memory_order_relaxed),
        .given_up = atomic_load_explicit(&counters->given_up, memory_order_relaxed),
        .cache_misses = atomic_load_explicit(&counters->cache_misses, memory_order_relaxed),
        .cache_bytes = atomic_load_explicit(&counters->cache_bytes, memory_order_relaxed),
    };
}
