/* bench fanout: one publisher, many subscribers of one topic over WebSocket, against a bare loop
 * that writes to as many sockets, in turns in one run.
 *
 * The figure is deliveries per second of CPU time: of the whole server process, including HTTP,
 * commit and encoding, and of the writing thread of the bare loop. Alone: the publisher sends an
 * event when all subscribers have the previous one; the bare loop writes one frame per write.
 * Burst: 50 events in one batch; the bare loop writes 8 frames per write. Every client checks that
 * no frame is missing. At the end: one active tenant of a shared topic, alone and beside many idle
 * tenants.
 *
 * --subscribers N     only this number (default: 1000, then 10000)
 * --dialect NAME      phoenix (default), topic_ws or sse
 * --deflate           with permessage-deflate
 * --lean              only with form=lean; otherwise each form has its rows
 * --loops N           io loops of the server (default 1)
 * --payload N         bytes of an event's payload (default 48)
 * --tenants N         idle tenants (default 10000); alone: only this measurement */
#include <stdio.h>

#include "bare.h"
#include "publisher.h"
#include "tenants.h"

#define TOPIC            "bench:fanout"
#define FRAME_BYTES      300
#define BURST            50
#define FRAMES_PER_WRITE 8
#define ROUNDS           7
#define ROUND_SECONDS    0.4
#define PUBLISHES_MAX    100000 /* per round */

struct rates {
    double cpu;  /* deliveries per second of CPU */
    double wall; /* deliveries per second */
    double wire_bytes;
    double updates_per_message;
};

struct fanout {
    struct bench_server server;
    struct publisher publisher;
    struct receivers receivers;
    struct bare bare;
    uint64_t bare_frames; /* sent to each receiver */
    uint64_t after_seq;   /* start position of the receivers */
};

/* ---- the server ---------------------------------------------------------------------------- */

static struct rates khala_round(struct fanout *fanout, unsigned burst) {
    struct receiver_totals before = receivers_totals(&fanout->receivers);
    double cpu = bench_cpu_seconds(fanout->server.pid);
    double begun = bench_seconds();
    for (unsigned i = 0; i < PUBLISHES_MAX && bench_seconds() - begun < ROUND_SECONDS; i++) {
        receivers_expect(&fanout->receivers,
                         fanout->publisher.published + burst - fanout->after_seq);
        publisher_send(&fanout->publisher, burst);
        receivers_wait(&fanout->receivers);
    }
    double seconds = bench_seconds() - begun;
    cpu = bench_cpu_seconds(fanout->server.pid) - cpu;
    struct receiver_totals after = receivers_totals(&fanout->receivers);
    double updates = (double)(after.updates - before.updates);
    return (struct rates){.cpu = updates / cpu,
                          .wall = updates / seconds,
                          .wire_bytes = (double)(after.bytes - before.bytes) / updates,
                          .updates_per_message =
                              updates / (double)(after.messages - before.messages)};
}

/* ---- the bare loop ------------------------------------------------------------------------- */

static struct rates bare_round(struct fanout *fanout, size_t frame_bytes, unsigned frames,
                               unsigned sweeps) {
    static char bytes[FRAMES_PER_WRITE * 8192];
    struct slice piece = {bytes, frame_bytes * frames};
    uint64_t updates = 0;
    if (piece.size > sizeof(bytes))
        bench_fail("frames of %zu bytes", frame_bytes);
    receivers_frame_bytes(&fanout->bare.receivers, frame_bytes);
    double cpu = bare_cpu_seconds();
    double begun = bench_seconds();
    for (unsigned i = 0; i < PUBLISHES_MAX && bench_seconds() - begun < ROUND_SECONDS; i++) {
        fanout->bare_frames += frames * sweeps;
        receivers_expect(&fanout->bare.receivers, fanout->bare_frames);
        for (unsigned sweep = 0; sweep < sweeps; sweep++)
            bare_write(&fanout->bare, piece);
        receivers_wait(&fanout->bare.receivers);
        updates += (uint64_t)frames * sweeps * fanout->bare.count;
    }
    double seconds = bench_seconds() - begun;
    cpu = bare_cpu_seconds() - cpu;
    return (struct rates){.cpu = (double)updates / cpu, .wall = (double)updates / seconds};
}

/* ---- the figures --------------------------------------------------------------------------- */

/* One ratio per round, because the load of the machine changes between rounds. */
struct ratios {
    double khala[ROUNDS];
    double wall[ROUNDS];
    double bare[ROUNDS];
    double to_bare[ROUNDS];
    double to_same[ROUNDS];
};

static void measure_shape(struct fanout *fanout, const struct receiver_options *options,
                          bool is_burst) {
    struct ratios all;
    struct rates rates = {0};
    unsigned frames = is_burst ? FRAMES_PER_WRITE : 1;
    unsigned sweeps = is_burst ? BURST / FRAMES_PER_WRITE : 1;
    for (int round = 0; round < ROUNDS; round++) {
        rates = khala_round(fanout, is_burst ? BURST : 1);
        all.khala[round] = rates.cpu;
        all.wall[round] = rates.wall;
        all.bare[round] = bare_round(fanout, FRAME_BYTES, frames, sweeps).cpu;
        all.to_bare[round] = rates.cpu / all.bare[round];
        all.to_same[round] =
            rates.cpu / bare_round(fanout, (size_t)rates.wire_bytes, frames, sweeps).cpu;
    }
    printf("%11u  %-4s  %-11s  %10.0f  %9.0f  %10.2f  %6.2f  %10.2f  %12.0f  %15.1f  %12.0f\n",
           options->count, options->lean ? "lean" : "full", is_burst ? "burst of 50" : "alone",
           bench_median(all.khala, ROUNDS), bench_median(all.bare, ROUNDS),
           bench_median(all.to_bare, ROUNDS), is_burst ? 0.60 : 0.85,
           bench_median(all.to_same, ROUNDS), rates.wire_bytes, rates.updates_per_message,
           bench_median(all.wall, ROUNDS));
    fflush(stdout);
}

static void measure_subscribers(struct fanout *fanout, struct receiver_options options,
                                unsigned subscribers) {
    publisher_send(&fanout->publisher, 1);
    fanout->after_seq = options.after_seq = fanout->publisher.published;
    options.count = subscribers;
    receivers_start(&fanout->receivers, &options);
    bare_open(&fanout->bare, &(struct receiver_options){.count = subscribers,
                                                        .process_count = options.process_count,
                                                        .frame_bytes = FRAME_BYTES});
    fanout->bare_frames = 0;
    measure_shape(fanout, &options, false);
    measure_shape(fanout, &options, true);
    bare_close(&fanout->bare);
    receivers_stop(&fanout->receivers);
}

int main(int count, char **arguments) {
    static struct fanout fanout;
    struct buffer token;
    const char *dialect = bench_option_text(arguments, "--dialect", "phoenix");
    struct bench_setting settings[] = {
        {"KHALA_IO_LOOPS", bench_option_text(arguments, "--loops", "1")}, {NULL, NULL}};
    unsigned only = (unsigned)bench_option(arguments, "--subscribers", 0);
    unsigned tenants = (unsigned)bench_option(arguments, "--tenants", 10000);
    if (count == 3 && strcmp(arguments[1], "--tenants") == 0) {
        tenants_measure(tenants);
        tenants_replay();
        return 0;
    }
    fanout.server.settings = settings;
    bench_server_start(&fanout.server);
    buffer_init(&token, 8192);
    bench_token(&fanout.server, TOPIC, &token);
    publisher_open(&fanout.publisher, &fanout.server, TOPIC,
                   (unsigned)bench_option(arguments, "--payload", 48));
    struct receiver_options options = {.dialect = receiver_dialect_of(dialect),
                                       .port = fanout.server.port,
                                       .process_count = 1,
                                       .token = token.data,
                                       .topic = TOPIC,
                                       .deflate = bench_option(arguments, "--deflate", 0),
                                       .lean = bench_option(arguments, "--lean", 0)};
    bool is_lean = options.lean;
    printf("deliveries per CPU second, %s%s; the bare loop writes frames of %d bytes, 1 or %d per "
           "write, for khala/same as long as khala's\n",
           dialect, options.deflate ? " with deflate" : "", FRAME_BYTES, FRAMES_PER_WRITE);
    printf("subscribers  form  published    khala/CPUs  bare/CPUs  khala/bare  target  khala/same  "
           "bytes/update  updates/message  khala/second\n");
    for (int form = is_lean; form < 2; form++) {
        options.lean = form == 1;
        measure_subscribers(&fanout, options, only ? only : 1000);
        if (!only)
            measure_subscribers(&fanout, options, 10000);
    }
    publisher_close(&fanout.publisher);
    buffer_release(&token);
    bench_server_stop(&fanout.server);
    tenants_measure(tenants);
    tenants_replay();
    return 0;
}
