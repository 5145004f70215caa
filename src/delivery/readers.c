/* Entries are in buckets by key. A reader may have two entries, also in the same bucket. */
#include "delivery/readers.h"

#include <assert.h>
#include <stdlib.h>

#define BUCKETS_FIRST 8

static struct reader_entry *entry_of(struct hlist_node *node) {
    return container_of(node, struct reader_entry, node);
}

static struct reader *reader_of(struct reader_entry *entry) {
    return container_of(entry - entry->slot, struct reader_listing, entries[0])->reader;
}

static struct hlist *bucket_of(const struct readers *readers, uint32_t key) {
    return &readers->buckets[key & (readers->bucket_count - 1)];
}

void readers_release(struct readers *readers) {
    assert(readers_is_empty(readers));
    free(readers->buckets);
}

bool readers_is_empty(const struct readers *readers) {
    return !readers->all.first && readers->entry_count == 0;
}

/* ---- adding and removing ---- */

static void move_entries(struct readers *readers, struct hlist *old, size_t old_count) {
    for (size_t i = 0; i < old_count; i++)
        for (struct hlist_node *node = old[i].first, *next; node; node = next) {
            next = node->next;
            hlist_remove(node);
            hlist_push_front(bucket_of(readers, entry_of(node)->key), node);
        }
}

/* Without memory for more, the old buckets only get fuller. */
static enum status make_room(struct readers *readers) {
    size_t count = readers->bucket_count > 0 ? 2 * readers->bucket_count : BUCKETS_FIRST;
    struct hlist *old = readers->buckets;
    size_t old_count = readers->bucket_count;
    if (readers->entry_count + PRINCIPAL_KEYS_MAX <= old_count || (old && readers->walks > 0))
        return STATUS_OK;
    struct hlist *made = calloc(count, sizeof(*made));
    if (!made)
        return old ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    readers->buckets = made;
    readers->bucket_count = count;
    if (old)
        move_entries(readers, old, old_count);
    free(old);
    return STATUS_OK;
}

void readers_add_to_all(struct readers *readers, struct reader *reader) {
    hlist_push_front(&readers->all, &reader->node);
}

enum status readers_add(struct readers *readers, struct reader *reader,
                        const struct principal *principal, enum grant_view view) {
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    if (view != GRANT_VIEW_OWN || principal->read_all) {
        readers_add_to_all(readers, reader);
        return STATUS_OK;
    }
    enum status status = make_room(readers);
    if (status != STATUS_OK)
        return status;
    reader->listing = calloc(1, sizeof(*reader->listing));
    if (!reader->listing)
        return STATUS_OUT_OF_MEMORY;
    reader->listing->reader = reader;
    size_t count = principal_keys(principal, keys);
    for (size_t i = 0; i < count; i++) {
        struct reader_entry *entry = &reader->listing->entries[i];
        entry->key = keys[i];
        entry->slot = (uint32_t)i;
        hlist_push_front(bucket_of(readers, keys[i]), &entry->node);
    }
    readers->entry_count += count;
    return STATUS_OK;
}

void readers_remove(struct readers *readers, struct reader *reader) {
    struct reader_listing *listing = reader->listing;
    if (!listing) {
        hlist_remove(&reader->node);
        return;
    }
    for (size_t i = 0; i < PRINCIPAL_KEYS_MAX; i++) {
        struct reader_entry *entry = &listing->entries[i];
        if (!hlist_node_is_linked(&entry->node))
            continue;
        hlist_remove(&entry->node);
        readers->entry_count--;
    }
    free(listing);
    reader->listing = NULL;
}

/* ---- visits ---- */

/* Visits the reader of this entry. Returns the next entry that is of another reader, because the
 * visit may end this one. */
static struct hlist_node *visit_entry(struct hlist_node *node, reader_visit *visit, void *user) {
    struct reader *reader = reader_of(entry_of(node));
    do
        node = node->next;
    while (node && reader_of(entry_of(node)) == reader);
    visit(reader, user);
    return node;
}

static void visit_key(struct readers *readers, uint32_t key, reader_visit *visit, void *user) {
    if (!readers->buckets)
        return;
    for (struct hlist_node *node = bucket_of(readers, key)->first; node;)
        node = entry_of(node)->key == key ? visit_entry(node, visit, user) : node->next;
}

void readers_visit_owner(struct readers *readers, const struct owner *owner, reader_visit *visit,
                         void *user) {
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    size_t count = owner_keys(owner, keys);
    readers->walks++;
    for (size_t i = 0; i < count; i++)
        visit_key(readers, keys[i], visit, user);
    readers->walks--;
}

void readers_visit_all(struct readers *readers, reader_visit *visit, void *user) {
    readers->walks++;
    for (struct hlist_node *node = readers->all.first, *next; node; node = next) {
        next = node->next;
        visit(container_of(node, struct reader, node), user);
    }
    readers->walks--;
}

void readers_visit_listed(struct readers *readers, reader_visit *visit, void *user) {
    readers->walks++;
    for (size_t i = 0; i < readers->bucket_count; i++)
        for (struct hlist_node *node = readers->buckets[i].first; node;)
            node = entry_of(node)->slot == 0 ? visit_entry(node, visit, user) : node->next;
    readers->walks--;
}
