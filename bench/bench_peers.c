/* bench peers: the same work on Khala and on the servers that others use for it, with the same
 * client, in turns in one run. A peer that is not installed is reported as such.
 *
 * Each measurement starts its own server and runs in a process of its own. It counts only if order
 * and count were right on every connection, and if every acknowledged event is stored; otherwise it
 * is void. The table has the server's CPU for an operation and operations per second: the median of
 * the runs, and their range.
 *
 * --row NAME      only the works whose name begins so
 * --peer NAME     only the peers whose name begins so
 * --runs N        default 3
 * --quick         small sizes, one run
 * --out FILE      writes the report there; default of the full table: bench/RESULTS.md
 * --fault NAME    ack, event: the client drops one, so every figure must be void */
#include <stdio.h>

#include "peers/cell.h"

#define QUICK_CLIENTS 10 /* one of so many clients is left with --quick */

#define ingest(title_, shape_, batch_, connections_, events_, quick_)                              \
    .titles = {title_}, .cost = "us CPU/event", .rate = "events/s",                                \
    .supports = work_ingest_supports, .run = work_ingest, .shape = (shape_), .batch = (batch_),    \
    .connections = (connections_), .events = (events_), .quick_events = (quick_)

#define fanout(title_, clients_)                                                                   \
    .titles = {title_ ", one event at a time", title_ ", bursts of 50"},                           \
    .cost = "us CPU/delivery", .rate = "deliveries/s", .supports = work_delivery_supports,         \
    .run = work_fanout, .kind = DELIVERY_FANOUT, .clients = (clients_)

static const struct work works[] = {
    {"ingest-plain", ingest("appends in batches of 1 024, one topic, 2 connections", INGEST_PLAIN,
                            1024, 2, 204800, 10240)},
    {"ingest-ids",
     ingest("the same with event ids of the client", INGEST_IDS, 1024, 2, 204800, 10240)},
    {"ingest-runs",
     ingest("the same into 1 000 runs, summaries kept", INGEST_RUNS, 1024, 2, 204800, 10240)},
    {"single-plain", ingest("appends of one event per request, one topic, 64 connections",
                            INGEST_PLAIN, 1, 64, 60000, 2000)},
    {"single-runs",
     ingest("the same into 1 000 runs, summaries kept", INGEST_RUNS, 1, 64, 60000, 2000)},
    {"fanout-1k", fanout("1 000 subscribers", 1000)},
    {"fanout-10k", fanout("10 000 subscribers", 10000)},
    {"idle", .titles = {"memory of one of 10 000 subscribers without events"},
     .cost = "bytes of memory", .rate = "–", .supports = work_delivery_supports, .run = work_idle,
     .kind = DELIVERY_IDLE, .clients = 10000},
    {"replay",
     .titles = {"1 000 000 events to one client", "20 000 events to each of 100 clients at once"},
     .cost = "us CPU/event", .rate = "events/s", .supports = work_delivery_supports,
     .run = work_replay, .kind = DELIVERY_REPLAY, .clients = 100, .events = 1000000,
     .quick_events = 50000},
    {"return", .titles = {"10 000 clients come back, each 100 events behind"},
     .cost = "us CPU/client", .rate = "clients/s", .supports = work_delivery_supports,
     .run = work_return, .kind = DELIVERY_RETURN, .clients = 10000},
};

/* scripts/setup writes it beside a program that it builds. */
#define VERSION(program) "cat '" BENCH_TOOL(program) ".version'"

static const struct peer peers[] = {
    {"khala", "Khala", NULL, NULL, &ingest_khala, NULL},
    {"khala-ws", "Khala", NULL, NULL, NULL, &delivery_khala_ws},
    {"khala-phoenix", "Khala", NULL, NULL, NULL, &delivery_khala_phoenix},
    {"khala-sse", "Khala", NULL, NULL, NULL, &delivery_khala_sse},
    {"redis", "Redis", "redis-server", "redis-server --version | sed 's/ sha=.*//'", &ingest_redis,
     &delivery_redis},
    {"nats", "NATS", "nats-server", "nats-server --version", &ingest_nats, &delivery_nats},
    {"nats-2.15", "NATS, current", BENCH_TOOL("nats-server"), VERSION("nats-server"), &ingest_nats,
     &delivery_nats},
    {"postgres", "PostgreSQL", "psql", "psql --version", &ingest_postgres, NULL},
    {"durable-streams", "Durable Streams", BENCH_TOOL("durable-streams-server"),
     VERSION("durable-streams-server"), &ingest_durable_streams, &delivery_durable_streams},
    {"centrifugo", "Centrifugo", BENCH_TOOL("centrifugo"), VERSION("centrifugo"),
     &ingest_centrifugo, &delivery_centrifugo},
};
#define WORK_COUNT (sizeof(works) / sizeof(*works))
#define PEER_COUNT (sizeof(peers) / sizeof(*peers))

/* ---- the table ---- */

struct table {
    const char *row;
    const char *peer;
    unsigned runs;
    bool is_quick;
    enum fault fault;
    struct cell cells[WORK_COUNT * PEER_COUNT];
    size_t count;
};

static bool begins(const char *text, const char *prefix) {
    return !prefix || strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The peers take turns, so that noise on the machine affects all of them. */
static void work_measure(struct table *table, const struct work *given) {
    struct work work = *given;
    struct cell *first = &table->cells[table->count];
    size_t count = 0;
    work.fault = table->fault;
    work.is_quick = table->is_quick;
    if (table->is_quick) {
        work.events = work.quick_events;
        work.clients /= QUICK_CLIENTS;
    }
    for (size_t i = 0; i < PEER_COUNT; i++) {
        bool is_missing = peers[i].program && !bench_program_exists(peers[i].program);
        if (begins(peers[i].name, table->peer) && work.supports(&peers[i], &work))
            first[count++] =
                (struct cell){.work = given, .peer = &peers[i], .is_missing = is_missing};
    }
    for (unsigned run = 0; run < table->runs; run++)
        for (size_t i = 0; i < count; i++)
            if (!first[i].is_missing && !first[i].problem[0])
                cell_run(&first[i], &work);
    for (size_t i = 0; i < count; i++)
        report_lines(stdout, &first[i]);
    table->count += count;
}

static void page_write(const struct table *table, const char *path) {
    FILE *out = fopen(path, "w");
    if (!out)
        bench_fail("cannot write %s", path);
    report_page(out, &(struct report){table->cells, table->count, peers, PEER_COUNT});
    fclose(out);
}

int main(int count, char **arguments) {
    static struct table table;
    char scratch[64];
    const char *fault = bench_option_text(arguments, "--fault", "");
    bool is_void = false;
    (void)count;
    table.row = bench_option_text(arguments, "--row", NULL);
    table.peer = bench_option_text(arguments, "--peer", NULL);
    table.is_quick = bench_option(arguments, "--quick", 0);
    table.runs = (unsigned)bench_option(arguments, "--runs", table.is_quick ? 1 : 3);
    table.fault = strcmp(fault, "ack") == 0     ? FAULT_ACK
                  : strcmp(fault, "event") == 0 ? FAULT_EVENT
                                                : FAULT_NONE;
    if (table.runs == 0 || table.runs > RUNS_MAX)
        bench_fail("--runs must be 1 to %d", RUNS_MAX);
    bool is_full = !table.row && !table.peer && !table.is_quick;
    const char *out = bench_option_text(arguments, "--out",
                                        is_full ? BENCH_SOURCE_DIR "/bench/RESULTS.md" : NULL);
    if (table.is_quick)
        fprintf(stderr, "--quick: a tenth of the clients, and fewer events\n");
    cell_scratch(scratch);
    for (size_t i = 0; i < WORK_COUNT; i++)
        if (begins(works[i].name, table.row))
            work_measure(&table, &works[i]);
    bench_folder_remove(scratch);
    if (table.count == 0)
        bench_fail("no such row or peer");
    if (out)
        page_write(&table, out);
    for (size_t i = 0; i < table.count; i++)
        is_void = is_void || table.cells[i].problem[0];
    return is_void ? 1 : 0;
}
