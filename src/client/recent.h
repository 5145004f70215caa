/* Recognises events by id and documents by version for five minutes, in bounded memory. A document
 * repeats if its version is not newer; an event if its id is known.
 * Thread: that of the client's loop.
 * Memory: 16 bytes of an event's id, for up to CLIENT_RECENT_IDS_MAX of them in 8.5 MB (for a
 * moment 15 MB, while it grows); texts of other keys, up to CLIENT_RECENT_MAX. It grows and shrinks
 * with what it holds. At a maximum the oldest entry goes.
 * Errors: STATUS_OUT_OF_MEMORY: the frame is not remembered.
 * Invariant: ids are compared, not only hashed: a frame that was never seen is never recognised. */
#ifndef CLIENT_RECENT_H
#define CLIENT_RECENT_H

#include "base/list.h"
#include "base/map.h"
#include "base/uuid7.h"

struct recent_id {
    struct uuid id;
    uint32_t at_s;
};

struct recent {
    struct map by_key; /* what is not an event's id */
    struct list by_age;
    /* A ring of ids by age, and a table of places in it by hash: 0 is free, else the place + 1. */
    struct siphash_key secret;
    struct recent_id *ring;
    uint32_t *table;
    size_t capacity;   /* places in the ring; 0: no memory is held */
    size_t table_size; /* a power of two */
    size_t first;
    size_t count;
};

void recent_init(struct recent *recent);
void recent_clear(struct recent *recent);
void recent_release(struct recent *recent);
/* Forgets what is too old, and returns its memory. Call now and then, also without frames. */
void recent_expire(struct recent *recent, uint64_t now_ms);
/* Whether the key, a JSON string, was seen with this version or a newer one. Events have the
 * version 0. */
bool recent_has(struct recent *recent, struct slice key, uint64_t version, uint64_t now_ms);
MUST_CHECK enum status recent_add(struct recent *recent, struct slice key, uint64_t version,
                                  uint64_t now_ms);

#endif
