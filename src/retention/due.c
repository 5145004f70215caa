#include "retention/due.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

#define REFS_FIRST 1024
#define REFS_MAX   (RETENTION_DUE_BYTES_MAX / sizeof(uint64_t))

void due_clear(struct due *due) {
    free(due->at_ms);
    *due = (struct due){NULL, 0};
}

static bool make_room(struct due *due, uint64_t ref) {
    size_t capacity = due->capacity > 0 ? due->capacity : REFS_FIRST;
    if (ref >= REFS_MAX)
        return false;
    while (capacity <= ref)
        capacity *= 2;
    uint64_t *at_ms = realloc(due->at_ms, capacity * sizeof(*at_ms));
    if (!at_ms)
        return false;
    memset(at_ms + due->capacity, 0, (capacity - due->capacity) * sizeof(*at_ms));
    due->at_ms = at_ms;
    due->capacity = capacity;
    return true;
}

void due_set(struct due *due, uint64_t ref, uint64_t at_ms) {
    if (ref < due->capacity || make_room(due, ref))
        due->at_ms[ref] = at_ms;
}

bool due_is(const struct due *due, uint64_t ref, uint64_t now_ms) {
    return ref >= due->capacity || due->at_ms[ref] <= now_ms;
}

uint64_t due_next(const struct due *due, uint64_t ref, uint64_t last, uint64_t now_ms) {
    while (ref <= last && !due_is(due, ref, now_ms))
        ref++;
    return ref;
}

uint64_t due_run(const struct due *due, uint64_t ref, uint64_t count_max, uint64_t now_ms) {
    uint64_t count = 0;
    while (count < count_max && due_is(due, ref + count, now_ms))
        count++;
    return count;
}
