/* Which of some names somebody may have meant who wrote another.
 * Any thread. Allocates nothing; looks at NEAREST_BYTES_MAX bytes of a name at most.
 * Cannot fail: where nothing is near enough, nothing is named.
 * Names of the same words in another order are near; only the very name is no distance away. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

#define NEAREST_BYTES_MAX 96

/* The nearest so far; begins zeroed, with the name that was written. */
struct nearest {
    const char *written;
    const char *name; /* NULL: none is near */
    size_t distance;
};

/* Takes another name into account, which must outlive the answer. */
void nearest_try(struct nearest *nearest, const char *name);

#endif
