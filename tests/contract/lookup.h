/* Single lookups through store_prefetch, for tests that ask one thing at a time. */
#ifndef LOOKUP_H
#define LOOKUP_H

#include "store/store.h"

/* The event that has an id, or an idempotency key of an entity. */
enum status lookup_event_id(struct store_session *writer, const struct uuid *event_id,
                            uint64_t *log_id);
enum status lookup_key(struct store_session *writer, uint64_t entity_ref, struct slice key,
                       uint64_t *log_id);

#endif
