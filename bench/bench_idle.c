/* bench idle: the cost of subscribed, silent connections: the server's memory for each, and its CPU
 * with heartbeats of both sides; and how many connections a machine holds while events arrive.
 *
 * --connections N  default 15000; 500000 needs 6 GB of memory
 * --dialect NAME   phoenix (default), topic_ws or sse
 * --loops N        io loops of the server, each with its own descriptor table beyond 15000
 *                  connections (default: the server's, or as many as the connections need)
 * --append-ms N    appends an event every N ms, from the first connection to the end of the
 *                  measurement; each connection must get each of them, once and in order
 *                  (default: no events)
 * --heartbeat-ms N interval of the server's heartbeats (default: the server's)
 * --seconds N      length of the measurement (default 30, two heartbeats of the server) */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "publisher.h"
#include "receivers.h"

#define TOPIC               "bench:idle"
#define CLIENT_HEARTBEAT_MS 30000
#define PROCESS_CONNECTIONS 15000
/* The kernel spreads connections over the loops by a hash, so some get more than others. */
#define LOOP_CONNECTIONS    16000
#define MEMORY_TARGET_BYTES 1024.0
#define CPU_TARGET_PERCENT  2.0
#define APPENDS_MAX         (1 << 20)
#define ARRIVAL_SECONDS_MAX 120

/* ---- memory ---- */

struct footprint {
    double resident;
    double anonymous;
    double slab;    /* of the kernel: sockets of both sides, files, entries of epoll */
    double buffers; /* of the kernel's sockets, of both sides */
};

/* The number after a name in a file of /proc; 0 if it is not there. */
static double proc_number(const char *path, const char *line_start, const char *name) {
    char line[256];
    double number = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file)) {
        const char *at = strncmp(line, line_start, strlen(line_start)) == 0 ? line : NULL;
        at = at ? strstr(at, name) : NULL;
        if (at)
            number = strtod(at + strlen(name), NULL);
    }
    if (file)
        fclose(file);
    return number;
}

static struct footprint footprint(const struct bench_server *server) {
    return (struct footprint){
        .resident = (double)bench_server_rss_bytes(server),
        .anonymous = (double)bench_server_anonymous_bytes(server),
        .slab = 1024 * proc_number("/proc/meminfo", "Slab:", "Slab:"),
        .buffers =
            (double)sysconf(_SC_PAGESIZE) * proc_number("/proc/net/sockstat", "TCP:", " mem "),
    };
}

static void print_memory(const struct footprint *before, const struct footprint *after,
                         unsigned count) {
    printf("%u connections: resident memory %.0f bytes each, of it anonymous %.0f (target %.0f); "
           "%.1f MiB before, %.1f MiB after\n",
           count, (after->resident - before->resident) / count,
           (after->anonymous - before->anonymous) / count, MEMORY_TARGET_BYTES,
           before->resident / 1048576, after->resident / 1048576);
    printf("%u connections: kernel memory of both sides %.0f bytes each, and %.0f of buffers\n",
           count, (after->slab - before->slab) / count, (after->buffers - before->buffers) / count);
}

/* ---- appends ---- */

struct appender {
    struct publisher publisher;
    pthread_t thread;
    uint64_t interval_ms; /* 0: no thread */
    uint64_t *due_ns;     /* by seq */
    atomic_bool is_stopping;
};

static void append(struct appender *appender) {
    uint64_t seq = appender->publisher.published + 1;
    if (seq >= APPENDS_MAX)
        bench_fail("more than %d events", APPENDS_MAX);
    appender->due_ns[seq] = bench_nanoseconds();
    publisher_send(&appender->publisher, 1);
}

static void *appender_run(void *user) {
    struct appender *appender = user;
    while (!atomic_load(&appender->is_stopping)) {
        append(appender);
        poll(NULL, 0, (int)appender->interval_ms);
    }
    return NULL;
}

static void appender_start(struct appender *appender) {
    if (appender->interval_ms > 0 &&
        pthread_create(&appender->thread, NULL, appender_run, appender) != 0)
        bench_fail("cannot start a thread");
}

/* Every connection checks that its ranges continue without a gap. So the sum says that each has
 * every event. */
static void appender_stop(struct appender *appender, const struct receivers *receivers,
                          unsigned connections) {
    if (appender->interval_ms == 0)
        return;
    atomic_store(&appender->is_stopping, true);
    pthread_join(appender->thread, NULL);
    double begun = bench_seconds();
    uint64_t each = appender->publisher.published - 1, wanted = each * connections, arrived;
    while ((arrived = receivers_totals(receivers).updates) < wanted) {
        if (bench_seconds() - begun > ARRIVAL_SECONDS_MAX)
            bench_fail("%llu of %llu updates came", (unsigned long long)arrived,
                       (unsigned long long)wanted);
        receivers_check(receivers);
        poll(NULL, 0, 20);
    }
    printf("%u connections: each got %llu events in order, none is missing; from append to client "
           "p50 %.2f s, p99 %.2f s; the last arrived %.2f s after the end\n",
           connections, (unsigned long long)each, receivers_latency(receivers, 0.5),
           receivers_latency(receivers, 0.99), bench_seconds() - begun);
}

/* ---- the benchmark ---- */

static void measure_cpu(const struct bench_server *server, const struct receivers *receivers,
                        unsigned connections, unsigned seconds) {
    uint64_t ended = receivers_totals(receivers).ended;
    double cpu = bench_cpu_seconds(server->pid), begun = bench_seconds();
    poll(NULL, 0, (int)seconds * 1000);
    cpu = bench_cpu_seconds(server->pid) - cpu;
    if (receivers_totals(receivers).ended != ended)
        bench_fail("the server ended idle connections");
    printf("%u connections: CPU %.2f %% of a core over %u s with heartbeats (target for 15000: "
           "%.0f %%)\n",
           connections, 100 * cpu / (bench_seconds() - begun), seconds, CPU_TARGET_PERCENT);
}

static void measure(const struct bench_server *server, const struct receiver_options *options,
                    struct appender *appender, unsigned seconds) {
    static struct receivers receivers;
    struct footprint before = footprint(server);
    double begun = bench_seconds();
    receivers_fork(&receivers, options);
    appender_start(appender);
    unsigned ready = receivers_wait_ready(&receivers);
    if (ready < options->count)
        printf("the server accepted only %u of %u connections\n", ready, options->count);
    if (ready == 0)
        bench_fail("no connection");
    printf("%u connections subscribed in %.1f s\n", ready, bench_seconds() - begun);
    struct footprint after = footprint(server);
    print_memory(&before, &after, ready);
    fflush(stdout);
    receivers_latency_clear(&receivers);
    measure_cpu(server, &receivers, ready, seconds);
    appender_stop(appender, &receivers, ready);
    after = footprint(server);
    printf("%u connections: resident memory %.0f bytes each after that\n", ready,
           (after.resident - before.resident) / ready);
    fflush(stdout);
    receivers_stop(&receivers);
}

int main(int count, char **arguments) {
    static struct bench_server server;
    static struct appender appender;
    struct buffer token;
    char connections_max[32], loops[32];
    unsigned wanted = (unsigned)bench_option(arguments, "--connections", 15000);
    bool has_tables = wanted > PROCESS_CONNECTIONS;
    struct bench_setting settings[] = {
        {"KHALA_CONNECTIONS_MAX", connections_max},
        {"KHALA_IO_LOOPS", bench_option_text(arguments, "--loops", loops)},
        {"KHALA_LOOPS_OWN_DESCRIPTORS", has_tables ? "true" : "false"},
        /* The clients of a busy machine may be late. */
        {"KHALA_SILENCE_TIMEOUT_MS", "180000"},
        {"KHALA_HEARTBEAT_MS", bench_option_text(arguments, "--heartbeat-ms", "15000")},
        {NULL, NULL}};
    (void)count;
    snprintf(connections_max, sizeof(connections_max), "%u", wanted + 100);
    snprintf(loops, sizeof(loops), "%u", has_tables ? wanted / LOOP_CONNECTIONS + 1 : 0);
    server.settings = settings;
    bench_server_start(&server);
    buffer_init(&token, 8192);
    bench_token(&server, TOPIC, &token);
    appender.interval_ms = bench_option(arguments, "--append-ms", 0);
    appender.due_ns = pace_table(APPENDS_MAX);
    publisher_open(&appender.publisher, &server, TOPIC, 48);
    append(&appender);
    const struct receiver_options options = {
        .dialect = receiver_dialect_of(bench_option_text(arguments, "--dialect", "phoenix")),
        .port = server.port,
        .count = wanted,
        .process_count = (wanted - 1) / PROCESS_CONNECTIONS + 1,
        .token = token.data,
        .topic = TOPIC,
        .after_seq = 1,
        .may_end = appender.interval_ms == 0,
        .heartbeat_ms = CLIENT_HEARTBEAT_MS,
        .count_all = true,
        .due_ns = appender.due_ns,
        .due_count = APPENDS_MAX,
    };
    measure(&server, &options, &appender, (unsigned)bench_option(arguments, "--seconds", 30));
    publisher_close(&appender.publisher);
    buffer_release(&token);
    bench_server_stop(&server);
    return 0;
}
