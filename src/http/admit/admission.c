#include "http/admit/admission.h"

#include "auth/principal.h"
#include "http/admit/version_gate.h"
#include "http/conn_accept.h"
#include "http/forward/node_proof.h"

/* The public listener does not accept the operator key when operators have their own listener. */
static bool has_operator_key(const struct exchange *exchange) {
    const struct http *http = exchange->http;
    return (exchange->conn->is_operators || !http->options.has_operator_listener) &&
           operator_key_check(&http->operator_key, exchange->request) == STATUS_OK;
}

/* The operator key is accepted only in the header and only without a token. */
static bool is_operator(const struct exchange *exchange) {
    return exchange->match.route->flags & (ROUTE_TOKEN_OR_OPERATOR | ROUTE_PRODUCER) &&
           !gate_has_token(exchange->request) && has_operator_key(exchange);
}

/* A connection beyond the limits serves other nodes, the operator, and health checks, which must
 * not fail because clients have filled the server. Other requests are refused. */
static enum status check_limits(const struct exchange *exchange) {
    struct conn *conn = exchange->conn;
    if (!conn_ticket_is_reserved(&conn->ticket) || conn->is_node || has_operator_key(exchange) ||
        route_class(exchange->match.route) == LABEL_ROUTE_CLASS_HEALTH)
        return STATUS_OK;
    conn->keep_alive = false;
    conn_count_refusal(conn);
    return conn->refusal;
}

/* Routes that admit a request only with a key or token. */
static bool is_guarded(const struct exchange *exchange) {
    unsigned flags = exchange->match.route->flags;
    return flags & (ROUTE_OPERATOR | ROUTE_PRODUCER | ROUTE_TOKEN | ROUTE_TOKEN_OR_OPERATOR);
}

static enum status admit_client(struct exchange *exchange) {
    struct gate *gate = &exchange->http->gate;
    struct token_refusal refusal = {0};
    if (is_operator(exchange)) {
        exchange->principal = &principal_operator;
        return STATUS_OK;
    }
    enum status status = gate_check_origin(gate, exchange->request);
    if (status == STATUS_OK)
        status = gate_admit(gate, exchange->request, clock_wall_ms(&exchange->loop->clock),
                            &exchange->principal, &refusal);
    exchange->token_rule = refusal.rule;
    if (refusal.name_size > 0)
        exchange->bearer = strndup(refusal.name, refusal.name_size);
    return status;
}

static enum status admit_producer(struct exchange *exchange) {
    enum status status = admit_client(exchange);
    if (status != STATUS_OK || exchange->principal == &principal_operator)
        return status;
    exchange->scopes_needed = SCOPE_APPEND;
    return exchange->principal->scopes & SCOPES_PRODUCER ? STATUS_OK : STATUS_MISSING_SCOPE;
}

static enum status admit_operator(struct exchange *exchange) {
    const struct http *http = exchange->http;
    enum status status = operator_key_check(&http->operator_key, exchange->request);
    if (status != STATUS_INVALID_TOKEN || !(exchange->match.route->flags & ROUTE_MINT) ||
        !http->has_mint_key)
        return status;
    status = operator_key_check(&http->mint_key, exchange->request);
    exchange->has_mint_key = status == STATUS_OK;
    return status;
}

/* The operator's tools send no version. */
static bool needs_version(const struct exchange *exchange) {
    unsigned flags = exchange->match.route->flags;
    return flags & (ROUTE_TOKEN | ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOKEN_IN_FIRST_MESSAGE) &&
           !(flags & ROUTE_VERSION_AT_JOIN) && exchange->principal != &principal_operator;
}

static enum status admit(struct exchange *exchange) {
    unsigned flags = exchange->match.route->flags;
    enum status status = STATUS_OK;
    if (flags & ROUTE_PRODUCER)
        return admit_producer(exchange);
    if (flags & ROUTE_OPERATOR && !(exchange->conn->is_operators && flags & ROUTE_KEYLESS))
        return admit_operator(exchange);
    if (flags & (ROUTE_TOKEN | ROUTE_TOKEN_OR_OPERATOR))
        status = admit_client(exchange);
    else if (flags & ROUTE_TOKEN_IN_FIRST_MESSAGE)
        status = gate_check_origin(&exchange->http->gate, exchange->request);
    return status == STATUS_OK && needs_version(exchange) ? version_gate_check(exchange) : status;
}

enum status admission_check(struct exchange *exchange) {
    if (!exchange->conn->is_node &&
        node_proof_check(&exchange->http->operator_key, exchange->request))
        conn_note_node(exchange->conn);
    enum status status = check_limits(exchange);
    if (status == STATUS_OK)
        status = admit(exchange);
    if (status != STATUS_OK || !is_guarded(exchange))
        return status;
    status = conn_admit(exchange->conn, exchange->principal);
    if (status != STATUS_OK)
        exchange->conn->keep_alive = false;
    return status;
}
