/* bench idle: the cost of subscribed, silent connections: the server's memory for each, and its CPU
 * with heartbeats of both sides.
 *
 * --connections N  default 15000
 * --loops N        io loops of the server (default: the server's), each with its own descriptor
 * table
 * --seconds N      length of the measurement (default 30, two heartbeats of the server) */
#include <poll.h>
#include <stdio.h>

#include "publisher.h"
#include "receivers.h"

#define TOPIC               "bench:idle"
#define CLIENT_HEARTBEAT_MS 30000
#define PROCESS_CONNECTIONS 15000
#define MEMORY_TARGET_BYTES 2048.0
#define CPU_TARGET_PERCENT  2.0

struct footprint {
    double resident;
    double anonymous;
};

static struct footprint footprint(const struct bench_server *server) {
    return (struct footprint){(double)bench_server_rss_bytes(server),
                              (double)bench_server_anonymous_bytes(server)};
}

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

int main(int count, char **arguments) {
    static struct bench_server server;
    static struct receivers receivers;
    struct publisher publisher;
    struct buffer token;
    char connections_max[32];
    unsigned wanted = (unsigned)bench_option(arguments, "--connections", 15000);
    struct bench_setting settings[] = {
        {"KHALA_CONNECTIONS_MAX", connections_max},
        {"KHALA_IO_LOOPS", bench_option_text(arguments, "--loops", "0")},
        {"KHALA_LOOPS_OWN_DESCRIPTORS", wanted > PROCESS_CONNECTIONS ? "true" : "false"},
        {NULL, NULL}};
    (void)count;
    snprintf(connections_max, sizeof(connections_max), "%u", wanted + 100);
    server.settings = settings;
    bench_server_start(&server);
    buffer_init(&token, 8192);
    bench_token(&server, TOPIC, &token);
    publisher_open(&publisher, &server, TOPIC, 48);
    publisher_send(&publisher, 1);
    struct footprint before = footprint(&server);
    double begun = bench_seconds();
    receivers_fork(&receivers, &(struct receiver_options){
                                   .dialect = RECEIVER_PHOENIX,
                                   .port = server.port,
                                   .count = wanted,
                                   .process_count = (wanted - 1) / PROCESS_CONNECTIONS + 1,
                                   .token = token.data,
                                   .topic = TOPIC,
                                   .after_seq = 1,
                                   .may_end = true,
                                   .heartbeat_ms = CLIENT_HEARTBEAT_MS});
    unsigned ready = receivers_wait_ready(&receivers);
    if (ready < wanted)
        printf("the server accepted only %u of %u connections\n", ready, wanted);
    if (ready == 0)
        bench_fail("no connection");
    printf("%u connections subscribed in %.1f s\n", ready, bench_seconds() - begun);
    struct footprint after = footprint(&server);
    printf("%u connections: resident memory %.0f bytes each, of it anonymous %.0f (target %.0f); "
           "%.1f MiB before, %.1f MiB after\n",
           ready, (after.resident - before.resident) / ready,
           (after.anonymous - before.anonymous) / ready, MEMORY_TARGET_BYTES,
           before.resident / 1048576, after.resident / 1048576);
    fflush(stdout);
    measure_cpu(&server, &receivers, ready, (unsigned)bench_option(arguments, "--seconds", 30));
    after = footprint(&server);
    printf("%u connections: resident memory %.0f bytes each after that\n", ready,
           (after.resident - before.resident) / ready);
    receivers_stop(&receivers);
    publisher_close(&publisher);
    buffer_release(&token);
    bench_server_stop(&server);
    return 0;
}
