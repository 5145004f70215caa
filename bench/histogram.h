/* A histogram of nanoseconds. A bucket is 1/32 of its value wide, so a percentile is exact to about
 * 3 %. May be in shared memory; only one thread adds. Cannot fail. */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS 2048

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram_bucket(uint64_t value) {
    if (value < 32)
        return (unsigned)value;
    unsigned shift = 58 - (unsigned)__builtin_clzll(value);
    return (shift + 1) * 32 + (unsigned)((value >> shift) & 31);
}

static inline void histogram_add(struct histogram *histogram, uint64_t value) {
    histogram->counts[histogram_bucket(value)]++;
}

/* The upper end of a bucket. */
static inline uint64_t histogram_value(unsigned bucket) {
    if (bucket < 32)
        return bucket;
    unsigned shift = bucket / 32 - 1;
    return ((uint64_t)(32 + bucket % 32 + 1) << shift) - 1;
}

#endif
