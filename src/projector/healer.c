#include "projector/healer.h"

#include "base/limits.h"
#include "base/log.h"
#include "projector/fold.h"
#include "projector/reproject.h"

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
