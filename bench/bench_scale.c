/* bench scale: throughput of Khala by its number of io loops, and how the kernel spreads
 * connections over them. The works are those of bench peers, in turns.
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

#define LOOPS_MAX   64
#define THREADS_MAX 256
#define SETTLE_MS   10
#define WAITS_MAX   500

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

struct thread {
    long id;
    unsigned sockets;
};

static unsigned sockets_count(pid_t pid, const char *thread) {
    char path[128], name[300], target[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%.20s/fd", (int)pid, thread);
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(name, sizeof(name), "%.40s/%.200s", path, entry->d_name);
        ssize_t size = readlink(name, target, sizeof(target));
        count += size > 7 && memcmp(target, "socket:", 7) == 0;
    }
    if (folder)
        closedir(folder);
    return count;
}

/* A thread's list of descriptors is that of its own table. */
static size_t threads_list(pid_t pid, struct thread threads[THREADS_MAX]) {
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && count < THREADS_MAX)
            threads[count++] =
                (struct thread){strtol(entry->d_name, NULL, 10), sockets_count(pid, entry->d_name)};
    if (folder)
        closedir(folder);
    return count;
}

/* Fills the connections that each loop has accepted. Returns their sum. */
static unsigned spread_read(pid_t pid, const struct thread *before, size_t before_count,
                            unsigned accepted[LOOPS_MAX]) {
    struct thread after[THREADS_MAX];
    size_t count = threads_list(pid, after), loops = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < before_count; j++)
            if (after[i].id == before[j].id && after[i].sockets > before[j].sockets &&
                loops < LOOPS_MAX) {
                accepted[loops] = after[i].sockets - before[j].sockets;
                sum += accepted[loops++];
            }
    return sum;
}

static void spread(unsigned loops, unsigned connections) {
    static struct bench_server server;
    struct thread before[THREADS_MAX];
    unsigned accepted[LOOPS_MAX] = {0};
    int *fds = calloc(connections, sizeof(int));
    if (!fds)
        bench_fail("out of memory");
    bench_server_start(&server);
    size_t count = threads_list(server.pid, before);
    for (unsigned i = 0; i < connections; i++)
        fds[i] = bench_connect(server.port);
    for (int waits = 0; spread_read(server.pid, before, count, accepted) < connections; waits++) {
        if (waits == WAITS_MAX)
            bench_fail("the server has not accepted %u connections", connections);
        usleep(SETTLE_MS * 1000);
    }
    printf("%u loops, %4u connections: ", loops, connections);
    for (unsigned i = 0; i < loops; i++)
        printf(" %u", accepted[i]);
    printf("\n");
    fflush(stdout);
    for (unsigned i = 0; i < connections; i++)
        close(fds[i]);
    free(fds);
    bench_server_stop(&server);
}

/* Each loop has its own table of descriptors, so that its connections can be counted. */
static void spreads(const unsigned *loops, size_t count) {
    if (setenv("KHALA_LOOPS_OWN_DESCRIPTORS", "true", 1) != 0)
        bench_fail("no environment");
    printf("connections of each loop\n");
    for (size_t i = 0; i < count; i++)
        for (unsigned connections = 8; loops[i] > 1 && connections <= 512; connections *= 8) {
            loops_set(loops[i]);
            spread(loops[i], connections);
        }
    unsetenv("KHALA_LOOPS_OWN_DESCRIPTORS");
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
