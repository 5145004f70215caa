/* Applies a request to the ledger by the rule of its kind.
 * Writer's thread. The answer lives in the arena of the request's group.
 * The status of the request is the answer: a request that is refused does not fail the others.
 * Requests are applied or skipped in the order in which ledger_gather got them, each exactly once.
 * Makes no call to the store. */
#ifndef AUTHORITY_RULES_APPLY_H
#define AUTHORITY_RULES_APPLY_H

#include "authority/ledger.h"

/* Sets the request's status and, where that is STATUS_OK, its answer. */
void ledger_apply(struct ledger *ledger, struct append_request *request, struct arena *arena);

/* Leaves the request as it is. */
void ledger_skip(struct ledger *ledger, const struct append_request *request);

/* All requests of a group that were not refused before. */
void ledger_gather_group(struct ledger *ledger, struct append_group *group);
void ledger_apply_group(struct ledger *ledger, struct append_group *group);
/* Refuses all requests that were not refused before; the second, all of these but imports. */
void append_group_refuse(struct append_group *group, enum status status);
void append_group_refuse_new(struct append_group *group, enum status status);

#endif
