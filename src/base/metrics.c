#include "base/metrics.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_LINE_BYTES 64

/* Only one thread writes to a shard at a time, so an increment need not be atomic. Readers only
 * need to see whole numbers. */
struct shard {
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t numbers[METRIC_SLOT_COUNT];
    struct shard *next;      /* the list of all shards, which never shrinks */
    struct shard *next_idle; /* under the lock */
};

/* Gauges, and the counts of threads without a shard: the only shard that many threads write. */
static struct shard common;
static _Atomic(struct shard *) shards = &common;
static struct shard *idle;
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end;
static bool has_key;
static _Thread_local struct shard *thread_shard;

/* ---- the shard of a thread ---- */

static void shard_give_back(void *memory) {
    struct shard *shard = memory;
    thread_shard = NULL;
    pthread_mutex_lock(&idle_lock);
    shard->next_idle = idle;
    idle = shard;
    pthread_mutex_unlock(&idle_lock);
}

static void key_make(void) {
    has_key = pthread_key_create(&thread_end, shard_give_back) == 0;
}

static struct shard *shard_reuse(void) {
    pthread_mutex_lock(&idle_lock);
    struct shard *shard = idle;
    if (shard)
        idle = shard->next_idle;
    pthread_mutex_unlock(&idle_lock);
    return shard;
}

static struct shard *shard_make(void) {
    struct shard *shard = aligned_alloc(CACHE_LINE_BYTES, sizeof(*shard));
    if (!shard)
        return NULL;
    memset(shard, 0, sizeof(*shard));
    struct shard *first = atomic_load(&shards);
    do
        shard->next = first;
    while (!atomic_compare_exchange_weak(&shards, &first, shard));
    return shard;
}

/* Apart, so that counting itself saves no registers. */
__attribute__((noinline)) static struct shard *shard_take(void) {
    pthread_once(&once, key_make);
    struct shard *shard = has_key ? shard_reuse() : NULL;
    if (!shard && has_key)
        shard = shard_make();
    if (!shard)
        return &common;
    /* Without this the next thread could not reuse the shard; its counts would still be summed. */
    (void)pthread_setspecific(thread_end, shard);
    thread_shard = shard;
    return shard;
}

/* ---- counting ---- */

/* Written without a loop, because deliveries come here one by one. */
static size_t slot_of(const struct metric_row *row, struct metric_labels labels) {
    static_assert(METRIC_POSITIONS_MAX == 3, "each position is in the sum");
    const unsigned *sizes = row->sizes;
    uint32_t mask = (1u << METRIC_LABEL_BITS) - 1;
    uint32_t first = labels.packed & mask;
    uint32_t second = labels.packed >> METRIC_LABEL_BITS & mask;
    uint32_t third = labels.packed >> 2 * METRIC_LABEL_BITS;
    assert(first < sizes[0] && second < sizes[1] && third < sizes[2]);
    size_t series = ((size_t)first * sizes[1] + second) * sizes[2] + third;
    return row->first_slot + series * row->series_slots;
}

static void count(size_t slot, uint64_t more) {
    struct shard *shard = thread_shard ? thread_shard : shard_take();
    _Atomic uint64_t *number = &shard->numbers[slot];
    if (shard == &common)
        atomic_fetch_add_explicit(number, more, memory_order_relaxed);
    else
        atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + more,
                              memory_order_relaxed);
}

void metrics_add(enum metric metric, struct metric_labels labels, uint64_t more) {
    const struct metric_row *row = metric_row(metric);
    assert(row->kind != METRIC_KIND_HISTOGRAM);
    count(slot_of(row, labels), more);
}

/* A shard may go below zero if another thread added: the sum wraps back. */
void metrics_sub(enum metric metric, struct metric_labels labels, uint64_t less) {
    const struct metric_row *row = metric_row(metric);
    assert(row->kind == METRIC_KIND_GAUGE);
    count(slot_of(row, labels), -less);
}

void metrics_set(enum metric metric, struct metric_labels labels, uint64_t value) {
    const struct metric_row *row = metric_row(metric);
    assert(row->kind != METRIC_KIND_HISTOGRAM);
    atomic_store_explicit(&common.numbers[slot_of(row, labels)], value, memory_order_relaxed);
}

void metrics_observe(enum metric metric, struct metric_labels labels, uint64_t value,
                     uint64_t times) {
    const struct metric_row *row = metric_row(metric);
    assert(row->kind == METRIC_KIND_HISTOGRAM);
    const struct metric_buckets *buckets = row->buckets;
    size_t slot = slot_of(row, labels);
    size_t bucket = 0;
    while (bucket < buckets->count && value > buckets->bounds[bucket])
        bucket++;
    count(slot + bucket, times);
    count(slot + buckets->count + 1, value * times);
}

/* ---- reading ---- */

uint64_t metrics_get_all(enum metric metric) {
    const struct metric_row *row = metric_row(metric);
    assert(row->kind != METRIC_KIND_HISTOGRAM);
    uint64_t sum = 0;
    for (const struct shard *shard = atomic_load(&shards); shard; shard = shard->next)
        for (size_t i = 0; i < row->series_count; i++)
            sum += atomic_load_explicit(&shard->numbers[row->first_slot + i], memory_order_relaxed);
    return sum;
}

void metrics_read(uint64_t numbers[METRIC_SLOT_COUNT]) {
    memset(numbers, 0, METRIC_SLOT_COUNT * sizeof(numbers[0]));
    for (const struct shard *shard = atomic_load(&shards); shard; shard = shard->next)
        for (size_t i = 0; i < METRIC_SLOT_COUNT; i++)
            numbers[i] += atomic_load_explicit(&shard->numbers[i], memory_order_relaxed);
}
