/* Compares rows that were read with rows of rows.h, and fills a store with a small log. */
#ifndef ROWS_CHECK_H
#define ROWS_CHECK_H

#include "backend.h"
#include "rows.h"

#define CHECK_EVENTS 40

void assert_text(struct slice actual, struct slice expected);
void assert_owner(const struct owner *actual, const struct owner *expected);
void assert_event(const struct store_event *actual, const struct store_event *expected);
/* Two runs, refs 2 and 3, whose events alternate. */
void check_fill(struct fixture *fixture);

#endif
