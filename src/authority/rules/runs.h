/* The rules of runs: creating a run and appending to it.
 * Writer's thread. Texts are the group's. The statuses of the specification.
 * run.started holds every attribute of a new run, so that the log alone rebuilds it. */
#ifndef AUTHORITY_RULES_RUNS_H
#define AUTHORITY_RULES_RUNS_H

#include "authority/ledger.h"

MUST_CHECK enum status runs_create(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status runs_append(struct ledger *ledger, struct draft *draft);

#endif
