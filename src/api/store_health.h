/* Store health: whether the store accepts appends, by the last appends and the location of its
 * files. Any thread. Memory: two atomics. Errors: none. A failure is forgotten after a while, so
 * that a server without appends recovers. */
#ifndef API_STORE_HEALTH_H
#define API_STORE_HEALTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "spec/codes.h"

struct writer;

struct store_health {
    atomic_uint_fast64_t failed_at_ms; /* by the monotonic clock; 0: the last append worked */
    atomic_bool is_moved;              /* the files of the store are not at their path */
};

/* An append ended with the status. Reads the clock only for a failure. */
void store_health_note(struct store_health *health, enum status status);
/* The same with the caller's time. */
void store_health_note_at(struct store_health *health, enum status status, uint64_t mono_ms);
bool store_health_is_good(const struct store_health *health, uint64_t mono_ms);
/* Why the store is not healthy. */
enum reason store_health_reason(const struct store_health *health, const struct writer *writer);

#endif
