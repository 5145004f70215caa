/* GET /metrics: the counters, and the gauges that are measured for this answer. */
#include "base/metrics.h"
#include "api/api.h"
#include "api/exposition.h"
#include "api/handlers.h"
#include "api/process_stats.h"
#include "base/limits.h"
#include "http/exchange.h"

static void measure_process(const struct api *api) {
    const struct process_stats stats = process_stats_read();
    const struct clock_reading now = clock_now();
    uint64_t uptime_ns = now.mono_ns - api->started.mono_ns;
    metrics_set(METRIC_BUILD_INFO, METRIC_PLAIN, 1);
    metrics_set(METRIC_UPTIME_SECONDS, METRIC_PLAIN, uptime_ns);
    metrics_set(METRIC_PROCESS_START_TIME_SECONDS, METRIC_PLAIN,
                api->started.wall_ms * CLOCK_NS_PER_MS);
    metrics_set(METRIC_PROCESS_RESIDENT_MEMORY_BYTES, METRIC_PLAIN, stats.resident_bytes);
    metrics_set(METRIC_PROCESS_CPU_SECONDS, METRIC_PLAIN, stats.cpu_ns);
    metrics_set(METRIC_PROCESS_OPEN_FDS, METRIC_PLAIN, stats.open_fds);
    metrics_set(METRIC_PROCESS_MAX_FDS, METRIC_PLAIN, stats.max_fds);
    metrics_set(METRIC_PROCESS_THREADS, METRIC_PLAIN, stats.threads);
}

static void measure_projection(const struct api *api) {
    const struct projector_stats stats = projector_stats(api->projector);
    metrics_set(METRIC_KHALA_PROJECTION_UPDATES, METRIC_PLAIN, stats.updates);
    metrics_set(METRIC_KHALA_PROJECTION_SKIPPED, METRIC_PLAIN, stats.skipped);
    metrics_set(METRIC_KHALA_PROJECTION_FAILURES, METRIC_PLAIN, stats.failures);
    metrics_set(METRIC_KHALA_PROJECTION_GIVEN_UP, METRIC_PLAIN, stats.given_up);
    metrics_set(METRIC_KHALA_PROJECTION_CACHE_MISSES, METRIC_PLAIN, stats.cache_misses);
    metrics_set(METRIC_KHALA_PROJECTION_CACHE_BYTES, METRIC_PLAIN, stats.cache_bytes);
    metrics_set(METRIC_KHALA_PROJECTION_REFUSED, METRIC_PLAIN, writer_stats(api->writer).underived);
}

static void measure_cursor_clock(const struct api *api) {
    uint64_t cursor_ms = writer_stats(api->writer).cursor_ms;
    uint64_t now_ms = clock_now().wall_ms;
    metrics_set(METRIC_CURSOR_CLOCK_AHEAD_SECONDS, METRIC_PLAIN,
                cursor_ms > now_ms ? (cursor_ms - now_ms) * CLOCK_NS_PER_MS : 0);
}

static void measure(struct api *api, uint64_t mono_ms) {
    const struct hub_stats hub = hub_stats(api->hub);
    struct store_disk disk;
    store_disk(api->store, &disk);
    measure_process(api);
    measure_projection(api);
    measure_cursor_clock(api);
    metrics_set(METRIC_HTTP_CONNECTIONS, METRIC_PLAIN, conn_limits_count(&api->http->conn_limits));
    metrics_set(METRIC_STORE_READ_QUEUE_DEPTH, METRIC_PLAIN, store_pool_waiting(api->store_pool));
    metrics_set(METRIC_STORE_WRITABLE, METRIC_PLAIN,
                !disk.is_stopped && store_health_is_good(&api->health, mono_ms));
    metrics_set(METRIC_FANOUT_CONSUMERS, METRIC_PLAIN, consumers_active(api->consumers, mono_ms));
    metrics_set(METRIC_FANOUT_WINDOW_TOPICS, METRIC_PLAIN, hub.topics);
    metrics_set(METRIC_FANOUT_WINDOW_BYTES, METRIC_PLAIN, hub.bytes);
    metrics_set(METRIC_SNAPSHOT_BYTES, METRIC_PLAIN,
                snapshots_bytes(api->snapshot_service->snapshots));
}

void handle_metrics(struct exchange *exchange) {
    uint64_t numbers[METRIC_SLOT_COUNT];
    struct buffer out;
    measure(api_of(exchange), clock_mono_ms(&exchange->loop->clock));
    metrics_read(numbers);
    buffer_init(&out, EXPOSITION_BYTES_MAX);
    enum status status = exposition_write(&out, numbers);
    if (status == STATUS_OK)
        exchange_answer(exchange, 200, SLICE(EXPOSITION_TYPE), buffer_slice(&out));
    else
        exchange_answer_status(exchange, status);
    buffer_release(&out);
}
