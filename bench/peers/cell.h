/* One measurement in a process of its own, so that a failure makes only its figure void.
 * The caller's thread waits. The process owns the server and the clients that it starts.
 * The reason of a failure is in the cell; a process that takes too long is killed.
 * A cell has as many samples as runs that succeeded. */
#ifndef BENCH_PEERS_CELL_H
#define BENCH_PEERS_CELL_H

#include "report.h"

/* Makes a folder for everything that measurements write, and names it in TMPDIR. The caller removes
 * it with bench_folder_remove. */
void cell_scratch(char path[64]);
/* Runs the work on the cell's peer. Adds a sample, or sets the problem. */
void cell_run(struct cell *cell, const struct work *work);

#endif
