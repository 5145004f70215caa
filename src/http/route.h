/* Routes: a table of method, path and handler, and the search for the route of a request.
 * Read-only.
 * Thread: any.
 * Memory: a match decodes its parameters into a caller's bounded buffer.
 * Errors: STATUS_NOT_FOUND when no row has the path, STATUS_METHOD_NOT_ALLOWED when a row has it
 * under another method, STATUS_BAD_REQUEST for a path that does not decode.
 * Invariant: the first matching row wins. */
#ifndef HTTP_ROUTE_H
#define HTTP_ROUTE_H

#include "auth/principal.h"
#include "base/buffer.h"
#include "spec/metrics.h"
#include "wire/http1_request.h"

#define ROUTE_PARAMETERS_MAX 2

struct exchange;

enum route_flag {
    ROUTE_OPERATOR = 1,            /* needs an operator key */
    ROUTE_STREAM = 2,              /* the handler runs at the head; the body comes in pieces */
    ROUTE_APPEND = 4,              /* the body may be as large as an append's */
    ROUTE_TOKEN = 8,               /* needs a client's token */
    ROUTE_KEYLESS = 64,            /* an operator's route; the operator's listener needs no key */
    ROUTE_TOKEN_OR_OPERATOR = 128, /* takes a token, or an operator key in the header */
    ROUTE_TOPIC = 256,             /* its parameter is a topic; the caller must be entitled to it */
    ROUTE_AUDIT = 512,             /* reads the whole log; the caller must be entitled to it */
    ROUTE_STAYS_OPEN = 1024,       /* becomes a session */
    ROUTE_TOKEN_IN_FIRST_MESSAGE = 2048, /* the token comes after the upgrade */
    ROUTE_VERSION_AT_JOIN = 4096,        /* the client sends its version when it joins */
    ROUTE_PRODUCER = 8192, /* also takes a token that may append; without ROUTE_OPERATOR it is on
                              both listeners */
    ROUTE_WRITER = 32768,  /* needs the writer role: other nodes pass the request to the writer */
    ROUTE_ITEMS = 65536,   /* its answer has a line for each item of the body */
    ROUTE_LONG = 131072,   /* may work for minutes before it answers */
    ROUTE_RUN = 262144,    /* its parameter is a run; the caller must be entitled to its events */
};

struct route {
    enum http1_method method;
    const char *path; /* segments; {name} matches one non-empty segment */
    void (*handle)(struct exchange *exchange);
    uint64_t body_bytes_max; /* 0: takes no body */
    unsigned flags;
    /* The roles of operator keys that may call it, as bits. 0: it takes no operator key. */
    unsigned roles;
    /* The names of its query parameters, with a blank between each two. NULL: a name that it does
     * not know is ignored. */
    const char *parameters;
};

struct route_table {
    const struct route *rows;
    size_t count;
};

struct route_match {
    const struct route *route;
    struct slice parameters[ROUTE_PARAMETERS_MAX]; /* decoded {…} segments, in memory */
    size_t parameter_count;
};

/* hidden: flags of routes that are not served on this listener. */
MUST_CHECK enum status route_find(const struct route_table *table,
                                  const struct http1_request *request, unsigned hidden,
                                  struct buffer *memory, struct route_match *match);
/* Whether a query of this route may have the parameter. Every route takes those of admission. */
bool route_takes(const struct route *route, struct slice parameter);
/* "GET, HEAD": the methods of the path, without routes that have a flag in hidden. */
void route_allowed(const struct route_table *table, struct slice path, unsigned hidden,
                   char text[64]);
/* The metric label of a route's requests. route may be NULL: no route matched. */
enum label_route_class route_class(const struct route *route);

/* Whether the path has exactly the pattern's segments. A slash at the end counts as one more
 * segment. The {…} segments, still encoded, go to parameters[0..ROUTE_PARAMETERS_MAX). */
bool route_path_matches(const char *pattern, struct slice path, struct slice *parameters,
                        size_t *parameter_count);

#endif
