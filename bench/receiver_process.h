/* What a process of receivers shares with the benchmark that forked it, and its main loop.
 * The process writes the counters, the benchmark what is expected; each field has one writer.
 * Memory: the shared block is mapped before the fork; the rest is the process's own.
 * What goes wrong is put into problem, and the process ends with 1.
 * Updates are counted only when they follow what the connection had before. */
#ifndef BENCH_RECEIVER_PROCESS_H
#define BENCH_RECEIVER_PROCESS_H

#include <stdatomic.h>

#include "histogram.h"
#include "receivers.h"

struct receiver_shared {
    atomic_uint_fast64_t ready;
    atomic_uint_fast64_t updates;
    atomic_uint_fast64_t messages;
    atomic_uint_fast64_t bytes;
    atomic_uint_fast64_t ended;
    atomic_uint_fast64_t expected;   /* updates of all its connections; 0: none */
    atomic_uint_fast64_t begun_ns;   /* the first subscription was sent */
    atomic_uint_fast64_t reached_ns; /* the last time that what was expected had come */
    atomic_size_t frame_bytes;
    struct histogram latency;
    char problem[512];
};

/* Opens that many connections; a token goes to reached each time what is expected has come. */
_Noreturn void receiver_process(const struct receiver_options *options,
                                struct receiver_shared *shared, unsigned count, int reached);

#endif
