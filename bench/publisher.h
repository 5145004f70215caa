/* A publisher: one connection that appends events to one application topic with the operator key.
 * One thread. Keeps the last request, as the next is often the same.
 * An event that is not taken ends the benchmark.
 * What publisher_send was asked for is durable when it returns. */
#ifndef BENCH_PUBLISHER_H
#define BENCH_PUBLISHER_H

#include "harness.h"

struct publisher {
    const struct bench_server *server;
    const char *topic;
    unsigned payload_bytes;
    int fd;
    unsigned prepared; /* events in the request */
    uint64_t published;
    struct buffer request;
    struct buffer answer;
};

void publisher_open(struct publisher *publisher, const struct bench_server *server,
                    const char *topic, unsigned payload_bytes);
/* Appends that many events in one batch. */
void publisher_send(struct publisher *publisher, unsigned events);
void publisher_close(struct publisher *publisher);

#endif
