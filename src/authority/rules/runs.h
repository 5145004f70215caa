/* The rules of runs: what creating one and appending to one asks, and what it changes.
 * Writer's thread. Texts are the group's. The statuses of the specification.
 * run.started holds all there is to know of a new run, so that the log alone rebuilds it. */
#ifndef AUTHORITY_RULES_RUNS_H
#define AUTHORITY_RULES_RUNS_H

#include "authority/ledger.h"

MUST_CHECK enum status runs_create(struct ledger *ledger, struct draft *draft);
MUST_CHECK enum status runs_append(struct ledger *ledger, struct draft *draft);

#endif
