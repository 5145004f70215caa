#include "authority/producer.h"

#include "auth/grant.h"
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

enum status producer_check(const struct append_request *request, const struct store_entity *entity,
                           struct arena *arena) {
    enum entity_kind kind = append_entity_kind(request->kind);
    struct slice id = append_entity_id(request);
    struct slice topic;
    if (!request->producer)
        return STATUS_OK;
    if (kind == ENTITY_AUDIT)
        return STATUS_FORBIDDEN_TOPIC;
    /* The rules create it for the producer's owner, or answer that it does not exist. A topic that
     * the projector writes has no id here, and the rules refuse it. */
    if (!id.data || (!entity && kind != ENTITY_TOPIC))
        return STATUS_OK;
    /* A grant lets a producer append, but not register another owner's worker again. */
    if (request->kind == APPEND_RUN_CREATE || request->kind == APPEND_WORKER_CREATE)
        return principal_owns(request->producer, &entity->owner) ? STATUS_OK
                                                                 : STATUS_OWNER_MISMATCH;
    enum status status = topic_name_of_entity(arena, kind, id, &topic);
    return status == STATUS_OK
               ? grant_check_append(request->producer, topic, entity ? &entity->owner : NULL)
               : status;
}
