/* Each entity is read as one consistent view of its rows: if a server wrote between two reads, the
 * view is read again. Its events are folded from the log, and the rows that the fold gives are
 * compared with the stored ones. Differences are collected as repairs and written in batches. */
#include "projector/reproject.h"

#include <stdlib.h>

#include "base/limits.h"
#include "projector/update.h"

#define PAGE_ENTITIES 128
/* Attempts to read one entity that a server writes meanwhile. */
#define ATTEMPTS_MAX    1000
#define PROGRESS_EVENTS 1024

/* Holds refs only: each row is loaded again with its checkpoint and document. */
struct ref_page {
    uint64_t refs[PAGE_ENTITIES];
    size_t count;
};

struct reprojection {
    struct store_session *session;
    const struct reproject_options *options;
    struct reproject_result *result;
    struct slice version;
    uint64_t events_total;
    struct ref_page page;
    struct arena stored; /* the rows of the current entity */
    struct update_scratch scratch;
    /* Repairs that are not written yet. */
    struct arena arena;
    struct sink_update updates[REPROJECT_REPAIRS_MAX];
    struct store_drift drifts[REPROJECT_REPAIRS_MAX];
    size_t update_count;
    struct buffer shared_events; /* an array of struct sink_shared_event */
};

/* A consistent view of the stored rows of an entity. */
struct stored {
    struct store_entity entity;
    bool has_checkpoint;
    struct store_checkpoint checkpoint;
    bool has_document;
    struct store_document document;
};

/* ---- writing repairs ---------------------------------------------------------------------- */

static enum status flush(struct reprojection *work) {
    struct store_batch batch = {0};
    struct store_state state;
    if (work->update_count == 0)
        return STATUS_OK;
    enum status status = store_read_state(work->session, &state);
    struct sink_commit commit = {
        .now_ms = work->options->now_ms,
        .updates = work->updates,
        .update_count = work->update_count,
        .shared_events = (const void *)work->shared_events.data,
        .shared_event_count = work->shared_events.size / sizeof(struct sink_shared_event),
        .drifts = work->drifts,
        .drift_count = work->update_count,
        .session = work->session,
        .arena = &work->arena,
        .batch = &batch,
        .last_topic_ref = &state.topic_ref,
    };
    if (status == STATUS_OK)
        status = sink_tables.write(sink_tables.user, &commit);
    if (status == STATUS_OK)
        status = store_commit(work->session, &batch);
    if (status == STATUS_OK)
        work->result->repaired += work->update_count;
    if (status == STATUS_OK && work->options->on_commit)
        work->options->on_commit(work->options->user, &batch);
    work->update_count = 0;
    arena_reset(&work->arena);
    buffer_clear(&work->shared_events);
    return status;
}

/* ---- one entity --------------------------------------------------------------------------- */

struct walk {
    struct reprojection *work;
    const struct stored *stored;
    uint64_t log_id;
    uint64_t sent_seq; /* frames exist for the events up to here */
    enum status status;
};

static void on_event(void *user, const struct store_event *event) {
    struct walk *walk = user;
    struct reprojection *work = walk->work;
    walk->log_id = event->log_id;
    if (++work->result->events % PROGRESS_EVENTS == 0 && work->options->on_progress)
        work->options->on_progress(work->options->user, work->result->events, work->events_total);
    enum topic_kind topic = entity_row(walk->stored->entity.kind)->shared_topic;
    if (!work->options->apply || topic == TOPIC_NONE || event->seq <= walk->sent_seq ||
        event->log_id < work->options->unprojected_from || walk->status != STATUS_OK)
        return;
    struct sink_shared_event row = {topic, event->log_id, event->entity_ref, {0}};
    memcpy(row.payload_hash, event->payload_hash, SHA256_BYTES);
    walk->status = buffer_append(&work->shared_events, &row, sizeof(row));
}

static uint64_t sent_seq_of(const struct stored *stored) {
    if (stored->has_checkpoint)
        return stored->checkpoint.last_runtime_seq;
    /* Unknown without a checkpoint. A document shows that there were frames. */
    return stored->has_document ? UINT64_MAX : 0;
}

/* Reads the rows again if a server has written between two reads. */
static enum status load_stored(struct reprojection *work, uint64_t ref, enum document_kind kind,
                               struct stored *stored) {
    struct store_session *session = work->session;
    struct arena *arena = &work->stored;
    for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        struct store_checkpoint *first = &stored->checkpoint, again;
        arena_reset(arena);
        enum status status = store_load_entity_ref(session, ref, arena, &stored->entity);
        if (status != STATUS_OK)
            return status;
        status = store_load_checkpoint(session, kind, ref, arena, first);
        stored->has_checkpoint = status == STATUS_OK;
        if (status != STATUS_OK && !store_is_lost(status))
            return status;
        status = store_load_document(session, kind, ref, arena, &stored->document);
        stored->has_document = status == STATUS_OK;
        if (status != STATUS_OK && !store_is_lost(status))
            return status;
        status = store_load_checkpoint(session, kind, ref, arena, &again);
        if (status != STATUS_OK && !store_is_lost(status))
            return status;
        if (stored->has_checkpoint != (status == STATUS_OK))
            continue;
        if (!stored->has_checkpoint ||
            (first->last_runtime_seq == again.last_runtime_seq &&
             memcmp(first->summary_hash, again.summary_hash, SHA256_BYTES) == 0))
            return STATUS_OK;
    }
    return STATUS_STORE_UNAVAILABLE;
}

/* False: document and checkpoint agree with the log. */
static bool compare(const struct stored *stored, struct sink_update *update,
                    struct reproject_drift *drift) {
    const struct store_document *document = &stored->document;
    const struct store_checkpoint *rebuilt = &update->checkpoint;
    const struct checkpoint_incoming incoming = {
        .first_seq = rebuilt->last_runtime_seq,
        .last_seq = rebuilt->last_runtime_seq,
        .projection_version = rebuilt->projection_version,
        .summary_hash = rebuilt->summary_hash,
    };
    struct checkpoint_decision decision =
        checkpoint_decide(stored->has_checkpoint ? &stored->checkpoint : NULL, &incoming);
    bool is_checkpoint_right = decision.action == CHECKPOINT_SKIP && !decision.has_drift;
    uint8_t hash[SHA256_BYTES];
    if (stored->has_document && slice_equal(document->key, update->document.key)) {
        sha256(document->payload.data, document->payload.size, hash);
        update->is_checkpoint_only = memcmp(hash, document->payload_hash, SHA256_BYTES) == 0 &&
                                     summary_hash(document->payload, hash) == STATUS_OK &&
                                     memcmp(hash, rebuilt->summary_hash, SHA256_BYTES) == 0;
    }
    *drift = (struct reproject_drift){
        .document_key = update->document.key,
        .reason = decision.has_drift ? decision.drift : REASON_SEQUENCE_GAP,
        .expected_seq = rebuilt->last_runtime_seq,
        .actual_seq = stored->has_checkpoint ? stored->checkpoint.last_runtime_seq : 0,
    };
    if (!stored->has_document)
        drift->message = "the document is missing";
    else if (!update->is_checkpoint_only)
        drift->message = "the document differs from the log";
    else
        drift->message = "the checkpoint differs from the log";
    if (is_checkpoint_right && !update->is_checkpoint_only)
        drift->reason = REASON_SUMMARY_HASH_MISMATCH;
    return !is_checkpoint_right || !update->is_checkpoint_only;
}

/* Builds the rows of the fold, and keeps them as a repair if the stored rows differ. Repairs are
 * written once there are many. */
static enum status compare_fold(struct reprojection *work, const struct stored *stored,
                                const struct fold *fold, const struct walk *walk,
                                size_t shared_events_before) {
    const struct reproject_options *options = work->options;
    uint64_t sent_seq = sent_seq_of(stored);
    const struct update_source source = {
        .kind = fold->kind,
        .summary = &fold->summary,
        .entity_ref = stored->entity.ref,
        .owner = stored->entity.owner,
        /* A document has at most one version for each event, so the head of the entity is a safe
         * version if the document is lost. */
        .version = (stored->has_document ? stored->document.version : stored->entity.head_seq) + 1,
        .log_id = walk->log_id,
        .first_seq = sent_seq == UINT64_MAX ? 0 : sent_seq + 1,
        .projection_version = work->version,
        .now_ms = options->now_ms,
    };
    struct reproject_drift drift;
    struct sink_update *update = &work->updates[work->update_count];
    enum status status = update_build(&source, &work->scratch, &work->arena, update);
    if (status != STATUS_OK)
        return status;
    /* A repair outlives the rows of its entity, so the texts of the owner are copied. */
    struct slice *texts[] = {&update->owner.user_id, &update->owner.guest_scope,
                             &update->owner.org_id};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!texts[i]->data)
            continue;
        *texts[i] = arena_copy(&work->arena, *texts[i]);
        if (!texts[i]->data)
            return STATUS_OUT_OF_MEMORY;
    }
    bool differs = compare(stored, update, &drift);
    work->result->drifted += differs;
    if (differs && options->on_drift)
        options->on_drift(options->user, &drift);
    /* A document is written together with the frames of its events, so a correct document has them.
     */
    if (!differs || (options->apply && update->is_checkpoint_only))
        work->shared_events.size = shared_events_before;
    if (differs && options->apply)
        work->drifts[work->update_count++] = (struct store_drift){
            .kind = update->document.kind,
            .entity_ref = stored->entity.ref,
            .reason = drift.reason,
            .expected_seq = drift.expected_seq,
            .actual_seq = drift.actual_seq,
            .seen_at_ms = options->now_ms,
        };
    if (work->update_count == REPROJECT_REPAIRS_MAX ||
        (work->update_count > 0 && (work->arena.bytes_held > REPROJECT_REPAIRS_BYTES ||
                                    work->shared_events.size > REPROJECT_REPAIRS_BYTES)))
        return flush(work);
    if (work->update_count == 0)
        arena_reset(&work->arena);
    return STATUS_OK;
}

static enum status check_entity(struct reprojection *work, uint64_t ref, enum entity_kind entity) {
    struct stored stored;
    enum document_kind kind = entity_row(entity)->summary;
    struct fold fold;
    if (kind == DOCUMENT_NONE)
        return STATUS_INVALID_REQUEST;
    enum status status = load_stored(work, ref, kind, &stored);
    if (status != STATUS_OK)
        return status;
    size_t shared_events_before = work->shared_events.size;
    struct walk walk = {.work = work, .stored = &stored, .sent_seq = sent_seq_of(&stored)};
    uint64_t until_seq = stored.entity.head_seq;
    if (stored.has_checkpoint && stored.checkpoint.last_runtime_seq > until_seq)
        until_seq = stored.checkpoint.last_runtime_seq;
    fold_init(&fold, kind, stored.entity.id);
    status = fold_from_log(&fold, work->session, ref, until_seq, &walk, on_event);
    /* With a checkpoint ahead of the log, the log decides. */
    if (status == STATUS_NOT_FOUND && fold.summary.common.latest_seq >= stored.entity.head_seq)
        status = STATUS_OK;
    if (status == STATUS_OK)
        status = walk.status;
    if (status == STATUS_OK && fold.summary.common.latest_seq > 0)
        status = compare_fold(work, &stored, &fold, &walk, shared_events_before);
    fold_release(&fold);
    work->result->entities++;
    /* The entity exists, but its events do not. */
    return status == STATUS_NOT_FOUND ? STATUS_INTERNAL_ERROR : status;
}

/* ---- many entities ------------------------------------------------------------------------ */

static enum status add_to_page(void *user, const struct store_entity *entity) {
    struct ref_page *page = user;
    page->refs[page->count++] = entity->ref;
    return STATUS_OK;
}

static enum status add_head(void *user, const struct store_entity *entity) {
    *(uint64_t *)user += entity->head_seq;
    return STATUS_OK;
}

static enum status check_all(struct reprojection *work) {
    const struct reproject_options *options = work->options;
    enum status status = options->apply ? store_heal(work->session, options->now_ms) : STATUS_OK;
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT && status == STATUS_OK; i++) {
        enum entity_kind kind = document_row((enum document_kind)i)->entity;
        if (options->on_progress)
            status = store_walk_entities(work->session, kind, 0, UINT64_MAX, &work->events_total,
                                         add_head);
    }
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT && status == STATUS_OK; i++) {
        enum entity_kind kind = document_row((enum document_kind)i)->entity;
        uint64_t after_ref = 0;
        do {
            work->page.count = 0;
            status = store_walk_entities(work->session, kind, after_ref, PAGE_ENTITIES, &work->page,
                                         add_to_page);
            for (size_t j = 0; j < work->page.count && status == STATUS_OK; j++) {
                after_ref = work->page.refs[j];
                status = check_entity(work, after_ref, kind);
            }
        } while (status == STATUS_OK && work->page.count > 0);
    }
    return status;
}

enum status reproject(struct store_session *session, const struct reproject_options *options,
                      struct reproject_result *result) {
    struct reprojection *work = calloc(1, sizeof(*work));
    memset(result, 0, sizeof(*result));
    if (!work)
        return STATUS_OUT_OF_MEMORY;
    work->session = session;
    work->options = options;
    work->result = result;
    work->version = options->projection_version.data ? options->projection_version
                                                     : SLICE(PROJECTION_VERSION_DEFAULT);
    update_scratch_init(&work->scratch);
    arena_init(&work->stored, REPROJECT_STORED_BYTES_MAX);
    arena_init(&work->arena, REPROJECT_REPAIRS_BYTES_MAX);
    buffer_init(&work->shared_events, REPROJECT_REPAIRS_BYTES_MAX);
    enum status status;
    if (options->id.data) {
        struct store_entity entity;
        status = store_load_entity(session, options->kind, options->id, &work->stored, &entity);
        if (status == STATUS_OK) {
            work->events_total = entity.head_seq;
            status = check_entity(work, entity.ref, entity.kind);
        }
    } else {
        status = check_all(work);
    }
    if (status == STATUS_OK)
        status = flush(work);
    /* All documents agree with the log now. */
    const struct store_batch projected = {.is_projected = true};
    if (status == STATUS_OK && options->apply && !options->id.data)
        status = store_commit(session, &projected);
    if (status == STATUS_OK && options->on_progress)
        options->on_progress(options->user, result->events, result->events);
    update_scratch_release(&work->scratch);
    arena_release(&work->stored);
    arena_release(&work->arena);
    buffer_release(&work->shared_events);
    free(work);
    return status;
}
