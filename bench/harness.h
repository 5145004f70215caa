/* The harness of the benchmarks: the real server as a child process on a new folder, connections
 * that send prepared requests and count complete answers, and the clock.
 * One thread. A benchmark that fails prints the reason and exits with 1. It then ends the child by
 * its pid and removes the folder. Every loop is bounded in count, and in time by
 * BENCH_SECONDS_MAX. */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "drive.h"

#define BENCH_SECONDS_MAX 600

struct bench_setting {
    const char *name;
    const char *value;
};

/* The caller sets settings; bench_server_start sets the other members. */
struct bench_server {
    const struct bench_setting *settings; /* the last one is empty; NULL: none */
    pid_t pid;
    uint16_t port;
    char folder[64];
    char key[128];
};

_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
double bench_seconds(void);
uint64_t bench_nanoseconds(void);
double bench_median(const double *values, size_t count);
/* The number after --name on the command line, or the default; --name alone is 1. */
uint64_t bench_option(char **arguments, const char *name, uint64_t otherwise);
/* The text after --name. */
const char *bench_option_text(char **arguments, const char *name, const char *otherwise);

/* Makes a new folder in TMPDIR or /tmp. */
void bench_folder(char path[64]);
void bench_folder_remove(const char *path);
/* The path of the server's program, of the same build. */
void bench_binary(char path[512]);

/* Starts `khala serve` from the benchmark's build folder, with very high publish limits, and waits
 * until it accepts connections. */
void bench_server_start(struct bench_server *server);
/* Sends SIGTERM and removes the folder. */
void bench_server_stop(struct bench_server *server);
uint64_t bench_server_rss_bytes(const struct bench_server *server);
/* The part of it without a file: heap, stacks, SQLite's caches. */
uint64_t bench_server_anonymous_bytes(const struct bench_server *server);
/* User and system time that a process has used. */
double bench_cpu_seconds(pid_t pid);
/* Mints a token that reads the topic. */
void bench_token(const struct bench_server *server, const char *topic, struct buffer *token);

/* Opens a blocking connection to a port of this machine. */
int bench_connect(uint16_t port);
/* Whether these bytes are a complete HTTP answer. */
bool bench_answer_complete(struct slice answer);
/* Sends a request and waits for its answer; a timeout ends the benchmark. */
void bench_ask(int fd, struct slice request, struct buffer *answer);

/* Appends a complete POST request with the operator key to out. */
void bench_post(struct buffer *out, const struct bench_server *server, const char *path,
                const char *content_type, struct slice body);

/* Sends requests on connection_count connections, one at a time on each, until next returns false
 * and every answer has arrived. An answer that is not 2xx ends the benchmark. Returns the elapsed
 * seconds. */
double bench_drive(const struct bench_server *server, unsigned connection_count, void *user,
                   drive_request_cb *next);

#endif
