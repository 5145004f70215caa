/* The rules of workers: registering, heartbeats, changes of status, events.
 * Writer's thread. Texts are the group's. The statuses of the specification.
 * worker.registered, worker.heartbeat and worker.status_changed hold every change of a worker, so
 * that the log alone rebuilds it. */
#ifndef AUTHORITY_RULES_WORKERS_H
#define AUTHORITY_RULES_WORKERS_H

#include "authority/ledger.h"

MUST_CHECK enum status workers_create(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status workers_heartbeat(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status workers_set_status(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status workers_append(struct ledger *ledger, struct draft *draft);

#endif
