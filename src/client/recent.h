/* Recognises events by id and documents by version for five minutes, in bounded memory.
 * Belongs to the thread of the client's loop.
 * Copies the keys; at CLIENT_RECENT_MAX the oldest entry goes.
 * STATUS_OUT_OF_MEMORY: the frame is not remembered.
 * A document repeats if its version is not newer; an event if its id is known. */
#ifndef CLIENT_RECENT_H
#define CLIENT_RECENT_H

#include "base/list.h"
#include "base/map.h"

struct recent {
    struct map by_key;
    struct list by_age;
};

void recent_init(struct recent *recent);
void recent_clear(struct recent *recent);
void recent_release(struct recent *recent);
/* Whether the key was seen with this version or a newer one. */
bool recent_has(struct recent *recent, struct slice key, uint64_t version, uint64_t now_ms);
MUST_CHECK enum status recent_add(struct recent *recent, struct slice key, uint64_t version,
                                  uint64_t now_ms);

#endif
