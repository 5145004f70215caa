#include "authority/entity_cache.h"

#include <assert.h>
#include <stdlib.h>

/* Larger than any one entity's texts: metadata is bounded by the largest payload a policy takes. */
#define LOAD_BYTES_MAX ((size_t)64 << 20)
#define TEXT_COUNT     10

/* Every text of an entity but its id. */
static void texts_of(struct store_entity *entity, struct slice *texts[TEXT_COUNT]) {
    struct slice *all[TEXT_COUNT] = {
        &entity->owner.user_id, &entity->owner.guest_scope, &entity->owner.org_id,
        &entity->status,        &entity->worker_id,         &entity->thread_id,
        &entity->workspace_ref, &entity->codex_home_ref,    &entity->adapter,
        &entity->metadata,
    };
    memcpy(texts, all, sizeof(all));
}

bool store_entity_copy(struct arena *arena, const struct store_entity *from,
                       struct store_entity *to) {
    *to = *from;
    struct slice *texts[TEXT_COUNT];
    texts_of(to, texts);
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        if (!texts[i]->data)
            continue;
        *texts[i] = arena_copy(arena, *texts[i]);
        if (!texts[i]->data)
            return false;
    }
    to->id = arena_copy(arena, from->id);
    return to->id.data != NULL;
}

void entity_cache_init(struct entity_cache *cache, size_t count_max, size_t bytes_max) {
    *cache = (struct entity_cache){.count_max = count_max, .bytes_max = bytes_max};
    for (size_t kind = 0; kind < ENTITY_KIND_COUNT; kind++)
        map_init(&cache->by_id[kind], MAP_COUNT_MAX);
    arena_init(&cache->arena, LOAD_BYTES_MAX);
}

static void unlink_entry(struct entity_cache *cache, struct entity_entry *entry) {
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
    entry->newer = entry->older = NULL;
}

static void link_newest(struct entity_cache *cache, struct entity_entry *entry) {
    entry->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

static size_t entry_bytes(const struct entity_entry *entry) {
    return sizeof(*entry) + entry->entity.id.size + entry->text_bytes;
}

static void evict(struct entity_cache *cache, struct entity_entry *entry) {
    void *removed = map_remove(&cache->by_id[entry->entity.kind], entry->entity.id);
    assert(removed == entry);
    unlink_entry(cache, entry);
    cache->bytes -= entry_bytes(entry);
    cache->count--;
    free(entry->texts);
    free(entry);
}

void entity_cache_clear(struct entity_cache *cache) {
    while (cache->oldest)
        evict(cache, cache->oldest);
    assert(cache->count == 0 && cache->bytes == 0);
}

void entity_cache_release(struct entity_cache *cache) {
    entity_cache_clear(cache);
    for (size_t kind = 0; kind < ENTITY_KIND_COUNT; kind++)
        map_release(&cache->by_id[kind]);
    arena_release(&cache->arena);
}

static void make_room(struct entity_cache *cache) {
    while (cache->oldest && cache->oldest->batch != cache->batch &&
           (cache->count > cache->count_max || cache->bytes > cache->bytes_max))
        evict(cache, cache->oldest);
}

void entity_cache_begin_batch(struct entity_cache *cache) {
    cache->batch++;
    make_room(cache);
}

/* One block for all texts; the old one goes after the copy, which may read from it. */
static bool own_texts(struct entity_cache *cache, struct entity_entry *entry) {
    struct slice *texts[TEXT_COUNT];
    texts_of(&entry->entity, texts);
    size_t bytes = 0;
    for (size_t i = 0; i < TEXT_COUNT; i++)
        bytes += texts[i]->size;
    char *block = malloc(bytes > 0 ? bytes : 1);
    if (!block)
        return false;
    char *at = block;
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        if (!texts[i]->data)
            continue;
        memcpy(at, texts[i]->data, texts[i]->size);
        texts[i]->data = at;
        at += texts[i]->size;
    }
    free(entry->texts);
    cache->bytes += bytes;
    cache->bytes -= entry->text_bytes;
    entry->texts = block;
    entry->text_bytes = bytes;
    entry->is_borrowing = false;
    return true;
}

void entity_cache_settle(struct entity_cache *cache, struct entity_entry *entry) {
    entry->is_changed = false;
    if (entry->is_borrowing && !own_texts(cache, entry))
        evict(cache, entry);
}

enum status entity_cache_add(struct entity_cache *cache, const struct store_entity *entity,
                             struct entity_entry **entry) {
    struct entity_entry *made = malloc(sizeof(*made) + entity->id.size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    *made = (struct entity_entry){.entity = *entity, .batch = cache->batch, .is_borrowing = true};
    memcpy(made->id, entity->id.data, entity->id.size);
    made->entity.id.data = made->id;
    enum status status = map_insert(&cache->by_id[entity->kind], made->entity.id, made);
    if (status != STATUS_OK) {
        assert(status != STATUS_ALREADY_EXISTS);
        free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    link_newest(cache, made);
    cache->count++;
    cache->bytes += entry_bytes(made);
    make_room(cache);
    *entry = made;
    return STATUS_OK;
}

static enum status load(struct entity_cache *cache, struct store_session *session,
                        enum entity_kind kind, struct slice id, struct entity_entry **entry) {
    struct store_entity entity;
    arena_reset(&cache->arena);
    enum status status = store_load_entity(session, kind, id, &cache->arena, &entity);
    if (status == STATUS_OK)
        status = entity_cache_add(cache, &entity, entry);
    if (status == STATUS_OK && !own_texts(cache, *entry)) {
        evict(cache, *entry);
        status = STATUS_OUT_OF_MEMORY;
    }
    return status;
}

enum status entity_cache_find(struct entity_cache *cache, struct store_session *session,
                              enum entity_kind kind, struct slice id, struct entity_entry **entry) {
    struct entity_entry *found = map_find(&cache->by_id[kind], id);
    if (!found)
        return load(cache, session, kind, id, entry);
    if (found != cache->newest) {
        unlink_entry(cache, found);
        link_newest(cache, found);
    }
    found->batch = cache->batch;
    *entry = found;
    return STATUS_OK;
}
