#include "server/exchange.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/uuid7.h"
#include "server/conn.h"
#include "server/route.h"
#include "server/server.h"
#include "wire/http1_response.h"
#include "wire/json.h"

#define PARAMETER_BYTES_MAX 4096
#define BODY_BYTES_MAX      (64u << 20)
#define ERROR_BYTES_MAX     65536
#define HEADERS_MAX         6

struct exchange *exchange_new(struct conn *conn, const struct http1_request *request) {
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return NULL;
    exchange->conn = conn;
    exchange->server = conn->loop->server;
    exchange->request = request;
    exchange->refused = STATUS_OK;
    buffer_init(&exchange->parameter_memory, PARAMETER_BYTES_MAX);
    buffer_init(&exchange->body, BODY_BYTES_MAX);
    return exchange;
}

void exchange_free(struct exchange *exchange) {
    if (!exchange)
        return;
    buffer_release(&exchange->parameter_memory);
    buffer_release(&exchange->body);
    free(exchange);
}

void exchange_abandon(struct exchange *exchange) {
    exchange->conn = NULL;
    exchange->request = NULL;
}

/* An answer without a connection goes nowhere, but it does end the exchange. */
static bool nobody_waits(struct exchange *exchange) {
    if (exchange->conn)
        return false;
    exchange_free(exchange);
    return true;
}

static bool request_id_usable(struct slice id) {
    if (id.size == 0 || id.size > REQUEST_ID_BYTES_MAX)
        return false;
    for (size_t i = 0; i < id.size; i++) {
        char c = id.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c == '.';
        if (!plain)
            return false;
    }
    return true;
}

/* The client's own id where it gives a usable one, so that its logs and ours meet. */
static struct slice request_id(struct exchange *exchange) {
    struct slice given;
    if (exchange->request_id[0] == '\0') {
        if (exchange->request &&
            http1_header_find(exchange->request, SLICE("x-request-id"), &given) &&
            request_id_usable(given)) {
            memcpy(exchange->request_id, given.data, given.size);
        } else {
            struct io_loop *loop = exchange->conn->loop;
            struct uuid id = uuid7_next(&loop->ids, clock_wall_ms(&loop->clock));
            uuid_format(&id, exchange->request_id);
        }
    }
    return slice_of(exchange->request_id);
}

static void answer(struct exchange *exchange, const struct http1_response *response) {
    struct conn *conn = exchange->conn;
    assert(!exchange->answered);
    exchange->answered = true;
    if (http1_response_write(&conn->out, response) != STATUS_OK) {
        conn_close(conn);
        return;
    }
    conn_answered(conn);
}

static bool is_head(const struct exchange *exchange) {
    return exchange->request && exchange->request->method == HTTP1_METHOD_HEAD;
}

void exchange_answer_json(struct exchange *exchange, unsigned http_status, struct slice body) {
    if (nobody_waits(exchange))
        return;
    answer(exchange, &(struct http1_response){.http_status = http_status,
                                              .keep_alive = exchange->conn->keep_alive,
                                              .to_head = is_head(exchange),
                                              .content_type = SLICE("application/json"),
                                              .body = body});
}

static enum status error_body(struct exchange *exchange, const struct exchange_error *error,
                              struct buffer *out) {
    const char *message = error->message ? error->message : status_message(error->status);
    enum status status =
        buffer_printf(out, "{\"error\":\"%s\",\"message\":", status_code(error->status));
    if (status == STATUS_OK)
        status = json_write_string(out, slice_of(message));
    if (status == STATUS_OK && error->reason_code)
        status = buffer_printf(out, ",\"reason_code\":\"%s\"", error->reason_code);
    if (status == STATUS_OK)
        status = buffer_printf(out, ",\"request_id\":\"%s\"", request_id(exchange).data);
    if (status == STATUS_OK && error->details.size > 0)
        status =
            buffer_printf(out, ",\"details\":%.*s", (int)error->details.size, error->details.data);
    return status == STATUS_OK ? buffer_append(out, "}\n", 2) : status;
}

void exchange_answer_error(struct exchange *exchange, const struct exchange_error *error) {
    if (nobody_waits(exchange))
        return;
    struct http1_header headers[HEADERS_MAX] = {{SLICE("X-Request-Id"), request_id(exchange)}};
    size_t header_count = 1;
    char allowed[64] = "";
    struct buffer body;
    buffer_init(&body, ERROR_BYTES_MAX);
    if (error->status == STATUS_METHOD_NOT_ALLOWED) {
        /* The parser refuses CONNECT before there is a request, and nothing takes it. */
        if (exchange->request)
            route_allowed(exchange->request->path, allowed);
        headers[header_count++] = (struct http1_header){SLICE("Allow"), slice_of(allowed)};
    }
    assert(header_count + error->header_count <= HEADERS_MAX);
    for (size_t i = 0; i < error->header_count; i++)
        headers[header_count++] = error->headers[i];
    if (error_body(exchange, error, &body) != STATUS_OK)
        buffer_clear(&body);
    answer(exchange, &(struct http1_response){.http_status = (unsigned)status_http(error->status),
                                              .keep_alive = exchange->conn->keep_alive,
                                              .to_head = is_head(exchange),
                                              .content_type = SLICE("application/json"),
                                              .body = buffer_slice(&body),
                                              .headers = headers,
                                              .header_count = header_count});
    buffer_release(&body);
}

void exchange_answer_status(struct exchange *exchange, enum status status) {
    exchange_answer_error(exchange, &(struct exchange_error){.status = status});
}
