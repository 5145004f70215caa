#include "http/cors.h"

#include "auth/origin.h"

size_t cors_headers(const struct gate *gate, const struct http1_request *request,
                    const struct route *route, struct http1_header headers[CORS_HEADERS_MAX]) {
    struct slice origin;
    if (!request || (route && route->flags & ROUTE_OPERATOR))
        return 0;
    /* Also without Origin: a shared cache must not give that answer to a page. */
    headers[0] = (struct http1_header){SLICE("Vary"), SLICE("Origin")};
    /* The origin is repeated in the answer, so it must be well-formed even if every origin may
     * connect. */
    if (!http1_header_find(request, SLICE("origin"), &origin) ||
        !origin_is_allowed(SLICE("*"), origin) || gate_check_origin(gate, request) != STATUS_OK)
        return 1;
    headers[1] = (struct http1_header){SLICE("Access-Control-Allow-Origin"), origin};
    headers[2] = (struct http1_header){SLICE("Access-Control-Expose-Headers"),
                                       SLICE("ETag, Retry-After, X-Request-Id")};
    return 3;
}

bool cors_is_preflight(const struct http1_request *request) {
    struct slice value;
    return request->method == HTTP1_METHOD_OPTIONS &&
           http1_header_find(request, SLICE("origin"), &value) &&
           http1_header_find(request, SLICE("access-control-request-method"), &value);
}
