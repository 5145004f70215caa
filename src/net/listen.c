#include "net/listen.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"

static void set_port(struct sockaddr *address, uint16_t port) {
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)address)->sin_port = htons(port);
}

/* Accepted sockets inherit these options, which saves two calls for each connection: small writes
 * leave at once, and the kernel holds few bytes of an answer that the peer does not read. */
static bool set_inherited(int fd) {
    int on = 1;
    int unsent_max = ANSWER_UNSENT_BYTES_MAX;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_max, sizeof(unsent_max)) == 0;
}

static int socket_bind(const struct addrinfo *info, bool shared) {
    int on = 1;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 || !set_inherited(fd) ||
        (shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0) ||
        bind(fd, info->ai_addr, info->ai_addrlen) != 0 || (!shared && listen(fd, 1) != 0)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* SO_REUSEPORT alone would let a second server of the same user take half the connections. So the
 * address is bound once without it. */
static enum status address_claim(const struct addrinfo *info, uint16_t *port) {
    int fd = socket_bind(info, false);
    if (fd < 0)
        return STATUS_SYSTEM_ERROR;
    struct sockaddr_in6 bound = {0};
    static_assert(offsetof(struct sockaddr_in, sin_port) ==
                      offsetof(struct sockaddr_in6, sin6_port),
                  "both families hold the port at the same offset");
    socklen_t size = sizeof(bound);
    int error = getsockname(fd, (struct sockaddr *)&bound, &size);
    close(fd);
    if (error != 0)
        return STATUS_SYSTEM_ERROR;
    *port = ntohs(bound.sin6_port);
    return STATUS_OK;
}

enum status listen_open(const struct listen_address *address, int *fds, size_t count,
                        uint16_t *port) {
    struct addrinfo *info = NULL;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    size_t opened = 0;
    int error;
    if (getaddrinfo(address->host, "0", &hints, &info) != 0)
        return STATUS_INVALID_CONFIG;
    set_port(info->ai_addr, address->port);
    enum status status = address_claim(info, port);
    if (status != STATUS_OK)
        goto out;
    set_port(info->ai_addr, *port);
    status = STATUS_SYSTEM_ERROR;
    for (; opened < count; opened++) {
        fds[opened] = socket_bind(info, true);
        if (fds[opened] < 0)
            goto out;
    }
    status = STATUS_OK;
out:
    /* The caller reads errno, which the clean-up may change. */
    error = errno;
    freeaddrinfo(info);
    while (status != STATUS_OK && opened > 0)
        close(fds[--opened]);
    errno = error;
    return status;
}
