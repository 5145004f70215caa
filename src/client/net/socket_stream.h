/* A byte stream to a server on a libuv loop: name lookup, TCP, TLS, sending and receiving.
 * Belongs to the loop's thread. Events come from the loop only, never out of a call.
 * Owns its socket. socket_stream_close ends all events; the memory is freed when libuv has let go.
 * The event ended has the reason for people. STATUS_OUT_OF_MEMORY and the buffer's error of
 * sending. Nothing is sent before the server's certificate was verified for its host, where TLS is
 * used. */
#ifndef CLIENT_NET_SOCKET_STREAM_H
#define CLIENT_NET_SOCKET_STREAM_H

#include <uv.h>

#include "base/slice.h"
#include "spec/codes.h"

#define SOCKET_HOST_BYTES_MAX 256

struct socket_target {
    char host[SOCKET_HOST_BYTES_MAX];
    char port[8];
    bool is_secure;
    const char *ca_file; /* NULL: the system's authorities */
};

/* http://HOST[:PORT] or https://HOST[:PORT]; ws and wss mean the same. False: another text. */
MUST_CHECK bool socket_target_read(struct socket_target *target, const char *url);

/* Counts what the loop still holds, so that the loop's owner knows when nothing is left. */
struct socket_holds {
    size_t count;
    void *user;
    void (*emptied)(void *user);
};

void socket_hold(struct socket_holds *holds);
void socket_let_go(struct socket_holds *holds);

struct socket_events {
    void (*opened)(void *user);
    void (*received)(void *user, struct slice data);
    void (*ended)(void *user, const char *reason);
    /* After socket_stream_want_room: every byte was sent. NULL: never wanted. */
    void (*has_room)(void *user);
};

struct socket_stream;

/* The target, the holds and the events outlive the stream. */
MUST_CHECK enum status socket_stream_open(struct socket_stream **stream, uv_loop_t *loop,
                                          struct socket_holds *holds,
                                          const struct socket_target *target,
                                          const struct socket_events *events, void *user);
MUST_CHECK enum status socket_stream_send(struct socket_stream *stream, struct slice data);
/* Asks for one event has_room. */
void socket_stream_want_room(struct socket_stream *stream);
/* True: the connection is open, and every byte was sent. */
bool socket_stream_is_idle(const struct socket_stream *stream);
/* The events that follow go to another user. */
void socket_stream_hand_over(struct socket_stream *stream, const struct socket_events *events,
                             void *user);
/* NULL is allowed. Bytes that were not sent are sent if that is possible without waiting. */
void socket_stream_close(struct socket_stream *stream);

#endif
