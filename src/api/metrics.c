/* GET /metrics: the counters, and the gauges that are measured for this answer, in Prometheus' text
 * format, version 0.0.4. A histogram's buckets add up to its count, because all lines are written
 * from one reading of the counters. */
#include <assert.h>
#include <inttypes.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/health.h"
#include "api/process_stats.h"
#include "base/limits.h"
#include "base/metrics.h"
#include "http/exchange.h"
#include "topic/policy.h"

#define EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define NS_PER_SECOND   UINT64_C(1000000000)

static void put_text(struct buffer *out, const char *text) {
    buffer_append_slice(out, slice_of(text));
}

/* A gauge may be negative for a moment: threads may subtract before others add. */
static void put_number(struct buffer *out, const struct metric_row *row, uint64_t number) {
    if (row->in_seconds)
        buffer_printf(out, "%" PRIu64 ".%09" PRIu64 "\n", number / NS_PER_SECOND,
                      number % NS_PER_SECOND);
    else if (row->kind == METRIC_KIND_GAUGE)
        buffer_printf(out, "%" PRId64 "\n", (int64_t)number);
    else
        buffer_printf(out, "%" PRIu64 "\n", number);
}

static void put_label(struct buffer *out, bool *has_label, const char *name, const char *value) {
    put_text(out, *has_label ? "," : "{");
    put_text(out, name);
    put_text(out, "=\"");
    put_text(out, value);
    put_text(out, "\"");
    *has_label = true;
}

/* NULL: a topic class that has no name yet. */
static const char *label_value(const struct metric_row *row, const struct metric_label *label,
                               size_t series) {
    for (unsigned i = METRIC_POSITIONS_MAX - 1; i > label->position; i--)
        series /= row->sizes[i];
    size_t index = series % row->sizes[label->position];
    if (label->is_topic_class && index < TOPIC_CLASS_COUNT)
        return topic_class_name((enum topic_class)index);
    return label->values ? label->values[index] : KHALA_VERSION;
}

static bool is_named(const struct metric_row *row, size_t series) {
    for (size_t i = 0; i < row->label_count; i++)
        if (!label_value(row, &row->labels[i], series))
            return false;
    return true;
}

/* The beginning of a line. Values of labels come from the table of metrics, are the version, or the
 * names of topic classes. They need no escapes. */
static void put_sample(struct buffer *out, const struct metric_row *row, size_t series,
                       const char *suffix, const char *bucket) {
    bool has_label = false;
    put_text(out, row->name);
    put_text(out, suffix);
    for (size_t i = 0; i < row->label_count; i++)
        put_label(out, &has_label, row->labels[i].name, label_value(row, &row->labels[i], series));
    if (bucket)
        put_label(out, &has_label, "le", bucket);
    put_text(out, has_label ? "} " : " ");
}

static void put_histogram(struct buffer *out, const struct metric_row *row, size_t series,
                          const uint64_t *numbers) {
    const struct metric_buckets *buckets = row->buckets;
    uint64_t count = 0;
    assert(buckets);
    for (size_t i = 0; i <= buckets->count; i++) {
        count += numbers[i];
        put_sample(out, row, series, "_bucket", i < buckets->count ? buckets->texts[i] : "+Inf");
        buffer_printf(out, "%" PRIu64 "\n", count);
    }
    put_sample(out, row, series, "_sum", NULL);
    put_number(out, row, numbers[buckets->count + 1]);
    put_sample(out, row, series, "_count", NULL);
    buffer_printf(out, "%" PRIu64 "\n", count);
}

static void put_family(struct buffer *out, const struct metric_row *row, const uint64_t *numbers) {
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    put_text(out, "# HELP ");
    put_text(out, row->name);
    put_text(out, " ");
    put_text(out, row->help);
    put_text(out, "\n# TYPE ");
    put_text(out, row->name);
    put_text(out, " ");
    put_text(out, kinds[row->kind]);
    put_text(out, "\n");
    bool shows_all = row->series_count == 1 ||
                     (row->series_built_in <= METRIC_SERIES_SHOWN_MAX && !row->buckets);
    for (size_t i = 0; i < row->series_count; i++) {
        const uint64_t *of_series = numbers + i * row->series_slots;
        size_t zeros = 0;
        while (!shows_all && zeros < row->series_slots && of_series[zeros] == 0)
            zeros++;
        if ((!shows_all && zeros == row->series_slots) || !is_named(row, i))
            continue;
        if (row->kind == METRIC_KIND_HISTOGRAM) {
            put_histogram(out, row, i, of_series);
        } else {
            put_sample(out, row, i, "", NULL);
            put_number(out, row, *of_series);
        }
    }
}

/* Sets the gauges that no event changes. */
static void measure(struct api *api, uint64_t mono_ms) {
    const struct hub_stats hub = hub_stats(api->hub);
    const struct process_stats process = process_stats_read();
    const struct projector_stats projection = projector_stats(api->projector);
    const struct writer_stats writer = writer_stats(api->writer);
    const struct clock_reading now = clock_now();
    struct store_disk disk;
    store_disk(api->store, &disk);
    metrics_set(METRIC_BUILD_INFO, METRIC_PLAIN, 1);
    metrics_set(METRIC_UPTIME_SECONDS, METRIC_PLAIN, now.mono_ns - api->started.mono_ns);
    metrics_set(METRIC_PROCESS_START_TIME_SECONDS, METRIC_PLAIN,
                api->started.wall_ms * CLOCK_NS_PER_MS);
    metrics_set(METRIC_PROCESS_RESIDENT_MEMORY_BYTES, METRIC_PLAIN, process.resident_bytes);
    metrics_set(METRIC_PROCESS_CPU_SECONDS, METRIC_PLAIN, process.cpu_ns);
    metrics_set(METRIC_PROCESS_OPEN_FDS, METRIC_PLAIN, process.open_fds);
    metrics_set(METRIC_PROCESS_MAX_FDS, METRIC_PLAIN, process.max_fds);
    metrics_set(METRIC_PROCESS_THREADS, METRIC_PLAIN, process.threads);
    metrics_set(METRIC_KHALA_PROJECTION_UPDATES, METRIC_PLAIN, projection.updates);
    metrics_set(METRIC_KHALA_PROJECTION_SKIPPED, METRIC_PLAIN, projection.skipped);
    metrics_set(METRIC_KHALA_PROJECTION_FAILURES, METRIC_PLAIN, projection.failures);
    metrics_set(METRIC_KHALA_PROJECTION_GIVEN_UP, METRIC_PLAIN, projection.given_up);
    metrics_set(METRIC_KHALA_PROJECTION_CACHE_MISSES, METRIC_PLAIN, projection.cache_misses);
    metrics_set(METRIC_KHALA_PROJECTION_CACHE_BYTES, METRIC_PLAIN, projection.cache_bytes);
    metrics_set(METRIC_KHALA_PROJECTION_REFUSED, METRIC_PLAIN, writer.underived);
    metrics_set(METRIC_CURSOR_CLOCK_AHEAD_SECONDS, METRIC_PLAIN,
                writer.cursor_ms > now.wall_ms ? (writer.cursor_ms - now.wall_ms) * CLOCK_NS_PER_MS
                                               : 0);
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
    for (unsigned i = 0; i < METRIC_COUNT; i++) {
        const struct metric_row *row = metric_row((enum metric)i);
        put_family(&out, row, numbers + row->first_slot);
    }
    if (buffer_status(&out) == STATUS_OK)
        exchange_answer(exchange, 200, SLICE(EXPOSITION_TYPE), buffer_slice(&out));
    else
        exchange_answer_status(exchange, buffer_status(&out));
    buffer_release(&out);
}
