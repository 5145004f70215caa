/* A publisher: one connection that appends events to one application topic with the operator key.
 * One thread. Keeps the last request, because the next one is often the same.
 * An event that the server refuses ends the benchmark.
 * The events of publisher_send are durable when it returns. */
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
/* Appends this number of events in one batch. */
void publisher_send(struct publisher *publisher, unsigned events);
/* Sends events at a steady rate: all due events in one call, after the previous call returned. */
struct pace {
    uint64_t events;
    uint64_t per_second;
    uint64_t first;   /* number of the first event */
    uint64_t *due_ns; /* by number; set before the event is sent */
    void *user;
    void (*send)(void *user, unsigned events);
};
/* Returns the elapsed seconds. */
double pace_run(const struct pace *pace);
/* A table of count numbers, shared with processes that are forked later. */
uint64_t *pace_table(uint64_t count);

void publisher_close(struct publisher *publisher);

#endif
