/* bench auth: the cost of token verification for a new connection. The benchmark sends the same
 * WebSocket handshake, except for the path, to two routes. /socket/websocket verifies the token in
 * the query; /api/events/stream reads no token before its first message. Both answer 101, and the
 * benchmark then drops the connection. The routes also set up different dialect state, so the
 * benchmark times verification alone too, in its own process. Both sides take turns on one server.
 * Each round gives a ratio, and the median is shown. It runs with a secret key (HS256) and with a
 * key pair (ES256).
 *
 * --connections N  per side and round (default 4000)
 * --rounds N       (default 9, at most 64)
 * --parallel N     concurrent handshakes (default 64) */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "harness.h"
#include "http/admit/gate.h"
#include "server/config.h"
#include "server/config_options.h"

#define TOPIC         "bench:auth"
#define PARALLEL_MAX  1024
#define ROUNDS_MAX    64
#define ANSWER        "HTTP/1.1 101 "
#define TARGET_RATIO  0.85
#define WAIT_MS       10000
#define VERIFICATIONS 5000
#define VERIFYING     "/socket/websocket"
#define NOT_VERIFYING "/api/events/stream"

/* The public example key of RFC 7517, appendix A.2. It protects nothing. */
static const char key_pair[] =
    "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"alg\":\"ES256\",\"kid\":\"bench\","
    "\"x\":\"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4\","
    "\"y\":\"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM\","
    "\"d\":\"870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE\"}]}";

struct side {
    struct buffer request;
    double rates[ROUNDS_MAX];
    double cpu_us[ROUNDS_MAX];
};

static int connect_to(uint16_t port, int epoll, unsigned index) {
    struct sockaddr_in peer = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLOUT, .data.u32 = index};
    /* Close with a reset, so that no side keeps a lingering socket. */
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0)
        bench_fail("socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    if (connect(fd, (struct sockaddr *)&peer, sizeof(peer)) != 0 && errno != EINPROGRESS)
        bench_fail("connect: %s", strerror(errno));
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    return fd;
}

static void send_request(int fd, int epoll, unsigned index, struct slice request) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
    if (send(fd, request.data, request.size, MSG_NOSIGNAL) != (ssize_t)request.size)
        bench_fail("send: %s", strerror(errno));
    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
}

static void read_answer(int fd) {
    char answer[2048];
    ssize_t size = recv(fd, answer, sizeof(answer), 0);
    if (size < (ssize_t)strlen(ANSWER) || memcmp(answer, ANSWER, strlen(ANSWER)) != 0)
        bench_fail("the server answered: %.*s", size > 0 ? (int)size : 0, answer);
}

/* Returns the seconds until all connections were accepted. */
static double drive(uint16_t port, struct slice request, unsigned count, unsigned parallel) {
    static int fds[PARALLEL_MAX];
    struct epoll_event events[64];
    int epoll = epoll_create1(0);
    unsigned begun = 0, done = 0;
    double begun_at = bench_seconds();
    for (; begun < parallel && begun < count; begun++)
        fds[begun] = connect_to(port, epoll, begun);
    while (done < count) {
        int ready = epoll_wait(epoll, events, 64, WAIT_MS);
        if (ready <= 0)
            bench_fail("no progress for %d ms", WAIT_MS);
        for (int i = 0; i < ready; i++) {
            unsigned index = events[i].data.u32;
            if (!(events[i].events & EPOLLIN)) {
                send_request(fds[index], epoll, index, request);
                continue;
            }
            read_answer(fds[index]);
            close(fds[index]);
            done++;
            if (begun < count) {
                begun++;
                fds[index] = connect_to(port, epoll, index);
            }
        }
    }
    double seconds = bench_seconds() - begun_at;
    close(epoll);
    return seconds;
}

static void write_request(struct side *side, const char *path, const char *token) {
    buffer_init(&side->request, 16384);
    if (buffer_printf(&side->request,
                      "GET %s?vsn=2.0.0&token=%s HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\n"
                      "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                      "Sec-WebSocket-Version: 13\r\n\r\n",
                      path, token) != STATUS_OK)
        bench_fail("out of memory");
}

static void take_turn(const struct bench_server *server, struct side *side, unsigned round,
                      unsigned count, unsigned parallel) {
    double cpu = bench_cpu_seconds(server->pid);
    side->rates[round] = count / drive(server->port, buffer_slice(&side->request), count, parallel);
    side->cpu_us[round] = 1e6 * (bench_cpu_seconds(server->pid) - cpu) / count;
}

static const char *jwks_file;

static const char *environment(const char *name) {
    if (strcmp(name, "RUNTIME_SYNC_TOKEN_ISSUER") == 0)
        return "khala";
    return strcmp(name, "RUNTIME_SYNC_JWKS_FILE") == 0 ? jwks_file : NULL;
}

/* Calls the server's verification with the server's keys, in this process. */
static double verify_us(const struct bench_server *server, struct slice token) {
    static struct config config;
    static struct gate gate;
    const struct config_flag flag = {"--data-dir", server->folder};
    const struct principal *principal;
    struct config_error error;
    struct key_message message;
    bool is_loaded = config_load(&config, NULL, environment, &flag, 1, &error) == STATUS_OK;
    const struct gate_options options = config_gate_options(&config);
    if (!is_loaded || gate_init(&gate, &options, &message) != STATUS_OK)
        bench_fail("the keys of %s cannot be read", server->folder);
    double begun = bench_seconds();
    for (unsigned i = 0; i < VERIFICATIONS; i++) {
        if (gate_admit_token(&gate, token, clock_now().wall_ms, &principal, NULL) != STATUS_OK)
            bench_fail("the token does not verify");
        principal_unref(principal);
    }
    double seconds = bench_seconds() - begun;
    gate_release(&gate);
    return 1e6 * seconds / VERIFICATIONS;
}

static void compare(const char *algorithm, const struct bench_setting *settings, char **arguments) {
    static struct bench_server server;
    struct side sides[2];
    double ratios[ROUNDS_MAX];
    struct buffer token;
    unsigned count = (unsigned)bench_option(arguments, "--connections", 4000);
    unsigned rounds = (unsigned)bench_option(arguments, "--rounds", 9);
    unsigned parallel = (unsigned)bench_option(arguments, "--parallel", 64);
    if (rounds == 0 || rounds > ROUNDS_MAX || parallel == 0 || parallel > PARALLEL_MAX)
        bench_fail("--rounds is at most %d, --parallel at most %d", ROUNDS_MAX, PARALLEL_MAX);
    server = (struct bench_server){.settings = settings};
    bench_server_start(&server);
    buffer_init(&token, 16384);
    bench_token(&server, TOPIC, &token);
    write_request(&sides[0], VERIFYING, token.data);
    write_request(&sides[1], NOT_VERIFYING, token.data);
    for (unsigned i = 0; i < 2; i++)
        (void)drive(server.port, buffer_slice(&sides[i].request), count, parallel);
    for (unsigned round = 0; round < rounds; round++) {
        /* Alternate which side starts. */
        take_turn(&server, &sides[round % 2], round, count, parallel);
        take_turn(&server, &sides[1 - round % 2], round, count, parallel);
        ratios[round] = sides[0].rates[round] / sides[1].rates[round];
    }
    printf("%s: %.0f connections/s with verification, %.0f without: %.2f (median of %u rounds of "
           "%u)\n",
           algorithm, bench_median(sides[0].rates, rounds), bench_median(sides[1].rates, rounds),
           bench_median(ratios, rounds), rounds, count);
    printf("%s: server CPU of a connection %.1f us with verification, %.1f us without\n", algorithm,
           bench_median(sides[0].cpu_us, rounds), bench_median(sides[1].cpu_us, rounds));
    printf("%s: verification alone %.1f us\n", algorithm,
           verify_us(&server, (struct slice){token.data, strlen(token.data)}));
    fflush(stdout);
    for (unsigned i = 0; i < 2; i++)
        buffer_release(&sides[i].request);
    buffer_release(&token);
    bench_server_stop(&server);
}

int main(int argc, char **arguments) {
    char path[] = "/tmp/khala-bench-keys-XXXXXX";
    const struct bench_setting settings[] = {
        {"RUNTIME_SYNC_JWKS_FILE", path}, {"RUNTIME_SYNC_TOKEN_ISSUER", "khala"}, {NULL, NULL}};
    (void)argc;
    compare("HS256", NULL, arguments);
    printf("HS256: target at least %.2f\n", TARGET_RATIO);
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, key_pair, strlen(key_pair)) != (ssize_t)strlen(key_pair))
        bench_fail("%s: %s", path, strerror(errno));
    close(fd);
    jwks_file = path;
    compare("ES256", settings, arguments);
    unlink(path);
    return 0;
}
