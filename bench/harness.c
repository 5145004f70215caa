#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SERVERS_MAX 8

static struct bench_server *running[SERVERS_MAX];

/* Puts a server into the list of those that a failure ends, or takes it out. */
static void note_running(const struct bench_server *server, struct bench_server *other) {
    for (unsigned i = 0; i < SERVERS_MAX; i++)
        if (running[i] == server) {
            running[i] = other;
            return;
        }
    bench_fail("too many servers");
}

void bench_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    for (unsigned i = 0; i < SERVERS_MAX; i++)
        if (running[i])
            bench_server_stop(running[i]);
    exit(1);
}

double bench_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

uint64_t bench_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double bench_median(const double *values, size_t count) {
    double sorted[64];
    if (count == 0 || count > 64)
        bench_fail("cannot take the median of %zu values", count);
    memcpy(sorted, values, count * sizeof(double));
    qsort(sorted, count, sizeof(double), compare_doubles);
    return sorted[count / 2];
}

const char *bench_option_text(char **arguments, const char *name, const char *otherwise) {
    for (size_t i = 1; arguments[i]; i++)
        if (strcmp(arguments[i], name) == 0)
            return arguments[i + 1] ? arguments[i + 1] : "";
    return otherwise;
}

uint64_t bench_option(char **arguments, const char *name, uint64_t otherwise) {
    char *end;
    const char *text = bench_option_text(arguments, name, NULL);
    if (!text)
        return otherwise;
    uint64_t number = strtoull(text, &end, 10);
    return end == text ? 1 : number;
}

void bench_binary(char path[512]) {
    ssize_t used = readlink("/proc/self/exe", path, 512 - 16);
    if (used < 0)
        bench_fail("no /proc/self/exe");
    path[used] = '\0';
    for (int up = 0; up < 2; up++)
        *strrchr(path, '/') = '\0';
    strcat(path, "/khala");
}

void bench_folder(char path[64]) {
    const char *parent = getenv("TMPDIR");
    int size = snprintf(path, 64, "%s/khala-bench-XXXXXX", parent && *parent ? parent : "/tmp");
    if (size >= 64 || !mkdtemp(path))
        bench_fail("cannot make a folder: %s", strerror(errno));
}

void bench_folder_remove(const char *path) {
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    if (system(command) != 0)
        fprintf(stderr, "bench: cannot remove %s\n", path);
}

static void child_exec(const struct bench_server *server, int out) {
    char path[512];
    bench_binary(path);
    dup2(out, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setenv("KHALA_DATA_DIR", server->folder, 1);
    setenv("KHALA_OPERATOR_KEY", server->key, 1);
    setenv("KHALA_LOG_LEVEL", "warn", 1);
    setenv("KHALA_CONNECTIONS_MAX", "15000", 1);
    setenv("KHALA_CONNECTIONS_UNAUTHENTICATED_MAX", "10000000", 1);
    setenv("KHALA_CONNECTIONS_PER_PRINCIPAL_MAX", "10000000", 1);
    setenv("RUNTIME_KHALA_RUN_EVENTS_PUBLISH_RATE_PER_SECOND", "1000000", 1);
    setenv("RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND", "1000000", 1);
    for (const struct bench_setting *each = server->settings; each && each->name; each++)
        setenv(each->name, each->value, 1);
    execl(path, path, "serve", "--bind", "127.0.0.1:0", (char *)NULL);
    _exit(127);
}

void bench_server_start(struct bench_server *server) {
    int pipes[2];
    char text[4096];
    size_t size = 0;
    bench_folder(server->folder);
    strcpy(server->key, "bench-operator-key-0123456789abcdef");
    if (pipe(pipes) != 0)
        bench_fail("no pipe: %s", strerror(errno));
    server->pid = fork();
    if (server->pid == 0)
        child_exec(server, pipes[1]);
    note_running(NULL, server);
    close(pipes[1]);
    for (;;) {
        ssize_t got = read(pipes[0], text + size, sizeof(text) - 1 - size);
        if (got <= 0)
            bench_fail("the server did not start");
        size += (size_t)got;
        text[size] = '\0';
        const char *at = strstr(text, "listens on http://127.0.0.1:");
        if (at && strchr(at, '\n')) {
            server->port = (uint16_t)atoi(at + strlen("listens on http://127.0.0.1:"));
            break;
        }
    }
    /* Keep the pipe open: a closed standard output would end the server. */
}

void bench_server_stop(struct bench_server *server) {
    note_running(server, NULL);
    kill(server->pid, SIGTERM);
    waitpid(server->pid, NULL, 0);
    bench_folder_remove(server->folder);
}

static uint64_t status_bytes(const struct bench_server *server, const char *name) {
    char path[64];
    char line[256];
    unsigned long long kilobytes = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)server->pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0)
            kilobytes = strtoull(line + strlen(name), NULL, 10);
    if (file)
        fclose(file);
    return kilobytes * 1024;
}

uint64_t bench_server_rss_bytes(const struct bench_server *server) {
    return status_bytes(server, "VmRSS:");
}

uint64_t bench_server_anonymous_bytes(const struct bench_server *server) {
    return status_bytes(server, "RssAnon:");
}

double bench_cpu_seconds(pid_t pid) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        bench_fail("process %d is gone", (int)pid);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

void bench_post(struct buffer *out, const struct bench_server *server, const char *path,
                const char *content_type, struct slice body) {
    if (buffer_printf(out,
                      "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
                      "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n",
                      path, server->key, content_type, body.size) != STATUS_OK ||
        buffer_append_slice(out, body) != STATUS_OK)
        bench_fail("request too large");
}

/* ---- connections -------------------------------------------------------------------------- */

/* A chunked answer ends with an empty chunk. */
bool bench_answer_complete(struct slice answer) {
    const char *end = answer.size > 0 ? memmem(answer.data, answer.size, "\r\n\r\n", 4) : NULL;
    if (!end)
        return false;
    size_t head = (size_t)(end - answer.data) + 4;
    const char *length = memmem(answer.data, head, "Content-Length: ", 16);
    if (length)
        return answer.size >= head + strtoull(length + 16, NULL, 10);
    return answer.size >= head + 5 && memcmp(answer.data + answer.size - 5, "0\r\n\r\n", 5) == 0;
}

int bench_connect(uint16_t port) {
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        bench_fail("cannot connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

void bench_ask(int fd, struct slice request, struct buffer *answer) {
    char piece[65536];
    struct timeval limit = {.tv_sec = 30};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    for (size_t sent = 0; sent < request.size;) {
        ssize_t size = send(fd, request.data + sent, request.size - sent, MSG_NOSIGNAL);
        if (size < 0)
            bench_fail("send: %s", strerror(errno));
        sent += (size_t)size;
    }
    buffer_clear(answer);
    while (!bench_answer_complete(buffer_slice(answer))) {
        ssize_t size = recv(fd, piece, sizeof(piece), 0);
        if (size <= 0)
            bench_fail("no answer: %s", size == 0 ? "closed" : strerror(errno));
        if (buffer_append(answer, piece, (size_t)size) != STATUS_OK)
            bench_fail("answer too large");
    }
}

/* A server without tokens takes the operator key. */
void bench_token(const struct bench_server *server, const char *topic, struct buffer *token) {
    struct buffer body, request, answer;
    buffer_init(&body, 1024);
    buffer_init(&request, 4096);
    buffer_init(&answer, 65536);
    if (buffer_printf(&body,
                      "{\"user_id\":\"bench\",\"scopes\":[\"runtime.run_events\"],"
                      "\"topics\":[\"%s\"],\"ttl_seconds\":900}",
                      topic) != STATUS_OK)
        bench_fail("out of memory");
    bench_post(&request, server, "/api/sync/token", "application/json", buffer_slice(&body));
    int fd = bench_connect(server->port);
    bench_ask(fd, buffer_slice(&request), &answer);
    close(fd);
    const char *found = memmem(answer.data, answer.size, "\"token\":\"", 9);
    const char *begin = found ? found + 9 : server->key;
    const char *end = found ? memchr(begin, '"', (size_t)(answer.data + answer.size - begin))
                            : begin + strlen(begin);
    if (!end || buffer_append(token, begin, (size_t)(end - begin)) != STATUS_OK ||
        buffer_append_byte(token, '\0') != STATUS_OK)
        bench_fail("no token in %.*s", (int)answer.size, answer.data);
    buffer_release(&body);
    buffer_release(&request);
    buffer_release(&answer);
}

static bool http_answer(void *user, unsigned connection, struct slice answer) {
    (void)user;
    (void)connection;
    if (!bench_answer_complete(answer))
        return false;
    if (memcmp(answer.data, "HTTP/1.1 2", 10) != 0)
        bench_fail("answer: %.*s", (int)answer.size, answer.data);
    return true;
}

double bench_drive(const struct bench_server *server, unsigned connection_count, void *user,
                   drive_request_cb *next) {
    static struct drive drive;
    drive_open(&drive, &(struct drive_options){.port = server->port,
                                               .connection_count = connection_count,
                                               .user = user,
                                               .next = next,
                                               .answer = http_answer});
    double seconds = drive_run(&drive);
    drive_close(&drive);
    return seconds;
}
