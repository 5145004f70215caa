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
#define BAR_TEXT_SIZE    (BAR_COLUMNS + 1)

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

static void show_bar(struct progress *progress, uint64_t done, uint64_t total) {
    char bar[BAR_TEXT_SIZE];
    size_t full = (size_t)(done * BAR_COLUMNS / total);
    memset(bar, '.', BAR_COLUMNS);
    memset(bar, '#', full);
    bar[BAR_COLUMNS] = '\0';
    fprintf(stderr, "\r%s [%s] %3llu %%  %llu of %llu %s\033[K", progress->label, bar,
            (unsigned long long)(done * 100 / total), (unsigned long long)done,
            (unsigned long long)total, progress->unit);
    fflush(stderr);
    progress->is_shown = true;
}

static void show_line(struct progress *progress, uint64_t done, uint64_t total) {
    uint64_t tenths = done * 10 / total;
    if (tenths == progress->shown_tenths)
        return;
    progress->shown_tenths = tenths;
    fprintf(stderr, "%s: %llu %%, %llu of %llu %s\n", progress->label,
            (unsigned long long)(done * 100 / total), (unsigned long long)done,
            (unsigned long long)total, progress->unit);
}

void progress_show(struct progress *progress, uint64_t done, uint64_t total) {
    uint64_t now = now_ms();
    if (total == 0 || now - progress->begun_ms < QUIET_MS)
        return;
    /* A server that appends meanwhile makes more work than was counted. */
    if (done > total)
        total = done;
    if (!progress->is_terminal) {
        show_line(progress, done, total);
    } else if (now - progress->shown_ms >= BETWEEN_MS) {
        progress->shown_ms = now;
        show_bar(progress, done, total);
    }
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
