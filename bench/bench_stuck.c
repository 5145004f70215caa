/* bench stuck: how much 1000 clients that never read slow down the others. It measures the latency
 * of healthy clients at a steady rate, with and without the stuck clients, in turns. Before each
 * measurement it publishes enough events to fill the sockets of the stuck clients.
 *
 * --stuck N        stuck clients (default 1000)
 * --subscribers N  healthy clients (default 200)
 * --rate N         events per second (default 200)
 * --loops N        io loops of the server (default 1) */
#include <stdio.h>

#include "publisher.h"
#include "receivers.h"

#define TOPIC         "bench:stuck"
#define ROUNDS        3
#define ROUND_SECONDS 3
#define PAYLOAD_BYTES 1000
#define FILL_EVENTS   200
#define FILL_BATCHES  2

struct stuck {
    struct bench_server server;
    struct publisher publisher;
    struct receivers healthy;
    struct receivers jammed;
    struct pace pace;
};

static void publish(void *user, unsigned events) {
    struct stuck *stuck = user;
    publisher_send(&stuck->publisher, events);
}

static void fill(struct stuck *stuck) {
    for (int i = 0; i < FILL_BATCHES; i++) {
        receivers_expect(&stuck->healthy, stuck->publisher.published - 1 + FILL_EVENTS);
        publisher_send(&stuck->publisher, FILL_EVENTS);
        receivers_wait(&stuck->healthy);
    }
    stuck->pace.first = stuck->publisher.published + 1;
}

static void measure(struct stuck *stuck, double *p50, double *p99) {
    fill(stuck);
    receivers_latency_clear(&stuck->healthy);
    receivers_expect(&stuck->healthy, stuck->publisher.published - 1 + stuck->pace.events);
    pace_run(&stuck->pace);
    receivers_wait(&stuck->healthy);
    *p50 = receivers_latency(&stuck->healthy, 0.50);
    *p99 = receivers_latency(&stuck->healthy, 0.99);
}

static void rounds(struct stuck *stuck, struct receiver_options jammed) {
    double p50[2][ROUNDS], p99[2][ROUNDS], grown[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        measure(stuck, &p50[0][round], &p99[0][round]);
        double before = (double)bench_server_rss_bytes(&stuck->server);
        jammed.after_seq = stuck->publisher.published;
        receivers_start(&stuck->jammed, &jammed);
        measure(stuck, &p50[1][round], &p99[1][round]);
        grown[round] = (double)bench_server_rss_bytes(&stuck->server) - before;
        receivers_stop(&stuck->jammed);
    }
    printf("healthy alone p50 %.2f ms p99 %.2f ms, beside %u stuck p50 %.2f ms p99 %.2f ms, ratio "
           "p50 %.2f p99 %.2f\n",
           1e3 * bench_median(p50[0], ROUNDS), 1e3 * bench_median(p99[0], ROUNDS), jammed.count,
           1e3 * bench_median(p50[1], ROUNDS), 1e3 * bench_median(p99[1], ROUNDS),
           bench_median(p50[1], ROUNDS) / bench_median(p50[0], ROUNDS),
           bench_median(p99[1], ROUNDS) / bench_median(p99[0], ROUNDS));
    printf("resident memory of the server grew by %.1f MiB with stuck clients (first round %.1f)\n",
           bench_median(grown, ROUNDS) / 1048576, grown[0] / 1048576);
}

int main(int count, char **arguments) {
    static struct stuck stuck;
    struct buffer token;
    struct bench_setting settings[] = {
        {"KHALA_IO_LOOPS", bench_option_text(arguments, "--loops", "1")}, {NULL, NULL}};
    uint64_t rate = bench_option(arguments, "--rate", 200);
    (void)count;
    stuck.server.settings = settings;
    bench_server_start(&stuck.server);
    buffer_init(&token, 8192);
    bench_token(&stuck.server, TOPIC, &token);
    publisher_open(&stuck.publisher, &stuck.server, TOPIC, PAYLOAD_BYTES);
    publisher_send(&stuck.publisher, 1);
    stuck.pace = (struct pace){
        .events = rate * ROUND_SECONDS, .per_second = rate, .user = &stuck, .send = publish};
    struct receiver_options options = {
        .dialect = RECEIVER_PHOENIX,
        .port = stuck.server.port,
        .count = (unsigned)bench_option(arguments, "--subscribers", 200),
        .process_count = 1,
        .heartbeat_ms = 20000,
        .token = token.data,
        .topic = TOPIC,
        .after_seq = 1,
        .due_count = 2 * ROUNDS * (stuck.pace.events + FILL_EVENTS * FILL_BATCHES) + 2};
    options.due_ns = stuck.pace.due_ns = pace_table(options.due_count);
    receivers_start(&stuck.healthy, &options);
    options.count = (unsigned)bench_option(arguments, "--stuck", 1000);
    options.due_ns = NULL;
    options.stuck = options.may_end = true;
    rounds(&stuck, options);
    receivers_stop(&stuck.healthy);
    publisher_close(&stuck.publisher);
    buffer_release(&token);
    bench_server_stop(&stuck.server);
    return 0;
}
