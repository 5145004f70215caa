/* bench replay: the journal of one topic to one client and to 100 at once, against a bare loop that
 * reads the same rows from SQLite in one run. It also compares frames inside the window with frames
 * outside it. Clients resume from a cursor and check that no frame is missing. The time counts from
 * the first subscription until the last client has its last event.
 *
 * --events N   in the topic (default 1000000)
 * --each N     events to each of several clients, and in hot against cold (default 20000)
 * --clients N  default 100
 * --dialect NAME, --loops N, --payload N   as for fanout; the default of loops is the server's */
#include <sqlite3.h>
#include <stdio.h>

#include "publisher.h"
#include "receivers.h"

#define TOPIC        "bench:replay"
#define BATCH        1000
#define ROUNDS       3
#define HOT_TARGET   5.0
#define REPLAY_BATCH 1000

struct replay {
    struct bench_server server;
    struct publisher publisher;
    struct receiver_options options;
    uint64_t events;
    uint64_t each;
    unsigned clients;
};

struct rates {
    double wall; /* events per second */
    double cpu;  /* events per second of the server's CPU */
};

static void load(struct replay *replay) {
    static struct receivers watcher;
    struct receiver_options options = replay->options;
    double begun = bench_seconds();
    publisher_send(&replay->publisher, BATCH);
    /* A topic with a subscriber keeps its window. */
    options.count = options.process_count = 1;
    options.after_seq = replay->publisher.published;
    receivers_start(&watcher, &options);
    receivers_expect(&watcher, replay->events - BATCH);
    while (replay->publisher.published < replay->events)
        publisher_send(&replay->publisher, BATCH);
    receivers_wait(&watcher);
    printf("%llu events appended in %.1f s, while one client followed\n",
           (unsigned long long)replay->events, bench_seconds() - begun);
    receivers_stop(&watcher);
    fflush(stdout);
}

static struct rates read_range(struct replay *replay, unsigned clients, uint64_t after_seq,
                               uint64_t events, bool is_lean) {
    static struct receivers receivers;
    struct receiver_options options = replay->options;
    options.lean = is_lean;
    double cpu = bench_cpu_seconds(replay->server.pid);
    options.count = clients;
    options.after_seq = after_seq;
    options.expected = events;
    receivers_fork(&receivers, &options);
    receivers_wait(&receivers);
    cpu = bench_cpu_seconds(replay->server.pid) - cpu;
    double all = (double)events * clients;
    struct rates rates = {all / receivers_seconds(&receivers), all / cpu};
    receivers_stop(&receivers);
    return rates;
}

/* The frames of an application topic are its events, found by position. */
#define ENTITY "(SELECT entity_ref FROM topics WHERE topic = '" TOPIC "')"

static double bare_read(const struct replay *replay) {
    char path[128];
    sqlite3 *database;
    sqlite3_stmt *rows;
    uint64_t count = 0, bytes = 0;
    snprintf(path, sizeof(path), "%s/khala.db", replay->server.folder);
    if (sqlite3_open_v2(path, &database, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(
            database,
            "SELECT e.seq, e.cursor, e.event_id, e.type, e.payload_hash, e.payload FROM ("
            "SELECT * FROM event_positions WHERE entity_ref = " ENTITY " UNION ALL "
            "SELECT * FROM event_positions_recent WHERE entity_ref = " ENTITY " ORDER BY seq) p "
            "JOIN events e ON e.log_id BETWEEN p.log_id AND p.log_id + p.event_count - 1",
            -1, &rows, NULL) != SQLITE_OK)
        bench_fail("cannot read %s: %s", path, sqlite3_errmsg(database));
    double begun = bench_seconds();
    while (sqlite3_step(rows) == SQLITE_ROW) {
        count++;
        for (int column = 1; column < 6; column++)
            if (sqlite3_column_blob(rows, column))
                bytes += (uint64_t)sqlite3_column_bytes(rows, column);
    }
    double seconds = bench_seconds() - begun;
    if (count != replay->events || bytes == 0)
        bench_fail("the journal has %llu rows", (unsigned long long)count);
    sqlite3_finalize(rows);
    sqlite3_close(database);
    return (double)count / seconds;
}

static void cold(struct replay *replay) {
    double one[ROUNDS], one_cpu[ROUNDS], lean[ROUNDS], lean_cpu[ROUNDS], bare[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        struct rates rates = read_range(replay, 1, 0, replay->events, false);
        one[round] = rates.wall;
        one_cpu[round] = rates.cpu;
        rates = read_range(replay, 1, 0, replay->events, true);
        lean[round] = rates.wall;
        lean_cpu[round] = rates.cpu;
        bare[round] = bare_read(replay);
    }
    struct rates many_rates =
        read_range(replay, replay->clients, replay->events / 4, replay->each, false);
    double many = many_rates.wall;
    printf("bare SQLite loop: %.0f events/s\n", bench_median(bare, ROUNDS));
    printf("1 client, all %llu: %.0f events/s, khala/bare %.2f; per CPU second: %.0f\n",
           (unsigned long long)replay->events, bench_median(one, ROUNDS),
           bench_median(one, ROUNDS) / bench_median(bare, ROUNDS), bench_median(one_cpu, ROUNDS));
    printf("1 client, all, lean: %.0f events/s, khala/bare %.2f; per CPU second: %.0f\n",
           bench_median(lean, ROUNDS), bench_median(lean, ROUNDS) / bench_median(bare, ROUNDS),
           bench_median(lean_cpu, ROUNDS));
    printf("%u clients at once, %llu each out of the middle: %.0f events/s in all, khala/bare "
           "%.2f; a CPU second: %.0f\n",
           replay->clients, (unsigned long long)replay->each, many,
           many / bench_median(bare, ROUNDS), many_rates.cpu);
    fflush(stdout);
}

static void hot(struct replay *replay, unsigned clients, int rounds) {
    struct rates hot[ROUNDS], cold[ROUNDS];
    double wall[ROUNDS], cpu[ROUNDS];
    for (int round = 0; round < rounds; round++) {
        hot[round] =
            read_range(replay, clients, replay->events - replay->each, replay->each, false);
        cold[round] = read_range(replay, clients, replay->events / 2, replay->each, false);
        wall[round] = hot[round].wall / cold[round].wall;
        cpu[round] = hot[round].cpu / cold[round].cpu;
    }
    printf("%u client%s, %llu each: hot %.0f events/s, cold %.0f, hot/cold %.1f (target %.0f); a "
           "CPU second: hot %.0f, cold %.0f, hot/cold %.1f\n",
           clients, clients == 1 ? "" : "s", (unsigned long long)replay->each, hot[rounds - 1].wall,
           cold[rounds - 1].wall, bench_median(wall, (size_t)rounds), HOT_TARGET,
           hot[rounds - 1].cpu, cold[rounds - 1].cpu, bench_median(cpu, (size_t)rounds));
    fflush(stdout);
}

int main(int count, char **arguments) {
    static struct replay replay;
    struct buffer token;
    char frames_max[32];
    struct bench_setting settings[] = {
        {"RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS", "100000000"},
        {"KHALA_WINDOW_FRAMES_MAX", frames_max},
        {"KHALA_WINDOW_BYTES_MAX", "1073741824"},
        {"KHALA_WINDOWS_BYTES_MAX", "1073741824"},
        {"KHALA_IO_LOOPS", bench_option_text(arguments, "--loops", "0")},
        {NULL, NULL}};
    (void)count;
    replay.events = bench_option(arguments, "--events", 1000000) / BATCH * BATCH;
    replay.each = bench_option(arguments, "--each", 20000);
    replay.clients = (unsigned)bench_option(arguments, "--clients", 100);
    if (replay.events < 4 * replay.each)
        bench_fail("--events must be at least four times --each");
    snprintf(frames_max, sizeof(frames_max), "%llu", (unsigned long long)replay.each + 1000);
    replay.server.settings = settings;
    bench_server_start(&replay.server);
    buffer_init(&token, 8192);
    bench_token(&replay.server, TOPIC, &token);
    publisher_open(&replay.publisher, &replay.server, TOPIC,
                   (unsigned)bench_option(arguments, "--payload", 48));
    replay.options = (struct receiver_options){
        .dialect = receiver_dialect_of(bench_option_text(arguments, "--dialect", "phoenix")),
        .port = replay.server.port,
        .process_count = 1,
        .heartbeat_ms = 20000,
        .token = token.data,
        .topic = TOPIC,
        .replay_batch = REPLAY_BATCH};
    load(&replay);
    cold(&replay);
    hot(&replay, 1, ROUNDS);
    hot(&replay, replay.clients, 1);
    publisher_close(&replay.publisher);
    buffer_release(&token);
    bench_server_stop(&replay.server);
    return 0;
}
