#include "delivery/owners.h"

/* Of whole entities, most of which is theirs alone to need: beyond it, all are forgotten. */
#define KEPT_BYTES (256u << 10)
/* And one more of any size. */
#define ARENA_BYTES_MAX (KEPT_BYTES + (1u << 20))

void owners_init(struct owners *owners, struct store_session *session) {
    *owners = (struct owners){.session = session};
    arena_init(&owners->arena, ARENA_BYTES_MAX);
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
    if (owners->arena.bytes_held > KEPT_BYTES)
        forget(owners);
    enum status status =
        store_load_entity_ref(owners->session, entity_ref, &owners->arena, &entity);
    slot->entity_ref = status == STATUS_OK ? entity_ref : 0;
    if (status == STATUS_OK)
        slot->owner = entity.owner;
    return status;
}
