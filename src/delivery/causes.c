#include "delivery/causes.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/list.h"
#include "base/siphash.h"
#include "base/utf8.h"

/* The texts of a cause, truncated to their maximum sizes. */
struct entry {
    struct cause cause;
    char connection[CAUSE_CONNECTION_BYTES_MAX];
    char principal[CAUSE_PRINCIPAL_BYTES_MAX];
    char peer[CAUSE_PEER_BYTES_MAX];
    char topic[STREAM_ID_BYTES_MAX];
    char origin[CAUSE_ORIGIN_BYTES_MAX];
    char build_id[CAUSE_VERSION_BYTES_MAX];
    char protocol_version[CAUSE_VERSION_BYTES_MAX];
    char schema_version[CAUSE_VERSION_BYTES_MAX];
};

/* One for each entry. Kept apart from the entries, because an eviction reads all slots. */
struct slot {
    struct list_node node;
    uint64_t principal_hash; /* or the hash of the address */
    uint64_t filled_at_ms;
    bool is_filled;
    bool has_principal;
};

struct causes {
    pthread_mutex_t lock;
    struct siphash_key secret;
    size_t capacity;
    struct slot *slots;
    struct list order; /* of all slots: the newest first, empty slots last */
    struct entry entries[];
};

enum status causes_open(struct causes **causes, size_t capacity) {
    assert(capacity > 0);
    struct causes *made = calloc(1, sizeof(*made) + capacity * sizeof(made->entries[0]));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->slots = calloc(capacity, sizeof(made->slots[0]));
    if (!made->slots) {
        free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    made->capacity = capacity;
    made->secret = siphash_process_key();
    list_init(&made->order);
    for (size_t i = 0; i < capacity; i++)
        list_push_front(&made->order, &made->slots[i].node);
    pthread_mutex_init(&made->lock, NULL);
    *causes = made;
    return STATUS_OK;
}

void causes_close(struct causes *causes) {
    if (!causes)
        return;
    pthread_mutex_destroy(&causes->lock);
    free(causes->slots);
    free(causes);
}

/* Replaces bytes that are not UTF-8, because truncating may split a character. */
static struct slice keep(struct slice text, char *room, size_t room_size) {
    if (!text.data)
        return text;
    size_t size = text.size < room_size ? text.size : room_size;
    memcpy(room, text.data, size);
    if (!utf8_valid((struct slice){room, size}))
        for (size_t i = 0; i < size; i++)
            if ((unsigned char)room[i] >= 0x80)
                room[i] = '?';
    return (struct slice){room, size};
}

static void entry_fill(struct entry *entry, const struct cause *cause) {
    entry->cause = *cause;
    entry->cause.connection = keep(cause->connection, entry->connection, sizeof(entry->connection));
    entry->cause.principal = keep(cause->principal, entry->principal, sizeof(entry->principal));
    entry->cause.peer = keep(cause->peer, entry->peer, sizeof(entry->peer));
    entry->cause.topic = keep(cause->topic, entry->topic, sizeof(entry->topic));
    entry->cause.origin = keep(cause->origin, entry->origin, sizeof(entry->origin));
    entry->cause.client = (struct cause_client){
        keep(cause->client.build_id, entry->build_id, sizeof(entry->build_id)),
        keep(cause->client.protocol_version, entry->protocol_version,
             sizeof(entry->protocol_version)),
        keep(cause->client.schema_version, entry->schema_version, sizeof(entry->schema_version))};
}

/* ---- eviction ---- */

/* The number of some slots, and the oldest of them. */
struct tally {
    size_t count;
    struct slot *oldest;
};

/* Called for the newest slot first. */
static void tally_add(struct tally *tally, struct slot *slot) {
    tally->count++;
    tally->oldest = slot;
}

static struct slot *slot_for(const struct causes *causes, uint64_t principal_hash,
                             bool has_principal) {
    struct tally same = {0}, unnamed = {0};
    for (struct list_node *node = list_first(&causes->order); node;
         node = list_next(&causes->order, node)) {
        struct slot *slot = container_of(node, struct slot, node);
        if (!slot->is_filled)
            break;
        if (slot->principal_hash == principal_hash)
            tally_add(&same, slot);
        if (!slot->has_principal)
            tally_add(&unnamed, slot);
    }
    /* One principal gets a sixteenth of the slots, all clients without a principal get half. */
    if (same.count > 0 && same.count >= causes->capacity / 16)
        return same.oldest;
    if (!has_principal && unnamed.count > 0 && unnamed.count >= causes->capacity / 2)
        return unnamed.oldest;
    return container_of(list_last(&causes->order), struct slot, node);
}

bool causes_add(struct causes *causes, const struct cause *cause, uint64_t mono_ms) {
    bool has_principal = cause->principal.data != NULL;
    uint64_t hash = siphash(causes->secret, has_principal ? cause->principal : cause->peer);
    assert(cause->status != STATUS_OK);
    pthread_mutex_lock(&causes->lock);
    struct slot *slot = slot_for(causes, hash, has_principal);
    bool is_paced = !slot->is_filled || mono_ms >= slot->filled_at_ms + CAUSE_PACE_MS;
    list_remove(&slot->node);
    *slot = (struct slot){.principal_hash = hash,
                          .filled_at_ms = mono_ms,
                          .is_filled = true,
                          .has_principal = has_principal};
    list_push_front(&causes->order, &slot->node);
    entry_fill(&causes->entries[slot - causes->slots], cause);
    pthread_mutex_unlock(&causes->lock);
    return is_paced;
}

/* ---- walking ---- */

static bool matches(struct slice wanted, struct slice kept) {
    return !wanted.data || (kept.data && slice_equal(wanted, kept));
}

/* A stream id matches its topic. */
static bool matches_topic(struct slice wanted, struct slice kept) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream = buffer_over(text, sizeof(text));
    if (matches(wanted, kept))
        return true;
    return kept.data && address_kind(wanted) != ADDRESS_TOPIC &&
           address_stream(kept, &stream) == STATUS_OK && slice_equal(wanted, buffer_slice(&stream));
}

/* "user:NAME", or NAME alone, which is a user's, a guest's or an organisation's. */
static bool matches_principal(struct slice wanted, struct slice kept) {
    static const struct slice kinds[] = {SLICE("user:"), SLICE("guest:"), SLICE("org:")};
    if (matches(wanted, kept))
        return true;
    for (size_t i = 0; kept.data && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (slice_starts(kept, kinds[i]) && slice_equal(wanted, slice_from(kept, kinds[i].size)))
            return true;
    return false;
}

static bool is_wanted(const struct cause *wanted, const struct cause *cause) {
    return matches(wanted->connection, cause->connection) &&
           matches_principal(wanted->principal, cause->principal) &&
           matches_topic(wanted->topic, cause->topic);
}

void causes_walk(struct causes *causes, const struct cause_filter *filter, void *user,
                 cause_cb *callback) {
    /* Truncated as the kept texts are, so that a long text still matches. */
    struct entry wanted;
    entry_fill(&wanted, &(struct cause){.connection = filter->connection,
                                        .principal = filter->principal,
                                        .topic = filter->topic});
    bool wants_more = true;
    pthread_mutex_lock(&causes->lock);
    for (struct list_node *node = list_first(&causes->order); wants_more && node;
         node = list_next(&causes->order, node)) {
        const struct slot *slot = container_of(node, struct slot, node);
        if (!slot->is_filled)
            break;
        const struct cause *cause = &causes->entries[slot - causes->slots].cause;
        if ((!filter->disconnected_only || cause->kind == CAUSE_DISCONNECTED) &&
            is_wanted(&wanted.cause, cause))
            wants_more = callback(user, cause);
    }
    pthread_mutex_unlock(&causes->lock);
}
