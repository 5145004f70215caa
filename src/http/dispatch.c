#include "http/dispatch.h"

#include <strings.h>

#include "auth/principal.h"
#include "http/admit/admission.h"
#include "http/admit/entitle.h"
#include "http/cors.h"
#include "http/exchange.h"
#include "http/forward/forward.h"
#include "topic/topic_name.h"
#include "wire/object_writer.h"

/* A longer name of a query parameter is a bad request. */
#define PARAMETER_BYTES_MAX 128
/* Escapes make a name up to six times as long. */
#define PARAMETER_DETAILS_BYTES_MAX (64 + 6 * PARAMETER_BYTES_MAX)

/* A wrong key or token is answered late, once its address has shown many. Right ones are compared
 * like these, and never wait: the clients behind a proxy share its address. */
static void refuse_request(struct exchange *exchange, enum status status) {
    struct conn *conn = exchange->conn;
    uint64_t delay_ms = 0;
    if (status == STATUS_INVALID_TOKEN)
        delay_ms = admission_charge_failure(conn, !(exchange->match.route->flags & ROUTE_OPERATOR));
    exchange->refused = status;
    if (delay_ms > 0)
        conn_delay(conn, delay_ms);
    else
        admission_answer_refused(exchange, status);
}

static void on_delayed(struct conn *conn) {
    admission_answer_refused(conn->exchange, conn->exchange->refused);
}

static void on_refused(struct conn *conn, enum status status) {
    if (!conn->exchange)
        conn->exchange = exchange_new(conn, NULL);
    /* An answer that has started cannot become an error: the connection closes instead. */
    if (conn->exchange && exchange_is_answered(conn->exchange))
        exchange_log_end(conn->exchange, status);
    if (!conn->exchange || exchange_is_answered(conn->exchange)) {
        conn_close(conn);
        return;
    }
    conn_set_handling(conn);
    refuse_request(conn->exchange, status);
}

/* False: the writer handles the request, or it is refused. */
static bool is_for_this_node(struct exchange *exchange) {
    switch (forward_choose(exchange)) {
    case FORWARD_HERE:
        break;
    case FORWARD_PASS:
        forward_begin(exchange);
        return false;
    case FORWARD_REFUSE:
        exchange_answer_status(exchange, STATUS_NOT_WRITER);
        return false;
    }
    return true;
}

/* ---- the head ---- */

/* A chunked body does not announce its length. So a route without a body refuses any body. */
static enum status allow_body(struct exchange *exchange) {
    const struct route *route = exchange->match.route;
    const struct http1_request *request = exchange->request;
    uint64_t bytes_max = route->flags & ROUTE_APPEND ? exchange->http->options.append_bytes_max
                                                     : route->body_bytes_max;
    struct slice encoding;
    if (request->has_body && bytes_max == 0)
        return STATUS_PAYLOAD_TOO_LARGE;
    /* Without this check a compressed batch would be parsed as many bad items. */
    if (request->has_body && http1_header_find(request, SLICE("content-encoding"), &encoding) &&
        (encoding.size != strlen("identity") ||
         strncasecmp(encoding.data, "identity", encoding.size) != 0))
        return STATUS_UNSUPPORTED_MEDIA_TYPE;
    return conn_allow_body(exchange->conn, bytes_max);
}

static void handle_preflight(struct exchange *exchange) {
    char methods[64];
    struct http *http = exchange->http;
    enum status status = gate_check_origin(&http->gate, exchange->request);
    route_allowed(&http->routes, exchange->request->path, exchange->routes_hidden | ROUTE_OPERATOR,
                  methods);
    if (status == STATUS_OK && methods[0] == '\0')
        status = STATUS_NOT_FOUND;
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return;
    }
    struct http1_header headers[] = {
        {SLICE("Access-Control-Allow-Methods"), slice_of(methods)},
        {SLICE("Access-Control-Allow-Headers"), CORS_REQUEST_HEADERS},
        {SLICE("Access-Control-Max-Age"), CORS_MAX_AGE_SECONDS},
    };
    exchange_answer_bare(exchange, 204, headers, sizeof(headers) / sizeof(headers[0]));
}

/* Every path has it, and it needs no token: a browser sends none. */
static const struct route preflight_route = {
    .method = HTTP1_METHOD_OPTIONS, .path = "/", .handle = handle_preflight};

/* "OPTIONS *" asks about the server as a whole (RFC 9110 section 9.3.7). */
static void handle_server_options(struct exchange *exchange) {
    struct http1_header allow = {SLICE("Allow"), SLICE("GET, HEAD, POST, OPTIONS")};
    exchange_answer_bare(exchange, 204, &allow, 1);
}

static const struct route server_options_route = {
    .method = HTTP1_METHOD_OPTIONS, .path = "/", .handle = handle_server_options};

static enum status check_head(struct exchange *exchange) {
    if (slice_equal(exchange->request->path, SLICE("*"))) {
        exchange->match.route = &server_options_route;
        return allow_body(exchange);
    }
    if (cors_is_preflight(exchange->request)) {
        exchange->match.route = &preflight_route;
        return allow_body(exchange);
    }
    enum status status =
        route_find(&exchange->http->routes, exchange->request, exchange->routes_hidden,
                   &exchange->parameter_memory, &exchange->match);
    if (status == STATUS_OK)
        status = admission_check(exchange);
    return status == STATUS_OK ? allow_body(exchange) : status;
}

static void on_head(struct conn *conn, const struct http1_request *request) {
    struct exchange *exchange = exchange_new(conn, request);
    conn->exchange = exchange;
    if (!exchange) {
        conn_close(conn);
        return;
    }
    conn->keep_alive = request->keep_alive && !atomic_load(&exchange->http->is_draining);
    enum status status = check_head(exchange);
    if (status == STATUS_OK) {
        bool is_continue_expected = request->expect_continue;
        /* The handler may refuse the head. Otherwise it gets the body in pieces. */
        if (exchange->match.route->flags & ROUTE_STREAM) {
            conn_stream_body(conn);
            if (is_for_this_node(exchange))
                exchange->match.route->handle(exchange);
        }
        if (is_continue_expected)
            conn_continue(conn);
        return;
    }
    /* An unwanted body is not read: the connection closes after the answer. Without a body the
     * request is complete at once, and on_request answers. */
    if (request->has_body) {
        conn->keep_alive = false;
        on_refused(conn, status);
    } else {
        exchange->refused = status;
    }
}

/* ---- the body and the end of the request ---- */

static void on_body(struct conn *conn, struct slice piece) {
    struct exchange *exchange = conn->exchange;
    if (conn->state == CONN_STREAMING) {
        exchange->stream->body(exchange, piece);
        return;
    }
    enum status status = buffer_append_slice(&exchange->body, piece);
    if (status != STATUS_OK) {
        conn->keep_alive = false;
        on_refused(conn, status);
    }
}

/* False: the exchange has been answered. */
static bool check_parameters(struct exchange *exchange) {
    const struct route *route = exchange->match.route;
    struct slice query = exchange->request->query;
    char text[PARAMETER_BYTES_MAX];
    bool found = route->parameters != NULL;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && found) {
        struct buffer name = buffer_over(text, sizeof(text));
        status = http1_query_next(&query, &name, &found);
        if (status == STATUS_OK && found && !route_takes(route, buffer_slice(&name))) {
            struct buffer details;
            buffer_init(&details, PARAMETER_DETAILS_BYTES_MAX);
            struct object_writer object = object_begin(&details);
            object_text(&object, SLICE("parameter"), buffer_slice(&name));
            struct exchange_error error = {.status = STATUS_UNKNOWN_PARAMETER};
            if (object_end(&object) == STATUS_OK)
                error.details = buffer_slice(&details);
            exchange_answer_error(exchange, &error);
            buffer_release(&details);
            return false;
        }
    }
    if (status != STATUS_OK)
        exchange_answer_status(exchange, status);
    return status == STATUS_OK;
}

static void on_request(struct conn *conn) {
    struct exchange *exchange = conn->exchange;
    if (conn->state == CONN_STREAMING) {
        exchange->stream->body_end(exchange);
        return;
    }
    conn_set_handling(conn);
    if (exchange->refused != STATUS_OK) {
        refuse_request(exchange, exchange->refused);
        return;
    }
    if (!is_for_this_node(exchange) || !check_parameters(exchange))
        return;
    /* A caller that is not entitled to the route's topic does not reach the handler. A token for a
     * single use is used up before its stream opens. */
    const struct route *route = exchange->match.route;
    bool is_once = route->flags & ROUTE_STAYS_OPEN && exchange->http->options.token_single_use;
    void (*handle)(struct exchange *) = is_once ? open_once : route->handle;
    if (route->flags & ROUTE_AUDIT)
        entitle(exchange, topic_name(TOPIC_AUDIT), handle);
    else if (route->flags & ROUTE_TOPIC)
        entitle_path(exchange, handle);
    else if (route->flags & ROUTE_RUN)
        entitle_run(exchange, handle);
    else
        handle(exchange);
}

static void on_sent(struct conn *conn) {
    conn->exchange->stream->sent(conn->exchange);
}

static void on_drain(struct conn *conn) {
    if (conn->exchange->drain)
        conn->exchange->drain(conn->exchange);
}

static uint64_t progress_min(const struct conn *conn) {
    const struct exchange *exchange = conn->exchange;
    bool is_short = exchange && unread_answers_is_short(&exchange->http->unread_answers);
    return unread_progress_min(exchange ? exchange->held_bytes : 0, is_short);
}

const struct conn_events dispatch_events = {
    .head = on_head,
    .body = on_body,
    .request = on_request,
    .refused = on_refused,
    .sent = on_sent,
    .delayed = on_delayed,
    .drain = on_drain,
    .progress_min = progress_min,
    .detach = exchange_detach,
};
