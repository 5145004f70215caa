/* Listening sockets: one for each loop on one address, so that the kernel spreads connections.
 * Thread: the main thread.
 * Memory: the caller owns the descriptors.
 * Errors: STATUS_SYSTEM_ERROR with errno set; STATUS_INVALID_CONFIG for a host that does not
 * resolve.
 * Invariant: two servers never share an address by accident: it must be free before the first
 * bind. */
#ifndef NET_LISTEN_H
#define NET_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spec/codes.h"

/* The largest number of loops, and so of listening sockets on one address. */
#define LISTEN_SOCKETS_MAX 64

struct listen_address {
    char host[256];
    uint16_t port;
};

/* Fills fds[0..count); *port becomes the port that was bound. On failure no descriptor stays open.
 */
MUST_CHECK enum status listen_open(const struct listen_address *address, int *fds, size_t count,
                                   uint16_t *port);

#endif
