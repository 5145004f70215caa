#include "projector/fold.h"

#include <assert.h>

#include "base/limits.h"

const struct summary_layout *fold_layout(enum document_kind kind) {
    static const struct summary_layout *const layouts[] = {
        [DOCUMENT_RUN_SUMMARY] = &run_summary_layout,
        [DOCUMENT_WORKER_SUMMARY] = &worker_summary_layout,
    };
    _Static_assert(sizeof(layouts) / sizeof(layouts[0]) == DOCUMENT_KIND_COUNT,
                   "every document kind has a layout");
    assert((unsigned)kind < DOCUMENT_KIND_COUNT);
    return layouts[kind];
}

enum status fold_event(enum document_kind kind, union any_summary *summary,
                       const struct store_event *event, struct arena *arena) {
    return fold_layout(kind)->fold(&summary->common, event, arena);
}

enum status fold_move(enum document_kind kind, union any_summary *summary, struct arena *arena) {
    const struct summary_layout *layout = fold_layout(kind);
    const struct summary_stamp stamp = {.projection_version = SLICE(PROJECTION_VERSION_DEFAULT)};
    struct summary_marks marks;
    struct buffer document;
    buffer_init(&document, SUMMARY_BYTES_MAX);
    enum status status = summary_write(layout, &summary->common, &stamp, &document, &marks);
    if (status == STATUS_OK) {
        struct slice copy = arena_copy(arena, buffer_slice(&document));
        if (copy.data)
            summary_settle(layout, &marks, copy.data, &summary->common);
        else
            status = STATUS_OUT_OF_MEMORY;
    }
    buffer_release(&document);
    return status;
}

bool fold_document(const struct store_document *document, const struct store_checkpoint *checkpoint,
                   struct slice entity_id, union any_summary *summary) {
    struct slice prefix = slice_of(document_row(document->kind)->key_prefix);
    uint8_t hash[SHA256_BYTES];
    return store_document_is_whole(document) &&
           document->key.size == prefix.size + entity_id.size &&
           slice_starts(document->key, prefix) && slice_ends(document->key, entity_id) &&
           summary_hash(document->payload, hash) == STATUS_OK &&
           memcmp(hash, checkpoint->summary_hash, SHA256_BYTES) == 0 &&
           summary_read(fold_layout(document->kind), document->payload, entity_id,
                        &summary->common) == STATUS_OK &&
           summary->common.latest_seq == checkpoint->last_runtime_seq;
}

void fold_init(struct fold *fold, enum document_kind kind, struct slice entity_id) {
    memset(fold, 0, sizeof(*fold));
    fold->kind = kind;
    summary_init(fold_layout(kind), &fold->summary.common, entity_id);
    arena_init(&fold->arenas[0], FOLD_ARENA_BYTES_MAX);
    arena_init(&fold->arenas[1], FOLD_ARENA_BYTES_MAX);
}

void fold_release(struct fold *fold) {
    arena_release(&fold->arenas[0]);
    arena_release(&fold->arenas[1]);
}

struct log_walk {
    struct fold *fold;
    void *user;
    fold_event_cb *callback;
};

static enum status fold_one(void *user, const struct store_event *event) {
    struct log_walk *walk = user;
    struct fold *fold = walk->fold;
    struct arena *arena = &fold->arenas[fold->arena_index];
    if (event->seq != fold->summary.common.latest_seq + 1)
        return STATUS_INTERNAL_ERROR;
    enum status status = fold_event(fold->kind, &fold->summary, event, arena);
    if (status != STATUS_OK)
        return status;
    fold->event_count++;
    if (walk->callback)
        walk->callback(walk->user, event);
    if (arena->bytes_held <= FOLD_MOVE_BYTES)
        return STATUS_OK;
    fold->arena_index ^= 1;
    status = fold_move(fold->kind, &fold->summary, &fold->arenas[fold->arena_index]);
    arena_reset(arena);
    return status;
}

enum status fold_from_log(struct fold *fold, struct store_session *session, uint64_t entity_ref,
                          uint64_t until_seq, void *user, fold_event_cb *callback) {
    struct log_walk walk = {fold, user, callback};
    enum status status = STATUS_OK;
    while (status == STATUS_OK && fold->summary.common.latest_seq < until_seq) {
        uint64_t before = fold->summary.common.latest_seq;
        uint64_t missing = until_seq - before;
        status = store_walk_entity_events(
            session, entity_ref, before,
            missing < FOLD_PAGE_EVENTS_MAX ? missing : FOLD_PAGE_EVENTS_MAX, &walk, fold_one);
        if (status == STATUS_OK && fold->summary.common.latest_seq == before)
            status = STATUS_NOT_FOUND;
    }
    return status;
}
