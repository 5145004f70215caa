#include "projector/summary_cache.h"

#include <assert.h>
#include <stdlib.h>

/* An entry and its share of the map. */
#define ENTRY_BYTES (sizeof(struct cache_entry) + 64)

static struct slice key_of(const struct cache_entry *entry) {
    return (struct slice){(const char *)&entry->ref, sizeof(entry->ref)};
}

static void document_free(struct summary_cache *cache, struct cached_document *document) {
    cache->bytes -= document->text_bytes;
    free(document->text);
    /* The next document sets everything else. */
    document->text = NULL;
    document->text_bytes = 0;
    document->metadata.text = (struct slice){NULL, 0};
}

void summary_cache_init(struct summary_cache *cache, size_t bytes_max) {
    memset(cache, 0, sizeof(*cache));
    map_init(&cache->by_ref, MAP_COUNT_MAX);
    list_init(&cache->by_age);
    cache->bytes_max = bytes_max;
}

void summary_cache_clear(struct summary_cache *cache) {
    for (struct list_node *node; (node = list_first(&cache->by_age));)
        summary_cache_drop(cache, container_of(node, struct cache_entry, age));
}

void summary_cache_release(struct summary_cache *cache) {
    summary_cache_clear(cache);
    map_release(&cache->by_ref);
    assert(cache->bytes == 0);
}

struct cache_entry *summary_cache_find(struct summary_cache *cache, uint64_t ref) {
    struct cache_entry *entry =
        map_find(&cache->by_ref, (struct slice){(const char *)&ref, sizeof(ref)});
    if (entry) {
        list_remove(&entry->age);
        list_push_back(&cache->by_age, &entry->age);
    }
    return entry;
}

struct cache_entry *summary_cache_add(struct summary_cache *cache, uint64_t ref,
                                      enum document_kind kind) {
    struct cache_entry *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return NULL;
    entry->ref = ref;
    entry->kind = kind;
    entry->now = &entry->documents[0];
    entry->next = &entry->documents[1];
    if (map_insert(&cache->by_ref, key_of(entry), entry) != STATUS_OK) {
        free(entry);
        return NULL;
    }
    list_push_back(&cache->by_age, &entry->age);
    cache->bytes += ENTRY_BYTES;
    return entry;
}

void summary_cache_drop(struct summary_cache *cache, struct cache_entry *entry) {
    map_remove(&cache->by_ref, key_of(entry));
    list_remove(&entry->age);
    document_free(cache, entry->now);
    document_free(cache, entry->next);
    cache->bytes -= ENTRY_BYTES;
    free(entry);
}

enum status summary_cache_prepare(struct summary_cache *cache, struct cache_entry *entry,
                                  const union any_summary *summary, struct slice document,
                                  const struct summary_marks *marks) {
    assert(!entry->next->text);
    char *text = malloc(document.size);
    if (!text)
        return STATUS_OUT_OF_MEMORY;
    memcpy(text, document.data, document.size);
    entry->next->text = text;
    entry->next->text_bytes = document.size;
    entry->next->summary = *summary;
    /* The next change has the entity and sets its id. */
    entry->next->summary.common.entity_id = (struct slice){NULL, 0};
    summary_settle(fold_layout(entry->kind), marks, text, &entry->next->summary.common);
    cache->bytes += document.size;
    return STATUS_OK;
}

void summary_cache_settle(struct summary_cache *cache, struct cache_entry *entry, bool committed) {
    entry->change = NULL;
    if (committed) {
        struct cached_document *before = entry->now;
        document_free(cache, before);
        entry->now = entry->next;
        entry->next = before;
    } else {
        document_free(cache, entry->next);
    }
    if (!entry->now->text)
        summary_cache_drop(cache, entry);
}

void summary_cache_trim(struct summary_cache *cache) {
    struct list_node *node = list_first(&cache->by_age);
    while (node && cache->bytes > cache->bytes_max) {
        struct cache_entry *entry = container_of(node, struct cache_entry, age);
        node = list_next(&cache->by_age, node);
        if (!entry->change)
            summary_cache_drop(cache, entry);
    }
}
