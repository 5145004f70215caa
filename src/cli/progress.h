/* Progress for people, on standard error: a bar that moves on a terminal, a line at every tenth
 * elsewhere.
 * Thread: main.
 * Memory: nothing is allocated.
 * Errors: none.
 * Invariant: nothing is printed for work that ends at once. progress_end clears the terminal's
 * line. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *label; /* "verify" */
    const char *unit;  /* "events" */
    bool is_terminal;
    bool is_shown;
    uint64_t begun_ms;
    uint64_t shown_ms;
    uint64_t shown_tenths;
};

void progress_begin(struct progress *progress, const char *label, const char *unit);
void progress_show(struct progress *progress, uint64_t done, uint64_t total);
/* The same as a callback, whose user is the progress. */
void progress_report(void *user, uint64_t done, uint64_t total);
/* For work whose total is not known. */
void progress_count(struct progress *progress, uint64_t done);
void progress_end(struct progress *progress);

#endif
