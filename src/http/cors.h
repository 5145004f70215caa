/* CORS: lets pages of allowed origins read answers in a browser.
 * Thread: any; pure functions.
 * Memory: the fields refer to the request and to constants.
 * Errors: none; a page of another origin gets no field that lets it read.
 * Invariant: the origins are those that may connect (admit/gate.h). Operator routes are never
 * readable. Cookies are never allowed: a token is in the query or in a header. */
#ifndef HTTP_CORS_H
#define HTTP_CORS_H

#include "http/admit/gate.h"
#include "http/route.h"

#define CORS_HEADERS_MAX 3
/* The names of the headers that a page may send, and how long a browser may rely on that. */
#define CORS_REQUEST_HEADERS                                                                       \
    SLICE("Authorization, Cache-Control, Content-Type, If-None-Match, Last-Event-ID, "             \
          "X-Request-Id")
#define CORS_MAX_AGE_SECONDS SLICE("600")

/* The fields of an answer; returns their count. route may be NULL: no route matched. request may be
 * NULL: the request is not known. */
size_t cors_headers(const struct gate *gate, const struct http1_request *request,
                    const struct route *route, struct http1_header headers[CORS_HEADERS_MAX]);
/* The browser asks whether a page of another origin may send a request. */
bool cors_is_preflight(const struct http1_request *request);

#endif
