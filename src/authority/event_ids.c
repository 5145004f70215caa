/* The ids that clients supplied last are a ring by age, and an open-addressed table with linear
 * probing over it, twice as large; removing closes the gap. base/map would need more memory and
 * time for each event. A slot has a few bits of the id's hash beside the index, so that a search
 * reads the ring only if the id is likely there. */
#include "authority/event_ids.h"

#include <assert.h>
#include <stdlib.h>

#include "base/siphash.h"

#define SLOT_COUNT (RECENT_IDS_MAX * 2)
#define SLOT_MASK  (SLOT_COUNT - 1)
#define INDEX_MASK SLOT_MASK /* masks index + 1 */

_Static_assert(RECENT_IDS_MAX * sizeof(struct recent_id) + SLOT_COUNT * sizeof(uint32_t) ==
                   RECENT_IDS_BYTES,
               "the limit counts the ids and the slots");

/* ---- minting ---- */

enum status id_minter_init(struct id_minter *minter, const struct id_mark *mark,
                           const struct uuid *last) {
    minter->mark = *mark;
    minter->last = last ? *last : (struct uuid){{0}};
    return uuid7_generator_init(&minter->generator, last);
}

/* The generator's steps are random and mostly larger than the mark. If a step is smaller, the
 * stamped id may not be above the last one, and the next step decides. */
struct uuid id_minter_next(struct id_minter *minter, uint64_t now_ms) {
    struct uuid id;
    do {
        id = uuid7_next(&minter->generator, now_ms);
        id_mark_stamp(&minter->mark, &id);
    } while (uuid_compare(&id, &minter->last) <= 0);
    minter->last = id;
    return id;
}

/* ---- ids that clients supplied ---- */

enum status recent_ids_reset(struct recent_ids *recent, const struct uuid *floor,
                             const struct id_mark *mark) {
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
    recent->mark = *mark;
    recent->marked_max = (struct uuid){{0}};
    return STATUS_OK;
}

void recent_ids_release(struct recent_ids *recent) {
    free(recent->ring);
    free(recent->slots);
    *recent = (struct recent_ids){0};
}

/* Clients supply the ids, so a secret decides the slot: no client can crowd one slot. */
static uint64_t hash_of(const struct recent_ids *recent, const struct uuid *id) {
    struct siphash_key key = {recent->secret, ~recent->secret};
    return siphash(key, (struct slice){(const char *)id->bytes, sizeof(id->bytes)});
}

static uint32_t tag_of(uint64_t hash) {
    return (uint32_t)(hash >> 32) & ~(uint32_t)INDEX_MASK;
}

static const struct recent_id *id_in(const struct recent_ids *recent, uint32_t slot) {
    return &recent->ring[(slot & INDEX_MASK) - 1];
}

/* The slot of the id, or the empty slot where it belongs. */
static size_t slot_of(const struct recent_ids *recent, const struct uuid *id, uint64_t hash) {
    size_t at = hash & SLOT_MASK;
    uint32_t tag = tag_of(hash);
    for (; recent->slots[at] > 0; at = (at + 1) & SLOT_MASK)
        if ((recent->slots[at] & ~(uint32_t)INDEX_MASK) == tag &&
            uuid_compare(&id_in(recent, recent->slots[at])->id, id) == 0)
            break;
    return at;
}

static void slot_clear(struct recent_ids *recent, size_t gap) {
    for (size_t at = (gap + 1) & SLOT_MASK; recent->slots[at] > 0; at = (at + 1) & SLOT_MASK) {
        size_t home = hash_of(recent, &id_in(recent, recent->slots[at])->id) & SLOT_MASK;
        if (((at - home) & SLOT_MASK) >= ((at - gap) & SLOT_MASK)) {
            recent->slots[gap] = recent->slots[at];
            gap = at;
        }
    }
    recent->slots[gap] = 0;
}

void recent_ids_add(struct recent_ids *recent, const struct uuid *id, uint64_t log_id) {
    assert(log_id > 0);
    uint64_t hash = hash_of(recent, id);
    if (recent->slots[slot_of(recent, id, hash)] > 0)
        return;
    struct recent_id *entry = &recent->ring[recent->next];
    if (entry->log_id > 0) {
        slot_clear(recent, slot_of(recent, &entry->id, hash_of(recent, &entry->id)));
        if (uuid_compare(&entry->id, &recent->floor) > 0)
            recent->floor = entry->id;
    }
    size_t slot = slot_of(recent, id, hash);
    *entry = (struct recent_id){*id, log_id};
    recent->slots[slot] = (uint32_t)(recent->next + 1) | tag_of(hash);
    recent->next = (recent->next + 1) % RECENT_IDS_MAX;
    if (id_mark_may_be_minted(&recent->mark, id) && uuid_compare(id, &recent->marked_max) > 0)
        recent->marked_max = *id;
}

enum recent_answer recent_ids_find(const struct recent_ids *recent, const struct uuid *id,
                                   uint64_t *log_id) {
    uint32_t slot = recent->slots[slot_of(recent, id, hash_of(recent, id))];
    if (slot > 0) {
        *log_id = id_in(recent, slot)->log_id;
        return RECENT_KNOWN;
    }
    return uuid_compare(id, &recent->floor) > 0 && !id_mark_may_be_minted(&recent->mark, id)
               ? RECENT_NEW
               : RECENT_UNKNOWN;
}

bool recent_ids_has_minted(const struct recent_ids *recent, const struct uuid *id) {
    uint64_t log_id;
    return uuid_compare(id, &recent->marked_max) <= 0 &&
           recent_ids_find(recent, id, &log_id) == RECENT_KNOWN;
}
