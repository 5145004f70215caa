#include "client/recent.h"

#include <stdlib.h>

#include "client/client_limits.h"

#define CAPACITY_MIN 64
#define NOT_FOUND    SIZE_MAX

struct recent_entry {
    struct list_node node;
    uint64_t at_ms;
    uint64_t version;
    size_t size;
    char key[];
};

static uint32_t seconds(uint64_t now_ms) {
    return (uint32_t)(now_ms / 1000);
}

/* ---- ids of events ------------------------------------------------------------------------ */

/* The id in a JSON string. Events of the server have no other ids than these. */
static bool read_id(struct slice key, uint64_t version, struct uuid *id) {
    return version == 0 && key.size == UUID_TEXT_SIZE + 2 &&
           uuid7_parse((struct slice){key.data + 1, UUID_TEXT_SIZE}, id) == STATUS_OK;
}

static size_t home_of(const struct recent *recent, const struct uuid *id) {
    const struct slice bytes = {(const char *)id->bytes, sizeof(id->bytes)};
    return (size_t)siphash(recent->secret, bytes) & (recent->table_size - 1);
}

static const struct uuid *id_at(const struct recent *recent, size_t slot) {
    return &recent->ring[recent->table[slot] - 1].id;
}

/* The slot of the table, or NOT_FOUND. The table is never full. */
static size_t find_id(const struct recent *recent, const struct uuid *id) {
    if (recent->count == 0)
        return NOT_FOUND;
    size_t slot = home_of(recent, id);
    for (; recent->table[slot] != 0; slot = (slot + 1) & (recent->table_size - 1))
        if (uuid_compare(id_at(recent, slot), id) == 0)
            return slot;
    return NOT_FOUND;
}

static void put_id(struct recent *recent, const struct recent_id *entry) {
    size_t place = (recent->first + recent->count++) % recent->capacity;
    size_t slot = home_of(recent, &entry->id);
    while (recent->table[slot] != 0)
        slot = (slot + 1) & (recent->table_size - 1);
    recent->ring[place] = *entry;
    recent->table[slot] = (uint32_t)place + 1;
}

static void free_ids(struct recent *recent) {
    free(recent->ring);
    free(recent->table);
    recent->ring = NULL;
    recent->table = NULL;
    recent->capacity = recent->table_size = recent->first = recent->count = 0;
}

static void forget_oldest_id(struct recent *recent) {
    size_t mask = recent->table_size - 1;
    size_t hole = find_id(recent, &recent->ring[recent->first].id);
    recent->first = (recent->first + 1) % recent->capacity;
    recent->count--;
    recent->table[hole] = 0;
    /* A later entry moves into the hole if a search for it would end there. */
    for (size_t slot = (hole + 1) & mask; recent->table[slot] != 0; slot = (slot + 1) & mask) {
        size_t home = home_of(recent, id_at(recent, slot));
        if (((slot - home) & mask) < ((slot - hole) & mask))
            continue;
        recent->table[hole] = recent->table[slot];
        recent->table[slot] = 0;
        hole = slot;
    }
}

/* The table has at least half as many slots again as the ring has places. */
static enum status resize(struct recent *recent, size_t capacity) {
    struct recent made = *recent;
    made.capacity = capacity;
    made.first = made.count = 0;
    for (made.table_size = 1; made.table_size < capacity + capacity / 2; made.table_size *= 2)
        ;
    made.ring = malloc(capacity * sizeof(*made.ring));
    made.table = calloc(made.table_size, sizeof(*made.table));
    if (!made.ring || !made.table) {
        free(made.ring);
        free(made.table);
        return STATUS_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < recent->count; i++)
        put_id(&made, &recent->ring[(recent->first + i) % recent->capacity]);
    free(recent->ring);
    free(recent->table);
    recent->ring = made.ring;
    recent->table = made.table;
    recent->capacity = made.capacity;
    recent->table_size = made.table_size;
    recent->first = 0;
    return STATUS_OK;
}

static enum status add_id(struct recent *recent, const struct uuid *id, uint32_t now_s) {
    const struct recent_id entry = {*id, now_s};
    if (find_id(recent, id) != NOT_FOUND)
        return STATUS_OK;
    if (recent->count == recent->capacity && recent->capacity < CLIENT_RECENT_IDS_MAX) {
        size_t capacity = recent->capacity > 0 ? 2 * recent->capacity : CAPACITY_MIN;
        enum status status =
            resize(recent, capacity < CLIENT_RECENT_IDS_MAX ? capacity : CLIENT_RECENT_IDS_MAX);
        if (status != STATUS_OK)
            return status;
    }
    if (recent->count == recent->capacity)
        forget_oldest_id(recent);
    put_id(recent, &entry);
    return STATUS_OK;
}

/* ---- other keys --------------------------------------------------------------------------- */

static void forget(struct recent *recent, struct recent_entry *entry) {
    map_remove(&recent->by_key, (struct slice){entry->key, entry->size});
    list_remove(&entry->node);
    free(entry);
}

static struct recent_entry *oldest(const struct recent *recent) {
    struct list_node *node = list_first(&recent->by_age);
    return node ? container_of(node, struct recent_entry, node) : NULL;
}

static enum status add_key(struct recent *recent, struct slice key, uint64_t version,
                           uint64_t now_ms) {
    struct recent_entry *known = map_find(&recent->by_key, key);
    if (known)
        forget(recent, known);
    else if (recent->by_key.count >= CLIENT_RECENT_MAX)
        forget(recent, oldest(recent));
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

/* ---- */

void recent_init(struct recent *recent) {
    *recent = (struct recent){.secret = siphash_process_key()};
    map_init(&recent->by_key, CLIENT_RECENT_MAX);
    list_init(&recent->by_age);
}

void recent_clear(struct recent *recent) {
    for (struct recent_entry *entry = oldest(recent); entry; entry = oldest(recent))
        forget(recent, entry);
    free_ids(recent);
}

void recent_release(struct recent *recent) {
    recent_clear(recent);
    map_release(&recent->by_key);
}

void recent_expire(struct recent *recent, uint64_t now_ms) {
    uint32_t now_s = seconds(now_ms);
    while (recent->count > 0 && now_s - recent->ring[recent->first].at_s > CLIENT_RECENT_MS / 1000)
        forget_oldest_id(recent);
    if (recent->count == 0)
        free_ids(recent);
    else if (recent->capacity > CAPACITY_MIN && recent->count < recent->capacity / 8)
        (void)resize(recent, recent->capacity / 4); /* without memory the larger ring stays */
    for (struct recent_entry *entry = oldest(recent);
         entry && now_ms - entry->at_ms > CLIENT_RECENT_MS; entry = oldest(recent))
        forget(recent, entry);
}

bool recent_has(struct recent *recent, struct slice key, uint64_t version, uint64_t now_ms) {
    struct uuid id;
    recent_expire(recent, now_ms);
    if (read_id(key, version, &id))
        return find_id(recent, &id) != NOT_FOUND;
    const struct recent_entry *known = map_find(&recent->by_key, key);
    return known && known->version >= version;
}

enum status recent_add(struct recent *recent, struct slice key, uint64_t version, uint64_t now_ms) {
    struct uuid id;
    return read_id(key, version, &id) ? add_id(recent, &id, seconds(now_ms))
                                      : add_key(recent, key, version, now_ms);
}
