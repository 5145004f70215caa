/* Producers: principals whose token has the scope runtime.append. They append without the operator
 * key, for their own owner.
 * producer_claim_owner belongs to the thread that reads a request, producer_check to the writer's.
 * Memory: texts go to the group's arena.
 * Errors: STATUS_OWNER_MISMATCH, STATUS_FORBIDDEN_TOPIC, STATUS_OUT_OF_MEMORY.
 * The writer decides by the entity as it is at that moment, so that no change of it is missed. */
#ifndef AUTHORITY_PRODUCER_H
#define AUTHORITY_PRODUCER_H

#include "authority/append.h"

/* After the owner of a request was read. A producer may name no other owner than its own. Runs,
 * workers and notifications that it creates get its owner. Does nothing for other requests. */
MUST_CHECK enum status producer_claim_owner(struct append_request *request, struct arena *arena);
/* Whether the producer of the request, if it has one, may append to the entity. entity is NULL
 * where it does not exist. A run or worker that does not exist is left to the rules. */
MUST_CHECK enum status producer_check(const struct append_request *request,
                                      const struct store_entity *entity, struct arena *arena);

#endif
