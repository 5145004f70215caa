/* HTTP requests of the application: an answer of any length, and a body of any length. A request
 * asks for its own token, unless it has a key; the key goes to the client's server only.
 * Thread: any for request_make; that of the client's loop for the others.
 * Memory: owns the requests until their answer, which is their last call.
 * Errors: an answer has an HTTP status or an error; nothing is tried again, because only the
 * application knows whether its request may be repeated. */
#ifndef CLIENT_REQUESTER_H
#define CLIENT_REQUESTER_H

#include <khala/khala.h>

#include "client/client_error.h"
#include "client/http_call.h"
#include "client/inbox.h"

struct requester {
    struct client_net *net;
    const struct khala_options *options;
    struct list requests;
    void *user;
    void (*wait)(void *user, uint64_t at_ms);
    void (*ask_token)(void *user, uint64_t number);
};

struct request {
    struct command command;
    struct list_node node;
    struct requester *requester;
    struct khala_request asked; /* its texts are in texts */
    uint64_t number;
    struct http_call *call;
    bool is_asking;      /* for a token */
    bool is_held;        /* the application has nothing to send now */
    bool is_stopped;     /* a callback of the application ended it */
    uint64_t until_ms;   /* 0: no limit */
    unsigned silence_ms; /* 0: request_timeout_ms */
    unsigned http_status;
    size_t key_size;
    char texts[];
};

/* NULL: no memory. */
struct request *request_make(const struct khala_request *asked, uint64_t number);
/* Takes the request. */
void requester_start(struct requester *requester, struct request *request);
/* The answer to a question for a token. The text is NULL if there is none. */
void requester_token(struct requester *requester, uint64_t number, const char *text,
                     const struct client_error *error);
/* The application has more of the body. */
void requester_next(struct requester *requester, uint64_t number);
void requester_cancel(struct requester *requester, uint64_t number);
void requester_tick(struct requester *requester);
/* Answers every request with "closed". */
void requester_stop(struct requester *requester);

#endif
