/* HTTP requests of a thread that waits for each answer, over khala_request. The connection is kept
 * for the next request if the server allows it.
 * Thread: one, which runs the loop of its client while a request is in progress.
 * Memory: bounded, however long the bodies are: callbacks get the answer as it arrives, also while
 * the request is still being sent.
 * Errors: STATUS_INVALID_REQUEST for a URL that is not http[s]://host[:port]; STATUS_SYSTEM_ERROR
 * when the server cannot be reached, stays silent for too long or does not speak HTTP:
 * blocking_http_error has the reason. An error of a callback ends the request with that status. */
#ifndef CLIENT_BLOCKING_HTTP_H
#define CLIENT_BLOCKING_HTTP_H

#include "base/slice.h"
#include "spec/codes.h"

struct blocking_http;

struct blocking_request {
    const char *method;       /* NULL: GET, or POST with a body */
    const char *target;       /* path and query, encoded */
    const char *key;          /* the bearer key, or NULL */
    const char *content_type; /* NULL: no body */
    struct slice body;
    int stop_fd; /* ends the request with STATUS_SHUTTING_DOWN when it can be read; 0: none */
    void *user;
    /* Sets the next piece of the body, which lives until the next call; may wait for it. NULL: body
     * is all. */
    enum status (*next)(void *user, struct slice *piece, bool *is_last);
    /* A piece of the answer's body. NULL: the body is not needed. */
    enum status (*on_body)(void *user, unsigned http_status, struct slice piece);
};

/* ca_file: the authorities to trust for https, as PEM; NULL: the system's. */
MUST_CHECK enum status blocking_http_open(struct blocking_http **http, const char *url,
                                          const char *ca_file);
/* NULL is allowed. */
void blocking_http_close(struct blocking_http *http);
MUST_CHECK enum status blocking_http_run(struct blocking_http *http,
                                         const struct blocking_request *request,
                                         unsigned *http_status);
/* Why the last request failed, for people; "" if it did not, or a callback's status says it. */
const char *blocking_http_error(const struct blocking_http *http);

#endif
