/* Suggests the known name closest to a misspelled one.
 * Any thread. Allocates nothing; compares at most NEAREST_BYTES_MAX bytes of a name.
 * Cannot fail: without a close name it suggests none.
 * Names of the same words in another order are close; only an equal name has distance 0. */
#ifndef SERVER_NEAREST_H
#define SERVER_NEAREST_H

#include <stddef.h>

#define NEAREST_BYTES_MAX 96

/* The nearest so far; starts zeroed, with the name that was written. */
struct nearest {
    const char *written;
    const char *name; /* NULL: no name is close */
    size_t distance;
};

/* Considers another name, which must outlive the result. */
void nearest_try(struct nearest *nearest, const char *name);

#endif
