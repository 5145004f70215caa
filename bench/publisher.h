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
/* Events at a steady rate: what is due goes out as one, as soon as the one before was taken. */
struct pace {
    uint64_t events;
    uint64_t per_second;
    uint64_t first;   /* the number of the first */
    uint64_t *due_ns; /* by number; written before the event is sent */
    void *user;
    void (*send)(void *user, unsigned events);
};
/* Answers the seconds it took. */
double pace_run(const struct pace *pace);
/* A table for that many numbers, seen by processes forked later too. */
uint64_t *pace_table(uint64_t count);

void publisher_close(struct publisher *publisher);

#endif
