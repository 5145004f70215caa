/* A ring by age, and an open-addressed table with linear probing over it, twice as large; removing
 * closes the gap. base/map would need more memory and time for each event. */
#include "authority/recent_ids.h"

#include <assert.h>
#include <stdlib.h>

#include "base/siphash.h"

#define SLOT_COUNT (RECENT_IDS_MAX * 2)
#define SLOT_MASK  (SLOT_COUNT - 1)

_Static_assert(RECENT_IDS_MAX * sizeof(struct recent_id) + SLOT_COUNT * sizeof(uint32_t) ==
                   RECENT_IDS_BYTES,
               "the limit counts the ids and the slots");

enum status recent_ids_reset(struct recent_ids *recent, const struct uuid *floor) {
    if (!recent->ring) {
        recent->ring = malloc(RECENT_IDS_MAX * sizeof(*recent->ring));
        recent->slots = malloc(SLOT_COUNT * sizeof(*recent->slots));
        recent->secret = siphash(siphash_process_key(), SLICE("recent ids"));
    }
    if (!recent->ring || !recent->slots) {
        recent_ids_release(recent);
        return STATUS_OUT_OF_MEMORY;
    }
    memset(recent->ring, 0, RECENT_IDS_MAX * sizeof(*recent->ring));
    memset(recent->slots, 0, SLOT_COUNT * sizeof(*recent->slots));
    recent->next = 0;
    recent->floor = *floor;
    return STATUS_OK;
}

void recent_ids_release(struct recent_ids *recent) {
    free(recent->ring);
    free(recent->slots);
    *recent = (struct recent_ids){0};
}

/* Clients may supply ids, so a secret decides the slot: no client can crowd one slot. */
static size_t home_of(const struct recent_ids *recent, const struct uuid *id) {
    struct siphash_key key = {recent->secret, ~recent->secret};
    return siphash(key, (struct slice){(const char *)id->bytes, sizeof(id->bytes)}) & SLOT_MASK;
}

static size_t slot_of(const struct recent_ids *recent, const struct uuid *id) {
    size_t at = home_of(recent, id);
    while (recent->slots[at] > 0 && uuid_compare(&recent->ring[recent->slots[at] - 1].id, id) != 0)
        at = (at + 1) & SLOT_MASK;
    return at;
}

static void slot_clear(struct recent_ids *recent, size_t gap) {
    for (size_t at = (gap + 1) & SLOT_MASK; recent->slots[at] > 0; at = (at + 1) & SLOT_MASK) {
        size_t home = home_of(recent, &recent->ring[recent->slots[at] - 1].id);
        if (((at - home) & SLOT_MASK) >= ((at - gap) & SLOT_MASK)) {
            recent->slots[gap] = recent->slots[at];
            gap = at;
        }
    }
    recent->slots[gap] = 0;
}

void recent_ids_add(struct recent_ids *recent, const struct uuid *id, uint64_t log_id) {
    assert(log_id > 0);
    if (recent->slots[slot_of(recent, id)] > 0)
        return;
    struct recent_id *entry = &recent->ring[recent->next];
    if (entry->log_id > 0) {
        slot_clear(recent, slot_of(recent, &entry->id));
        if (uuid_compare(&entry->id, &recent->floor) > 0)
            recent->floor = entry->id;
    }
    size_t slot = slot_of(recent, id);
    *entry = (struct recent_id){*id, log_id};
    recent->slots[slot] = (uint32_t)(recent->next + 1);
    recent->next = (recent->next + 1) % RECENT_IDS_MAX;
}

enum recent_answer recent_ids_find(const struct recent_ids *recent, const struct uuid *id,
                                   uint64_t *log_id) {
    size_t slot = slot_of(recent, id);
    if (recent->slots[slot] > 0) {
        *log_id = recent->ring[recent->slots[slot] - 1].log_id;
        return RECENT_KNOWN;
    }
    return uuid_compare(id, &recent->floor) > 0 ? RECENT_NEW : RECENT_UNKNOWN;
}
