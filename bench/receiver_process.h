/* A client process with many receivers: its main loop, and the memory it shares with the benchmark.
 * The process writes the counters, the benchmark writes expected; each field has one writer.
 * The benchmark maps the shared block before the fork; all other memory belongs to the process.
 * On an error the process writes problem and exits with 1.
 * An update counts only if it continues the connection's range without a gap. */
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
    atomic_uint_fast64_t expected;   /* updates of all connections; 0: none */
    atomic_uint_fast64_t begun_ns;   /* when the first subscription was sent */
    atomic_uint_fast64_t reached_ns; /* when the last expected update arrived */
    atomic_size_t frame_bytes;
    struct histogram latency;
    char problem[512];
};

/* Opens count connections. Writes a byte to reached each time all expected updates arrived. */
_Noreturn void receiver_process(const struct receiver_options *options,
                                struct receiver_shared *shared, unsigned count, int reached);

#endif
