/* What the benchmarks share: the real server as a child process on a fresh folder, connections
 * that send prepared requests and count whole answers, and the clock.
 * One thread. A benchmark that cannot go on says why and exits 1; the child is ended by its pid,
 * its folder removed. Every loop is bounded in count, and in time by BENCH_SECONDS_MAX. */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"

#define BENCH_SECONDS_MAX 600

struct bench_setting {
    const char *name;
    const char *value;
};

/* What to set before it starts, and what it is afterwards. */
struct bench_server {
    const struct bench_setting *settings; /* ends with an empty one; or NULL */
    pid_t pid;
    uint16_t port;
    char folder[64];
    char key[128];
};

_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
double bench_seconds(void);
uint64_t bench_nanoseconds(void);
double bench_median(const double *values, size_t count);
/* The number behind --name of the command line, or the default; --name alone is 1. */
uint64_t bench_option(char **arguments, const char *name, uint64_t otherwise);
/* The text behind --name. */
const char *bench_option_text(char **arguments, const char *name, const char *otherwise);

/* Starts `khala serve` from the folder the benchmark was built in, with publish limits out of the
 * way, and waits until it accepts. */
void bench_server_start(struct bench_server *server);
/* SIGTERM, and removes the folder. */
void bench_server_stop(struct bench_server *server);
uint64_t bench_server_rss_bytes(const struct bench_server *server);
/* The part of it that is no file's: heap, stacks, SQLite's caches. */
uint64_t bench_server_anonymous_bytes(const struct bench_server *server);
/* User and system time of a process so far. */
double bench_cpu_seconds(pid_t pid);
/* What a client shows to read that topic: a token minted for it. */
void bench_token(const struct bench_server *server, const char *topic, struct buffer *token);

/* A blocking connection to a port of this machine. */
int bench_connect(uint16_t port);
/* Sends a request and waits for its answer, which must be there in time. */
void bench_ask(int fd, struct slice request, struct buffer *answer);

/* Appends a whole POST with the operator key to out. */
void bench_post(struct buffer *out, const struct bench_server *server, const char *path,
                const char *content_type, struct slice body);

/* Gives the request to send next on a connection; answers false when there are no more. */
typedef bool bench_request_cb(void *user, unsigned connection, struct slice *request);

/* Keeps connection_count connections busy, one request at a time each, until the requests run out
 * and every answer is in; fails on any answer that is not 2xx. Returns the seconds it took. */
double bench_drive(const struct bench_server *server, unsigned connection_count, void *user,
                   bench_request_cb *next);

#endif
