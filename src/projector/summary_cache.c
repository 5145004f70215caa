#include "projector/summary_cache.h"

#include <assert.h>
#include <stdlib.h>

/* An entry with its share of the table. */
#define ENTRY_BYTES (sizeof(struct cache_entry) + 64)

static struct slice key_of(const struct cache_entry *entry) {
    return (struct slice){(const char *)&entry->ref, sizeof(entry->ref)};
}

static void unlink_entry(struct summary_cache *cache, struct cache_entry *entry) {
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
}

static void link_newest(struct summary_cache *cache, struct cache_entry *entry) {
    entry->newer = NULL;
    entry->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

static void document_free(struct summary_cache *cache, struct cached_document *document) {
    cache->bytes -= document->text_bytes;
    free(document->text);
    memset(document, 0, sizeof(*document));
}

void summary_cache_init(struct summary_cache *cache, size_t bytes_max) {
    memset(cache, 0, sizeof(*cache));
    map_init(&cache->by_ref, MAP_COUNT_MAX);
    cache->bytes_max = bytes_max;
}

void summary_cache_release(struct summary_cache *cache) {
    while (cache->oldest)
        summary_cache_drop(cache, cache->oldest);
    map_release(&cache->by_ref);
    assert(cache->bytes == 0);
}

struct cache_entry *summary_cache_find(struct summary_cache *cache, uint64_t ref) {
    struct cache_entry *entry =
        map_find(&cache->by_ref, (struct slice){(const char *)&ref, sizeof(ref)});
    if (entry && entry != cache->newest) {
        unlink_entry(cache, entry);
        link_newest(cache, entry);
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
    if (map_insert(&cache->by_ref, key_of(entry), entry) != STATUS_OK) {
        free(entry);
        return NULL;
    }
    link_newest(cache, entry);
    cache->bytes += ENTRY_BYTES;
    return entry;
}

void summary_cache_drop(struct summary_cache *cache, struct cache_entry *entry) {
    map_remove(&cache->by_ref, key_of(entry));
    unlink_entry(cache, entry);
    document_free(cache, &entry->now);
    document_free(cache, &entry->next);
    cache->bytes -= ENTRY_BYTES;
    free(entry);
}

enum status summary_cache_prepare(struct summary_cache *cache, struct cache_entry *entry,
                                  const union any_summary *summary, struct slice document,
                                  const struct summary_marks *marks) {
    assert(!entry->next.text);
    char *text = malloc(document.size);
    if (!text)
        return STATUS_OUT_OF_MEMORY;
    memcpy(text, document.data, document.size);
    entry->next.text = text;
    entry->next.text_bytes = document.size;
    entry->next.summary = *summary;
    /* Whoever goes on from the entry has the entity at hand, and its id. */
    entry->next.summary.common.entity_id = (struct slice){NULL, 0};
    summary_settle(fold_layout(entry->kind), marks, text, &entry->next.summary.common);
    cache->bytes += document.size;
    return STATUS_OK;
}

void summary_cache_settle(struct summary_cache *cache, struct cache_entry *entry, bool committed) {
    entry->change = NULL;
    if (committed) {
        document_free(cache, &entry->now);
        entry->now = entry->next;
        memset(&entry->next, 0, sizeof(entry->next));
    } else {
        document_free(cache, &entry->next);
    }
    if (!entry->now.text)
        summary_cache_drop(cache, entry);
}

void summary_cache_trim(struct summary_cache *cache) {
    struct cache_entry *entry = cache->oldest;
    while (entry && cache->bytes > cache->bytes_max) {
        struct cache_entry *newer = entry->newer;
        if (!entry->change)
            summary_cache_drop(cache, entry);
        entry = newer;
    }
}
