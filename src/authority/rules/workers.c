#include "authority/rules/rules.h"

#include <assert.h>

#include "authority/entity_state.h"
#include "authority/metadata.h"
#include "topic/topic_name.h"
#include "wire/json.h"
#include "wire/object_writer.h"

#define MADE_ID_PREFIX  "codexw_"
#define ADAPTER_DEFAULT "in_memory"

/* ---- registering ---- */

/* Members sorted by name: the text is canonical. */
static enum status write_registered(struct buffer *out, const struct store_entity *worker) {
    buffer_clear(out);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("adapter"), worker->adapter);
    object_text_given(&object, SLICE("codex_home_ref"), worker->codex_home_ref);
    object_json_given(&object, SLICE("metadata"), worker->metadata);
    object_text_given(&object, SLICE("org_id"), worker->owner.org_id);
    object_text_given(&object, SLICE("owner_guest_scope"), worker->owner.guest_scope);
    object_text_given(&object, SLICE("owner_user_id"), worker->owner.user_id);
    object_text(&object, SLICE("status"), worker->status);
    object_text(&object, SLICE("worker_id"), worker->id);
    object_text_given(&object, SLICE("workspace_ref"), worker->workspace_ref);
    return object_end(&object);
}

static void replace_given(struct slice *text, struct slice given) {
    if (given.data)
        *text = given;
}

static void register_attributes(struct store_entity *worker, const struct append_request *request) {
    worker->status = slice_of(worker_state_name(WORKER_STARTING));
    replace_given(&worker->workspace_ref, request->workspace_ref);
    replace_given(&worker->codex_home_ref, request->codex_home_ref);
    replace_given(&worker->adapter, request->adapter);
    replace_given(&worker->metadata, request->metadata);
}

/* For a new worker and for a revived one: attributes that the request leaves out stay. */
static enum status append_registration(struct ledger *ledger, struct draft *draft) {
    struct store_entity *worker = &draft->entity;
    register_attributes(worker, draft->request);
    worker->started_at_ms = draft->time_ms;
    worker->stopped_at_ms = 0;
    worker->last_heartbeat_at_ms = 0;
    draft->type = SLICE(WORKER_EVENT_REGISTERED);
    draft->is_changed = draft->is_borrowing = true;
    enum status status = write_registered(&ledger->text, worker);
    if (status == STATUS_OK)
        status = ledger_take_payload(ledger, draft);
    return status == STATUS_OK ? ledger_append(ledger, draft) : status;
}

static struct store_entity new_worker(const struct draft *draft) {
    return (struct store_entity){
        .kind = ENTITY_WORKER,
        .id = draft->request->entity_id,
        .owner = draft->request->owner,
        .adapter = SLICE(ADAPTER_DEFAULT),
        .created_at_ms = draft->time_ms,
    };
}

static bool is_same_if_given(struct slice given, const struct json_field *field) {
    return !given.data || (field->present && json_string_is(field->value, given));
}

/* A revival keeps the attributes that its request left out, so only those given are compared. */
static bool is_same_revival(const struct append_request *request, struct slice payload) {
    struct json_limits limits = {SIZE_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("workspace_ref")},
                                  {.name = SLICE("codex_home_ref")},
                                  {.name = SLICE("adapter")},
                                  {.name = SLICE("metadata")}};
    if (json_read_object(payload, &limits, fields, 4) != STATUS_OK)
        return false;
    return is_same_if_given(request->workspace_ref, &fields[0]) &&
           is_same_if_given(request->codex_home_ref, &fields[1]) &&
           is_same_if_given(request->adapter, &fields[2]) &&
           (!request->metadata.data ||
            (fields[3].present && slice_equal(fields[3].value.raw, request->metadata)));
}

static enum status check_registered(struct ledger *ledger, struct draft *draft,
                                    const struct store_event *event, bool *is_same) {
    *is_same = slice_equal(event->type, SLICE(WORKER_EVENT_REGISTERED));
    if (event->seq > 1) {
        *is_same = *is_same && rules_check_owner(draft) == STATUS_OK &&
                   is_same_revival(draft->request, event->payload);
        return STATUS_OK;
    }
    struct store_entity worker = new_worker(draft);
    register_attributes(&worker, draft->request);
    enum status status = write_registered(&ledger->text, &worker);
    *is_same = *is_same && slice_equal(event->payload, buffer_slice(&ledger->text));
    return status;
}

enum status rules_create_worker(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    enum worker_state state;
    draft->answers_entity = true;
    enum status status = rules_check_repeat(ledger, draft, check_registered);
    if (status != STATUS_OK || draft->is_answered)
        return status;
    status = STATUS_NOT_FOUND;
    if (request->entity_id.data)
        status = ledger_find(draft);
    else if (ledger_make_id(ledger, draft, SLICE(MADE_ID_PREFIX), &request->entity_id) != STATUS_OK)
        return STATUS_OUT_OF_MEMORY;
    if (status == STATUS_NOT_FOUND) {
        draft->entity = new_worker(draft);
        status = rules_check_names(draft);
        return status == STATUS_OK ? append_registration(ledger, draft) : status;
    }
    if (status != STATUS_OK)
        return status;
    /* A producer may append to the worker, and changes no owner. */
    if (request->producer)
        request->owner = draft->entity.owner;
    status = rules_check_owner(draft);
    if (status != STATUS_OK)
        return status;
    if (!worker_state_parse(draft->entity.status, &state))
        return STATUS_INTERNAL_ERROR;
    /* Before links covered the owner, a registration could add an organisation. */
    if (request->import)
        replace_given(&draft->entity.owner.org_id, request->owner.org_id);
    if (request->import && !worker_state_is_down(state))
        return STATUS_IMPORT_REFUSED;
    return worker_state_is_down(state) ? append_registration(ledger, draft)
                                       : rules_answer_first(ledger, draft, false);
}

/* ---- reports of a known worker ---- */

static enum status find_worker(struct ledger *ledger, struct draft *draft) {
    enum status status = ledger_find(draft);
    if (status == STATUS_NOT_FOUND)
        return STATUS_WORKER_NOT_FOUND;
    if (status == STATUS_OK)
        status = rules_check_owner(draft);
    if (status == STATUS_OK)
        status = rules_check_conditions(ledger, draft);
    return status;
}

enum status rules_heartbeat_worker(struct ledger *ledger, struct draft *draft) {
    struct append_refusal *refusal = &draft->request->refusal;
    struct store_entity *worker = &draft->entity;
    draft->answers_entity = true;
    enum status status = find_worker(ledger, draft);
    if (status != STATUS_OK || draft->is_answered)
        return status;
    worker->last_heartbeat_at_ms = draft->time_ms;
    draft->is_changed = true;
    if (!draft->request->metadata.data)
        return ledger_append(ledger, draft);
    buffer_clear(&ledger->text);
    status = metadata_merge(worker->metadata, draft->request->metadata, &ledger->text);
    if (status != STATUS_OK)
        return status;
    /* Patches accumulate, so the merged metadata has the limit of a payload. */
    const struct policy *policy = policy_of_entity(ledger->policies, ENTITY_WORKER, worker->id);
    if (ledger->text.size > policy->max_payload_bytes) {
        refusal->payload_bytes = ledger->text.size;
        refusal->max_payload_bytes = policy->max_payload_bytes;
        refusal->policy = policy;
        refusal->message = "The worker's metadata would become larger than a payload may be.";
        status = topic_name_of_entity(draft->arena, ENTITY_WORKER, worker->id, &refusal->topic);
        return status == STATUS_OK ? STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE : status;
    }
    worker->metadata = arena_copy(draft->arena, buffer_slice(&ledger->text));
    draft->is_borrowing = true;
    return worker->metadata.data ? ledger_append(ledger, draft) : STATUS_OUT_OF_MEMORY;
}

enum status rules_set_worker_status(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    struct store_entity *worker = &draft->entity;
    enum worker_state from;
    enum worker_state to;
    draft->answers_entity = true;
    enum status status = find_worker(ledger, draft);
    if (status != STATUS_OK || draft->is_answered)
        return status;
    if (!worker_state_parse(worker->status, &from))
        return STATUS_INTERNAL_ERROR;
    if (!worker_state_parse(request->status_name, &to))
        return STATUS_INVALID_REQUEST;
    request->refusal.state = worker_state_name(from);
    if (!worker_state_allows(from, to))
        return STATUS_INVALID_TRANSITION;
    buffer_clear(&ledger->text);
    struct object_writer object = object_begin(&ledger->text);
    object_text(&object, SLICE("from"), worker->status);
    object_text_given(&object, SLICE("reason"), request->reason);
    object_text(&object, SLICE("status"), request->status_name);
    status = object_end(&object);
    if (status == STATUS_OK)
        status = ledger_take_payload(ledger, draft);
    if (status != STATUS_OK)
        return status;
    worker->status = slice_of(worker_state_name(to));
    worker->stopped_at_ms = worker_state_is_down(to) ? draft->time_ms : 0;
    draft->is_changed = true;
    return ledger_append(ledger, draft);
}

enum status rules_append_to_worker(struct ledger *ledger, struct draft *draft) {
    enum status status = find_worker(ledger, draft);
    return status == STATUS_OK && !draft->is_answered ? ledger_append(ledger, draft) : status;
}
