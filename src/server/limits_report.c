#include "server/limits_report.h"

#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"

enum limit_unit { LIMIT_BYTES, LIMIT_ITEMS };

/* From LIMIT_READ to LIMIT_SESSION: kinds of requests, of which a connection serves one at a time.
 */
enum limit_scope {
    LIMIT_PROCESS,
    LIMIT_THREAD,
    LIMIT_LOOP,
    LIMIT_CONNECTION,
    LIMIT_SUBSCRIPTION,
    LIMIT_WITHIN,
    LIMIT_READ,
    LIMIT_APPEND,
    LIMIT_REPROJECT,
    LIMIT_POLL,
    LIMIT_SESSION,
    LIMIT_SCOPE_COUNT,
};

static const struct {
    enum limit_unit unit;
    enum limit_scope scope;
    uint64_t value;
    uint64_t times;
} rows[] = {
#define LIMIT_ROW(name, value, unit, scope, times, bounds)                                         \
    {LIMIT_##unit, LIMIT_##scope, name, times},
    LIMITS_TABLE(LIMIT_ROW)
#undef LIMIT_ROW
};

size_t limits_loop_count(const struct config *config) {
    if (config->io_loops > 0)
        return config->io_loops;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1)
        return 1;
    return cores > CONFIG_LOOPS_MAX ? CONFIG_LOOPS_MAX : (size_t)cores;
}

struct limits_counts limits_counts_of(const struct config *config) {
    return (struct limits_counts){
        .loops = limits_loop_count(config),
        .pool_threads = config->readers,
        .subscriptions_max = config->subscriptions_max,
        /* A WebSocket holds the message that it decodes, and the bytes that follow it. */
        .request_bytes_max =
            config->request_head_bytes_max + LOOP_READ_BYTES + 2 * config->message_bytes_max,
        .shared_bytes_max =
            config->windows_bytes_max + config->writer_queue_bytes_max + config->batches_bytes_max,
    };
}

struct limits_report limits_report_of(const struct limits_counts *counts) {
    uint64_t sums[LIMIT_SCOPE_COUNT] = {0};
    uint64_t request = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].unit == LIMIT_BYTES)
            sums[rows[i].scope] += rows[i].value * rows[i].times;
    for (size_t scope = LIMIT_READ; scope < LIMIT_SCOPE_COUNT; scope++)
        request = sums[scope] > request ? sums[scope] : request;
    struct limits_report report = {
        .process_bytes = sums[LIMIT_PROCESS] + counts->shared_bytes_max,
        .loop_bytes = sums[LIMIT_LOOP],
        .thread_bytes = sums[LIMIT_THREAD],
        .connection_bytes = sums[LIMIT_CONNECTION] + request + counts->request_bytes_max +
                            counts->subscriptions_max * sums[LIMIT_SUBSCRIPTION],
    };
    report.fixed_bytes = report.process_bytes + counts->loops * report.loop_bytes +
                         counts->pool_threads * report.thread_bytes;
    return report;
}

void limits_report_log(const struct config *config) {
    const struct limits_counts counts = limits_counts_of(config);
    const struct limits_report report = limits_report_of(&counts);
    log_event(LOG_INFO, "limits", log_int("fixed_bytes", (int64_t)report.fixed_bytes),
              log_int("process_bytes", (int64_t)report.process_bytes),
              log_int("loop_bytes", (int64_t)report.loop_bytes),
              log_int("store_thread_bytes", (int64_t)report.thread_bytes),
              log_int("connection_bytes", (int64_t)report.connection_bytes));
}
