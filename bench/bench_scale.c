/* bench scale: throughput of Khala by its number of io loops, and how connections spread over
 * them. The works are those of bench peers, in turns.
 *
 * More loops than cores cannot be faster: the machine's number of cores is printed. The clients
 * need a core too.
 *
 * --loops N   only this number (default: 1, 2 and 4)
 * --runs N    default 3
 * --quick     small sizes, one run */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "peers/cell.h"

#define LOOPS_MAX 64
#define SETTLE_MS 10
#define WAITS_MAX 500

static const unsigned defaults[] = {1, 2, 4};
#define DEFAULT_COUNT (sizeof(defaults) / sizeof(*defaults))

static const struct work works[] = {
    {.name = "batches",
     .titles = {"appends in batches of 64 from 16 connections"},
     .cost = "us CPU/event",
     .rate = "events/s",
     .run = work_ingest,
     .batch = 64,
     .connections = 16,
     .events = 204800,
     .quick_events = 6400},
    {.name = "single",
     .titles = {"appends of one event from 64 connections"},
     .cost = "us CPU/event",
     .rate = "events/s",
     .run = work_ingest,
     .batch = 1,
     .connections = 64,
     .events = 60000,
     .quick_events = 2000},
    {.name = "fanout",
     .titles = {"1 000 subscribers, one event at a time", "1 000 subscribers, bursts of 50"},
     .cost = "us CPU/delivery",
     .rate = "deliveries/s",
     .run = work_fanout,
     .kind = DELIVERY_FANOUT,
     .clients = 1000},
};
#define WORK_COUNT (sizeof(works) / sizeof(*works))

static void loops_set(unsigned loops) {
    char text[16];
    snprintf(text, sizeof(text), "%u", loops);
    if (setenv("KHALA_IO_LOOPS", text, 1) != 0)
        bench_fail("no environment");
}

/* ---- the spread of connections ---- */

static bool is_socket(pid_t pid, unsigned fd) {
    char path[64], target[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%u", (int)pid, fd);
    ssize_t size = readlink(path, target, sizeof(target));
    return size > 7 && memcmp(target, "socket:", 7) == 0;
}

/* Returns the sockets in an epoll set, or 0 for one that has something else too: libuv's. */
static unsigned sockets_count(pid_t pid, const char *fd) {
    char path[128], line[256];
    unsigned watched, count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.20s", (int)pid, fd);
    FILE *file = fopen(path, "r");
    bool is_pure = true;
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "tfd: %u", &watched) == 1) {
            is_pure = is_pure && is_socket(pid, watched);
            count++;
        }
    if (file)
        fclose(file);
    return is_pure ? count : 0;
}

/* Each loop has its connections in one epoll set. Fills the connections of each loop that has any.
 * Returns their sum. */
static unsigned spread_read(pid_t pid, unsigned counts[LOOPS_MAX]) {
    char path[64];
    unsigned sum = 0;
    size_t loops = 0;
    snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)pid);
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        unsigned count = sockets_count(pid, entry->d_name);
        if (count > 0 && loops < LOOPS_MAX) {
            counts[loops++] = count;
            sum += count;
        }
    }
    if (folder)
        closedir(folder);
    return sum;
}

static void spread(unsigned loops, unsigned connections) {
    static struct bench_server server;
    unsigned counts[LOOPS_MAX] = {0};
    int *fds = calloc(connections, sizeof(int));
    if (!fds)
        bench_fail("out of memory");
    bench_server_start(&server);
    for (unsigned i = 0; i < connections; i++)
        fds[i] = bench_connect(server.port);
    for (int waits = 0; spread_read(server.pid, counts) < connections; waits++) {
        if (waits == WAITS_MAX)
            bench_fail("the server has not accepted %u connections", connections);
        usleep(SETTLE_MS * 1000);
    }
    printf("%u loops, %4u connections: ", loops, connections);
    for (unsigned i = 0; i < loops; i++)
        printf(" %u", counts[i]);
    printf("\n");
    fflush(stdout);
    for (unsigned i = 0; i < connections; i++)
        close(fds[i]);
    free(fds);
    bench_server_stop(&server);
}

static void spreads(const unsigned *loops, size_t count) {
    printf("connections of each loop\n");
    for (size_t i = 0; i < count; i++)
        for (unsigned connections = 8; loops[i] > 1 && connections <= 512; connections *= 8) {
            loops_set(loops[i]);
            spread(loops[i], connections);
        }
}

/* ---- throughput ---- */

static void work_measure(const struct work *given, const unsigned *loops, size_t count,
                         unsigned runs, bool is_quick) {
    struct cell cells[DEFAULT_COUNT] = {0};
    struct peer peers[DEFAULT_COUNT] = {0};
    char names[DEFAULT_COUNT][32];
    struct work work = *given;
    work.is_quick = is_quick;
    work.events = is_quick ? work.quick_events : work.events;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "%u loop%s", loops[i], loops[i] == 1 ? "" : "s");
        peers[i] = (struct peer){
            .name = names[i], .ingest = &ingest_khala, .delivery = &delivery_khala_ws};
        cells[i] = (struct cell){.work = given, .peer = &peers[i]};
    }
    for (unsigned run = 0; run < runs; run++)
        for (size_t i = 0; i < count; i++) {
            loops_set(loops[i]);
            if (!cells[i].problem[0])
                cell_run(&cells[i], &work);
        }
    for (size_t i = 0; i < count; i++)
        report_lines(stdout, &cells[i]);
}

int main(int count, char **arguments) {
    char scratch[64];
    bool is_quick = bench_option(arguments, "--quick", 0);
    unsigned runs = (unsigned)bench_option(arguments, "--runs", is_quick ? 1 : 3);
    unsigned only = (unsigned)bench_option(arguments, "--loops", 0);
    const unsigned *loops = only ? &only : defaults;
    size_t loops_count = only ? 1 : DEFAULT_COUNT;
    (void)count;
    if (runs == 0 || runs > RUNS_MAX || only > LOOPS_MAX)
        bench_fail("--runs must be 1 to %d, and --loops at most %d", RUNS_MAX, LOOPS_MAX);
    printf("%ld cores, for the server and the clients\n", sysconf(_SC_NPROCESSORS_ONLN));
    cell_scratch(scratch);
    spreads(loops, loops_count);
    for (size_t i = 0; i < WORK_COUNT; i++)
        work_measure(&works[i], loops, loops_count, runs, is_quick);
    bench_folder_remove(scratch);
    return 0;
}
