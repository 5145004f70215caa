#include "report.h"

#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

struct range {
    double low;
    double median;
    double high;
};

static struct range range_of(const struct cell *cell, unsigned title, bool is_rate) {
    double values[RUNS_MAX];
    struct range range = {0};
    for (unsigned i = 0; i < cell->runs; i++) {
        values[i] = is_rate ? cell->samples[i][title].rate : cell->samples[i][title].cost;
        range.low = i == 0 || values[i] < range.low ? values[i] : range.low;
        range.high = i == 0 || values[i] > range.high ? values[i] : range.high;
    }
    range.median = bench_median(values, cell->runs);
    return range;
}

/* A small number needs decimals, a large one none. */
static void print_range(FILE *out, struct range range) {
    int decimals = range.median < 10 ? 2 : range.median < 100 ? 1 : 0;
    fprintf(out, "%.*f (%.*f to %.*f)", decimals, range.median, decimals, range.low, decimals,
            range.high);
}

void report_lines(FILE *out, const struct cell *cell) {
    bool is_void = cell->is_missing || cell->problem[0];
    if (is_void)
        fprintf(out, "%-13s %-15s %s%s\n", cell->work->name, cell->peer->name,
                cell->is_missing ? "not installed" : "void: ", cell->problem);
    for (unsigned title = 0; !is_void && title < 2 && cell->work->titles[title]; title++) {
        fprintf(out, "%-13s %-15s ", cell->work->name, cell->peer->name);
        print_range(out, range_of(cell, title, false));
        fprintf(out, " %s", cell->work->cost);
        if (cell->samples[0][title].rate > 0) {
            fprintf(out, "; ");
            print_range(out, range_of(cell, title, true));
            fprintf(out, " %s", cell->work->rate);
        }
        fprintf(out, "%s%s\n", cell->work->titles[1] ? "; " : "",
                cell->work->titles[1] ? cell->work->titles[title] : "");
    }
    fflush(out);
}

static void print_machine(FILE *out) {
    char cpu[256];
    struct utsname name;
    if (uname(&name) != 0)
        bench_fail("uname");
    peer_line("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1", cpu);
    fprintf(out, "Machine: %ld cores, CPU `%s`, %.1f GiB of memory, %s %s %s.\n",
            sysconf(_SC_NPROCESSORS_ONLN), cpu[0] ? cpu : "unknown",
            (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 30),
            name.sysname, name.release, name.machine);
}

static void print_versions(FILE *out, const struct report *report) {
    char line[256], own[600], binary[512];
    bench_binary(binary);
    snprintf(own, sizeof(own), "'%s' --version", binary);
    fprintf(out, "\nVersions:\n\n");
    for (size_t i = 0; i < report->peer_count; i++) {
        const struct peer *peer = &report->peers[i];
        if (i > 0 && strcmp(report->peers[i - 1].title, peer->title) == 0)
            continue;
        if (peer->program && !bench_program_exists(peer->program))
            snprintf(line, sizeof(line), "not installed");
        else
            peer_line(peer->program ? peer->version : own, line);
        fprintf(out, "- %s: %s\n", peer->title, line);
    }
}

static void print_table(FILE *out, const struct cell *cells, size_t count, unsigned title) {
    const struct work *work = cells[0].work;
    fprintf(out, "\n## %s: %s\n\n| server | %s | %s |\n|---|---:|---:|\n", work->name,
            work->titles[title], work->cost, work->rate);
    for (size_t i = 0; i < count && cells[i].work == work; i++) {
        const struct cell *cell = &cells[i];
        fprintf(out, "| %s | ", cell->peer->name);
        if (cell->is_missing) {
            fprintf(out, "not installed | – |\n");
        } else if (cell->problem[0]) {
            fprintf(out, "void: %s | – |\n", cell->problem);
        } else {
            print_range(out, range_of(cell, title, false));
            fprintf(out, " | ");
            if (cell->samples[0][title].rate > 0)
                print_range(out, range_of(cell, title, true));
            else
                fprintf(out, "–");
            fprintf(out, " |\n");
        }
    }
}

static const char unfair[] =
    "\n## What is unfair\n\n"
    "- All programs share the machine with the client, so operations per second depend on both. "
    "The CPU time is\n"
    "  the server's alone, with all its threads and processes.\n"
    "- Khala answers each append with the whole event, its hashes and its cursor. The others "
    "answer with a\n"
    "  position or a count.\n"
    "- Khala links each event to the one before by a hash, and keeps event ids for ever. It also "
    "keeps a\n"
    "  document for each run, where the table says so.\n"
    "- Khala checks a key for each append and a token for each subscriber. The others are open "
    "here.\n"
    "- Redis keeps the whole stream in memory. Its append-only file is synced once per turn of its "
    "loop, and is\n"
    "  not rewritten here. It keeps event ids for two minutes.\n"
    "- NATS JetStream, old and current, acknowledges before the file is synced, and syncs every "
    "two minutes. It\n"
    "  keeps message ids for two minutes.\n"
    "- Durable Streams syncs its log before it acknowledges, as Khala does. A stream is bytes with "
    "a comma after\n"
    "  each value: it keeps no ids, times or numbers of events, and acknowledges a batch as a "
    "whole.\n"
    "- Centrifugo is not durable here. Its memory engine keeps the history of a channel until the "
    "server stops.\n"
    "  It keeps idempotency keys for five minutes.\n"
    "- In the fan-out rows, Khala and Durable Streams store each event durably before they deliver "
    "it. Redis\n"
    "  pub/sub and NATS store nothing, and a subscriber cannot resume.\n"
    "- Durable Streams ends each subscription after a minute, and the client subscribes again from "
    "its offset.\n"
    "  That is not measured.\n"
    "- Frames of Khala have 650 to 900 bytes, with hash, id and cursor. Those of Redis, NATS and "
    "Centrifugo have\n"
    "  320 to 370. Durable Streams sends 301 bytes for an event and about 150 for each group of "
    "them.\n"
    "- Redis and Centrifugo serve returning clients from memory, and Redis also replay. Khala "
    "reads older events\n"
    "  from its file. Durable Streams sends bytes of its file; for replay the kernel copies them "
    "to the socket.\n"
    "- Many clients at once read the newest events of Durable Streams, because its answers have no "
    "end before\n"
    "  them. The others read from the middle.\n"
    "- PostgreSQL stores bare rows. It has no topics, no positions for readers and no delivery.\n";

void report_page(FILE *out, const struct report *report) {
    const struct cell *cells = report->cells;
    fprintf(
        out,
        "# Khala beside its peers\n\n"
        "`make bench BENCH=peers` writes this page. Events have %d bytes. A figure is the median "
        "of %u runs, and in\nparentheses their range. CPU is the server's, for one operation. "
        "A figure is void unless order and count\nwere right on every connection and every "
        "acknowledged event was stored.\n\n",
        PEER_EVENT_BYTES, cells[0].runs);
    print_machine(out);
    print_versions(out, report);
    for (size_t i = 0; i < report->cell_count; i++)
        for (unsigned title = 0; title < 2 && cells[i].work->titles[title]; title++)
            if (i == 0 || cells[i].work != cells[i - 1].work)
                print_table(out, &cells[i], report->cell_count - i, title);
    fputs(unfair, out);
    if (fflush(out) != 0)
        bench_fail("cannot write the report");
}
