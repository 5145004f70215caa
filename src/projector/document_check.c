#include "projector/document_check.h"

#include "base/limits.h"
#include "projector/fold.h"

#define PAGE_DOCUMENTS 1024
#define KEY_BYTES_MAX  4096

struct document_checking {
    struct store_session *session;
    const struct document_check_options *options;
    struct document_check_result *result;
    struct arena arena; /* of one document */
    uint64_t after_ref;
    uint64_t count; /* of this page */
};

/* NULL: there is none. An entity without both rows is not projected. */
static const char *fault_of(struct document_checking *check, const struct store_document *document,
                            struct slice entity_id) {
    struct store_checkpoint checkpoint;
    union any_summary summary;
    enum status found = store_load_checkpoint(check->session, document->kind, document->entity_ref,
                                              &check->arena, &checkpoint);
    if (!document->payload.data)
        return found == STATUS_NOT_FOUND ? NULL : "the document is missing or cannot be read";
    if (!store_document_is_whole(document))
        return "the payload does not hash to its payload_hash";
    if (found != STATUS_OK)
        return "the checkpoint is missing or cannot be read";
    return fold_document(document, &checkpoint, entity_id, &summary)
               ? NULL
               : "the document does not agree with its checkpoint";
}

static enum status check_document(void *user, const struct store_document *document) {
    struct document_checking *check = user;
    struct store_entity entity;
    struct buffer key;
    check->after_ref = document->entity_ref;
    check->count++;
    arena_reset(&check->arena);
    enum status status =
        store_load_entity_ref(check->session, document->entity_ref, &check->arena, &entity);
    if (status != STATUS_OK)
        return status;
    check->result->documents += document->payload.data != NULL;
    const char *fault = fault_of(check, document, entity.id);
    if (!fault)
        return STATUS_OK;
    buffer_init(&key, KEY_BYTES_MAX);
    if (check->result->damages++ < DOCUMENT_CHECK_NAMED_MAX && check->options->on_damage &&
        summary_document_key(document->kind, entity.id, &key) == STATUS_OK)
        check->options->on_damage(check->options->user, buffer_slice(&key), fault);
    buffer_release(&key);
    return STATUS_OK;
}

static enum status check_page(struct document_checking *check, enum document_kind kind) {
    check->count = 0;
    enum status status = store_read_begin(check->session);
    if (status != STATUS_OK)
        return status;
    status = store_walk_documents(check->session, kind, check->after_ref, PAGE_DOCUMENTS, check,
                                  check_document);
    store_read_end(check->session);
    return status;
}

enum status document_check(struct store_session *session,
                           const struct document_check_options *options,
                           struct document_check_result *result) {
    struct document_checking check = {.session = session, .options = options, .result = result};
    enum status status = STATUS_OK;
    *result = (struct document_check_result){0};
    arena_init(&check.arena, REPROJECT_STORED_BYTES_MAX);
    for (enum document_kind kind = 0; status == STATUS_OK && kind < DOCUMENT_KIND_COUNT; kind++) {
        check.after_ref = 0;
        do
            status = check_page(&check, kind);
        while (status == STATUS_OK && check.count == PAGE_DOCUMENTS);
    }
    arena_release(&check.arena);
    return status;
}
