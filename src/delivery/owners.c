#include "delivery/owners.h"

#include "base/limits.h"

void owners_init(struct owners *owners, struct store_session *session) {
    *owners = (struct owners){.session = session};
    arena_init(&owners->arena, OWNERS_ARENA_BYTES_MAX);
}

void owners_release(struct owners *owners) {
    arena_release(&owners->arena);
}

static void forget(struct owners *owners) {
    arena_reset(&owners->arena);
    for (size_t i = 0; i < OWNERS_MAX; i++)
        owners->slots[i].entity_ref = 0;
}

enum status owners_find(struct owners *owners, uint64_t entity_ref, const struct owner **owner) {
    struct owners_slot *slot = &owners->slots[entity_ref % OWNERS_MAX];
    struct store_entity entity;
    *owner = &slot->owner;
    if (entity_ref > 0 && slot->entity_ref == entity_ref)
        return STATUS_OK;
    if (owners->arena.bytes_held > OWNERS_KEPT_BYTES)
        forget(owners);
    enum status status =
        store_load_entity_ref(owners->session, entity_ref, &owners->arena, &entity);
    slot->entity_ref = status == STATUS_OK ? entity_ref : 0;
    if (status == STATUS_OK)
        slot->owner = entity.owner;
    return status;
}
