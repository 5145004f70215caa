/* The conditions of an append: owner, idempotency key, event id, expected sequence.
 * Writer's thread. An event that answers a repeated request lives in the arena of its group.
 * The statuses of the specification; the store's for a lookup that failed.
 * Events of the batch under way count before those that the prefetch found.
 * A repeated request is answered with the event that the first one appended. */
#ifndef AUTHORITY_RULES_CONDITIONS_H
#define AUTHORITY_RULES_CONDITIONS_H

#include "authority/ledger.h"

/* STATUS_OWNER_MISMATCH when the request names an owner that is not the entity's. */
MUST_CHECK enum status ledger_check_owner(const struct draft *draft);
/* STATUS_INVALID_REQUEST, STATUS_INVALID_TOPIC, with a message, when the draft's entity is new and
 * has a name or an owner that no client may create. */
MUST_CHECK enum status ledger_check_names(struct draft *draft);
/* Key, event id, expected sequence, in this order. May answer the request. */
MUST_CHECK enum status ledger_check_conditions(struct ledger *ledger, struct draft *draft);
/* Whether a creation asks for what an event holds. The draft's entity is the event's; the request's
 * entity id is its id, also where the request gave none. */
typedef enum status creation_check_cb(struct ledger *ledger, struct draft *draft,
                                      const struct store_event *event, bool *is_same);
/* Key and event id of a creation, in this order. May answer the request with the entity that the
 * first request created. Otherwise the draft is unchanged. */
MUST_CHECK enum status ledger_check_repeat(struct ledger *ledger, struct draft *draft,
                                           creation_check_cb *check);
/* Answers with the first event of the entity, and the entity, instead of appending.
 * must_match: STATUS_ALREADY_EXISTS unless that event has the draft's payload. */
MUST_CHECK enum status ledger_answer_first(struct ledger *ledger, struct draft *draft,
                                           bool must_match);

#endif
