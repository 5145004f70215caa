/* Connections of a load generator: each sends one prepared request, waits for its answer, and sends
 * the next. The protocol is the caller's, by callbacks.
 * One thread with epoll. A connection has one buffer for the answer that arrives.
 * A closed connection or an answer that does not come ends the benchmark.
 * A connection never has two requests under way. */
#ifndef BENCH_DRIVE_H
#define BENCH_DRIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

#define DRIVE_CONNECTIONS_MAX 1024

/* Sets the next request of a connection; returns false when there are no more. */
typedef bool drive_request_cb(void *user, unsigned connection, struct slice *request);
/* Whether these bytes, all since the request was sent, are its complete answer. A wrong answer ends
 * the benchmark. */
typedef bool drive_answer_cb(void *user, unsigned connection, struct slice answer);

struct drive_conn {
    int fd;
    struct slice request;
    size_t sent;
    struct buffer answer;
};

struct drive_options {
    uint16_t port;
    unsigned connection_count;
    void *user;
    drive_request_cb *next;
    drive_answer_cb *answer;
    /* Logs in on a new connection, which still blocks; NULL: nothing to do. */
    void (*greet)(unsigned connection, int fd);
};

struct drive {
    struct drive_options options;
    struct drive_conn conns[DRIVE_CONNECTIONS_MAX];
    int epoll;
};

void drive_open(struct drive *drive, const struct drive_options *options);
/* Sends requests until there are no more and every answer has arrived. Returns the elapsed seconds.
 * It may be called again when there are new requests. */
double drive_run(struct drive *drive);
void drive_close(struct drive *drive);

#endif
