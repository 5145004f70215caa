/* The check of the journals as a verb prints it.
 * Main thread.
 * Allocates nothing.
 * The errors of journal_check. Damage is printed, not an error.
 * Text: one line a damage. JSON: the members "journal_rows" and "journal" of an open object. */
#ifndef CLI_JOURNAL_REPORT_H
#define CLI_JOURNAL_REPORT_H

#include "projector/journal_check.h"

#define JOURNAL_ADVICE                                                                             \
    "no event is lost: 'khala reproject --all --journal' makes the journals again from the log"

struct journal_report {
    bool json;
    struct journal_check_result result;
};

MUST_CHECK enum status journal_report_run(struct journal_report *report,
                                          struct store_session *session);

#endif
