#include "authority/rules/rules.h"

#include <assert.h>

#include "authority/entity_state.h"
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
    object_text(&object, SLICE("run_id"), request->entity_id);
    object_text_given(&object, SLICE("thread_id"), request->thread_id);
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
    return ledger_append(ledger, draft);
}
