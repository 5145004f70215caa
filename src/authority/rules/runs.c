#include "authority/rules/rules.h"

#include <assert.h>

#include "authority/entity_state.h"
#include "authority/run_report.h"
#include "wire/object_writer.h"

#define MADE_ID_PREFIX "run_"

/* The payload of run.started. Members sorted by name: the text is canonical. */
static enum status take_started(struct ledger *ledger, struct draft *draft) {
    const struct append_request *request = draft->request;
    buffer_clear(&ledger->text);
    struct object_writer object = object_begin(&ledger->text);
    object_json_given(&object, SLICE("metadata"), request->metadata);
    object_text_given(&object, SLICE("org_id"), request->owner.org_id);
    object_text_given(&object, SLICE("owner_guest_scope"), request->owner.guest_scope);
    object_text_given(&object, SLICE("owner_user_id"), request->owner.user_id);
    object_text_given(&object, SLICE("parent_run_id"), request->parent_run_id);
    object_text(&object, SLICE("run_id"), request->entity_id);
    object_json_given(&object, SLICE("tags"), request->tags);
    object_text_given(&object, SLICE("thread_id"), request->thread_id);
    object_text_given(&object, SLICE("title"), request->title);
    object_text_given(&object, SLICE("worker_id"), request->worker_id);
    enum status status = object_end(&object);
    return status == STATUS_OK ? ledger_take_payload(ledger, draft) : status;
}

/* The payload names the owner and everything else that the request asks for. */
static enum status check_started(struct ledger *ledger, struct draft *draft,
                                 const struct store_event *event, bool *is_same) {
    enum status status = take_started(ledger, draft);
    *is_same =
        event->seq == 1 && memcmp(event->payload_hash, draft->payload_hash, SHA256_BYTES) == 0;
    return status;
}

/* A parent that another owner has is answered like one that does not exist. An import has checked
 * the parents before its first write. */
static enum status check_parent(const struct draft *draft) {
    const struct append_request *request = draft->request;
    const struct entity_entry *parent = draft->lookup->parent;
    if (!request->parent_run_id.data || request->import)
        return STATUS_OK;
    assert(parent);
    if (parent->status != STATUS_OK && parent->status != STATUS_NOT_FOUND)
        return parent->status;
    if (parent->status == STATUS_OK && owner_equal(&parent->entity.owner, &request->owner))
        return STATUS_OK;
    draft->request->refusal.message = "parent_run_id names no run of this owner.";
    return STATUS_RUN_NOT_FOUND;
}

enum status rules_create_run(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    draft->answers_entity = true;
    enum status status = rules_check_repeat(ledger, draft, check_started);
    if (status != STATUS_OK || draft->is_answered)
        return status;
    status = STATUS_NOT_FOUND;
    if (request->entity_id.data)
        status = ledger_find(draft);
    else if (ledger_make_id(ledger, draft, SLICE(MADE_ID_PREFIX), &request->entity_id) != STATUS_OK)
        return STATUS_OUT_OF_MEMORY;
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    enum status written = take_started(ledger, draft);
    if (written != STATUS_OK)
        return written;
    draft->type = SLICE(RUN_EVENT_STARTED);
    /* A repeated request is answered with the first event. The same id with another payload is
     * refused. */
    if (status == STATUS_OK && request->import)
        return STATUS_IMPORT_REFUSED;
    if (status == STATUS_OK)
        return rules_answer_first(ledger, draft, true);
    status = check_parent(draft);
    if (status != STATUS_OK)
        return status;
    draft->entity = (struct store_entity){
        .kind = ENTITY_RUN,
        .id = request->entity_id,
        .owner = request->owner,
        .status = slice_of(run_state_name(RUN_RUNNING)),
        .worker_id = request->worker_id,
        .thread_id = request->thread_id,
        .metadata = request->metadata,
        .created_at_ms = draft->time_ms,
        .started_at_ms = draft->time_ms,
    };
    status = rules_check_names(draft);
    return status == STATUS_OK ? ledger_append(ledger, draft) : status;
}

/* Patches accumulate, so the merged metadata has a limit. Another log may hold a patch that breaks
 * it, and its summary ignored it too. */
static enum status patch_metadata(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    buffer_clear(&ledger->text);
    enum status status =
        run_metadata_patch(draft->entity.metadata, request->metadata, &ledger->text);
    if (status == STATUS_PAYLOAD_TOO_LARGE && request->import)
        return STATUS_OK;
    if (status == STATUS_PAYLOAD_TOO_LARGE)
        request->refusal.message = "The run's metadata would become larger than 16384 bytes.";
    if (status != STATUS_OK)
        return status;
    draft->entity.metadata = arena_copy(draft->arena, buffer_slice(&ledger->text));
    draft->is_changed = draft->is_borrowing = true;
    return draft->entity.metadata.data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

enum status rules_append_to_run(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    enum run_state state, next, outcome = RUN_SUCCEEDED;
    enum status status = ledger_find(draft);
    if (status == STATUS_NOT_FOUND)
        return STATUS_RUN_NOT_FOUND;
    if (status == STATUS_OK)
        status = rules_check_owner(draft);
    if (status == STATUS_OK)
        status = rules_check_conditions(ledger, draft);
    if (status != STATUS_OK || draft->is_answered)
        return status;
    if (!run_state_parse(draft->entity.status, &state))
        return STATUS_INTERNAL_ERROR;
    if (request->status_name.data && !run_state_parse(request->status_name, &outcome))
        return STATUS_INVALID_REQUEST;
    request->refusal.state = run_state_name(state);
    status = run_state_next(state, request->event_type, outcome, &next);
    if (status != STATUS_OK)
        return status;
    if (next != state) {
        draft->entity.status = slice_of(run_state_name(next));
        draft->is_changed = true;
        if (run_state_is_final(next))
            draft->entity.stopped_at_ms = draft->time_ms;
    }
    status = request->metadata.data ? patch_metadata(ledger, draft) : STATUS_OK;
    return status == STATUS_OK ? ledger_append(ledger, draft) : status;
}
