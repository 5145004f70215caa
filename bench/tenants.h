/* Tenants of one shared topic: the cost of an event of one tenant while many others are subscribed,
 * against the cost of the same event without them, in turns in one run.
 * One thread. Two servers run at the same time, each with its own clients.
 * A frame that is missing or refused ends the benchmark.
 * An idle tenant gets no frame: the ratio shows what its subscription costs others. */
#ifndef BENCH_TENANTS_H
#define BENCH_TENANTS_H

/* Prints the CPU time of an event on both sides, the median of their ratios, and the memory of an
 * idle subscription. */
void tenants_measure(unsigned tenants);
/* Prints the CPU time of a replay for one tenant: of the first one, which reads the frames of all,
 * and of others after it. */
void tenants_replay(void);

#endif
