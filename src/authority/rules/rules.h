/* The rules of appends: which producer may append, what a request of each kind does to the ledger,
 * and the conditions that all kinds share.
 * Thread: the writer's.
 * Memory: answers, and events that answer a repeated request, live in the arena of the request's
 * group.
 * Errors: the status of the request is the answer. A request that is refused does not fail the
 * others. A run or worker of another owner is refused as if it did not exist.
 * Invariant: groups are applied in the order in which ledger_gather got them, each exactly once,
 * without a call to the store. The events of a run or worker hold all of its attributes, so that
 * the log alone rebuilds it. */
#ifndef AUTHORITY_RULES_RULES_H
#define AUTHORITY_RULES_RULES_H

#include "authority/ledger.h"

/* Sets the status of each request that was not refused before and, if that is STATUS_OK, its
 * answer. */
void rules_apply_group(struct ledger *ledger, struct append_group *group);

/* ---- the rule of each kind ---- */

MUST_CHECK enum status rules_create_run(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status rules_append_to_run(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status rules_create_worker(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status rules_heartbeat_worker(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status rules_set_worker_status(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status rules_append_to_worker(struct ledger *ledger, struct draft *draft);
/* The first event of a topic creates the topic and its stream id, which no other topic has. */
MUST_CHECK enum status rules_append_to_topic(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status rules_notify(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status rules_audit(struct ledger *ledger, struct draft *draft);

/* ---- conditions ---- */

/* STATUS_OWNER_MISMATCH if the request names an owner that is not the entity's. */
MUST_CHECK enum status rules_check_owner(const struct draft *draft);
/* STATUS_INVALID_REQUEST or STATUS_INVALID_TOPIC, with a message, if the draft's entity is new and
 * has a name or an owner that no client may create. */
MUST_CHECK enum status rules_check_names(struct draft *draft);
/* Key, event id, expected sequence, in this order. May answer the request. Events of the batch
 * under way count before those that the prefetch found. */
MUST_CHECK enum status rules_check_conditions(struct ledger *ledger, struct draft *draft);
/* Whether a creation asks for what an event holds. The draft's entity is the event's. The request's
 * entity id is its id, even if the request gave none. */
typedef enum status creation_check_cb(struct ledger *ledger, struct draft *draft,
                                      const struct store_event *event, bool *is_same);
/* Key and event id of a creation, in this order. May answer the request with the entity that the
 * first request created. Otherwise the draft is unchanged. */
MUST_CHECK enum status rules_check_repeat(struct ledger *ledger, struct draft *draft,
                                          creation_check_cb *check);
/* Answers with the first event of the entity, and the entity, instead of appending.
 * must_match: STATUS_ALREADY_EXISTS unless that event has the draft's payload. */
MUST_CHECK enum status rules_answer_first(struct ledger *ledger, struct draft *draft,
                                          bool must_match);

#endif
