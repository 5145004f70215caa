/* bench cluster: several nodes over one PostgreSQL.
 *
 * Delivery: the time from an event's due time until a subscriber has it. Three nodes with 1000
 * subscribers on each, against one node with all 3000 on a database of its own, in turns, for each
 * wake-up driver. So both sides give the machine the same number of deliveries. The figure of the
 * other nodes includes the wake-up and the read of the log. The driver memory wakes no other node;
 * these poll the log. Appends: events per second at the writer with one, two and three nodes
 * attached, in turns.
 *
 * --subscribers N   on each node, instead of 1000
 * --rate N          events per second, instead of 20
 * --driver NAME     only this driver */
#include <stdio.h>
#include <stdlib.h>

#include "publisher.h"
#include "receivers.h"
#include "service.h"

#define TOPIC          "bench:cluster"
#define NODES_MAX      3
#define ROUNDS         5
#define ROUND_SECONDS  3
#define BATCH_EVENTS   64
#define BATCHES        1600 /* of one round of appends */
#define APPEND_CLIENTS 4
#define PAYLOAD_BYTES  48

struct cluster {
    unsigned count;
    char url[160];
    struct bench_setting settings[5];
    struct bench_server nodes[NODES_MAX];
    struct publisher publisher;
    struct receivers receivers[NODES_MAX];
    struct buffer token;
    struct pace pace;
};

static struct bench_service postgres;

static void node_start(struct cluster *cluster, unsigned index) {
    cluster->nodes[index].settings = cluster->settings;
    bench_server_start(&cluster->nodes[index]);
}

/* The first node takes the writer role. */
static void cluster_start(struct cluster *cluster, unsigned count, const char *driver,
                          const char *driver_url) {
    static unsigned databases;
    char name[32];
    snprintf(name, sizeof(name), "cluster%u", ++databases);
    bench_postgres_create(&postgres, name, cluster->url);
    *cluster->settings = (struct bench_setting){"DB_URL", cluster->url};
    cluster->settings[1] = (struct bench_setting){"RUNTIME_FANOUT_DRIVER", driver};
    cluster->settings[2] =
        (struct bench_setting){"RUNTIME_FANOUT_URL", driver_url ? driver_url : cluster->url};
    cluster->settings[3] = (struct bench_setting){"KHALA_IO_LOOPS", "1"};
    cluster->settings[4] = (struct bench_setting){NULL, NULL};
    cluster->count = count;
    for (unsigned i = 0; i < count; i++)
        node_start(cluster, i);
}

static void cluster_stop(struct cluster *cluster) {
    for (unsigned i = cluster->count; i-- > 0;)
        bench_server_stop(&cluster->nodes[i]);
}

/* ---- delivery -------------------------------------------------------------------------------- */

static void publish(void *user, unsigned events) {
    struct cluster *cluster = user;
    publisher_send(&cluster->publisher, events);
}

static void subscribe(struct cluster *cluster, unsigned subscribers, uint64_t rate) {
    uint64_t events = rate * ROUND_SECONDS;
    publisher_open(&cluster->publisher, &cluster->nodes[0], TOPIC, PAYLOAD_BYTES);
    publisher_send(&cluster->publisher, 1);
    buffer_init(&cluster->token, 8192);
    bench_token(&cluster->nodes[0], TOPIC, &cluster->token);
    cluster->pace = (struct pace){.events = events,
                                  .per_second = rate,
                                  .first = 2,
                                  .due_ns = pace_table(events * ROUNDS + 2),
                                  .user = cluster,
                                  .send = publish};
    for (unsigned i = 0; i < cluster->count; i++)
        receivers_start(&cluster->receivers[i],
                        &(struct receiver_options){.dialect = RECEIVER_PHOENIX,
                                                   .port = cluster->nodes[i].port,
                                                   .count = subscribers,
                                                   .process_count = 1,
                                                   .heartbeat_ms = 20000,
                                                   .token = cluster->token.data,
                                                   .topic = TOPIC,
                                                   .after_seq = 1,
                                                   .due_ns = cluster->pace.due_ns,
                                                   .due_count = events * ROUNDS + 2});
}

static void delivery_round(struct cluster *cluster) {
    for (unsigned i = 0; i < cluster->count; i++) {
        struct receivers *receivers = &cluster->receivers[i];
        receivers_latency_clear(receivers);
        receivers_expect(receivers, receivers_totals(receivers).updates / receivers->options.count +
                                        cluster->pace.events);
    }
    pace_run(&cluster->pace);
    for (unsigned i = 0; i < cluster->count; i++)
        receivers_wait(&cluster->receivers[i]);
    cluster->pace.first += cluster->pace.events;
}

static void unsubscribe(struct cluster *cluster) {
    for (unsigned i = 0; i < cluster->count; i++)
        receivers_stop(&cluster->receivers[i]);
    publisher_close(&cluster->publisher);
    buffer_release(&cluster->token);
}

struct latency {
    double p50[ROUNDS];
    double p99[ROUNDS];
};

static void measure(struct latency *latency, int round, const struct receivers *receivers) {
    latency->p50[round] = 1e3 * receivers_latency(receivers, 0.50);
    latency->p99[round] = 1e3 * receivers_latency(receivers, 0.99);
}

static void delivery(const char *driver, const char *driver_url, unsigned subscribers,
                     uint64_t rate) {
    static struct cluster one, three;
    struct latency alone, writer, other;
    double ratios[ROUNDS];
    cluster_start(&one, 1, driver, driver_url);
    cluster_start(&three, NODES_MAX, driver, driver_url);
    subscribe(&one, subscribers * NODES_MAX, rate);
    subscribe(&three, subscribers, rate);
    for (int round = 0; round < ROUNDS; round++) {
        delivery_round(&one);
        measure(&alone, round, &one.receivers[0]);
        delivery_round(&three);
        measure(&writer, round, &three.receivers[0]);
        measure(&other, round, &three.receivers[1]);
        ratios[round] = other.p50[round] / alone.p50[round];
    }
    printf("%-15s  one node p50 %.2f ms p99 %.2f ms; of three nodes: writer p50 %.2f ms p99 %.2f "
           "ms, another p50 %.2f ms p99 %.2f ms; another/one p50 %.2f (target 2)\n",
           driver, bench_median(alone.p50, ROUNDS), bench_median(alone.p99, ROUNDS),
           bench_median(writer.p50, ROUNDS), bench_median(writer.p99, ROUNDS),
           bench_median(other.p50, ROUNDS), bench_median(other.p99, ROUNDS),
           bench_median(ratios, ROUNDS));
    fflush(stdout);
    unsubscribe(&three);
    unsubscribe(&one);
    cluster_stop(&three);
    cluster_stop(&one);
}

/* Redis keeps no file. */
static const char *const *arguments_of(size_t driver) {
    static const char *const redis[] = {"--save", "", "--appendonly", "no", NULL};
    static const char *const none[] = {NULL};
    return driver == 2 ? redis : none;
}

static void deliveries(char **arguments) {
    static const char *const drivers[] = {"postgres_notify", "nats", "redis", "memory"};
    const char *wanted = bench_option_text(arguments, "--driver", NULL);
    unsigned subscribers = (unsigned)bench_option(arguments, "--subscribers", 1000);
    uint64_t rate = bench_option(arguments, "--rate", 20);
    printf("delivery, %llu events/s to %u subscribers on each of three nodes, or to all on one\n",
           (unsigned long long)rate, subscribers);
    for (size_t i = 0; i < sizeof(drivers) / sizeof(*drivers); i++) {
        struct bench_service service;
        bool has_server = i == 1 || i == 2;
        if (wanted && strcmp(wanted, drivers[i]) != 0)
            continue;
        if (has_server && !bench_service_start(&service, drivers[i], arguments_of(i))) {
            printf("%-15s  not installed, not measured\n", drivers[i]);
            continue;
        }
        delivery(drivers[i], has_server ? service.url : NULL, subscribers, rate);
        if (has_server)
            bench_service_stop(&service);
    }
}

/* ---- appends --------------------------------------------------------------------------------- */

struct load {
    struct buffer request;
    unsigned left;
};

static bool load_next(void *user, unsigned connection, struct slice *request) {
    struct load *load = user;
    (void)connection;
    *request = buffer_slice(&load->request);
    return load->left > 0 && load->left--;
}

static void load_prepare(struct load *load, const struct bench_server *server) {
    struct buffer body;
    buffer_init(&load->request, 1 << 20);
    buffer_init(&body, 1 << 20);
    for (unsigned i = 0; i < BATCH_EVENTS; i++)
        if (buffer_printf(&body,
                          "{\"topic\":\"bench:load\",\"event_type\":\"tick\",\"payload\":"
                          "{\"pad\":\"%0*d\"}}\n",
                          PAYLOAD_BYTES, 0) != STATUS_OK)
            bench_fail("out of memory");
    bench_post(&load->request, server, "/internal/v1/events:batch", "application/x-ndjson",
               buffer_slice(&body));
    buffer_release(&body);
}

/* Events per second, and CPU time of the writer for one event. */
struct append_figures {
    double rates[ROUNDS];
    double writer_us[ROUNDS];
};

static void append_round(struct append_figures *figures, int round,
                         const struct bench_server *writer, struct load *load) {
    double events = BATCHES * BATCH_EVENTS;
    double cpu = bench_cpu_seconds(writer->pid);
    load->left = BATCHES;
    figures->rates[round] = events / bench_drive(writer, APPEND_CLIENTS, load, load_next);
    figures->writer_us[round] = (bench_cpu_seconds(writer->pid) - cpu) * 1e6 / events;
}

static void appends(void) {
    static struct cluster cluster;
    struct append_figures figures[NODES_MAX];
    struct load load;
    cluster_start(&cluster, 1, "postgres_notify", NULL);
    load_prepare(&load, &cluster.nodes[0]);
    append_round(&figures[0], 0, &cluster.nodes[0], &load);
    double follower = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (unsigned count = 1; count <= NODES_MAX; count++) {
            if (count > 1)
                node_start(&cluster, count - 1);
            double cpu = count > 1 ? bench_cpu_seconds(cluster.nodes[1].pid) : 0;
            append_round(&figures[count - 1], round, &cluster.nodes[0], &load);
            if (count == 2)
                follower += bench_cpu_seconds(cluster.nodes[1].pid) - cpu;
        }
        for (unsigned index = NODES_MAX; index-- > 1;)
            bench_server_stop(&cluster.nodes[index]);
    }
    printf("appends in batches of %d from %d connections\n", BATCH_EVENTS, APPEND_CLIENTS);
    double one = bench_median(figures[0].rates, ROUNDS);
    for (unsigned count = 1; count <= NODES_MAX; count++)
        printf("%u nodes: %.0f/s, %.2f times one node (target 0.90), CPU of the writer %.1f us an "
               "event\n",
               count, bench_median(figures[count - 1].rates, ROUNDS),
               bench_median(figures[count - 1].rates, ROUNDS) / one,
               bench_median(figures[count - 1].writer_us, ROUNDS));
    printf("CPU of another node: %.1f us an event\n",
           follower * 1e6 / (ROUNDS * BATCHES * BATCH_EVENTS));
    buffer_release(&load.request);
    cluster_stop(&cluster);
}

int main(int count, char **arguments) {
    (void)count;
    bench_postgres_start(&postgres);
    deliveries(arguments);
    appends();
    bench_service_stop(&postgres);
    return 0;
}
