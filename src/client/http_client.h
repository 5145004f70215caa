/* A small blocking HTTP/1.1 client: one request at a time, bodies of any length both ways at once.
 * Belongs to one thread. Opening does not connect; the first request does. The connection is
 * kept for the next request if the server allows it.
 * STATUS_INVALID_REQUEST for a URL that is not http[s]://host[:port]; STATUS_SYSTEM_ERROR when the
 * server cannot be reached, stays silent for too long or does not speak HTTP: http_client_error has
 * the reason. An error of a callback ends the exchange with that status.
 * Memory is bounded, however long the bodies are: callbacks get the answer as it arrives, also
 * while the request is still being sent. */
#ifndef CLIENT_HTTP_CLIENT_H
#define CLIENT_HTTP_CLIENT_H

#include "base/slice.h"
#include "spec/codes.h"

struct http_client;

/* A body that comes in pieces, sent chunked. */
struct http_client_source {
    int fd;          /* next is called when this can be read */
    int idle_ms_max; /* or after that time without input; -1: never */
    void *user;
    /* Sets the next piece, which lives until the next call; end when there will be no more. */
    enum status (*next)(void *user, bool idle, struct slice *piece, bool *end);
};

struct http_client_request {
    const char *method;
    const char *target;       /* path and query, encoded */
    const char *key;          /* the bearer key, or NULL */
    const char *content_type; /* NULL: no body */
    struct slice body;
    const struct http_client_source *source; /* instead of body; may be NULL */
    int stop_fd; /* ends the exchange with STATUS_SHUTTING_DOWN when it can be read; 0: none */
    void *user;
    /* A piece of the answer's body. */
    enum status (*on_body)(void *user, unsigned http_status, struct slice piece);
};

MUST_CHECK enum status http_client_open(struct http_client **client, const char *url);
/* The authorities to trust for https: a PEM file whose name outlives the client. NULL, the default:
 * the system's authorities. */
void http_client_trust(struct http_client *client, const char *ca_file);
void http_client_close(struct http_client *client);
MUST_CHECK enum status http_client_exchange(struct http_client *client,
                                            const struct http_client_request *request,
                                            unsigned *http_status);
/* Why the last call failed, for people. */
const char *http_client_error(const struct http_client *client);

#endif
