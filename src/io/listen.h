/* Listening sockets: one a loop on one address, so that the kernel spreads connections.
 * Main thread. The descriptors are the caller's to close or hand on.
 * STATUS_SYSTEM_ERROR with errno set; STATUS_INVALID_CONFIG for a host that does not resolve.
 * Two servers never share an address by accident: it must be free before the first is bound. */
#ifndef IO_LISTEN_H
#define IO_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spec/codes.h"

/* At most this many loops, and listening sockets on one address. */
#define LISTEN_SOCKETS_MAX 64

struct listen_address {
    char host[256];
    uint16_t port;
};

/* Fills fds[0..count); port becomes the one bound. On failure no descriptor is left open. */
MUST_CHECK enum status listen_open(const struct listen_address *address, int *fds, size_t count,
                                   uint16_t *port);

#endif
