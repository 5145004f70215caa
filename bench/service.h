/* Services that a benchmark needs beside the server: PostgreSQL, NATS, Redis and the peers that
 * scripts/setup builds, each as a child process on a free port of the loopback address.
 * One thread. A service ends with the benchmark, also when that is killed.
 * A service that does not start ends the benchmark; one that is not installed is reported.
 * Every service that was started is stopped by its pid. */
#ifndef BENCH_SERVICE_H
#define BENCH_SERVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct bench_service {
    pid_t pid;
    int control;   /* PostgreSQL ends when this is closed; otherwise -1 */
    uint16_t port; /* of all but PostgreSQL */
    char url[128];
    char folder[64]; /* of their data */
};

/* Starts PostgreSQL on a new folder with durable commits. The URL names no database. */
void bench_postgres_start(struct bench_service *service);
/* Creates a database, and writes its URL to url. */
void bench_postgres_create(const struct bench_service *service, const char *name, char url[160]);
/* A program that scripts/setup peers has built. */
#define BENCH_TOOL(program) BENCH_SOURCE_DIR "/build/tools/peers/" program
/* Whether a program is in the path, or at it if that is absolute. */
bool bench_program_exists(const char *program);
/* Starts "redis", "nats" (of the path), "nats-2.15", "durable-streams" or "centrifugo" with more
 * arguments of its own (the last is NULL) in a new folder. Returns false where it is not installed.
 */
bool bench_service_start(struct bench_service *service, const char *name,
                         const char *const *arguments);
void bench_service_stop(struct bench_service *service);

#endif
