/* Receivers: many connections that follow one topic and check that nothing is missing, in client
 * processes of their own, as a process may open only so many descriptors. They speak a dialect of
 * the server over WebSocket or an event stream, or take plain bytes from whoever writes them.
 * One thread a process; the benchmark's own only waits. Each process keeps one read buffer, and a
 * connection only the part of a frame that has not arrived.
 * A gap, a refused subscription or a closed connection ends the benchmark with its reason.
 * Loops are bounded by BENCH_SECONDS_MAX; processes are ended by their ids. */
#ifndef BENCH_RECEIVERS_H
#define BENCH_RECEIVERS_H

#include "harness.h"

#define RECEIVER_PROCESSES_MAX 16

enum receiver_dialect { RECEIVER_RAW, RECEIVER_PHOENIX, RECEIVER_TOPIC_WS, RECEIVER_SSE };

/* By the name on the command line: phoenix, topic_ws or sse. */
enum receiver_dialect receiver_dialect_of(const char *name);

struct receiver_options {
    enum receiver_dialect dialect;
    uint16_t port;
    unsigned count; /* connections */
    unsigned process_count;
    const char *token;
    const char *topic;
    uint64_t after_seq;
    unsigned replay_batch;  /* 0: the server's own */
    bool deflate;           /* offers permessage-deflate */
    bool stuck;             /* reads nothing more once it is subscribed */
    bool may_end;           /* a connection that the server ends is counted, not an error */
    unsigned heartbeat_ms;  /* of each client; 0: none */
    uint64_t expected;      /* see receivers_expect, from the start */
    size_t frame_bytes;     /* RAW: see receivers_frame_bytes */
    struct slice greeting;  /* RAW: sent after connecting */
    size_t greeting_answer; /* RAW: its size in bytes; the connection is ready after it */
    const uint64_t *due_ns; /* shared memory, by seq: when it was due, for latencies; or NULL */
    uint64_t due_count;
};

struct receiver_shared;

struct receivers {
    struct receiver_options options;
    pid_t pids[RECEIVER_PROCESSES_MAX];
    struct receiver_shared *shared; /* one a process */
    int reached;                    /* a token from each process that reached what was expected */
};

struct receiver_totals {
    uint64_t ready;
    uint64_t updates;
    uint64_t messages;
    uint64_t bytes; /* on the wire, of what carried updates */
    uint64_t ended;
};

/* Forks the processes, which begin to connect. */
void receivers_fork(struct receivers *receivers, const struct receiver_options *options);
/* Waits until all are subscribed, or nothing has moved for ten seconds; answers how many are. */
unsigned receivers_wait_ready(const struct receivers *receivers);
/* As it says, and fails when one is missing. */
void receivers_start(struct receivers *receivers, const struct receiver_options *options);
/* RAW: how long a frame is. While nothing is under way. */
void receivers_frame_bytes(struct receivers *receivers, size_t bytes);
/* Every connection will have got this many updates, in all since the start. Before they are sent.
 */
void receivers_expect(struct receivers *receivers, uint64_t updates_each);
void receivers_wait(struct receivers *receivers);
struct receiver_totals receivers_totals(const struct receivers *receivers);
/* From the first subscription sent until all had what was expected last. */
double receivers_seconds(const struct receivers *receivers);
/* Latency that this share of all updates stayed below, in seconds. */
double receivers_latency(const struct receivers *receivers, double share);
void receivers_latency_clear(struct receivers *receivers);
void receivers_stop(struct receivers *receivers);

#endif
