/* An entry holds when its bucket will be full again, which says how much is missing now. So an
 * entry whose time has passed is as good as none. Entries are touched in order of time, but fill in
 * any order: at most two full ones leave with each take, so that the table shrinks as it is used.
 */
#include "base/rate_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct rate_entry {
    struct list_node node; /* in by_age */
    uint64_t full_at_ms;
    size_t key_size;
    char key[];
};

void rate_table_init(struct rate_table *table, const struct rate_options *options) {
    assert(options->interval_ms > 0 && options->burst > 0 && options->count_max > 0);
    *table = (struct rate_table){.options = *options, .is_open = true};
    pthread_mutex_init(&table->lock, NULL);
    map_init(&table->entries, options->count_max);
    list_init(&table->by_age);
}

static struct rate_entry *oldest(const struct rate_table *table) {
    struct list_node *node = list_first(&table->by_age);
    return node ? container_of(node, struct rate_entry, node) : NULL;
}

static void drop(struct rate_table *table, struct rate_entry *entry) {
    (void)map_remove(&table->entries, (struct slice){entry->key, entry->key_size});
    list_remove(&entry->node);
    free(entry);
}

void rate_table_release(struct rate_table *table) {
    if (!table->is_open)
        return;
    for (struct rate_entry *entry; (entry = oldest(table));)
        drop(table, entry);
    map_release(&table->entries);
    pthread_mutex_destroy(&table->lock);
    table->is_open = false;
}

static struct rate_entry *entry_make(struct rate_table *table, struct slice key) {
    if (table->entries.count == table->options.count_max)
        drop(table, oldest(table));
    struct rate_entry *entry = malloc(sizeof(*entry) + key.size);
    if (!entry)
        return NULL;
    *entry = (struct rate_entry){.key_size = key.size};
    memcpy(entry->key, key.data, key.size);
    if (map_insert(&table->entries, (struct slice){entry->key, key.size}, entry) != STATUS_OK) {
        free(entry);
        return NULL;
    }
    list_push_back(&table->by_age, &entry->node);
    return entry;
}

/* Takes one from the bucket of the key, or more than it holds, up to a debt. Returns how long the
 * caller waits for it. */
static uint64_t take(struct rate_table *table, struct slice key, uint64_t now_ms,
                     uint64_t debt_ms_max) {
    const struct rate_options *options = &table->options;
    uint64_t spare_ms = options->interval_ms * (options->burst - 1);
    uint64_t beyond_ms = 0; /* what the bucket need not owe */
    pthread_mutex_lock(&table->lock);
    for (int i = 0; i < 2 && oldest(table) && oldest(table)->full_at_ms <= now_ms; i++)
        drop(table, oldest(table));
    struct rate_entry *entry = map_find(&table->entries, key);
    if (entry) {
        list_remove(&entry->node);
        list_push_back(&table->by_age, &entry->node);
    }
    /* 0: the bucket holds at least one. A key without an entry has a full bucket. */
    uint64_t missing_ms = entry && entry->full_at_ms > now_ms ? entry->full_at_ms - now_ms : 0;
    uint64_t wait_ms = missing_ms > spare_ms ? missing_ms - spare_ms : 0;
    bool is_taken = wait_ms == 0 || debt_ms_max > 0;
    if (is_taken && !entry)
        entry = entry_make(table, key);
    if (is_taken && entry) {
        uint64_t from_ms = entry->full_at_ms > now_ms ? entry->full_at_ms : now_ms;
        entry->full_at_ms = from_ms + options->interval_ms;
        beyond_ms = wait_ms > debt_ms_max && debt_ms_max > 0 ? wait_ms - debt_ms_max : 0;
        entry->full_at_ms -= beyond_ms;
    }
    pthread_mutex_unlock(&table->lock);
    return wait_ms - beyond_ms;
}

uint64_t rate_table_take(struct rate_table *table, struct slice key, uint64_t now_ms) {
    return take(table, key, now_ms, 0);
}

uint64_t rate_table_charge(struct rate_table *table, struct slice key, uint64_t now_ms,
                           uint64_t wait_ms_max) {
    assert(wait_ms_max > 0);
    return take(table, key, now_ms, wait_ms_max);
}

size_t rate_table_count(struct rate_table *table) {
    pthread_mutex_lock(&table->lock);
    size_t count = table->entries.count;
    pthread_mutex_unlock(&table->lock);
    return count;
}
