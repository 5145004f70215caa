/* The servers that bench peers compares: how each is started, how a client appends events to it or
 * receives them from it, and how many events it then holds.
 * One thread. Each measurement runs in a process of its own, which owns the server it started.
 * A wrong or missing answer ends that process with bench_fail; its figure is then void.
 * An append counts only if the server has acknowledged it, in the order of the connection. */
#ifndef BENCH_PEERS_PEER_H
#define BENCH_PEERS_PEER_H

#include "base/uuid7.h"
#include "publisher.h"
#include "receivers.h"
#include "service.h"

#define PEER_EVENT_BYTES     300
#define PEER_RUNS            1000
#define PEER_CONNECTIONS_MAX 64
#define PEER_TOPIC           "bench"

enum ingest_shape { INGEST_PLAIN, INGEST_IDS, INGEST_RUNS };

struct peer_server {
    const char *name; /* of the peer; bench_service_start knows its program by it */
    struct bench_server khala;
    struct bench_service service;
    pid_t pid;
    uint16_t port;
    uint64_t events_before; /* in the store before the load */
    struct publisher publisher;
    int publisher_fd; /* of a server that is not Khala */
    uint64_t published;
    struct buffer token;
};

struct ingest_conn {
    struct buffer request;
    uint64_t first;      /* number of the first event of the request */
    unsigned events;     /* in the request */
    unsigned acked;      /* of the request */
    size_t scanned;      /* bytes of the answer */
    uint64_t *positions; /* the last acknowledged one, of the topic or by run */
};

/* A load of appends. */
struct ingest {
    const struct peer_server *server;
    enum ingest_shape shape;
    unsigned batch;
    uint64_t events; /* still to send */
    uint64_t next;   /* number of the next event */
    uint64_t acked;  /* in total */
    bool drop_ack;   /* ignores one acknowledgement: the figure must then be void */
    struct uuid7_generator ids;
    struct ingest_conn conns[PEER_CONNECTIONS_MAX];
};

/* The appends of a protocol. */
struct peer_ingest {
    unsigned shapes; /* bits by enum ingest_shape */
    void (*start)(struct peer_server *server, enum ingest_shape shape);
    /* As drive_options.greet. */
    void (*greet)(unsigned connection, int fd);
    /* Writes a request with the events of the connection. */
    void (*request)(struct ingest *ingest, unsigned connection);
    /* As drive_answer_cb. Calls ingest_ack for each event. */
    bool (*answer)(struct ingest *ingest, unsigned connection, struct slice answer);
    uint64_t (*stored)(const struct peer_server *server);
    void (*stop)(struct peer_server *server);
};

/* What the subscribers of a server do. */
enum delivery_kind { DELIVERY_FANOUT, DELIVERY_IDLE, DELIVERY_REPLAY, DELIVERY_RETURN };

/* The delivery of a protocol. */
struct peer_delivery {
    unsigned kinds; /* bits by enum delivery_kind */
    enum receiver_dialect dialect;
    const struct receiver_peer *live;   /* PEER: protocol of subscribers */
    const struct receiver_peer *behind; /* PEER: protocol of clients that catch up */
    void (*start)(struct peer_server *server, enum delivery_kind kind);
    /* Publishes events to this number of subscribers. They are numbered from 1 on. */
    void (*publish)(struct peer_server *server, unsigned events, unsigned subscribers);
    /* Ends the benchmark if not all published events are stored; NULL: the server stores none. */
    void (*check)(struct peer_server *server);
    bool stores_live;   /* it stores the events of live subscribers too */
    bool reads_to_tail; /* a client that is behind cannot stop before the newest event */
    void (*stop)(struct peer_server *server);
};

extern const struct peer_delivery delivery_khala_ws, delivery_khala_phoenix, delivery_khala_sse,
    delivery_redis, delivery_nats, delivery_durable_streams, delivery_centrifugo;

extern const struct peer_ingest ingest_khala, ingest_redis, ingest_nats, ingest_postgres,
    ingest_durable_streams, ingest_centrifugo;

/* ---- helpers of the protocols ---- */

/* A slice of a literal in a static table. */
#define PEER_TEXT(literal)                                                                         \
    { (literal), sizeof(literal) - 1 }
/* Where the number of an event begins in it. */
#define PEER_NUMBER_AT 6
/* Writes a JSON object of PEER_EVENT_BYTES with this number. */
void peer_event(char out[PEER_EVENT_BYTES], uint64_t number);
/* An event id as a client mints it now. */
struct uuid ingest_id(struct ingest *ingest);
/* Counts an acknowledgement. Positions of one target must increase. */
void ingest_ack(struct ingest *ingest, unsigned connection, uint64_t position);
/* Appends bytes; a lack of memory ends the benchmark. */
void peer_put(struct buffer *out, const void *data, size_t size);
void peer_put_text(struct buffer *out, const char *text);
/* Sends a text and reads until the answer contains another one. */
void peer_ask(int fd, const char *text, const char *until, struct buffer *answer);
/* CPU seconds of a process and its living descendants. */
double peer_cpu_seconds(pid_t pid);
/* The number after a name in a text; a missing one ends the benchmark. */
uint64_t peer_number(struct slice text, const char *name);
/* The first line that a command prints; empty: it printed none. */
void peer_line(const char *command, char line[256]);

#endif
