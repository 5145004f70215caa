#include <poll.h>

#include "work.h"

#define BURST          50
#define ROUND_SECONDS  1.0
#define QUICK_SECONDS  0.2
#define PUBLISHES_MAX  100000 /* per round */
#define LOAD_BATCH     1000
#define SETTLE_MS      1000 /* until a server has released the memory of the handshakes */
#define REPLAY_EACH    50   /* one of many clients gets this fraction of the topic */
#define RETURN_BEHIND  100
#define RETURN_EVENTS  1000
#define REPLAY_CLIENTS 100

bool work_delivery_supports(const struct peer *peer, const struct work *work) {
    return peer->delivery && peer->delivery->kinds & 1U << work->kind;
}

static struct receiver_options options_of(const struct peer *peer, const struct work *work,
                                          const struct peer_server *server) {
    bool is_live = work->kind == DELIVERY_FANOUT || work->kind == DELIVERY_IDLE;
    return (struct receiver_options){.dialect = peer->delivery->dialect,
                                     .peer =
                                         is_live ? peer->delivery->live : peer->delivery->behind,
                                     .port = server->port,
                                     .count = work->clients,
                                     .process_count = 1,
                                     .token = server->token.data,
                                     .topic = PEER_TOPIC,
                                     .after_seq = server->published,
                                     .count_all = true,
                                     .is_faulty = work->fault == FAULT_EVENT};
}

static void finish(const struct peer *peer, struct peer_server *server) {
    if (peer->delivery->check)
        peer->delivery->check(server);
    peer->delivery->stop(server);
}

/* ---- live ---- */

struct fanout {
    const struct peer *peer;
    struct peer_server server;
    struct receivers receivers;
    unsigned clients;
    double seconds;
};

static struct sample fanout_round(struct fanout *fanout, unsigned burst) {
    struct peer_server *server = &fanout->server;
    uint64_t first = server->published;
    double cpu = peer_cpu_seconds(server->pid), begun = bench_seconds();
    for (unsigned i = 0; i < PUBLISHES_MAX && bench_seconds() - begun < fanout->seconds; i++) {
        receivers_expect(&fanout->receivers, server->published + burst);
        fanout->peer->delivery->publish(server, burst, fanout->clients);
        receivers_wait(&fanout->receivers);
    }
    double seconds = bench_seconds() - begun;
    cpu = peer_cpu_seconds(server->pid) - cpu;
    double deliveries = (double)(server->published - first) * fanout->clients;
    return (struct sample){.cost = cpu * 1e6 / deliveries, .rate = deliveries / seconds};
}

void work_fanout(const struct peer *peer, const struct work *work, struct sample samples[2]) {
    static struct fanout fanout;
    fanout.peer = peer;
    fanout.clients = work->clients;
    fanout.seconds = work->is_quick ? QUICK_SECONDS : ROUND_SECONDS;
    fanout.server.name = peer->name;
    peer->delivery->start(&fanout.server, work->kind);
    struct receiver_options options = options_of(peer, work, &fanout.server);
    receivers_start(&fanout.receivers, &options);
    fanout_round(&fanout, BURST);
    samples[0] = fanout_round(&fanout, 1);
    samples[1] = fanout_round(&fanout, BURST);
    receivers_stop(&fanout.receivers);
    if (peer->delivery->stores_live)
        peer->delivery->check(&fanout.server);
    peer->delivery->stop(&fanout.server);
}

void work_idle(const struct peer *peer, const struct work *work, struct sample samples[2]) {
    static struct peer_server server;
    static struct receivers receivers;
    server.name = peer->name;
    peer->delivery->start(&server, work->kind);
    const struct bench_server process = {.pid = server.pid};
    struct receiver_options options = options_of(peer, work, &server);
    uint64_t before = bench_server_rss_bytes(&process);
    receivers_start(&receivers, &options);
    poll(NULL, 0, SETTLE_MS);
    samples[0].cost = (double)(bench_server_rss_bytes(&process) - before) / (double)options.count;
    /* They are subscribed: each gets an event. */
    receivers_expect(&receivers, 1);
    peer->delivery->publish(&server, 1, options.count);
    receivers_wait(&receivers);
    receivers_stop(&receivers);
    peer->delivery->stop(&server);
}

/* ---- behind ---- */

static void load(const struct peer *peer, struct peer_server *server, uint64_t events) {
    while (server->published < events)
        peer->delivery->publish(server, LOAD_BATCH, 0);
}

/* The cost and rate are per client; the caller divides them by events. */
static struct sample catch_up(const struct peer_server *server,
                              const struct receiver_options *options) {
    static struct receivers receivers;
    double cpu = peer_cpu_seconds(server->pid), begun = bench_seconds();
    receivers_fork(&receivers, options);
    receivers_wait(&receivers);
    double seconds = bench_seconds() - begun;
    cpu = peer_cpu_seconds(server->pid) - cpu;
    receivers_stop(&receivers);
    return (struct sample){.cost = cpu * 1e6 / options->count, .rate = options->count / seconds};
}

static struct sample replay(const struct peer_server *server,
                            const struct receiver_options *options) {
    struct sample sample = catch_up(server, options);
    sample.cost /= (double)options->expected;
    sample.rate *= (double)options->expected;
    return sample;
}

void work_replay(const struct peer *peer, const struct work *work, struct sample samples[2]) {
    static struct peer_server server;
    server.name = peer->name;
    peer->delivery->start(&server, work->kind);
    load(peer, &server, work->events);
    struct receiver_options options = options_of(peer, work, &server);
    options.count = 1;
    options.after_seq = 0;
    options.expected = work->events;
    samples[0] = replay(&server, &options);
    options.count = work->clients;
    options.expected = work->events / REPLAY_EACH;
    options.after_seq =
        peer->delivery->reads_to_tail ? work->events - options.expected : work->events / 4;
    samples[1] = replay(&server, &options);
    finish(peer, &server);
}

void work_return(const struct peer *peer, const struct work *work, struct sample samples[2]) {
    static struct peer_server server;
    server.name = peer->name;
    peer->delivery->start(&server, work->kind);
    load(peer, &server, RETURN_EVENTS);
    struct receiver_options options = options_of(peer, work, &server);
    options.after_seq = server.published - RETURN_BEHIND;
    options.expected = RETURN_BEHIND;
    samples[0] = catch_up(&server, &options);
    finish(peer, &server);
}
