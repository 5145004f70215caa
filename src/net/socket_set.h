/* A socket set: the sockets of one loop in an epoll set of their own. libuv knows only that set.
 * Belongs to its loop's thread.
 * Memory: a watch is a member of its socket's owner. An idle connection needs 24 bytes here, where
 * a libuv stream needs 248.
 * Errors: false when the system refuses to watch a socket.
 * Each turn of the loop reports every socket that is ready, and each once. After socket_set_drop it
 * is not reported any more, and its memory is needed until the closed event, at the end of the
 * turn. */
#ifndef NET_SOCKET_SET_H
#define NET_SOCKET_SET_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "spec/codes.h"

struct socket_watch;

struct socket_events {
    /* events: bits of epoll_wait, of which at least one is wanted. */
    void (*ready)(struct socket_watch *watch, uint32_t events);
    /* May free the watch. */
    void (*closed)(struct socket_watch *watch);
};

struct socket_watch {
    const struct socket_events *events;
    struct socket_watch *next_closed;
    int fd;             /* -1: none */
    uint8_t wanted;     /* bits of epoll: EPOLLIN, EPOLLOUT */
    uint8_t registered; /* the bits that the kernel knows; 0: the socket is not in the set */
    uint16_t turn;      /* of the set, when the socket was reported last */
};

struct socket_set {
    uv_poll_t poll;
    int epoll;
    uint16_t turn;
    struct socket_watch *closed; /* whose closed event is due */
};

MUST_CHECK enum status socket_set_open(struct socket_set *set, uv_loop_t *loop);
/* When no socket is watched. */
void socket_set_close(struct socket_set *set);

/* The socket is reported when it is ready for any of these. Bits that are no longer wanted stay
 * registered until the socket is ready for them: often they are wanted again before that. */
MUST_CHECK bool socket_set_want(struct socket_set *set, struct socket_watch *watch, uint8_t wanted);
/* Closes the socket. The closed event follows. */
void socket_set_drop(struct socket_set *set, struct socket_watch *watch);
/* Runs the closed events that are due. At the end of each turn. True: there were some. */
bool socket_set_run_closed(struct socket_set *set);

#endif
