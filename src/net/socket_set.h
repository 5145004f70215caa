/* A socket set: the sockets of one loop in one epoll set, with the clock and the memory they
 * share. Two hosts wait for a set: the server's loop (net/loop.h) in socket_set_wait, or the
 * libuv loop of a program (net/uv_sockets.h), in which the set is one handle.
 * Thread: the loop's.
 * Memory: a watch is a member of its socket's owner, 24 bytes; a libuv stream needs 248.
 * Errors: false when the system refuses to watch a socket.
 * Invariant: each turn reports every ready socket once. A watch is not reported after
 * socket_set_drop, and its memory is needed until the closed event at the end of the turn. */
#ifndef NET_SOCKET_SET_H
#define NET_SOCKET_SET_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/clock.h"
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
    uint8_t wanted;     /* bits of epoll: EPOLLIN, EPOLLOUT; EPOLLHUP: a reset, whatever else */
    uint8_t registered; /* the bits that the kernel knows; 0: the socket is not in the set */
    uint16_t turn;      /* the last turn that reported the socket */
};

/* What the host of a set provides. It outlives the set. */
struct socket_host {
    struct clock *clock; /* the set reads it once a turn */
    char *input;         /* LOOP_READ_BYTES: the bytes of one read */
    char *plaintext;     /* the same, decrypted */
    uv_loop_t *lookups;  /* resolves names */
    /* A closed event is due, where none was. May be NULL. */
    void (*dropped)(struct socket_host *host);
};

struct socket_set {
    struct socket_host *host;
    int epoll;
    uint16_t turn;
    uint32_t read_share;         /* bytes that each ready socket may read in this turn */
    bool reads_all;              /* in the next turn: before silence is judged */
    struct socket_watch *closed; /* watches with a closed event that is due */
};

MUST_CHECK enum status socket_set_open(struct socket_set *set, struct socket_host *host);
/* No socket is watched any more. */
void socket_set_close(struct socket_set *set);

/* Waits until a socket is ready, at most timeout_ms (-1: no limit), and reports all that are. One
 * call of epoll_wait, unless more sockets are ready than it can report. */
void socket_set_wait(struct socket_set *set, int timeout_ms);
/* The socket is reported when it is ready for any of these. Bits that are no longer wanted stay
 * registered until the socket is ready for them: often they are wanted again before that. */
MUST_CHECK bool socket_set_want(struct socket_set *set, struct socket_watch *watch, uint8_t wanted);
/* Reports a descriptor each time it becomes readable, without a read in between: an eventfd. */
MUST_CHECK bool socket_set_want_edges(struct socket_set *set, struct socket_watch *watch);
/* Closes the socket. The watch may get another one. */
void socket_set_forget(struct socket_set *set, struct socket_watch *watch);
/* Closes the socket, if there is one. The closed event follows. */
void socket_set_drop(struct socket_set *set, struct socket_watch *watch);
/* Runs the closed events that are due. At the end of each turn. True: there were some. */
bool socket_set_run_closed(struct socket_set *set);

#endif
