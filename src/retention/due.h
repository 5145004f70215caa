/* When each topic is worth looking at again: so that a cycle costs what has expired, not what
 * there is. A topic whose oldest frame goes at noon is not looked at before noon; one without
 * frames not before a frame born now would go.
 * Owned by one thread. Memory: eight bytes a topic, by its ref; refs are small and dense.
 * Cannot fail: where memory lacks a topic is looked at each time.
 * It only saves work. What goes is decided by the store's own times. */
#ifndef RETENTION_DUE_H
#define RETENTION_DUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct due {
    uint64_t *at_ms; /* by ref; 0: now */
    size_t capacity;
};

void due_release(struct due *due);
/* Every topic is due again. */
void due_forget(struct due *due);
void due_set(struct due *due, uint64_t ref, uint64_t at_ms);
bool due_is(const struct due *due, uint64_t ref, uint64_t now_ms);
/* The first that is due from ref on, up to last; last + 1 when none is. */
uint64_t due_next(const struct due *due, uint64_t ref, uint64_t last, uint64_t now_ms);
/* How many are due in a row from ref on, at most count_max. */
uint64_t due_run(const struct due *due, uint64_t ref, uint64_t count_max, uint64_t now_ms);

#endif
