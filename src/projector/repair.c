#include "projector/repair.h"

#include "base/limits.h"
#include "base/log.h"
#include "projector/fold.h"
#include "projector/reproject.h"
#include "projector/update.h"

/* Appends wait for a step. */
#define STEP_ENTITIES 32
/* Doubles with each failure. */
#define PAUSE_MS_FIRST 250
#define PAUSE_MS_MAX   60000

void healer_note(struct healer *healer, uint64_t first_log_id) {
    if (healer->unprojected_from == 0 || first_log_id < healer->unprojected_from)
        healer->unprojected_from = first_log_id;
    healer->stage = HEALER_TABLES;
}

void healer_restart(struct healer *healer) {
    healer->stage = HEALER_UNKNOWN;
    healer->retry_at_ms = healer->pause_ms = 0;
}

static void begin_documents(struct healer *healer) {
    healer->stage = HEALER_DOCUMENTS;
    healer->kind = (enum document_kind)0;
    healer->after_ref = 0;
    healer->failures = 0;
}

/* ---- one document ------------------------------------------------------------------------- */

/* Whether document and checkpoint are there, agree with each other and are up to date. Reads no
 * event. */
static bool is_current(const struct healer *healer, struct store_session *session,
                       const struct store_entity *entity, struct arena *arena) {
    struct store_checkpoint checkpoint;
    struct store_document document;
    union any_summary summary;
    if (store_load_checkpoint(session, healer->kind, entity->ref, arena, &checkpoint) !=
            STATUS_OK ||
        store_load_document(session, healer->kind, entity->ref, arena, &document) != STATUS_OK)
        return false;
    return checkpoint.last_runtime_seq == entity->head_seq &&
           slice_equal(checkpoint.projection_version, healer->projection_version) &&
           fold_document(&document, &checkpoint, entity->id, &summary);
}

static void announce(void *user, const struct store_batch *batch) {
    const struct projection_step *step = user;
    step->announce(step->user, batch);
}

static enum status fold_again(struct healer *healer, const struct projection_step *step,
                              const struct store_entity *entity) {
    const struct reproject_options options = {
        .kind = entity->kind,
        .id = entity->id,
        .apply = true,
        .now_ms = step->now_ms,
        .projection_version = healer->projection_version,
        .unprojected_from = healer->unprojected_from,
        .user = (void *)step,
        .on_commit = announce,
    };
    struct reproject_result result;
    enum status status = reproject(step->session, &options, &result);
    healer->repaired(healer->user, entity->ref);
    return status;
}

/* ---- the walk ----------------------------------------------------------------------------- */

struct page {
    uint64_t refs[STEP_ENTITIES];
    size_t count;
};

static enum status add_to_page(void *user, const struct store_entity *entity) {
    struct page *page = user;
    page->refs[page->count++] = entity->ref;
    return STATUS_OK;
}

static enum status heal_entity(struct healer *healer, const struct projection_step *step,
                               uint64_t ref) {
    struct store_entity entity;
    struct arena arena;
    arena_init(&arena, REPROJECT_STORED_BYTES_MAX);
    enum status status = store_load_entity_ref(step->session, ref, &arena, &entity);
    if (status == STATUS_OK && entity.head_seq > 0 &&
        !is_current(healer, step->session, &entity, &arena))
        status = fold_again(healer, step, &entity);
    arena_release(&arena);
    return status;
}

/* A damaged entity does not stop the others. */
static enum status heal_page(struct healer *healer, const struct projection_step *step,
                             struct page *page) {
    enum status status = store_walk_entities(step->session, document_row(healer->kind)->entity,
                                             healer->after_ref, STEP_ENTITIES, page, add_to_page);
    for (size_t i = 0; status == STATUS_OK && i < page->count; i++) {
        status = heal_entity(healer, step, page->refs[i]);
        if (status == STATUS_STORE_UNAVAILABLE || status == STATUS_WRITER_LOST)
            return status;
        if (status != STATUS_OK)
            log_event(LOG_WARN, "projector.heal_failed",
                      log_int("entity_ref", (int64_t)page->refs[i]),
                      log_str("status", status_code(status)),
                      log_str("store", store_session_error(step->session)));
        healer->failures += status != STATUS_OK;
        healer->after_ref = page->refs[i];
        status = STATUS_OK;
    }
    return status;
}

/* The mark stays where an entity could not be folded, and the doctor reports it. */
static enum status finish(struct healer *healer, const struct projection_step *step) {
    const struct store_batch batch = {.is_projected = true};
    if (healer->failures > 0) {
        healer->stage = HEALER_TABLES;
        return STATUS_INTERNAL_ERROR;
    }
    enum status status = store_commit(step->session, &batch);
    if (status != STATUS_OK)
        return status;
    healer->unprojected_from = 0;
    healer->pause_ms = 0;
    healer->stage = HEALER_WHOLE;
    log_event(LOG_INFO, "projector.healed");
    return STATUS_OK;
}

static enum status heal_documents(struct healer *healer, const struct projection_step *step) {
    struct page page = {.count = 0};
    enum status status = heal_page(healer, step, &page);
    if (status != STATUS_OK || page.count > 0)
        return status;
    if (healer->kind + 1 == DOCUMENT_KIND_COUNT)
        return finish(healer, step);
    healer->kind++;
    healer->after_ref = 0;
    return STATUS_OK;
}

static enum status heal_tables(struct healer *healer, const struct projection_step *step) {
    enum status status = store_heal(step->session, step->now_ms);
    if (status == STATUS_OK)
        begin_documents(healer);
    return status;
}

/* Whether an earlier process left something to heal. */
static enum status look(struct healer *healer, const struct projection_step *step) {
    struct store_state state;
    enum status status = store_read_state(step->session, &state);
    if (status != STATUS_OK)
        return status;
    healer->unprojected_from = state.unprojected_from;
    healer->stage = state.unprojected_from > 0 ? HEALER_TABLES : HEALER_WHOLE;
    return STATUS_OK;
}

static enum status heal_part(struct healer *healer, const struct projection_step *step) {
    switch (healer->stage) {
    case HEALER_UNKNOWN:
        return look(healer, step);
    case HEALER_TABLES:
        return heal_tables(healer, step);
    case HEALER_DOCUMENTS:
        return heal_documents(healer, step);
    case HEALER_WHOLE:
        break;
    }
    return STATUS_OK;
}

static uint64_t next_pause(uint64_t pause_ms) {
    if (pause_ms == 0)
        return PAUSE_MS_FIRST;
    return pause_ms < PAUSE_MS_MAX / 2 ? 2 * pause_ms : PAUSE_MS_MAX;
}

int64_t healer_step(struct healer *healer, const struct projection_step *step) {
    if (healer->stage == HEALER_WHOLE)
        return PROJECTION_IS_WHOLE;
    if (step->mono_ms < healer->retry_at_ms)
        return (int64_t)(healer->retry_at_ms - step->mono_ms);
    enum status status = heal_part(healer, step);
    if (healer->stage == HEALER_WHOLE)
        return PROJECTION_IS_WHOLE;
    if (status == STATUS_OK)
        return 0;
    healer->pause_ms = next_pause(healer->pause_ms);
    healer->retry_at_ms = step->mono_ms + healer->pause_ms;
    return (int64_t)healer->pause_ms;
}

/* Appends wait for a step. */
#define STEP_ROWS_MAX    1024
#define STEP_REPAIRS_MAX 64
#define STEP_EVENTS_MAX  20000

enum status mend_document(const struct mend_options *options, uint64_t entity_ref) {
    struct store_entity entity;
    struct reproject_result result = {0};
    struct arena arena;
    arena_init(&arena, REPROJECT_STORED_BYTES_MAX);
    enum status status = store_load_entity_ref(options->session, entity_ref, &arena, &entity);
    if (status == STATUS_OK) {
        const struct reproject_options reprojection = {
            .kind = entity.kind,
            .id = entity.id,
            .apply = true,
            .now_ms = options->now_ms,
            .projection_version = options->projection_version,
            .unprojected_from = options->unprojected_from,
            .user = options->user,
            .on_commit = options->on_commit,
        };
        status = reproject(options->session, &reprojection, &result);
    }
    arena_release(&arena);
    return status == STATUS_OK && result.repaired == 0 ? STATUS_NOT_FOUND : status;
}

/* ---- altered rows of a journal -------------------------------------------------------------- */

struct altered {
    struct store_journal_row row;
    struct store_entity entity; /* of its event: ref, kind, id and owner */
    uint64_t seq;               /* of its event */
    uint8_t event_hash[SHA256_BYTES];
};

struct examination {
    const struct mend_options *options;
    struct arena arena; /* the altered rows, as they are and as they should be */
    struct update_scratch scratch;
    struct store_topic topic;
    uint64_t expected_seq;
    uint64_t lost_seq; /* the last frame that cannot be repaired; 0: none */
    size_t count;
    uint64_t folded; /* events */
    struct altered altered[STEP_REPAIRS_MAX];
};

static bool is_altered(const struct store_journal_row *row, const struct store_event *event) {
    uint8_t hash[SHA256_BYTES];
    return !store_row_is_whole(row, event) ||
           (row->payload.data && (entity_row(event->entity_kind)->summary == DOCUMENT_NONE ||
                                  summary_hash(row->payload, hash) != STATUS_OK));
}

static bool is_full(const struct examination *work) {
    return work->count == STEP_REPAIRS_MAX || work->arena.bytes_held > REPROJECT_REPAIRS_BYTES;
}

static enum status examine_row(void *user, const struct store_journal_row *row,
                               const struct store_event *event) {
    struct examination *work = user;
    if (row->seq > work->topic.head_seq || row->seq != work->expected_seq || is_full(work))
        return STATUS_LIMIT_REACHED;
    work->expected_seq++;
    if (!is_altered(row, event))
        return STATUS_OK;
    struct altered *altered = &work->altered[work->count++];
    *altered = (struct altered){.row = *row, .seq = event->seq};
    altered->entity = (struct store_entity){.ref = event->entity_ref, .kind = event->entity_kind};
    altered->entity.id = arena_copy(&work->arena, event->entity_id);
    if (row->payload.data)
        altered->row.payload = arena_copy(&work->arena, row->payload);
    memcpy(altered->event_hash, event->payload_hash, SHA256_BYTES);
    return altered->entity.id.data && (!row->payload.data || altered->row.payload.data)
               ? STATUS_OK
               : STATUS_OUT_OF_MEMORY;
}

/* The document at the version of the frame, which has the frame's payload. */
static bool find_document(struct examination *work, const struct altered *altered,
                          struct slice *payload) {
    enum document_kind kind = entity_row(altered->entity.kind)->summary;
    struct store_session *session = work->options->session;
    struct store_checkpoint checkpoint;
    struct store_document document;
    union any_summary summary;
    bool is_found = store_load_checkpoint(session, kind, altered->entity.ref, &work->arena,
                                          &checkpoint) == STATUS_OK &&
                    store_load_document(session, kind, altered->entity.ref, &work->arena,
                                        &document) == STATUS_OK &&
                    document.version == altered->row.document_version &&
                    fold_document(&document, &checkpoint, altered->entity.id, &summary);
    if (is_found)
        *payload = document.payload;
    return is_found;
}

/* What the events up to the frame's fold to. It is what the frame held if that has the stored hash,
 * or if it is the stored payload. */
static enum status fold_payload(struct examination *work, const struct altered *altered,
                                struct slice *payload) {
    enum document_kind kind = entity_row(altered->entity.kind)->summary;
    const struct store_journal_row *row = &altered->row;
    struct sink_update update;
    struct fold fold;
    fold_init(&fold, kind, altered->entity.id);
    enum status status =
        fold_from_log(&fold, work->options->session, altered->entity.ref, altered->seq, NULL, NULL);
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
    work->folded += fold.event_count;
    fold_release(&fold);
    if (status != STATUS_OK)
        return status;
    if (memcmp(update.document.payload_hash, row->payload_hash, SHA256_BYTES) != 0 &&
        !slice_equal(update.document.payload, row->payload))
        return STATUS_NOT_FOUND;
    *payload = update.document.payload;
    return STATUS_OK;
}

/* STATUS_NOT_FOUND: the frame cannot be repaired. */
static enum status put_right(struct examination *work, struct altered *altered) {
    struct store_journal_row *row = &altered->row;
    struct slice payload;
    enum status status = STATUS_OK;
    /* Either of the two refs may be the altered one. */
    if (row->entity_ref != altered->entity.ref)
        return STATUS_NOT_FOUND;
    if (!row->payload.data) {
        memcpy(row->payload_hash, altered->event_hash, SHA256_BYTES);
        return STATUS_OK;
    }
    if (entity_row(altered->entity.kind)->summary == DOCUMENT_NONE)
        return STATUS_NOT_FOUND;
    if (!find_document(work, altered, &payload))
        status = fold_payload(work, altered, &payload);
    /* The log lacks the event, or the events cannot be folded. */
    if (status == STATUS_INTERNAL_ERROR)
        status = STATUS_NOT_FOUND;
    if (status != STATUS_OK)
        return status;
    row->payload = payload;
    sha256(payload.data, payload.size, row->payload_hash);
    return STATUS_OK;
}

static enum status repair(struct examination *work) {
    struct store_journal_row rows[STEP_REPAIRS_MAX];
    struct store_journal_mend mend = {.topic = work->topic.name,
                                      .rows = rows,
                                      .lost_seq = work->lost_seq,
                                      .now_ms = work->options->now_ms};
    for (size_t i = 0; i < work->count && work->folded < STEP_EVENTS_MAX; i++) {
        enum status status = put_right(work, &work->altered[i]);
        if (status == STATUS_OK)
            rows[mend.row_count++] = work->altered[i].row;
        else if (status != STATUS_NOT_FOUND)
            return status;
        else if (work->altered[i].row.seq > mend.lost_seq)
            mend.lost_seq = work->altered[i].row.seq;
    }
    if (mend.row_count == 0 && mend.lost_seq == 0)
        return STATUS_NOT_FOUND;
    return store_mend_journal(work->options->session, &mend);
}

static enum status examine(struct examination *work, struct slice topic, uint64_t from_seq) {
    struct store_session *session = work->options->session;
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
        work->lost_seq = work->expected_seq;
        status = STATUS_OK;
    }
    return status == STATUS_OK ? repair(work) : status;
}

enum status mend_journal(const struct mend_options *options, struct slice topic,
                         uint64_t from_seq) {
    struct examination work = {.options = options};
    arena_init(&work.arena, MEND_JOURNAL_BYTES_MAX);
    update_scratch_init(&work.scratch);
    enum status status = examine(&work, topic, from_seq);
    update_scratch_release(&work.scratch);
    arena_release(&work.arena);
    return status;
}
