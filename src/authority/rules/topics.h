/* The rules of application topics, notifications and the audit log: all three take any event.
 * Writer's thread. Texts are the group's. The statuses of the specification.
 * The first event of a topic creates the topic and its stream id, which no other topic has. */
#ifndef AUTHORITY_RULES_TOPICS_H
#define AUTHORITY_RULES_TOPICS_H

#include "authority/ledger.h"

MUST_CHECK enum status topics_append(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status topics_notify(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status topics_audit(struct ledger *ledger, struct draft *draft);

#endif
