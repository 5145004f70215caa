/* Store health: whether the store accepts appends, by the last appends and the location of its
 * files. health.c also has the handlers of the health checks.
 * Thread: any.
 * Invariant: a failure is forgotten after a while, so that a server without appends recovers. */
#ifndef API_HEALTH_H
#define API_HEALTH_H

#include "api/api.h"

/* An append ended with the status. Reads the clock only for a failure. */
void store_health_note(struct store_health *health, enum status status);
/* The same with the caller's time. */
void store_health_note_at(struct store_health *health, enum status status, uint64_t mono_ms);
bool store_health_is_good(const struct store_health *health, uint64_t mono_ms);
/* Why the store is not healthy. */
enum reason store_health_reason(const struct store_health *health, const struct writer *writer);

#endif
