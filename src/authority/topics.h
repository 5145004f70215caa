/* The rules of application topics, notifications and the audit log: all three take any event.
 * Writer's thread. Texts are the group's. The statuses of the specification.
 * A topic comes to be with its first event, together with its stream id, which no other topic has.
 */
#ifndef AUTHORITY_TOPICS_H
#define AUTHORITY_TOPICS_H

#include "authority/ledger.h"

#define TOPIC_NOTIFICATIONS "runtime.notifications"
#define TOPIC_AUDIT         "runtime.audit"
#define AUDIT_ENTITY_ID     "audit"

MUST_CHECK enum status topics_append(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status topics_notify(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status topics_audit(struct ledger *ledger, struct draft *draft);

/* The topic that carries an entity's events, and its stream id, in the arena. */
MUST_CHECK enum status topics_name(struct arena *arena, enum entity_kind kind, struct slice id,
                                   struct slice *topic);
MUST_CHECK enum status topics_stream(struct arena *arena, struct slice topic,
                                     struct slice *stream_id);

#endif
