/* The figures of bench peers as lines and as a page: medians and ranges, versions, the machine, and
 * the differences between the peers that make a comparison unfair.
 * One thread. The caller owns the figures and the file.
 * A file that cannot be written ends the benchmark.
 * A void figure is shown as void with its reason, never as a number. */
#ifndef BENCH_PEERS_REPORT_H
#define BENCH_PEERS_REPORT_H

#include <stdio.h>

#include "work.h"

#define RUNS_MAX 9

/* The samples of one work on one peer. */
struct cell {
    const struct work *work;
    const struct peer *peer;
    bool is_missing; /* the peer is not installed */
    unsigned runs;
    struct sample samples[RUNS_MAX][2];
    char problem[256]; /* why it is void; empty: it is not */
};

struct report {
    const struct cell *cells;
    size_t cell_count;
    const struct peer *peers;
    size_t peer_count;
};

/* Writes one line for each title of the work. */
void report_lines(FILE *out, const struct cell *cell);
/* Writes the page. */
void report_page(FILE *out, const struct report *report);

#endif
