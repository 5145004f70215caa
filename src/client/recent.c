#include "client/recent.h"

#include <stdlib.h>

#include "client/client_limits.h"

struct recent_entry {
    struct list_node node;
    uint64_t at_ms;
    uint64_t version;
    size_t size;
    char key[];
};

void recent_init(struct recent *recent) {
    map_init(&recent->by_key, CLIENT_RECENT_MAX);
    list_init(&recent->by_age);
}

static void forget(struct recent *recent, struct recent_entry *entry) {
    map_remove(&recent->by_key, (struct slice){entry->key, entry->size});
    list_remove(&entry->node);
    free(entry);
}

static struct recent_entry *oldest(const struct recent *recent) {
    struct list_node *node = list_first(&recent->by_age);
    return node ? container_of(node, struct recent_entry, node) : NULL;
}

void recent_clear(struct recent *recent) {
    for (struct recent_entry *entry = oldest(recent); entry; entry = oldest(recent))
        forget(recent, entry);
}

void recent_release(struct recent *recent) {
    recent_clear(recent);
    map_release(&recent->by_key);
}

static void forget_old(struct recent *recent, uint64_t now_ms) {
    for (struct recent_entry *entry = oldest(recent);
         entry &&
         (now_ms - entry->at_ms > CLIENT_RECENT_MS || recent->by_key.count >= CLIENT_RECENT_MAX);
         entry = oldest(recent))
        forget(recent, entry);
}

bool recent_has(struct recent *recent, struct slice key, uint64_t version, uint64_t now_ms) {
    forget_old(recent, now_ms);
    const struct recent_entry *known = map_find(&recent->by_key, key);
    return known && known->version >= version;
}

enum status recent_add(struct recent *recent, struct slice key, uint64_t version, uint64_t now_ms) {
    struct recent_entry *known = map_find(&recent->by_key, key);
    if (known)
        forget(recent, known);
    struct recent_entry *entry = calloc(1, sizeof(*entry) + key.size);
    if (!entry)
        return STATUS_OUT_OF_MEMORY;
    entry->at_ms = now_ms;
    entry->version = version;
    entry->size = key.size;
    memcpy(entry->key, key.data, key.size);
    enum status status = map_insert(&recent->by_key, (struct slice){entry->key, key.size}, entry);
    if (status != STATUS_OK) {
        free(entry);
        return status;
    }
    list_push_back(&recent->by_age, &entry->node);
    return STATUS_OK;
}
