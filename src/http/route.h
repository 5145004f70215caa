/* The routes: one table of method, path and handler.
 * Read-only; any thread. Finding allocates only the decoded parameters, in the exchange.
 * STATUS_NOT_FOUND when no row has the path, STATUS_METHOD_NOT_ALLOWED when one has it under
 * another method, STATUS_BAD_REQUEST for a path that does not decode. */
#ifndef HTTP_ROUTE_H
#define HTTP_ROUTE_H

#include "http/exchange.h"

enum route_flag {
    ROUTE_OPERATOR = 1, /* needs the operator key */
    ROUTE_STREAM = 2,   /* called with the head; the body comes in pieces */
    ROUTE_TOKEN = 8,    /* a subscriber's: needs a token */
    ROUTE_APPEND = 4,   /* the body may be as large as an append's, which is a setting */
    ROUTE_TOPIC = 256,  /* its parameter is a topic, which who asks must be entitled to */
    ROUTE_AUDIT = 512,  /* reads the whole log, which who asks must be entitled to */
    ROUTE_TOKEN_OR_OPERATOR = 128, /* takes a client's token, or the operator key in its header */
    ROUTE_STAYS_OPEN = 1024,       /* becomes a connection that stays open */
    ROUTE_VERSION_AT_JOIN = 4096,  /* a subscriber's, whose versions come when it joins */
    ROUTE_TOKEN_IN_FIRST_MESSAGE =
        2048,           /* a subscriber's, whose token comes in its first message */
    ROUTE_KEYLESS = 64, /* an operator's, that needs no key on the operator's own listener */
};

struct route {
    enum http1_method method;
    const char *path; /* segments; {name} matches one non-empty segment */
    void (*handle)(struct exchange *exchange);
    uint64_t body_bytes_max; /* 0: takes no body */
    unsigned flags;
};

MUST_CHECK enum status route_find(struct exchange *exchange);
/* "GET, HEAD": the methods of the path, but for routes with one of the flags hidden. */
void route_allowed(struct slice path, unsigned hidden, char text[64]);

/* Whether the path has the pattern's segments, no fewer and no more (a slash at the end is one
 * more); the {…} ones, still encoded, go to parameters[0..EXCHANGE_PARAMETERS_MAX). */
bool route_path_matches(const char *pattern, struct slice path, struct slice *parameters,
                        size_t *parameter_count);

#endif
