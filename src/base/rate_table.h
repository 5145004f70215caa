/* Rates of many keys: each key has a token bucket, which refills with time.
 * Thread: any: a lock guards the table.
 * Memory: an entry for each key whose bucket is not full. At the maximum, the entry that was
 * touched longest ago goes, and its key begins again.
 * Errors: without memory for an entry every take succeeds.
 * Invariant: a key takes at most burst at once, and one more in each interval. */
#ifndef BASE_RATE_TABLE_H
#define BASE_RATE_TABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"

struct rate_options {
    uint64_t interval_ms; /* in which a bucket gets one */
    uint64_t burst;       /* what a full bucket holds */
    size_t count_max;     /* entries */
};

struct rate_table {
    pthread_mutex_t lock;
    struct rate_options options;
    struct map entries;
    struct list by_age; /* touched longest ago first */
    bool is_open;
};

void rate_table_init(struct rate_table *table, const struct rate_options *options);
/* A table of zeroes is allowed. */
void rate_table_release(struct rate_table *table);
/* Takes one from the bucket of the key. Returns 0, or after how many milliseconds one is there; the
 * bucket is then unchanged. now_ms is monotonic; threads may differ by a little. */
uint64_t rate_table_take(struct rate_table *table, struct slice key, uint64_t now_ms);
/* Takes one in any case, also one that is not there yet. Returns after how many milliseconds it is
 * there, at most wait_ms_max: a bucket owes no more than that. */
uint64_t rate_table_charge(struct rate_table *table, struct slice key, uint64_t now_ms,
                           uint64_t wait_ms_max);
size_t rate_table_count(struct rate_table *table);

#endif
