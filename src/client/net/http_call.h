/* One HTTP request on the loop of a client, over a connection of its own or the spare one.
 * Belongs to the thread of the client's loop. The event done comes from the loop, once.
 * Owns its stream and its answer; http_call_close frees it, also from its events.
 * Without an answer, done has the reason. STATUS_OUT_OF_MEMORY of opening.
 * An answer with the id of another request is no answer: a cache or proxy repeated it. */
#ifndef CLIENT_NET_HTTP_CALL_H
#define CLIENT_NET_HTTP_CALL_H

#include "client/net/answer.h"
#include "client/net/socket_stream.h"

/* A connection that waits for the next call. Zero at the start; close it before the loop ends. */
struct http_spare {
    struct socket_stream *stream; /* NULL: none */
};

void http_spare_close(struct http_spare *spare);

struct http_call_options {
    uv_loop_t *loop;
    struct socket_holds *holds;
    const struct socket_target *target;
    struct http_spare *spare; /* NULL: the connection ends with the call */
    const char *method;
    const char *path;
    struct slice token;       /* empty: none */
    const char *content_type; /* NULL: no body */
    struct slice body;
    bool has_id;      /* the answer must have the request's id, if it has one */
    bool is_streamed; /* the body comes from more, and is sent in chunks */
    void *user;
    /* Sets the next piece of the body, which lives until the next call. An empty piece that is not
     * the last: nothing now, and http_call_more asks again. */
    enum status (*more)(void *user, struct slice *piece, bool *is_last);
    /* A piece of the answer's body. NULL: the answer holds the body. */
    enum status (*piece)(void *user, const struct answer *answer, struct slice piece);
    /* Bytes went either way, or the connection opened. May be NULL. */
    void (*progress)(void *user);
    /* answer is NULL if there is none. */
    void (*done)(void *user, const struct answer *answer, const char *reason);
};

struct http_call;

/* The target, the holds and the spare outlive the call; the texts are copied. */
MUST_CHECK enum status http_call_open(struct http_call **call,
                                      const struct http_call_options *options);
/* The body has more. */
void http_call_more(struct http_call *call);
/* False: the connection was never open, so the server has not seen the request. */
bool http_call_was_sent(const struct http_call *call);
/* The id that the request carries; "" if it has none. */
const char *http_call_id(const struct http_call *call);
/* NULL is allowed. */
void http_call_close(struct http_call *call);

#endif
