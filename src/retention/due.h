/* The time at which each topic may next have expired frames, so that a pass costs as much as there
 * is to expire. A topic without frames is due when a frame published now would expire. Owned by one
 * thread. Memory: eight bytes a topic, indexed by its ref; refs are small and dense. Cannot fail:
 * without memory a topic is always due. It only saves work. The times in the store decide which
 * frames expire. */
#ifndef RETENTION_DUE_H
#define RETENTION_DUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct due {
    uint64_t *at_ms; /* by ref; 0: due now */
    size_t capacity;
};

/* Frees the memory. Every topic is due again. */
void due_clear(struct due *due);
void due_set(struct due *due, uint64_t ref, uint64_t at_ms);
bool due_is(const struct due *due, uint64_t ref, uint64_t now_ms);
/* The first ref from ref to last that is due; last + 1 when none is. */
uint64_t due_next(const struct due *due, uint64_t ref, uint64_t last, uint64_t now_ms);
/* The number of consecutive refs from ref on that are due, at most count_max. */
uint64_t due_run(const struct due *due, uint64_t ref, uint64_t count_max, uint64_t now_ms);

#endif
