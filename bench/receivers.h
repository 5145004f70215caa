/* Receivers: many connections that follow one topic and check that no frame is missing. They run in
 * several client processes, because the descriptors of a process are limited. They speak a dialect
 * of the server over WebSocket or an event stream, or the protocol of a peer, or read plain bytes.
 * Each process has one thread; the benchmark's process only waits. A process has one read buffer,
 * and a connection keeps only an incomplete frame.
 * A gap, a refused subscription or a closed connection ends the benchmark with its reason.
 * Loops are bounded by BENCH_SECONDS_MAX; processes are ended by their pids. */
#ifndef BENCH_RECEIVERS_H
#define BENCH_RECEIVERS_H

#include "harness.h"

#define RECEIVER_PROCESSES_MAX 64

enum receiver_dialect {
    RECEIVER_RAW,
    RECEIVER_PHOENIX,
    RECEIVER_TOPIC_WS,
    RECEIVER_SSE,
    RECEIVER_PEER
};

enum receiver_frame_kind {
    FRAME_OTHER,
    FRAME_GREETING, /* the client must now send its join */
    FRAME_READY,    /* it is subscribed */
    FRAME_PING,     /* it must send its pong */
    FRAME_EVENT,
    FRAME_ERROR
};

struct receiver_frame {
    enum receiver_frame_kind kind;
    uint64_t number; /* of an event; the first is 1 */
};

/* The protocol of another server. */
struct receiver_peer {
    /* Writes what a connection sends first, and again after each page of events. */
    void (*request)(struct buffer *out, unsigned connection, uint64_t after);
    /* Describes the first frame of these bytes. Returns its size, or 0 if it is incomplete. */
    size_t (*frame)(struct slice data, struct receiver_frame *frame);
    /* Writes the answer to a greeting; NULL: the protocol has none. */
    void (*join)(struct buffer *out, uint64_t after);
    struct slice pong; /* the answer to a ping */
    unsigned page;     /* events that one request returns; 0: no end */
};

/* The dialect with this name: phoenix, topic_ws or sse. */
enum receiver_dialect receiver_dialect_of(const char *name);

struct receiver_options {
    enum receiver_dialect dialect;
    uint16_t port;
    unsigned count; /* connections */
    unsigned process_count;
    const char *token;
    char *const *tokens; /* one for each connection of the only process; NULL: token for all */
    const char *topic;
    uint64_t after_seq;
    unsigned replay_batch; /* 0: the server's default */
    bool deflate;          /* offers permessage-deflate */
    bool lean;             /* asks for form=lean */
    bool stuck;            /* stops reading after it has subscribed */
    bool may_end;          /* a connection closed by the server is counted and is no error */
    unsigned heartbeat_ms; /* interval of each client; 0: none */
    uint64_t expected;     /* as receivers_expect, set at the start */
    size_t frame_bytes;    /* RAW: see receivers_frame_bytes */
    const struct receiver_peer *peer; /* PEER: its protocol */
    bool count_all;         /* PHOENIX: counts the updates on every connection, not only on some */
    bool is_faulty;         /* counts the first event as the second, which must end the benchmark */
    const uint64_t *due_ns; /* shared memory: due time by seq, for latencies; or NULL */
    uint64_t due_count;
};

struct receiver_shared;

struct receivers {
    struct receiver_options options;
    pid_t pids[RECEIVER_PROCESSES_MAX];
    struct receiver_shared *shared; /* one for each process */
    int reached;                    /* a byte from each process that has its expected updates */
};

struct receiver_totals {
    uint64_t ready;
    uint64_t updates;
    uint64_t messages;
    uint64_t bytes; /* on the wire, of messages with updates */
    uint64_t ended;
};

/* Forks the processes, which then connect. */
void receivers_fork(struct receivers *receivers, const struct receiver_options *options);
/* Ends the benchmark if a client process has found a problem. */
void receivers_check(const struct receivers *receivers);
/* Waits until all are subscribed, or ten seconds pass without progress. Returns their number. */
unsigned receivers_wait_ready(const struct receivers *receivers);
/* Forks the processes and waits; a missing receiver ends the benchmark. */
void receivers_start(struct receivers *receivers, const struct receiver_options *options);
/* RAW: sets the length of a frame. Call it only while no frame is in flight. */
void receivers_frame_bytes(struct receivers *receivers, size_t bytes);
/* Sets how many updates each connection gets in total, since the start. Call it before they are
 * sent. */
void receivers_expect(struct receivers *receivers, uint64_t updates_each);
void receivers_wait(struct receivers *receivers);
struct receiver_totals receivers_totals(const struct receivers *receivers);
/* Seconds from the first subscription until all receivers had their expected updates. */
double receivers_seconds(const struct receivers *receivers);
/* The latency in seconds below which this share of all updates stayed. */
double receivers_latency(const struct receivers *receivers, double share);
void receivers_latency_clear(struct receivers *receivers);
void receivers_stop(struct receivers *receivers);

#endif
