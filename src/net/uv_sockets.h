/* A socket set on the libuv loop of a program: one handle there, however many sockets it has.
 * Thread: the loop's.
 * Memory: the caller's, until the closed callback; the buffers of reads are allocated.
 * Errors: STATUS_OUT_OF_MEMORY, STATUS_SYSTEM_ERROR; then nothing is left on the loop.
 * Invariant: closed events run before the loop waits again. */
#ifndef NET_UV_SOCKETS_H
#define NET_UV_SOCKETS_H

#include "net/socket_set.h"

struct uv_sockets {
    struct socket_set set;
    struct socket_host host;
    struct clock clock;
    uv_poll_t poll;
    uv_prepare_t prepare; /* active while closed events are due */
    char *memory;
    unsigned handle_count; /* while they close */
    void *user;
    void (*closed)(void *user);
};

MUST_CHECK enum status uv_sockets_open(struct uv_sockets *sockets, uv_loop_t *loop);
/* No socket is watched any more. closed follows, from the loop. */
void uv_sockets_close(struct uv_sockets *sockets, void (*closed)(void *user), void *user);

#endif
