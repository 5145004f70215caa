/* What all kinds of appends share. A request passes three gates: its producer may append to the
 * entity, the rule of its kind allows the event, and ledger_append finds it within the limits.
 *
 * Conditions belong to the second gate, and each rule asks for them. An event that a request
 * repeats is looked for by its idempotency key, then by its event id: first in the batch under way,
 * then among what the prefetch found. If there is one, the content decides between its answer and a
 * conflict. */
#include "authority/rules/rules.h"

#include <assert.h>

#include "auth/grant.h"
#include "authority/append.h"
#include "authority/entity_state.h"
#include "topic/topic_name.h"
#include "wire/json.h"

/* ---- events that exist already ---- */

/* An event of the batch under way lives in the memory of its own group, which may be freed before
 * the group that is answered with it. */
static enum status copy_batch_event(const struct ledger *ledger, const struct draft *draft,
                                    uint64_t log_id, struct store_event *event) {
    const struct store_event *under_way = ledger_batch_event(&ledger->batch, log_id);
    if (!under_way)
        return STATUS_INTERNAL_ERROR;
    *event = *under_way;
    struct slice *texts[] = {&event->entity_id,         &event->type,
                             &event->payload,           &event->owner.user_id,
                             &event->owner.guest_scope, &event->owner.org_id};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!texts[i]->data)
            continue;
        *texts[i] = arena_copy(draft->arena, *texts[i]);
        if (!texts[i]->data)
            return STATUS_OUT_OF_MEMORY;
    }
    return STATUS_OK;
}

/* Answers with an event that exists already, in request->event. */
static enum status answer_repeated(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    enum status status = ledger_answer_entity(draft, &draft->entity);
    if (status != STATUS_OK)
        return status;
    request->deduplicated = true;
    draft->is_answered = true;
    bool is_committed = request->event.log_id <= ledger->committed_log_id;
    if (!is_committed || ledger_is_under_way(ledger, draft))
        ledger_add_pending(ledger, draft);
    return STATUS_OK;
}

enum status rules_answer_first(struct ledger *ledger, struct draft *draft, bool must_match) {
    struct store_event event;
    uint64_t first_log_id = draft->entry->first_log_id;
    enum status status = first_log_id > ledger->committed_log_id
                             ? copy_batch_event(ledger, draft, first_log_id, &event)
                             : lookups_event(&ledger->lookups, draft->lookup->first_event, &event);
    if (status != STATUS_OK)
        return status;
    /* Every entity has a first event. */
    if (event.log_id == 0)
        return STATUS_INTERNAL_ERROR;
    if (must_match && memcmp(event.payload_hash, draft->payload_hash, SHA256_BYTES) != 0)
        return STATUS_ALREADY_EXISTS;
    draft->request->event = event;
    return answer_repeated(ledger, draft);
}

/* ---- names and owners ---- */

enum status rules_check_names(struct draft *draft) {
    const struct store_entity *entity = &draft->entity;
    const struct slice names[] = {entity->id, entity->owner.user_id, entity->owner.guest_scope,
                                  entity->owner.org_id};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *problem = names[i].data ? entity_name_problem(names[i]) : NULL;
        if (!problem)
            continue;
        draft->request->refusal.message = problem;
        return entity->kind == ENTITY_TOPIC ? STATUS_INVALID_TOPIC : STATUS_INVALID_REQUEST;
    }
    return STATUS_OK;
}

static bool is_other(struct slice given, struct slice actual) {
    return given.data && !(actual.data && slice_equal(given, actual));
}

enum status rules_check_owner(const struct draft *draft) {
    if (draft->request->import)
        return STATUS_OK;
    const struct owner *given = &draft->request->owner;
    const struct owner *actual = &draft->entity.owner;
    if (is_other(given->user_id, actual->user_id) ||
        is_other(given->guest_scope, actual->guest_scope) ||
        is_other(given->org_id, actual->org_id))
        return STATUS_OWNER_MISMATCH;
    return STATUS_OK;
}

/* ---- key, event id, expected sequence ---- */

/* Whether a worker.status_changed holds what the request asks for; the state before may differ. */
static bool is_same_status(const struct append_request *request, struct slice payload) {
    struct json_limits limits = {SIZE_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("status")}, {.name = SLICE("reason")}};
    if (json_read_object(payload, &limits, fields, 2) != STATUS_OK || !fields[0].present)
        return false;
    if (!json_string_is(fields[0].value, request->status_name))
        return false;
    bool has_reason = request->reason.data != NULL;
    return fields[1].present == has_reason &&
           (!has_reason || json_string_is(fields[1].value, request->reason));
}

/* The owner of a run or worker never changes, and was compared before. */
static bool is_same_owner(const struct draft *draft, const struct store_event *event) {
    return !entity_row(draft->entity.kind)->has_event_owner ||
           owner_equal(&draft->request->owner, &event->owner);
}

/* The original if the content is the same, otherwise the conflict. */
static enum status answer_original(struct ledger *ledger, struct draft *draft,
                                   const struct store_event *event, enum status conflict) {
    bool is_same = event->entity_ref == draft->entity.ref &&
                   slice_equal(event->type, draft->type) && is_same_owner(draft, event);
    if (is_same && draft->request->kind == APPEND_WORKER_STATUS)
        is_same = is_same_status(draft->request, event->payload);
    else if (is_same)
        is_same = memcmp(event->payload_hash, draft->payload_hash, SHA256_BYTES) == 0;
    if (!is_same) {
        draft->rests_on_batch = event->log_id > ledger->committed_log_id;
        return conflict;
    }
    draft->request->event = *event;
    return answer_repeated(ledger, draft);
}

/* The event that has the request's key; its log_id is 0 if the key is new. A key that was stored
 * before keys of topics had an owner belongs to the owner of its event. */
static enum status find_key(struct ledger *ledger, const struct draft *draft,
                            struct store_event *event) {
    const struct request_lookup *lookup = draft->lookup;
    enum append_kind kind = draft->request->kind;
    uint64_t key_ref = append_key_is_scoped(kind) ? 0 : draft->entity.ref;
    *event = (struct store_event){0};
    if (!lookup->key.data || (!append_is_creation(kind) && !draft->entry))
        return STATUS_OK;
    uint64_t log_id = ledger_batch_find_key(&ledger->batch, key_ref, lookup->key);
    if (log_id > 0)
        return copy_batch_event(ledger, draft, log_id, event);
    enum status status = lookups_event(&ledger->lookups, lookup->key_event, event);
    if (status != STATUS_OK || event->log_id > 0 || lookup->old_key_event == 0)
        return status;
    status = lookups_event(&ledger->lookups, lookup->old_key_event, event);
    if (status == STATUS_OK && event->log_id > 0 && !is_same_owner(draft, event))
        *event = (struct store_event){0};
    return status;
}

/* The event that has the request's id; its log_id is 0 if the id is new. The set of recent ids
 * holds all supplied ids of the batch under way, and the batch has those that it minted. The
 * prefetch looked the others up. */
static enum status find_event_id(struct ledger *ledger, const struct draft *draft,
                                 struct store_event *event) {
    uint64_t log_id = 0;
    enum recent_answer answer =
        recent_ids_find(&ledger->recent, &draft->request->event_id, &log_id);
    if (answer == RECENT_UNKNOWN &&
        id_mark_may_be_minted(&ledger->state.id_mark, &draft->request->event_id))
        log_id = ledger_batch_find_minted(&ledger->batch, &draft->request->event_id);
    if (log_id > ledger->committed_log_id)
        return copy_batch_event(ledger, draft, log_id, event);
    return lookups_event(&ledger->lookups, draft->lookup->id_event, event);
}

enum status rules_check_conditions(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    struct store_event event;
    if (request->import)
        return STATUS_OK;
    enum status status = find_key(ledger, draft, &event);
    if (status != STATUS_OK)
        return status;
    if (event.log_id > 0)
        return answer_original(ledger, draft, &event, STATUS_IDEMPOTENCY_KEY_CONFLICT);
    if (request->has_event_id) {
        status = find_event_id(ledger, draft, &event);
        if (status != STATUS_OK)
            return status;
        if (event.log_id > 0)
            return answer_original(ledger, draft, &event, STATUS_EVENT_ID_CONFLICT);
    }
    if (request->has_expected_seq && request->expected_previous_seq != draft->entity.head_seq) {
        request->refusal.actual_seq = draft->entity.head_seq;
        return STATUS_SEQUENCE_CONFLICT;
    }
    return STATUS_OK;
}

enum status rules_check_repeat(struct ledger *ledger, struct draft *draft,
                               creation_check_cb *check) {
    const struct request_lookup *lookup = draft->lookup;
    struct append_request *request = draft->request;
    struct store_event event;
    if (request->import)
        return STATUS_OK;
    enum status conflict = STATUS_IDEMPOTENCY_KEY_CONFLICT;
    uint32_t number = lookup->key_event;
    enum status status = find_key(ledger, draft, &event);
    if (status == STATUS_OK && event.log_id == 0 && request->has_event_id) {
        conflict = STATUS_EVENT_ID_CONFLICT;
        number = lookup->id_event;
        status = find_event_id(ledger, draft, &event);
    }
    if (status != STATUS_OK || event.log_id == 0)
        return status;
    /* The event's entity: memory has it if the batch under way uses it, otherwise the prefetch. */
    const struct store_entity *holder = lookups_holder(&ledger->lookups, number);
    draft->entry = entity_cache_find(&ledger->cache, event.entity_kind, event.entity_id);
    if (!draft->entry && !holder)
        return STATUS_INTERNAL_ERROR;
    draft->entity = draft->entry ? draft->entry->entity : *holder;
    bool is_same = event.entity_kind == append_entity_kind(request->kind) &&
                   (!request->entity_id.data || slice_equal(request->entity_id, event.entity_id));
    if (is_same) {
        request->entity_id = event.entity_id;
        status = check(ledger, draft, &event, &is_same);
    }
    if (status != STATUS_OK)
        return status;
    if (!is_same) {
        draft->rests_on_batch = event.log_id > ledger->committed_log_id;
        return conflict;
    }
    request->event = event;
    return answer_repeated(ledger, draft);
}

/* ---- producers ---- */

/* A producer is the principal of a token with the scope runtime.append, or runtime.cancel, which
 * permits only run.cancel_requested. It appends for its own owner. The writer checks that, by the
 * entity as it is at that moment, so no change is missed. entity NULL: it does not exist. */
static enum status check_producer(struct append_request *request, const struct store_entity *entity,
                                  struct arena *arena) {
    const struct principal *producer = request->producer;
    enum entity_kind kind = append_entity_kind(request->kind);
    struct slice id = append_entity_id(request);
    struct slice topic;
    if (!producer)
        return STATUS_OK;
    bool is_cancel = request->kind == APPEND_RUN_EVENT &&
                     slice_equal(request->event_type, SLICE(RUN_EVENT_CANCEL_REQUESTED));
    if (!(producer->scopes & SCOPE_APPEND) && !is_cancel) {
        request->refusal.message = "This token may append run.cancel_requested only. Other events "
                                   "need the scope runtime.append.";
        return STATUS_MISSING_SCOPE;
    }
    if (kind == ENTITY_AUDIT)
        return STATUS_FORBIDDEN_TOPIC;
    if (append_is_creation(request->kind) && principal_is_narrowed(producer)) {
        request->refusal.message = "This token lists the topics or streams that it may append to, "
                                   "so it creates no runs and no workers.";
        return STATUS_FORBIDDEN_TOPIC;
    }
    /* A different run of the producer's own gets the same answer, so the answer does not reveal the
     * owner of the id. */
    if (append_is_creation(request->kind))
        return !entity || principal_owns(producer, &entity->owner) ? STATUS_OK
                                                                   : STATUS_ALREADY_EXISTS;
    /* A topic that the projector writes has no id here, and the rules refuse it. */
    if (!id.data)
        return STATUS_OK;
    enum status status = topic_name_of_entity(arena, kind, id, &topic);
    if (status == STATUS_OK)
        status = grant_check_append(producer, topic, entity ? &entity->owner : NULL);
    /* A run of another owner is refused like one that does not exist. */
    return status == STATUS_OWNER_MISMATCH ? entity_row(kind)->not_found : status;
}

/* ---- applying ---- */

/* The rule of the request's kind. */
static enum status apply_rule(struct ledger *ledger, struct draft *draft) {
    assert((unsigned)draft->request->kind < APPEND_KIND_COUNT);
    switch (draft->request->kind) {
    case APPEND_RUN_CREATE:
        return rules_create_run(ledger, draft);
    case APPEND_RUN_EVENT:
        return rules_append_to_run(ledger, draft);
    case APPEND_WORKER_CREATE:
        return rules_create_worker(ledger, draft);
    case APPEND_WORKER_HEARTBEAT:
        return rules_heartbeat_worker(ledger, draft);
    case APPEND_WORKER_STATUS:
        return rules_set_worker_status(ledger, draft);
    case APPEND_WORKER_EVENT:
        return rules_append_to_worker(ledger, draft);
    case APPEND_TOPIC_EVENT:
        return rules_append_to_topic(ledger, draft);
    case APPEND_AUDIT_EVENT:
        return rules_audit(ledger, draft);
    case APPEND_NOTIFICATION:
        return rules_notify(ledger, draft);
    case APPEND_KIND_COUNT:
        break;
    }
    return STATUS_INTERNAL_ERROR;
}

/* Sets time and cursor of the event, which is also its id unless the client supplied one. An import
 * must continue the log exactly where it ends. */
static enum status begin_event(struct ledger *ledger, struct draft *draft) {
    const struct append_import *import = draft->request->import;
    const struct store_state *state = &ledger->state;
    draft->time_ms = import ? import->recorded_at_ms : ledger->now.wall_ms;
    if (import) {
        draft->cursor = import->cursor;
        bool follows = import->log_id == state->log_id + 1 &&
                       (state->log_id == 0 || uuid_compare(&import->cursor, &state->cursor) > 0);
        return follows ? STATUS_OK : STATUS_IMPORT_REFUSED;
    }
    if (state->log_id > 0 && uuid_compare(&ledger->minter.last, &state->cursor) < 0) {
        enum status status = ledger_start_minting(ledger);
        if (status != STATUS_OK)
            return status;
    }
    /* A client that saw the last id may supply one slightly above it, which is the id that is
     * minted next. Then another one is minted. The commit finds an id that was supplied too long
     * ago to be remembered, and refuses the batch. */
    do
        draft->cursor = id_minter_next(&ledger->minter, ledger->now.wall_ms);
    while (!draft->request->has_event_id && recent_ids_has_minted(&ledger->recent, &draft->cursor));
    return STATUS_OK;
}

/* Sets the request's status and, if that is STATUS_OK, its answer. */
static void apply(struct ledger *ledger, struct append_request *request, struct arena *arena) {
    assert(request->status == STATUS_OK);
    struct draft draft = {
        .request = request,
        .lookup = lookups_take(&ledger->lookups, request),
        .arena = arena,
        .type = request->event_type,
        .payload = request->payload,
    };
    memcpy(draft.payload_hash, request->payload_hash, SHA256_BYTES);
    request->status = draft.lookup->status;
    if (request->status == STATUS_OK)
        request->status = begin_event(ledger, &draft);
    if (request->status == STATUS_OK) {
        /* The entity as the requests before this one left it. A refusal rests on it too, so the
         * draft keeps its entry. */
        const struct entity_entry *entry = draft.lookup->entry;
        bool exists = entry && entry->status == STATUS_OK && ledger_find(&draft) == STATUS_OK;
        request->status = check_producer(request, exists ? &draft.entity : NULL, arena);
    }
    if (request->status == STATUS_OK)
        request->status = apply_rule(ledger, &draft);
    if (request->status == STATUS_OK)
        return;
    request->event = (struct store_event){0};
    /* A refusal is final. One that rests on this batch must not outlive the batch's failure. */
    if (draft.rests_on_batch || ledger_is_under_way(ledger, &draft))
        ledger_add_pending(ledger, &draft);
}

void rules_apply_group(struct ledger *ledger, struct append_group *group) {
    for (size_t i = 0; i < group->request_count; i++) {
        struct append_request *request = &group->requests[i];
        if (request->status == STATUS_OK && group->order &&
            append_order_blocks(group->order, request)) {
            /* The request would overtake a refused one. */
            (void)lookups_take(&ledger->lookups, request);
            request->status = STATUS_NOT_ATTEMPTED;
        } else if (request->status == STATUS_OK) {
            apply(ledger, request, &group->arena);
        }
        if (group->order)
            append_order_note(group->order, request);
    }
}
