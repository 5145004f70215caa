/* bench latency: the time from an event's due time until a subscriber has it, at 1000 events per
 * second to 1000 subscribers. The baseline is a bare loop that commits the same events to SQLite
 * (WAL, synchronous=FULL) and then writes them to as many sockets, in turns in one run. Both send
 * all due events together, because one write per delivery would exceed the machine. Both measure
 * from the due time, so that a backlog shows.
 *
 * --subscribers N, --rate N   instead of 1000 and 1000
 * --dialect NAME, --loops N, --payload N   as for fanout */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "bare.h"
#include "publisher.h"

#define TOPIC         "bench:latency"
#define ROUNDS        3
#define ROUND_SECONDS 3
#define FRAME_BYTES   4096

struct latency {
    struct bench_server server;
    struct publisher publisher;
    struct receivers receivers;
    struct bare bare;
    uint64_t bare_published;
    size_t frame_bytes; /* of the bare loop; as long as the server's frames */
    sqlite3 *database;
    sqlite3_stmt *insert;
    struct pace khala_pace;
    struct pace bare_pace;
};

struct percentiles {
    double p50[ROUNDS];
    double p99[ROUNDS];
};

static void publish(void *user, unsigned events) {
    struct latency *latency = user;
    publisher_send(&latency->publisher, events);
}

static void sql(struct latency *latency, const char *text) {
    if (sqlite3_exec(latency->database, text, NULL, NULL, NULL) != SQLITE_OK)
        bench_fail("%s: %s", text, sqlite3_errmsg(latency->database));
}

static void bare_publish(void *user, unsigned events) {
    static char bytes[500 * FRAME_BYTES];
    struct latency *latency = user;
    sql(latency, "BEGIN IMMEDIATE");
    for (unsigned i = 0; i < events; i++) {
        sqlite3_bind_int64(latency->insert, 1, (sqlite3_int64)++latency->bare_published);
        sqlite3_bind_blob(latency->insert, 2, bytes, (int)latency->frame_bytes, SQLITE_STATIC);
        if (sqlite3_step(latency->insert) != SQLITE_DONE)
            bench_fail("bare loop: %s", sqlite3_errmsg(latency->database));
        sqlite3_reset(latency->insert);
    }
    sql(latency, "COMMIT");
    bare_write(&latency->bare, (struct slice){bytes, latency->frame_bytes * events});
}

static void bare_store(struct latency *latency) {
    char path[128];
    snprintf(path, sizeof(path), "%s/bare.db", latency->server.folder);
    if (sqlite3_open(path, &latency->database) != SQLITE_OK)
        bench_fail("cannot open %s", path);
    sql(latency, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
                 "CREATE TABLE log (seq INTEGER PRIMARY KEY, payload BLOB)");
    if (sqlite3_prepare_v2(latency->database, "INSERT INTO log VALUES (?, ?)", -1, &latency->insert,
                           NULL) != SQLITE_OK)
        bench_fail("bare loop: %s", sqlite3_errmsg(latency->database));
}

static void round_run(struct pace *pace, struct receivers *receivers, int round,
                      struct percentiles *percentiles) {
    receivers_latency_clear(receivers);
    receivers_expect(receivers,
                     receivers_totals(receivers).updates / receivers->options.count + pace->events);
    pace_run(pace);
    receivers_wait(receivers);
    pace->first += pace->events;
    percentiles->p50[round] = receivers_latency(receivers, 0.50);
    percentiles->p99[round] = receivers_latency(receivers, 0.99);
}

static void begin(struct latency *latency, char **arguments, struct receiver_options *options) {
    uint64_t rate = bench_option(arguments, "--rate", 1000);
    uint64_t events = rate * ROUND_SECONDS;
    publisher_open(&latency->publisher, &latency->server, TOPIC,
                   (unsigned)bench_option(arguments, "--payload", 48));
    publisher_send(&latency->publisher, 1);
    options->after_seq = 1;
    options->due_count = events * ROUNDS + 2;
    latency->khala_pace = (struct pace){.events = events,
                                        .per_second = rate,
                                        .first = 2,
                                        .due_ns = pace_table(options->due_count),
                                        .user = latency,
                                        .send = publish};
    latency->bare_pace = latency->khala_pace;
    latency->bare_pace.first = 1;
    latency->bare_pace.due_ns = pace_table(options->due_count);
    latency->bare_pace.send = bare_publish;
    options->due_ns = latency->khala_pace.due_ns;
    receivers_start(&latency->receivers, options);
    bare_store(latency);
    struct receiver_options raw = {.count = options->count,
                                   .process_count = 1,
                                   .frame_bytes = 1,
                                   .due_ns = latency->bare_pace.due_ns,
                                   .due_count = options->due_count};
    bare_open(&latency->bare, &raw);
}

static void report(const char *name, const struct percentiles *khala,
                   const struct percentiles *bare) {
    printf("%s  khala p50 %.2f ms p99 %.2f ms, bare p50 %.2f ms p99 %.2f ms, khala/bare p50 %.2f "
           "p99 %.2f\n",
           name, 1e3 * bench_median(khala->p50, ROUNDS), 1e3 * bench_median(khala->p99, ROUNDS),
           1e3 * bench_median(bare->p50, ROUNDS), 1e3 * bench_median(bare->p99, ROUNDS),
           bench_median(khala->p50, ROUNDS) / bench_median(bare->p50, ROUNDS),
           bench_median(khala->p99, ROUNDS) / bench_median(bare->p99, ROUNDS));
}

int main(int count, char **arguments) {
    static struct latency latency;
    struct buffer token;
    char name[96];
    struct percentiles khala, bare;
    struct bench_setting settings[] = {
        {"KHALA_IO_LOOPS", bench_option_text(arguments, "--loops", "1")}, {NULL, NULL}};
    (void)count;
    latency.server.settings = settings;
    bench_server_start(&latency.server);
    buffer_init(&token, 8192);
    bench_token(&latency.server, TOPIC, &token);
    struct receiver_options options = {
        .dialect = receiver_dialect_of(bench_option_text(arguments, "--dialect", "phoenix")),
        .port = latency.server.port,
        .count = (unsigned)bench_option(arguments, "--subscribers", 1000),
        .process_count = 1,
        .heartbeat_ms = 20000,
        .token = token.data,
        .topic = TOPIC};
    begin(&latency, arguments, &options);
    for (int round = 0; round < ROUNDS; round++) {
        round_run(&latency.khala_pace, &latency.receivers, round, &khala);
        struct receiver_totals totals = receivers_totals(&latency.receivers);
        latency.frame_bytes = totals.bytes / totals.updates;
        if (latency.frame_bytes > FRAME_BYTES)
            latency.frame_bytes = FRAME_BYTES;
        receivers_frame_bytes(&latency.bare.receivers, latency.frame_bytes);
        round_run(&latency.bare_pace, &latency.bare.receivers, round, &bare);
    }
    snprintf(name, sizeof(name), "%llu events/s to %u subscribers, %zu bytes each:",
             (unsigned long long)latency.khala_pace.per_second, options.count, latency.frame_bytes);
    report(name, &khala, &bare);
    bare_close(&latency.bare);
    receivers_stop(&latency.receivers);
    sqlite3_finalize(latency.insert);
    sqlite3_close(latency.database);
    publisher_close(&latency.publisher);
    buffer_release(&token);
    bench_server_stop(&latency.server);
    return 0;
}
