/* The works that bench peers measures: one function for appends and several for delivery, each with
 * a row of the table of works and one peer.
 * One thread, in a process of its own for each measurement.
 * A failure ends the process with its reason; the figure is then void.
 * A sample exists only if order and count were right on every connection. */
#ifndef BENCH_PEERS_WORK_H
#define BENCH_PEERS_WORK_H

#include "peer.h"

/* A check must notice these. */
enum fault { FAULT_NONE, FAULT_ACK, FAULT_EVENT };

struct sample {
    double cost; /* of the server for an operation: microseconds of CPU, or bytes of memory */
    double rate; /* operations per second; 0: not measured */
};

struct peer {
    const char *name;
    const char *title;
    const char *program;                  /* NULL: always installed */
    const char *version;                  /* the command that prints it */
    const struct peer_ingest *ingest;     /* NULL: no appends */
    const struct peer_delivery *delivery; /* NULL: no delivery */
};

struct work {
    const char *name;
    const char *titles[2]; /* of its samples; the second may be NULL */
    const char *cost;      /* the units, as in struct sample */
    const char *rate;
    bool (*supports)(const struct peer *peer, const struct work *work);
    void (*run)(const struct peer *peer, const struct work *work, struct sample samples[2]);
    enum ingest_shape shape;
    unsigned batch;
    unsigned connections;
    enum delivery_kind kind;
    unsigned clients; /* of a delivery */
    uint64_t events;
    uint64_t quick_events;
    bool is_quick;
    enum fault fault;
};

/* Connections that append to a server. */
struct peer_load {
    const struct peer_ingest *protocol;
    struct ingest ingest;
    struct drive drive;
};

void peer_load_open(struct peer_load *load, const struct peer_ingest *protocol,
                    const struct peer_server *server, const struct work *work);
/* Returns the elapsed seconds. */
double peer_load_send(struct peer_load *load, uint64_t events);
/* Ends the benchmark unless all events were acknowledged and stored. */
void peer_load_check(struct peer_load *load);
void peer_load_close(struct peer_load *load);

bool work_ingest_supports(const struct peer *peer, const struct work *work);
void work_ingest(const struct peer *peer, const struct work *work, struct sample samples[2]);

bool work_delivery_supports(const struct peer *peer, const struct work *work);
/* Live subscribers: one event at a time, and bursts. */
void work_fanout(const struct peer *peer, const struct work *work, struct sample samples[2]);
/* Memory of a subscriber without events. */
void work_idle(const struct peer *peer, const struct work *work, struct sample samples[2]);
/* The whole topic to one client, and a part of it to many at once. */
void work_replay(const struct peer *peer, const struct work *work, struct sample samples[2]);
/* Clients that are some events behind. */
void work_return(const struct peer *peer, const struct work *work, struct sample samples[2]);

#endif
