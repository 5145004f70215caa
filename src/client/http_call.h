/* One HTTP request on the loop of a client, over a connection of its own or a kept one.
 * Thread: the client's loop. The event done comes from the loop, once.
 * Memory: the call owns its connection and its answer; http_call_close frees it, also from its
 * events.
 * Errors: done has the reason if there is no answer; STATUS_OUT_OF_MEMORY of opening.
 * Invariant: an answer with the id of another request is no answer: a cache or proxy repeated it.
 */
#ifndef CLIENT_HTTP_CALL_H
#define CLIENT_HTTP_CALL_H

#include "client/client_net.h"
#include "wire/http1_response.h"

/* An answer, as its connection reads it. */
struct http_answer {
    struct http1_answer head;
    struct buffer body; /* what of it has come, or a piece of it */
};

/* The fields that a client reads. */
extern const struct http1_peer http_answer_peer;

/* The value of a field that was kept; empty if there is none. */
struct slice http_answer_field(const struct http_answer *answer, struct slice name);

struct http_call_options {
    struct client_net *net;
    bool is_kept; /* the connection may serve another call; false: it ends with this one */
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
    enum status (*piece)(void *user, const struct http_answer *answer, struct slice piece);
    /* Bytes went either way, or the connection opened. May be NULL. */
    void (*progress)(void *user);
    /* answer is NULL if there is none. */
    void (*done)(void *user, const struct http_answer *answer, const char *reason);
};

struct http_call;

/* The texts are copied. */
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
