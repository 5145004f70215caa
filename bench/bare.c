#include "bare.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ACCEPT_SECONDS_MAX 30

static int listener_open(uint16_t *port) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        bench_fail("cannot listen: %s", strerror(errno));
    *port = ntohs(address.sin_port);
    return fd;
}

void bare_open(struct bare *bare, const struct receiver_options *options) {
    struct receiver_options raw = *options;
    int listener = listener_open(&raw.port);
    double end = bench_seconds() + ACCEPT_SECONDS_MAX;
    raw.dialect = RECEIVER_RAW;
    bare->fds = calloc(options->count, sizeof(int));
    bare->count = 0;
    receivers_fork(&bare->receivers, &raw);
    while (bare->count < options->count) {
        int on = 1;
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        int fd = poll(&wait, 1, 1000) == 1 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (!bare->fds || bench_seconds() > end || (fd < 0 && errno == EMFILE))
            bench_fail("cannot accept: %s", strerror(errno));
        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        bare->fds[bare->count++] = fd;
    }
    close(listener);
    if (receivers_wait_ready(&bare->receivers) < options->count)
        bench_fail("some bare sockets did not connect");
}

void bare_write(const struct bare *bare, struct slice bytes) {
    for (unsigned i = 0; i < bare->count; i++)
        if (write(bare->fds[i], bytes.data, bytes.size) != (ssize_t)bytes.size)
            bench_fail("bare write: %s", strerror(errno));
}

void bare_close(struct bare *bare) {
    receivers_stop(&bare->receivers);
    for (unsigned i = 0; i < bare->count; i++)
        close(bare->fds[i]);
    free(bare->fds);
}

double bare_cpu_seconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}
