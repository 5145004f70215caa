#include "authority/producer.h"

#include "auth/grant.h"
#include "authority/entity_state.h"
#include "authority/lookups.h"
#include "topic/topic_name.h"

/* ---- the owner that a request names ---- */

static enum status claim(struct slice *given, struct slice own, bool is_filled,
                         struct arena *arena) {
    if (given->data && !(own.data && slice_equal(*given, own)))
        return STATUS_OWNER_MISMATCH;
    if (!is_filled || given->data || !own.data)
        return STATUS_OK;
    *given = arena_copy(arena, own);
    return given->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

enum status producer_claim_owner(struct append_request *request, struct arena *arena) {
    if (!request->producer)
        return STATUS_OK;
    const struct owner *own = &request->producer->identity;
    struct owner *owner = &request->owner;
    /* An event of an application topic may have no owner: every reader of the topic sees it. */
    bool is_filled = request->kind == APPEND_RUN_CREATE || request->kind == APPEND_WORKER_CREATE ||
                     request->kind == APPEND_NOTIFICATION;
    enum status status = claim(&owner->user_id, own->user_id, is_filled, arena);
    if (status == STATUS_OK)
        status = claim(&owner->guest_scope, own->guest_scope, is_filled, arena);
    if (status == STATUS_OK)
        status = claim(&owner->org_id, own->org_id, is_filled, arena);
    bool has_owner = owner->user_id.data || owner->guest_scope.data || owner->org_id.data;
    return status == STATUS_OK && is_filled && !has_owner ? STATUS_OWNER_MISMATCH : status;
}

/* ---- the entity ---- */

enum status producer_check(struct append_request *request, const struct store_entity *entity,
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
