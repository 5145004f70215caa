#include "authority/entity_cache.h"

#include <assert.h>
#include <stdlib.h>

#define TEXT_COUNT 10

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

bool owner_copy(struct arena *arena, const struct owner *from, struct owner *to) {
    *to = (struct owner){0};
    const struct slice *texts[] = {&from->user_id, &from->guest_scope, &from->org_id};
    struct slice *copies[] = {&to->user_id, &to->guest_scope, &to->org_id};
    for (size_t i = 0; i < 3; i++) {
        if (texts[i]->data)
            *copies[i] = arena_copy(arena, *texts[i]);
        if (texts[i]->data && !copies[i]->data)
            return false;
    }
    return true;
}

void entity_cache_init(struct entity_cache *cache, size_t count_max, size_t bytes_max) {
    *cache = (struct entity_cache){.count_max = count_max, .bytes_max = bytes_max};
    for (size_t kind = 0; kind < ENTITY_KIND_COUNT; kind++)
        map_init(&cache->by_id[kind], MAP_COUNT_MAX);
    list_init(&cache->by_use);
}

static size_t entry_bytes(const struct entity_entry *entry) {
    return sizeof(*entry) + entry->entity.id.size + entry->text_bytes;
}

static void evict(struct entity_cache *cache, struct entity_entry *entry) {
    void *removed = map_remove(&cache->by_id[entry->entity.kind], entry->entity.id);
    assert(removed == entry);
    list_remove(&entry->by_use);
    if (hlist_node_is_linked(&entry->incomplete))
        hlist_remove(&entry->incomplete);
    cache->bytes -= entry_bytes(entry);
    cache->count--;
    free(entry->texts);
    free(entry);
}

static struct entity_entry *oldest(const struct entity_cache *cache) {
    struct list_node *node = list_last(&cache->by_use);
    return node ? container_of(node, struct entity_entry, by_use) : NULL;
}

void entity_cache_clear(struct entity_cache *cache) {
    for (struct entity_entry *entry; (entry = oldest(cache));)
        evict(cache, entry);
    assert(cache->count == 0 && cache->bytes == 0);
}

void entity_cache_release(struct entity_cache *cache) {
    entity_cache_clear(cache);
    for (size_t kind = 0; kind < ENTITY_KIND_COUNT; kind++)
        map_release(&cache->by_id[kind]);
}

static void make_room(struct entity_cache *cache) {
    struct entity_entry *entry = oldest(cache);
    for (; entry && entry->batch != cache->batch; entry = oldest(cache)) {
        if (cache->count <= cache->count_max && cache->bytes <= cache->bytes_max)
            return;
        evict(cache, entry);
    }
}

void entity_cache_begin_batch(struct entity_cache *cache) {
    while (cache->incomplete.first) {
        struct entity_entry *entry =
            container_of(cache->incomplete.first, struct entity_entry, incomplete);
        if (entry->status == STATUS_OK)
            hlist_remove(&entry->incomplete);
        else
            evict(cache, entry);
    }
    cache->batch++;
    make_room(cache);
}

/* One block for all texts. The old block is freed after the copy, which may read from it. */
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
    entry->writes_metadata = false;
    if (entry->is_borrowing && !own_texts(cache, entry))
        evict(cache, entry);
}

static struct entity_entry *add_entry(struct entity_cache *cache, enum entity_kind kind,
                                      struct slice id) {
    struct entity_entry *made = malloc(sizeof(*made) + id.size);
    if (!made)
        return NULL;
    *made = (struct entity_entry){.status = STATUS_NOT_FOUND, .batch = cache->batch};
    memcpy(made->id, id.data, id.size);
    made->entity.kind = kind;
    made->entity.id = (struct slice){made->id, id.size};
    enum status status = map_insert(&cache->by_id[kind], made->entity.id, made);
    if (status != STATUS_OK) {
        assert(status != STATUS_ALREADY_EXISTS);
        free(made);
        return NULL;
    }
    list_push_front(&cache->by_use, &made->by_use);
    hlist_push_front(&cache->incomplete, &made->incomplete);
    cache->count++;
    cache->bytes += entry_bytes(made);
    make_room(cache);
    return made;
}

enum status entity_cache_expect(struct entity_cache *cache, enum entity_kind kind, struct slice id,
                                struct entity_entry **entry, bool *is_added) {
    struct entity_entry *found = map_find(&cache->by_id[kind], id);
    *is_added = !found;
    if (!found) {
        *entry = add_entry(cache, kind, id);
        return *entry ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    }
    if (list_first(&cache->by_use) != &found->by_use) {
        list_remove(&found->by_use);
        list_push_front(&cache->by_use, &found->by_use);
    }
    found->batch = cache->batch;
    *entry = found;
    return STATUS_OK;
}

struct entity_entry *entity_cache_find(const struct entity_cache *cache, enum entity_kind kind,
                                       struct slice id) {
    struct entity_entry *found = map_find(&cache->by_id[kind], id);
    return found && found->status == STATUS_OK ? found : NULL;
}

static void set_entity(struct entity_entry *entry, const struct store_entity *entity) {
    struct slice id = entry->entity.id;
    entry->entity = *entity;
    entry->entity.id = id;
    entry->status = STATUS_OK;
}

enum status entity_cache_fill(struct entity_cache *cache, struct entity_entry *entry,
                              const struct store_entity *entity) {
    struct store_entity empty = entry->entity;
    set_entity(entry, entity);
    if (own_texts(cache, entry))
        return STATUS_OK;
    entry->entity = empty;
    entry->status = STATUS_OUT_OF_MEMORY;
    return STATUS_OUT_OF_MEMORY;
}

enum status entity_cache_add(struct entity_cache *cache, const struct store_entity *entity,
                             struct entity_entry **entry) {
    struct entity_entry *found = map_find(&cache->by_id[entity->kind], entity->id);
    assert(!found || found->status == STATUS_NOT_FOUND);
    if (!found)
        found = add_entry(cache, entity->kind, entity->id);
    if (!found)
        return STATUS_OUT_OF_MEMORY;
    set_entity(found, entity);
    found->is_borrowing = true;
    *entry = found;
    return STATUS_OK;
}
