/* The healer goes through three stages. It reads the mark that a commit without derived rows leaves
 * in the store, rebuilds derived tables, and then walks over all entities of each document kind. A
 * document that agrees with its checkpoint costs no read of events; any other is folded again. The
 * mark goes after the last document. Appends wait for a step, so each step is small.
 *
 * A reader that finds a damaged row reports it, and the writer repairs only that one. */
#include "projector/repair.h"

#include "base/limits.h"
#include "base/log.h"
#include "projector/fold.h"
#include "projector/reproject.h"
#include "projector/update.h"

#define STEP_ENTITIES    32
#define STEP_ROWS_MAX    1024
#define STEP_REPAIRS_MAX 64
#define STEP_EVENTS_MAX  20000
/* Doubles with each failure. */
#define PAUSE_MS_FIRST 250
#define PAUSE_MS_MAX   60000

static void announce(void *user, const struct store_batch *batch) {
    const struct projection_step *step = user;
    step->announce(step->user, batch);
}

static enum status fold_again(const struct repair_options *options,
                              const struct store_entity *entity, struct reproject_result *result) {
    const struct reproject_options reprojection = {
        .kind = entity->kind,
        .id = entity->id,
        .apply = true,
        .now_ms = options->step->now_ms,
        .projection_version = options->projection_version,
        .unprojected_from = options->unprojected_from,
        .user = (void *)options->step,
        .on_commit = announce,
    };
    return reproject(options->step->session, &reprojection, result);
}

/* ---- the healer ------------------------------------------------------------------------- */

void healer_note(struct healer *healer, uint64_t first_log_id) {
    if (healer->unprojected_from == 0 || first_log_id < healer->unprojected_from)
        healer->unprojected_from = first_log_id;
    healer->stage = HEALER_TABLES;
}

void healer_restart(struct healer *healer) {
    healer->stage = HEALER_UNKNOWN;
    healer->retry_at_ms = healer->pause_ms = 0;
}

struct ref_page {
    uint64_t refs[STEP_ENTITIES];
    size_t count;
};

static enum status add_to_page(void *user, const struct store_entity *entity) {
    struct ref_page *page = user;
    page->refs[page->count++] = entity->ref;
    return STATUS_OK;
}

/* Reads document and checkpoint of an entity. Folds its events again if one of them is missing or
 * behind, or if they do not agree with each other. */
static enum status heal_entity(struct healer *healer, const struct projection_step *step,
                               uint64_t ref) {
    struct store_session *session = step->session;
    struct store_entity entity;
    struct store_checkpoint checkpoint;
    struct store_document document;
    union any_summary summary;
    struct arena arena;
    arena_init(&arena, REPROJECT_STORED_BYTES_MAX);
    enum status status = store_load_entity_ref(session, ref, &arena, &entity);
    if (status != STATUS_OK || entity.head_seq == 0)
        goto out;
    bool is_current =
        store_load_checkpoint(session, healer->kind, ref, &arena, &checkpoint) == STATUS_OK &&
        store_load_document(session, healer->kind, ref, &arena, &document) == STATUS_OK &&
        checkpoint.last_runtime_seq == entity.head_seq &&
        slice_equal(checkpoint.projection_version, healer->projection_version) &&
        fold_document(&document, &checkpoint, entity.id, &summary);
    if (!is_current) {
        const struct repair_options options = {step, healer->projection_version,
                                               healer->unprojected_from};
        struct reproject_result result;
        status = fold_again(&options, &entity, &result);
        healer->repaired(healer->user, ref);
    }
out:
    arena_release(&arena);
    return status;
}

/* Heals the next page of documents. A damaged entity does not stop the others. */
static enum status heal_documents(struct healer *healer, const struct projection_step *step) {
    struct ref_page page = {.count = 0};
    enum status status = store_walk_entities(step->session, document_row(healer->kind)->entity,
                                             healer->after_ref, STEP_ENTITIES, &page, add_to_page);
    for (size_t i = 0; status == STATUS_OK && i < page.count; i++) {
        enum status healed = heal_entity(healer, step, page.refs[i]);
        if (healed == STATUS_STORE_UNAVAILABLE || healed == STATUS_WRITER_LOST)
            return healed;
        if (healed != STATUS_OK)
            log_event(LOG_WARN, "projector.heal_failed",
                      log_int("entity_ref", (int64_t)page.refs[i]),
                      log_str("status", status_code(healed)),
                      log_str("store", store_session_error(step->session)));
        healer->failures += healed != STATUS_OK;
        healer->after_ref = page.refs[i];
    }
    if (status != STATUS_OK || page.count > 0)
        return status;
    healer->after_ref = 0;
    if (healer->kind + 1 < DOCUMENT_KIND_COUNT) {
        healer->kind++;
        return STATUS_OK;
    }
    /* The mark stays if an entity could not be folded, and the doctor reports it. */
    if (healer->failures > 0) {
        healer->stage = HEALER_TABLES;
        return STATUS_INTERNAL_ERROR;
    }
    const struct store_batch batch = {.is_projected = true};
    status = store_commit(step->session, &batch);
    if (status != STATUS_OK)
        return status;
    healer->unprojected_from = 0;
    healer->pause_ms = 0;
    healer->stage = HEALER_WHOLE;
    log_event(LOG_INFO, "projector.healed");
    return STATUS_OK;
}

int64_t healer_step(struct healer *healer, const struct projection_step *step) {
    struct store_state state;
    enum status status = STATUS_OK;
    if (healer->stage != HEALER_WHOLE && step->mono_ms < healer->retry_at_ms)
        return (int64_t)(healer->retry_at_ms - step->mono_ms);
    switch (healer->stage) {
    case HEALER_UNKNOWN:
        status = store_read_state(step->session, &state);
        if (status != STATUS_OK)
            break;
        healer->unprojected_from = state.unprojected_from;
        healer->stage = state.unprojected_from > 0 ? HEALER_TABLES : HEALER_WHOLE;
        break;
    case HEALER_TABLES:
        status = store_heal(step->session, step->now_ms);
        if (status != STATUS_OK)
            break;
        healer->stage = HEALER_DOCUMENTS;
        healer->kind = (enum document_kind)0;
        healer->after_ref = 0;
        healer->failures = 0;
        break;
    case HEALER_DOCUMENTS:
        status = heal_documents(healer, step);
        break;
    case HEALER_WHOLE:
        break;
    }
    if (healer->stage == HEALER_WHOLE)
        return PROJECTION_IS_WHOLE;
    if (status == STATUS_OK)
        return 0;
    if (healer->pause_ms == 0)
        healer->pause_ms = PAUSE_MS_FIRST;
    else
        healer->pause_ms =
            healer->pause_ms < PAUSE_MS_MAX / 2 ? 2 * healer->pause_ms : PAUSE_MS_MAX;
    healer->retry_at_ms = step->mono_ms + healer->pause_ms;
    return (int64_t)healer->pause_ms;
}

/* ---- one document ----------------------------------------------------------------------- */

enum status repair_document(const struct repair_options *options, uint64_t entity_ref) {
    struct store_entity entity;
    struct reproject_result result = {0};
    struct arena arena;
    arena_init(&arena, REPROJECT_STORED_BYTES_MAX);
    enum status status = store_load_entity_ref(options->step->session, entity_ref, &arena, &entity);
    if (status == STATUS_OK)
        status = fold_again(options, &entity, &result);
    arena_release(&arena);
    return status == STATUS_OK && result.repaired == 0 ? STATUS_NOT_FOUND : status;
}

/* ---- altered rows of a journal ---------------------------------------------------------- */

struct altered {
    struct store_journal_row row;
    /* The event of the frame. The entity has ref, kind and id only. */
    struct store_entity entity;
    uint64_t seq;
    uint8_t event_hash[SHA256_BYTES];
};

struct examination {
    const struct repair_options *options;
    struct arena arena; /* the altered rows, as they are and as they should be */
    struct update_scratch scratch;
    struct store_topic topic;
    uint64_t expected_seq;
    size_t count;
    uint64_t folded_events;
    struct altered altered[STEP_REPAIRS_MAX];
};

static bool is_full(const struct examination *work) {
    return work->count == STEP_REPAIRS_MAX || work->arena.bytes_held > REPROJECT_REPAIRS_BYTES;
}

static enum status examine_row(void *user, const struct store_journal_row *row,
                               const struct store_event *event) {
    struct examination *work = user;
    uint8_t hash[SHA256_BYTES];
    if (row->seq > work->topic.head_seq || row->seq != work->expected_seq || is_full(work))
        return STATUS_LIMIT_REACHED;
    work->expected_seq++;
    bool has_no_document = entity_row(event->entity_kind)->summary == DOCUMENT_NONE;
    if (store_row_is_whole(row, event) &&
        (!row->payload.data || (!has_no_document && summary_hash(row->payload, hash) == STATUS_OK)))
        return STATUS_OK;
    struct altered *altered = &work->altered[work->count++];
    *altered = (struct altered){.row = *row, .seq = event->seq};
    altered->entity = (struct store_entity){.ref = event->entity_ref, .kind = event->entity_kind};
    altered->entity.id = arena_copy(&work->arena, event->entity_id);
    if (row->payload.data)
        altered->row.payload = arena_copy(&work->arena, row->payload);
    /* The repair leaves that column as it is. */
    altered->row.fields_before = (struct slice){NULL, 0};
    memcpy(altered->event_hash, event->payload_hash, SHA256_BYTES);
    return altered->entity.id.data && (!row->payload.data || altered->row.payload.data)
               ? STATUS_OK
               : STATUS_OUT_OF_MEMORY;
}

/* Folds the events up to that of the frame. The result is the frame's own payload if it has the
 * stored hash, or if it is the stored payload; STATUS_NOT_FOUND for any other. */
static enum status fold_payload(struct examination *work, const struct altered *altered,
                                struct store_document *document) {
    enum document_kind kind = entity_row(altered->entity.kind)->summary;
    const struct store_journal_row *row = &altered->row;
    struct sink_update update;
    struct fold fold;
    fold_init(&fold, kind, altered->entity.id);
    enum status status = fold_from_log(&fold, work->options->step->session, altered->entity.ref,
                                       altered->seq, NULL, NULL);
    const struct update_source source = {
        .kind = kind,
        .summary = &fold.summary,
        .entity_ref = altered->entity.ref,
        .version = row->document_version,
        .projection_version = work->options->projection_version,
        .now_ms = row->published_at_ms,
    };
    if (status == STATUS_OK)
        status = update_build(&source, &work->scratch, &work->arena, &update);
    work->folded_events += fold.event_count;
    fold_release(&fold);
    /* The log lacks the event, or the events cannot be folded. */
    if (status == STATUS_INTERNAL_ERROR)
        return STATUS_NOT_FOUND;
    if (status != STATUS_OK)
        return status;
    if (memcmp(update.document.payload_hash, row->payload_hash, SHA256_BYTES) != 0 &&
        !slice_equal(update.document.payload, row->payload))
        return STATUS_NOT_FOUND;
    *document = update.document;
    return STATUS_OK;
}

/* STATUS_NOT_FOUND: the frame cannot be rebuilt. */
static enum status rebuild_frame(struct examination *work, struct altered *altered) {
    struct store_session *session = work->options->step->session;
    enum document_kind kind = entity_row(altered->entity.kind)->summary;
    uint64_t ref = altered->entity.ref;
    struct store_journal_row *row = &altered->row;
    struct store_checkpoint checkpoint;
    struct store_document document;
    union any_summary summary;
    /* Either of the two refs may be the altered one. */
    if (row->entity_ref != ref)
        return STATUS_NOT_FOUND;
    if (!row->payload.data) {
        memcpy(row->payload_hash, altered->event_hash, SHA256_BYTES);
        return STATUS_OK;
    }
    if (kind == DOCUMENT_NONE)
        return STATUS_NOT_FOUND;
    /* The document at the version of the frame has the frame's payload. */
    bool is_found =
        store_load_checkpoint(session, kind, ref, &work->arena, &checkpoint) == STATUS_OK &&
        store_load_document(session, kind, ref, &work->arena, &document) == STATUS_OK &&
        document.version == row->document_version &&
        fold_document(&document, &checkpoint, altered->entity.id, &summary);
    enum status status;
    if (is_found)
        status = update_cut(document.payload, summary_metadata(fold_layout(kind), &summary.common),
                            NULL, &work->arena, &document.cut);
    else
        status = fold_payload(work, altered, &document);
    if (status != STATUS_OK)
        return status;
    row->payload = document.payload;
    row->cut = document.cut;
    sha256(row->payload.data, row->payload.size, row->payload_hash);
    return STATUS_OK;
}

/* Collects the altered rows of one part of the journal. lost_seq: the last frame that cannot be
 * rebuilt; 0: none. */
static enum status examine(struct examination *work, struct slice topic, uint64_t from_seq,
                           uint64_t *lost_seq) {
    struct store_session *session = work->options->step->session;
    enum status status = store_load_topic(session, topic, &work->arena, &work->topic);
    if (status != STATUS_OK)
        return status;
    if (work->topic.entity_ref > 0)
        return STATUS_NOT_FOUND;
    work->expected_seq = from_seq > work->topic.oldest_seq ? from_seq : work->topic.oldest_seq;
    uint64_t end_seq = work->expected_seq + STEP_ROWS_MAX;
    if (end_seq > work->topic.head_seq + 1)
        end_seq = work->topic.head_seq + 1;
    if (work->expected_seq >= end_seq)
        return STATUS_NOT_FOUND;
    status = store_walk_journal(session, work->topic.ref, work->expected_seq - 1,
                                end_seq - work->expected_seq, work, examine_row);
    if (status == STATUS_LIMIT_REACHED)
        status = STATUS_OK;
    /* The next frame is missing or cannot be read. */
    if ((status == STATUS_OK || status == STATUS_INTERNAL_ERROR) && work->expected_seq < end_seq &&
        !is_full(work)) {
        *lost_seq = work->expected_seq;
        status = STATUS_OK;
    }
    return status;
}

enum status repair_journal(const struct repair_options *options, struct slice topic,
                           uint64_t from_seq) {
    struct examination work = {.options = options};
    struct store_journal_row rows[STEP_REPAIRS_MAX];
    struct store_journal_repair repair = {.rows = rows, .now_ms = options->step->now_ms};
    arena_init(&work.arena, MEND_JOURNAL_BYTES_MAX);
    update_scratch_init(&work.scratch);
    enum status status = examine(&work, topic, from_seq, &repair.lost_seq);
    for (size_t i = 0;
         status == STATUS_OK && i < work.count && work.folded_events < STEP_EVENTS_MAX; i++) {
        struct altered *altered = &work.altered[i];
        enum status rebuilt = rebuild_frame(&work, altered);
        if (rebuilt == STATUS_OK)
            rows[repair.row_count++] = altered->row;
        else if (rebuilt != STATUS_NOT_FOUND)
            status = rebuilt;
        else if (altered->row.seq > repair.lost_seq)
            repair.lost_seq = altered->row.seq;
    }
    if (status == STATUS_OK && repair.row_count == 0 && repair.lost_seq == 0)
        status = STATUS_NOT_FOUND;
    repair.topic = work.topic.name;
    if (status == STATUS_OK)
        status = store_repair_journal(options->step->session, &repair);
    update_scratch_release(&work.scratch);
    arena_release(&work.arena);
    return status;
}
