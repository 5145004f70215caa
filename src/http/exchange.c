/* An exchange is made at the head of its request, and has one answer:
 *
 *   exchange_new ──▶ handler ──▶ answer: one piece, from one bounded slot
 *                          └──▶ begin, send …, end: any length, a piece at a time
 *
 * Both count what a slow client leaves unread (hold_answer), log and count the request once, and
 * add the fields that each answer has. The connection detaches its exchange when the answer is
 * written or the connection closes. Calls on other threads keep the memory until they have
 * returned; then exchange_unref says whether an answer is still possible. */
#include "http/exchange.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "auth/principal.h"
#include "auth/token.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/uuid7.h"
#include "http/cors.h"
#include "http/http_loop.h"
#include "wire/http1_response.h"
#include "wire/json.h"

#define HEADERS_MAX 6

static void set_state(struct exchange *exchange, enum exchange_state state) {
    /* An exchange has one answer. */
    assert(exchange->state == EXCHANGE_DUE && state != EXCHANGE_DUE);
    exchange->state = state;
}

struct exchange *exchange_new(struct conn *conn, const struct http1_request *request) {
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return NULL;
    exchange->conn = conn;
    exchange->loop = conn_io(conn);
    exchange->http = conn_loop(conn)->http;
    exchange->request = request;
    if (exchange->http->options.has_operator_listener)
        exchange->routes_hidden = conn->is_operators ? ROUTE_TOKEN : ROUTE_OPERATOR;
    exchange->started_ns = clock_mono_ns(&exchange->loop->clock);
    exchange->refused = STATUS_OK;
    buffer_init(&exchange->parameter_memory, EXCHANGE_PARAMETER_BYTES_MAX);
    buffer_init(&exchange->body, EXCHANGE_BODY_BYTES_MAX);
    return exchange;
}

static void exchange_free(struct exchange *exchange) {
    if (exchange->work)
        exchange->work_free(exchange->work);
    principal_unref(exchange->principal);
    free(exchange->bearer);
    buffer_release(&exchange->parameter_memory);
    buffer_release(&exchange->body);
    free(exchange);
}

struct store_client exchange_client(const struct exchange *exchange,
                                    char key[PRINCIPAL_KEY_BYTES_MAX]) {
    const struct principal *principal = exchange->principal;
    if (!principal)
        return (struct store_client){.key = {"", 0}};
    return (struct store_client){.key = principal_key(principal, key),
                                 .is_bounded = !principal_is_operator(principal)};
}

/* Replaces what is held for the exchange: the bytes of its answer, or of the next piece. A bounded
 * answer is refused if the principal has no room for it. */
static enum status hold_answer(struct exchange *exchange, uint64_t bytes, bool is_bounded) {
    char key[PRINCIPAL_KEY_BYTES_MAX];
    struct unread_answers *answers = &exchange->http->unread_answers;
    enum status status = STATUS_OK;
    if (bytes <= UNREAD_ANSWER_BYTES_MIN && exchange->held_bytes == 0)
        return STATUS_OK;
    struct store_client client = exchange_client(exchange, key);
    if (!client.is_bounded)
        return STATUS_OK;
    if (exchange->held_bytes > 0)
        unread_answers_drop(answers, client.key, exchange->held_bytes);
    if (bytes > 0)
        status = unread_answers_hold(answers, client.key, bytes, is_bounded);
    exchange->held_bytes = status == STATUS_OK ? bytes : 0;
    if (status == STATUS_RATE_LIMITED)
        metrics_add(METRIC_HTTP_ANSWERS_REFUSED, METRIC_PLAIN, 1);
    return status;
}

enum status exchange_hold(struct exchange *exchange, uint64_t bytes) {
    return hold_answer(exchange, bytes, true);
}

void exchange_detach(struct exchange *exchange) {
    if (!exchange)
        return;
    (void)hold_answer(exchange, 0, false);
    exchange->conn = NULL;
    exchange->request = NULL;
    if (exchange->store_call)
        call_cancel(exchange->store_call);
    if (exchange->refs == 0)
        exchange_free(exchange);
    else if (exchange->stream && exchange->stream->gone)
        exchange->stream->gone(exchange);
}

void exchange_handle(struct exchange *exchange, void (*handle)(struct exchange *exchange)) {
    struct conn *conn = exchange->conn;
    handle(exchange);
    conn_handled_late(conn);
}

void exchange_ref(struct exchange *exchange) {
    exchange->refs++;
}

bool exchange_unref(struct exchange *exchange) {
    bool attached = exchange->conn != NULL;
    bool wanted = attached && exchange->state != EXCHANGE_ANSWERED;
    assert(exchange->refs > 0);
    exchange->store_call = NULL;
    if (--exchange->refs == 0 && !attached)
        exchange_free(exchange);
    return wanted;
}

/* The client's X-Request-Id, if its bytes can be logged and repeated as they are. */
static bool find_given_id(const struct exchange *exchange, struct slice *given) {
    if (!exchange->request || !http1_header_find(exchange->request, SLICE("x-request-id"), given) ||
        given->size == 0 || given->size > REQUEST_ID_BYTES_MAX)
        return false;
    for (size_t i = 0; i < given->size; i++) {
        char c = given->data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c == '.';
        if (!plain)
            return false;
    }
    return true;
}

bool exchange_id_header(struct exchange *exchange, struct http1_header *header) {
    struct slice given;
    if (!find_given_id(exchange, &given))
        return false;
    *header = (struct http1_header){SLICE("X-Request-Id"), exchange_request_id(exchange)};
    return true;
}

struct slice exchange_request_id(struct exchange *exchange) {
    struct slice given;
    if (exchange->request_id[0] == '\0') {
        if (find_given_id(exchange, &given)) {
            memcpy(exchange->request_id, given.data, given.size);
        } else {
            struct io_loop *loop = exchange->loop;
            struct uuid id = uuid7_next(&loop->ids, clock_wall_ms(&loop->clock));
            uuid_format(&id, exchange->request_id);
        }
    }
    return slice_of(exchange->request_id);
}

/* ---- counting and logging ---- */

static void log_answered(struct exchange *exchange, unsigned http_status) {
    static const char *const methods[] = {"GET",   "HEAD",   "POST",    "PUT",
                                          "PATCH", "DELETE", "OPTIONS", "OTHER"};
    const struct http1_request *request = exchange->request;
    uint64_t took_ns = clock_mono_ns(&exchange->loop->clock) - exchange->started_ns;
    enum label_route_class class = route_class(exchange->match.route);
    metrics_add(METRIC_HTTP_REQUESTS, METRIC_LABELS(class, label_http_status(http_status)), 1);
    metrics_observe(METRIC_HTTP_REQUEST_DURATION_SECONDS, METRIC_LABELS(class), took_ns, 1);
    /* The path is logged without the query, because a query may hold a token. */
    if (log_wants(LOG_DEBUG))
        log_event(LOG_DEBUG, "http.request", log_slice("request_id", exchange_request_id(exchange)),
                  log_str("method", request ? methods[request->method] : "-"),
                  log_int("status", http_status), log_int("took_us", (int64_t)(took_ns / 1000)),
                  log_slice("path", request ? request->path : SLICE("-")));
}

/* The topic is that of the route, if the route has one. */
static struct cause cause_of(struct exchange *exchange, enum status status,
                             struct cause_names *names) {
    static const struct slice parameter = SLICE("{topic}");
    const struct route_match *match = &exchange->match;
    const struct principal *caller = exchange->principal;
    struct cause cause = {.connection = exchange_request_id(exchange),
                          .status = status,
                          .rule = exchange->token_rule,
                          .dialect = LABEL_DIALECT_HTTP};
    if (match->route && match->parameter_count > 0 &&
        memmem(match->route->path, strlen(match->route->path), parameter.data, parameter.size))
        cause.topic = match->parameters[0];
    if (caller)
        cause.principal =
            (struct slice){names->principal, principal_name(caller, names->principal)};
    else if (exchange->bearer)
        cause.principal = slice_of(exchange->bearer);
    if (exchange->conn)
        cause.peer = transport_peer(&exchange->conn->transport, names->peer);
    return cause;
}

void exchange_log_refusal(struct exchange *exchange, enum status status, struct slice topic) {
    int http_status = status_http(status);
    struct cause_names names;
    struct compatibility_claim claim = {.schema_version.size = 0};
    if (http_status != 401 && http_status != 403 && http_status != 413 && http_status != 426 &&
        http_status != 429)
        return;
    struct cause cause = cause_of(exchange, status, &names);
    if (topic.data)
        cause.topic = topic;
    if (exchange->request && status == STATUS_ORIGIN_NOT_ALLOWED)
        http1_header_find(exchange->request, SLICE("origin"), &cause.origin);
    if (exchange->request && compatibility_refuses(status)) {
        compatibility_claim_query(&claim, exchange->request->query);
        cause.client = telemetry_client(&claim);
    }
    telemetry_refused(exchange->http->telemetry, cause, status);
}

void exchange_log_end(struct exchange *exchange, enum status status) {
    struct cause_names names;
    telemetry_disconnected(exchange->http->telemetry, cause_of(exchange, status, &names));
}

/* ---- answering ---- */

static struct slice date_now(const struct exchange *exchange) {
    return http_date_at(&conn_loop(exchange->conn)->date, clock_wall_ms(&exchange->loop->clock));
}

static void answer(struct exchange *exchange, const struct http1_response *content) {
    struct conn *conn = exchange->conn;
    struct http1_header headers[HEADERS_MAX + CORS_HEADERS_MAX + 1];
    struct http1_response response = *content;
    assert(!exchange_is_answered(exchange));
    /* The event of an append is stored. A refusal would make the client append it again. */
    bool is_append = exchange->match.route && exchange->match.route->flags & ROUTE_APPEND;
    enum status held = hold_answer(exchange, response.body.size, !is_append);
    if (held != STATUS_OK) {
        exchange_answer_status(exchange, held);
        return;
    }
    size_t header_count =
        cors_headers(&exchange->http->gate, exchange->request, exchange->match.route, headers);
    assert(response.header_count <= HEADERS_MAX);
    for (size_t i = 0; i < response.header_count; i++)
        headers[header_count++] = response.headers[i];
    /* An error has its id already. */
    if (response.http_status < 400 && exchange_id_header(exchange, &headers[header_count]))
        header_count++;
    response.headers = headers;
    response.header_count = header_count;
    log_answered(exchange, response.http_status);
    set_state(exchange, EXCHANGE_ANSWERED);
    /* The remaining pieces of a body are not read, so the connection cannot be reused. */
    if (conn->state == CONN_STREAMING && !conn->is_body_done)
        conn->keep_alive = false;
    response.keep_alive = conn->keep_alive;
    response.to_head = exchange_is_head(exchange);
    response.date = date_now(exchange);
    if (http1_response_write(&conn->http->out, &response) != STATUS_OK) {
        conn_close(conn);
        return;
    }
    /* The answer is in the connection's memory. A client that reads slowly must not hold the
     * handler's memory too. */
    if (exchange->refs == 0 && !exchange->stream) {
        exchange->drain = NULL;
        if (exchange->work)
            exchange->work_free(exchange->work);
        exchange->work = NULL;
        buffer_release(&exchange->body);
    }
    conn_answer(conn);
}

bool exchange_is_head(const struct exchange *exchange) {
    return exchange->request && exchange->request->method == HTTP1_METHOD_HEAD;
}

void exchange_answer(struct exchange *exchange, unsigned http_status, struct slice content_type,
                     struct slice body) {
    struct http1_response response = {
        .http_status = http_status, .content_type = content_type, .body = body};
    answer(exchange, &response);
}

void exchange_answer_json(struct exchange *exchange, unsigned http_status, struct slice body) {
    exchange_answer(exchange, http_status, SLICE("application/json"), body);
}

void exchange_answer_bare(struct exchange *exchange, unsigned http_status,
                          const struct http1_header *headers, size_t header_count) {
    struct http1_response response = {
        .http_status = http_status, .headers = headers, .header_count = header_count};
    answer(exchange, &response);
}

/* Some codes cover several cases. The message then says what the caller can do. */
static const char *message_of(const struct exchange *exchange, const struct exchange_error *error,
                              char text[SCOPES_NEEDED_BYTES_MAX]) {
    bool is_operators = exchange->match.route && exchange->match.route->flags & ROUTE_OPERATOR;
    if (error->message)
        return error->message;
    if (is_operators && error->status == STATUS_INVALID_TOKEN)
        return "This is not an operator key of this server.";
    if (is_operators && status_http(error->status) == 401)
        return "This address needs an operator key, as Authorization: Bearer KEY.";
    if (error->status == STATUS_MISSING_SCOPE)
        return scopes_needed(exchange->scopes_needed, text);
    return status_message(error->status);
}

enum status exchange_error_write(struct exchange *exchange, const struct exchange_error *error,
                                 struct buffer *out) {
    char text[SCOPES_NEEDED_BYTES_MAX];
    int http_status = status_http(error->status);
    const char *reason = error->reason_code;
    size_t begin = out->size;
    buffer_printf(out, "{\"error\":\"%s\",\"message\":", status_code(error->status));
    json_write_string(out, slice_of(message_of(exchange, error, text)));
    /* Clients look for the reason of a 401 or 403 in reason_code. */
    if (!reason && (http_status == 401 || http_status == 403))
        reason = status_code(error->status);
    if (reason)
        buffer_printf(out, ",\"reason_code\":\"%s\"", reason);
    buffer_printf(out, ",\"request_id\":\"%s\"", exchange_request_id(exchange).data);
    if (error->details.size > 0) {
        buffer_append_slice(out, SLICE(",\"details\":"));
        buffer_append_slice(out, error->details);
    }
    buffer_append_byte(out, '}');
    return buffer_end(out, begin);
}

void exchange_answer_error(struct exchange *exchange, const struct exchange_error *error) {
    struct http1_header headers[HEADERS_MAX] = {
        {SLICE("X-Request-Id"), exchange_request_id(exchange)}};
    size_t header_count = 1;
    unsigned http_status = (unsigned)status_http(error->status);
    char allowed[64] = "";
    struct buffer body;
    buffer_init(&body, EXCHANGE_ERROR_BYTES_MAX);
    exchange_log_refusal(exchange, error->status, error->topic);
    if (error->status == STATUS_METHOD_NOT_ALLOWED) {
        /* The parser refuses CONNECT before there is a request. No route has it. */
        if (exchange->request)
            route_allowed(&exchange->http->routes, exchange->request->path, exchange->routes_hidden,
                          allowed);
        headers[header_count++] = (struct http1_header){SLICE("Allow"), slice_of(allowed)};
    }
    /* RFC 6750: the error attribute only if the request had credentials. */
    if (http_status == 401)
        headers[header_count++] =
            (struct http1_header){SLICE("WWW-Authenticate"),
                                  error->status == STATUS_MISSING_AUTHORIZATION
                                      ? SLICE("Bearer realm=\"khala\"")
                                      : SLICE("Bearer realm=\"khala\", error=\"invalid_token\"")};
    /* The caller may have a better time to wait. */
    if (error->header_count == 0 &&
        (error->status == STATUS_SERVER_FULL || error->status == STATUS_TOO_MANY_CONNECTIONS ||
         error->status == STATUS_LIMIT_REACHED || error->status == STATUS_NOT_WRITER))
        headers[header_count++] = (struct http1_header){SLICE("Retry-After"), SLICE("1")};
    /* RFC 9110: a 426 must name a protocol. */
    if (http_status == 426) {
        headers[header_count++] = (struct http1_header){SLICE("Connection"), SLICE("Upgrade")};
        headers[header_count++] = (struct http1_header){SLICE("Upgrade"), SLICE("websocket")};
    }
    assert(header_count + error->header_count <= HEADERS_MAX);
    for (size_t i = 0; i < error->header_count; i++)
        headers[header_count++] = error->headers[i];
    buffer_note(&body, exchange_error_write(exchange, error, &body));
    buffer_append_byte(&body, '\n');
    if (buffer_status(&body) != STATUS_OK)
        buffer_clear(&body);
    struct http1_response response = {.http_status = http_status,
                                      .content_type = SLICE("application/json"),
                                      .body = buffer_slice(&body),
                                      .headers = headers,
                                      .header_count = header_count};
    answer(exchange, &response);
    buffer_release(&body);
}

void exchange_answer_text(struct exchange *exchange, enum status status,
                          const struct buffer *text) {
    if (status == STATUS_OK)
        status = buffer_status(text);
    if (status == STATUS_OK)
        exchange_answer_json(exchange, 200, buffer_slice(text));
    else
        exchange_answer_status(exchange, status);
}

void exchange_answer_status(struct exchange *exchange, enum status status) {
    struct http1_header retry = {SLICE("Retry-After"), SLICE("1")};
    struct exchange_error error = {.status = status};
    if (status == STATUS_RATE_LIMITED || status == STATUS_DISK_RESERVE) {
        error.headers = &retry;
        error.header_count = 1;
    }
    if (status == STATUS_RATE_LIMITED)
        error.details = SLICE("{\"retry_after_ms\":1000}");
    exchange_answer_error(exchange, &error);
}

void exchange_begin(struct exchange *exchange, unsigned http_status, struct slice content_type) {
    exchange_begin_with(exchange, http_status,
                        &(struct http1_header){SLICE("Content-Type"), content_type}, 1);
}

/* Ends the head of an answer in pieces. A head that could not be written is noticed here. */
static void end_head(struct exchange *exchange, bool is_chunked, const uint64_t *content_length) {
    struct buffer *out = &exchange->conn->http->out;
    if (content_length)
        http1_response_end_length(out, *content_length);
    else if (is_chunked)
        http1_response_end_chunked(out);
    else
        http1_response_end_bare(out);
    set_state(exchange, buffer_end(out, 0) != STATUS_OK ? EXCHANGE_FAILING
                        : is_chunked                    ? EXCHANGE_CHUNKED
                                                        : EXCHANGE_PLAIN);
    conn_stream(exchange->conn, is_chunked);
}

void exchange_begin_with(struct exchange *exchange, unsigned http_status,
                         const struct http1_header *headers, size_t header_count) {
    struct conn *conn = exchange->conn;
    struct http1_header cors[CORS_HEADERS_MAX];
    struct http1_header id;
    size_t cors_count =
        cors_headers(&exchange->http->gate, exchange->request, exchange->match.route, cors);
    assert(!exchange_is_answered(exchange) && exchange->stream);
    bool is_chunked = exchange->request->version_minor > 0;
    if (!is_chunked)
        conn->keep_alive = false;
    log_answered(exchange, http_status);
    struct buffer *out = &conn->http->out;
    http1_response_begin(out, http_status, conn->keep_alive);
    http1_response_header(out, SLICE("Date"), date_now(exchange));
    for (size_t i = 0; i < header_count; i++)
        http1_response_header(out, headers[i].name, headers[i].value);
    for (size_t i = 0; i < cors_count; i++)
        http1_response_header(out, cors[i].name, cors[i].value);
    if (exchange_id_header(exchange, &id))
        http1_response_header(out, id.name, id.value);
    end_head(exchange, is_chunked, NULL);
}

void exchange_begin_forwarded(struct exchange *exchange, unsigned http_status,
                              const struct http1_header *headers, size_t header_count,
                              const uint64_t *content_length) {
    struct conn *conn = exchange->conn;
    assert(!exchange_is_answered(exchange) && exchange->stream);
    bool is_chunked = !content_length && exchange->request->version_minor > 0;
    if (!is_chunked && !content_length)
        conn->keep_alive = false;
    log_answered(exchange, http_status);
    http1_response_begin(&conn->http->out, http_status, conn->keep_alive);
    for (size_t i = 0; i < header_count; i++)
        http1_response_header(&conn->http->out, headers[i].name, headers[i].value);
    end_head(exchange, is_chunked, content_length);
}

static enum status append_piece(struct exchange *exchange, struct slice piece) {
    struct buffer *out = &exchange->conn->http->out;
    if (exchange->state == EXCHANGE_FAILING)
        return STATUS_OUT_OF_MEMORY;
    if (exchange_is_head(exchange))
        return STATUS_OK;
    return exchange->state == EXCHANGE_CHUNKED ? http1_chunk(out, piece)
                                               : buffer_append_slice(out, piece);
}

bool exchange_send(struct exchange *exchange, struct slice piece) {
    struct conn *conn = exchange->conn;
    assert(exchange_is_answered(exchange) && !conn->is_last_piece);
    /* An answer that takes longer than its token lasts is aborted, as for a revoked token. */
    enum status status = exchange_token_status(exchange);
    if (status != STATUS_OK) {
        exchange_log_end(exchange, status);
        conn_reset(conn);
        return false;
    }
    if (append_piece(exchange, piece) == STATUS_OK &&
        hold_answer(exchange, conn->http->out.size, false) == STATUS_OK)
        return conn_send(conn);
    conn_close(conn);
    return false;
}

void exchange_end(struct exchange *exchange, struct slice piece) {
    struct conn *conn = exchange->conn;
    assert(exchange_is_answered(exchange) && !conn->is_last_piece);
    enum status status = append_piece(exchange, piece);
    if (status == STATUS_OK)
        status = hold_answer(exchange, conn->http->out.size, false);
    if (status == STATUS_OK && exchange->state == EXCHANGE_CHUNKED && !exchange_is_head(exchange))
        status = http1_chunk_end(&conn->http->out);
    if (status != STATUS_OK) {
        conn_close(conn);
        return;
    }
    conn->is_last_piece = true;
    /* The remaining body is not read, so the connection cannot be reused. */
    if (!conn->is_body_done)
        conn->keep_alive = false;
    bool more = conn_send(conn);
    assert(!more);
    (void)more;
}

void exchange_abort(struct exchange *exchange, enum status status) {
    exchange_log_end(exchange, status);
    conn_close(exchange->conn);
}

void exchange_end_unread(struct exchange *exchange) {
    conn_end_unread(exchange->conn);
}

uint64_t exchange_taken_bytes(const struct exchange *exchange) {
    return conn_taken_bytes(exchange->conn);
}

size_t exchange_sending_bytes(const struct exchange *exchange) {
    return exchange_is_sending(exchange) ? exchange->conn->http->out.capacity : 0;
}

bool exchange_token_expired(const struct exchange *exchange) {
    return exchange->principal &&
           principal_is_expired(exchange->principal, clock_wall_ms(&exchange->loop->clock));
}

enum status exchange_token_status(const struct exchange *exchange) {
    if (exchange_token_expired(exchange))
        return STATUS_TOKEN_EXPIRED;
    bool is_revocable = exchange->principal && principal_is_revocable(exchange->principal);
    return !is_revocable || revocations_is_fresh(exchange->http->gate.revocations)
               ? STATUS_OK
               : STATUS_REVOCATIONS_UNKNOWN;
}

bool exchange_is_sending(const struct exchange *exchange) {
    return exchange->conn->state == CONN_STREAMING && exchange->conn->is_sending;
}

void exchange_watch_end(struct exchange *exchange) {
    conn_watch_end(exchange->conn);
}

uint64_t exchange_written_bytes(const struct exchange *exchange) {
    return exchange->conn->http->written_bytes;
}

void exchange_probe_peer(struct exchange *exchange) {
    conn_probe_chunked(exchange->conn);
}

void exchange_pause(struct exchange *exchange) {
    conn_pause(exchange->conn);
}

void exchange_resume(struct exchange *exchange) {
    conn_resume(exchange->conn);
}

void exchange_renew_deadline(struct exchange *exchange) {
    conn_renew_deadline(exchange->conn);
}

/* ---- calls ------------------------------------------------------------------------------- */

static void call_done(struct call *call) {
    struct exchange_call *ended = container_of(call, struct exchange_call, call);
    if (exchange_unref(ended->exchange))
        ended->answer(ended);
}

void exchange_post_store(struct exchange *exchange, struct call *call) {
    char key[PRINCIPAL_KEY_BYTES_MAX];
    struct store_client client = exchange_client(exchange, key);
    /* Only the first read may be refused: the answer may have started before the others. */
    client.is_bounded = client.is_bounded && !exchange->has_read;
    exchange->has_read = true;
    exchange_ref(exchange);
    /* More answers would be refused: nothing is read for them. */
    if (client.is_bounded && unread_answers_is_full(&exchange->http->unread_answers, client.key)) {
        metrics_add(METRIC_HTTP_ANSWERS_REFUSED, METRIC_PLAIN, 1);
        call_begin(call, exchange->loop);
        call->status = STATUS_RATE_LIMITED;
        call_return_post(call);
        return;
    }
    exchange->store_call = call;
    call_store(call, exchange->loop, exchange->http->store_pool, &client);
    /* The body of a request that is still arriving shows by itself that its client is gone. */
    if (exchange->conn->state == CONN_HANDLING || exchange->conn->is_body_done)
        exchange_watch_end(exchange);
}

void exchange_call_store(struct exchange_call *call) {
    call->call.done = call_done;
    exchange_post_store(call->exchange, &call->call);
}

void exchange_call_writer(struct exchange_call *call) {
    exchange_ref(call->exchange);
    call->call.done = call_done;
    call_writer(&call->call, call->exchange->loop, call->exchange->http->writer);
}

void exchange_call_begin(struct exchange_call *call) {
    exchange_ref(call->exchange);
    call->call.done = call_done;
    call_begin(&call->call, call->exchange->loop);
}

void exchange_call_fail(struct exchange_call *call, enum status status) {
    call->call.status = status;
    call_return_post(&call->call);
}
