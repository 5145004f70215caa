/* One HTTP request on the loop of a client, over a connection of its own.
 * Belongs to the thread of the client's loop. The event done comes from the loop, once.
 * Owns its stream and its answer; http_call_close frees it, also from its event.
 * Without an answer, done has the reason. STATUS_OUT_OF_MEMORY of opening.
 * An answer with the id of another request is no answer: a cache or proxy repeated it. */
#ifndef CLIENT_NET_HTTP_CALL_H
#define CLIENT_NET_HTTP_CALL_H

#include "client/net/answer.h"
#include "client/net/socket_stream.h"

struct http_call_options {
    uv_loop_t *loop;
    struct socket_holds *holds;
    const struct socket_target *target;
    const char *path;
    struct slice token;
    const char *content_type;
    struct slice body;
    void *user;
    /* answer is NULL if there is none. */
    void (*done)(void *user, const struct answer *answer, const char *reason);
};

struct http_call;

/* A POST. The target and the holds outlive the call; the texts are copied. */
MUST_CHECK enum status http_call_open(struct http_call **call,
                                      const struct http_call_options *options);
/* NULL is allowed. */
void http_call_close(struct http_call *call);

#endif
