/* Listening sockets: one a loop on one address, so that the kernel spreads connections.
 * Main thread. The descriptors are the caller's to close or hand on.
 * STATUS_SYSTEM_ERROR with errno set; STATUS_INVALID_CONFIG for a host that does not resolve.
 * Two servers never share an address by accident: it must be free before the first is bound. */
#ifndef IO_LISTEN_H
#define IO_LISTEN_H

#include "server/config.h"

/* Fills fds[0..count); port becomes the one bound. On failure no descriptor is left open. */
MUST_CHECK enum status listen_open(const struct config_address *address, int *fds, size_t count,
                                   uint16_t *port);

#endif
