#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define BAR_COLUMNS      30
#define QUIET_MS         300
#define BETWEEN_MS       100
#define BETWEEN_LINES_MS 1000

static uint64_t now_ms(void) {
    struct clock clock;
    clock_init(&clock);
    return clock_mono_ms(&clock);
}

void progress_begin(struct progress *progress, const char *label, const char *unit) {
    *progress = (struct progress){.label = label, .unit = unit, .begun_ms = now_ms()};
    const char *terminal = getenv("TERM");
    progress->is_terminal = isatty(STDERR_FILENO) == 1 && terminal && strcmp(terminal, "dumb") != 0;
}

void progress_show(struct progress *progress, uint64_t done, uint64_t total) {
    uint64_t now = now_ms();
    if (total == 0 || now - progress->begun_ms < QUIET_MS)
        return;
    /* A server that appends meanwhile makes more work than was counted. */
    if (done > total)
        total = done;
    uint64_t tenths = done * 10 / total;
    unsigned long long percent = done * 100 / total;
    if (!progress->is_terminal && tenths != progress->shown_tenths) {
        progress->shown_tenths = tenths;
        fprintf(stderr, "%s: %llu %%, %llu of %llu %s\n", progress->label, percent,
                (unsigned long long)done, (unsigned long long)total, progress->unit);
    } else if (progress->is_terminal && now - progress->shown_ms >= BETWEEN_MS) {
        char bar[BAR_COLUMNS + 1] = "";
        memset(bar, '.', BAR_COLUMNS);
        memset(bar, '#', (size_t)(done * BAR_COLUMNS / total));
        progress->shown_ms = now;
        progress->is_shown = true;
        fprintf(stderr, "\r%s [%s] %3llu %%  %llu of %llu %s\033[K", progress->label, bar, percent,
                (unsigned long long)done, (unsigned long long)total, progress->unit);
        fflush(stderr);
    }
}

void progress_report(void *user, uint64_t done, uint64_t total) {
    progress_show(user, done, total);
}

void progress_count(struct progress *progress, uint64_t done) {
    uint64_t now = now_ms();
    uint64_t between_ms = progress->is_terminal ? BETWEEN_MS : BETWEEN_LINES_MS;
    if (now - progress->begun_ms < QUIET_MS || now - progress->shown_ms < between_ms)
        return;
    progress->shown_ms = now;
    progress->is_shown = progress->is_terminal;
    fprintf(stderr, progress->is_terminal ? "\r%s: %llu %s\033[K" : "%s: %llu %s\n",
            progress->label, (unsigned long long)done, progress->unit);
    fflush(stderr);
}

void progress_end(struct progress *progress) {
    if (progress->is_shown)
        fputs("\r\033[K", stderr);
    progress->is_shown = false;
}
