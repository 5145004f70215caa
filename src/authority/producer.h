/* Producers: principals whose token has the scope runtime.append, or runtime.cancel, with which
 * they append run.cancel_requested only. They append without the operator key, for their own owner.
 * Thread: the reader's of a request for producer_claim_owner, the writer's for producer_check.
 * Memory: texts are copied into the group's arena.
 * Errors: STATUS_OWNER_MISMATCH, STATUS_FORBIDDEN_TOPIC, STATUS_MISSING_SCOPE,
 * STATUS_OUT_OF_MEMORY. A run or worker of another owner is refused as if it did not exist.
 * Invariant: the writer decides by the entity as it is at that moment, so it misses no change. */
#ifndef AUTHORITY_PRODUCER_H
#define AUTHORITY_PRODUCER_H

#include "authority/append.h"

/* After the owner of a request was read. A producer may name no other owner than its own. Runs,
 * workers and notifications that it creates get its owner. Does nothing for other requests. */
MUST_CHECK enum status producer_claim_owner(struct append_request *request, struct arena *arena);
/* Whether the producer of the request, if it has one, may append to the entity. entity is NULL if
 * it does not exist. */
MUST_CHECK enum status producer_check(struct append_request *request,
                                      const struct store_entity *entity, struct arena *arena);

#endif
