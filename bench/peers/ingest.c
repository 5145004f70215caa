#include "work.h"

#include <stdlib.h>

#define REQUEST_BYTES_MAX ((size_t)8 << 20)
#define WARM_UP_SHARE     10 /* one of so many events is sent before the measurement */

static bool next_request(void *user, unsigned connection, struct slice *request) {
    struct peer_load *load = user;
    struct ingest *ingest = &load->ingest;
    struct ingest_conn *conn = &ingest->conns[connection];
    if (ingest->events == 0)
        return false;
    conn->events = ingest->events < ingest->batch ? (unsigned)ingest->events : ingest->batch;
    conn->first = ingest->next;
    conn->acked = 0;
    conn->scanned = 0;
    ingest->events -= conn->events;
    ingest->next += conn->events;
    buffer_clear(&conn->request);
    load->protocol->request(ingest, connection);
    *request = buffer_slice(&conn->request);
    return true;
}

static bool take_answer(void *user, unsigned connection, struct slice answer) {
    struct peer_load *load = user;
    return load->protocol->answer(&load->ingest, connection, answer);
}

void peer_load_open(struct peer_load *load, const struct peer_ingest *protocol,
                    const struct peer_server *server, const struct work *work) {
    *load = (struct peer_load){.protocol = protocol};
    load->ingest.server = server;
    load->ingest.shape = work->shape;
    load->ingest.batch = work->batch;
    if (work->connections > PEER_CONNECTIONS_MAX ||
        uuid7_generator_init(&load->ingest.ids, NULL) != STATUS_OK)
        bench_fail("cannot prepare the load");
    for (unsigned i = 0; i < work->connections; i++) {
        buffer_init(&load->ingest.conns[i].request, REQUEST_BYTES_MAX);
        load->ingest.conns[i].positions = calloc(PEER_RUNS, sizeof(uint64_t));
        if (!load->ingest.conns[i].positions)
            bench_fail("out of memory");
    }
    drive_open(&load->drive, &(struct drive_options){.port = server->port,
                                                     .connection_count = work->connections,
                                                     .user = load,
                                                     .next = next_request,
                                                     .answer = take_answer,
                                                     .greet = protocol->greet});
}

double peer_load_send(struct peer_load *load, uint64_t events) {
    load->ingest.events = events;
    return drive_run(&load->drive);
}

void peer_load_check(struct peer_load *load) {
    uint64_t stored = load->protocol->stored(load->ingest.server);
    uint64_t before = load->ingest.server->events_before;
    if (load->ingest.acked != load->ingest.next || stored != before + load->ingest.acked)
        bench_fail("%llu events were sent, %llu acknowledged and %lld stored",
                   (unsigned long long)load->ingest.next, (unsigned long long)load->ingest.acked,
                   (long long)(stored - before));
}

void peer_load_close(struct peer_load *load) {
    drive_close(&load->drive);
    for (unsigned i = 0; i < load->drive.options.connection_count; i++) {
        buffer_release(&load->ingest.conns[i].request);
        free(load->ingest.conns[i].positions);
    }
}

bool work_ingest_supports(const struct peer *peer, const struct work *work) {
    return peer->ingest && peer->ingest->shapes & 1U << work->shape;
}

void work_ingest(const struct peer *peer, const struct work *work, struct sample samples[2]) {
    static struct peer_server server;
    static struct peer_load load;
    server.name = peer->name;
    peer->ingest->start(&server, work->shape);
    peer_load_open(&load, peer->ingest, &server, work);
    load.ingest.drop_ack = work->fault == FAULT_ACK;
    peer_load_send(&load, work->events / WARM_UP_SHARE);
    double cpu = peer_cpu_seconds(server.pid);
    double seconds = peer_load_send(&load, work->events);
    cpu = peer_cpu_seconds(server.pid) - cpu;
    peer_load_check(&load);
    samples[0] = (struct sample){.cost = cpu * 1e6 / (double)work->events,
                                 .rate = (double)work->events / seconds};
    peer_load_close(&load);
    peer->ingest->stop(&server);
}
