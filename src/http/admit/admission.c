#include "http/admit/admission.h"

#include "auth/principal.h"
#include "http/admit/version_gate.h"
#include "http/conn_accept.h"
#include "http/forward/forward_parts.h"

#define ROLE_MESSAGE_BYTES_MAX 256

bool admission_is_revoked(const struct http *http, const struct principal *principal,
                          uint64_t now_ms) {
    return principal && principal_is_revocable(principal) &&
           (revocations_has(http->gate.revocations, principal) ||
            operator_keys_has_ended(http->operator_keys, principal, now_ms));
}

/* STATUS_OK: the header has an operator key, of any role. A key with a name is like a token: it is
 * valid only while this node knows what was revoked. */
static enum status find_key(const struct exchange *exchange, const struct principal **principal) {
    const struct http *http = exchange->http;
    struct slice given;
    uint8_t digest[SHA256_BYTES];
    enum status status = operator_key_given(exchange->request, &given);
    if (status != STATUS_OK)
        return status;
    sha256(given.data, given.size, digest);
    if (operator_key_has(&http->operator_key, digest)) {
        *principal = &principal_operator;
        return STATUS_OK;
    }
    if (http->has_mint_key && operator_key_has(&http->mint_key, digest)) {
        *principal = &principal_mint_key;
        return STATUS_OK;
    }
    uint64_t now_ms = clock_wall_ms(&exchange->loop->clock);
    status = operator_keys_find(http->operator_keys, given, now_ms, principal);
    if (status != STATUS_OK)
        return status;
    if (!revocations_is_fresh(http->gate.revocations))
        status = STATUS_REVOCATIONS_UNKNOWN;
    else if (admission_is_revoked(http, *principal, now_ms))
        status = STATUS_INVALID_TOKEN;
    if (status == STATUS_OK)
        return STATUS_OK;
    principal_unref(*principal);
    *principal = NULL;
    return status;
}

/* The public listener does not accept operator keys when operators have their own listener. Client
 * routes accept a key only in the header and only without a token. */
static bool takes_key(const struct exchange *exchange) {
    return (exchange->conn->is_operators || !exchange->http->options.has_operator_listener) &&
           !gate_has_token(exchange->request);
}

static enum status check_role(const struct exchange *exchange) {
    return exchange->match.route->roles & KEY_ROLE_BIT(exchange->principal->role)
               ? STATUS_OK
               : STATUS_FORBIDDEN_ROLE;
}

static bool has_operator_key(const struct exchange *exchange) {
    const struct principal *principal = NULL;
    bool has_key =
        (exchange->conn->is_operators || !exchange->http->options.has_operator_listener) &&
        find_key(exchange, &principal) == STATUS_OK;
    bool is_permitted = has_key && exchange->match.route->roles & KEY_ROLE_BIT(principal->role);
    principal_unref(principal);
    return is_permitted;
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

static void note_refusal(struct exchange *exchange, const struct token_refusal *refusal) {
    exchange->token_rule = refusal->rule;
    if (refusal->name_size > 0)
        exchange->bearer = strndup(refusal->name, refusal->name_size);
}

static enum status admit_client(struct exchange *exchange) {
    struct gate *gate = &exchange->http->gate;
    struct token_refusal refusal = {0};
    bool is_keyed = exchange->match.route->roles != 0 && takes_key(exchange);
    enum status status = is_keyed ? find_key(exchange, &exchange->principal) : STATUS_INVALID_TOKEN;
    if (status == STATUS_OK)
        return check_role(exchange);
    if (status == STATUS_REVOCATIONS_UNKNOWN)
        return status;
    status = gate_check_origin(gate, exchange->request);
    if (status == STATUS_OK)
        status = gate_admit(gate, exchange->request, clock_wall_ms(&exchange->loop->clock),
                            &exchange->principal, &refusal);
    note_refusal(exchange, &refusal);
    return status;
}

static enum status admit_producer(struct exchange *exchange) {
    enum status status = admit_client(exchange);
    if (status != STATUS_OK || principal_is_operator(exchange->principal))
        return status;
    exchange->scopes_needed = SCOPE_APPEND;
    return exchange->principal->scopes & SCOPES_PRODUCER ? STATUS_OK : STATUS_MISSING_SCOPE;
}

/* A dashboard reads what keys of the role read may read, with a token that lives shortly. A token
 * that lists topics or streams opens nothing else. */
static enum status admit_dashboard(struct exchange *exchange) {
    struct gate *gate = &exchange->http->gate;
    struct token_refusal refusal = {0};
    const struct principal *principal = NULL;
    enum status status = gate_check_origin(gate, exchange->request);
    if (status == STATUS_OK)
        status = gate_admit_header(gate, exchange->request, clock_wall_ms(&exchange->loop->clock),
                                   &principal, &refusal);
    note_refusal(exchange, &refusal);
    if (status != STATUS_OK)
        return status;
    if (!(principal->scopes & SCOPE_DASHBOARD))
        status = STATUS_INVALID_TOKEN;
    else if (principal_is_narrowed(principal))
        status = STATUS_FORBIDDEN_TOPIC;
    if (status == STATUS_OK)
        exchange->principal = principal;
    else
        principal_unref(principal);
    return status;
}

static enum status admit_operator(struct exchange *exchange) {
    const struct route *route = exchange->match.route;
    /* /metrics on the operators' listener. */
    if (exchange->conn->is_operators && route->flags & ROUTE_KEYLESS) {
        exchange->principal = &principal_operator;
        return STATUS_OK;
    }
    enum status status = find_key(exchange, &exchange->principal);
    if (status == STATUS_OK)
        return check_role(exchange);
    return status == STATUS_INVALID_TOKEN && route->method == HTTP1_METHOD_GET &&
                   route->roles & KEY_ROLE_BIT(KEY_ROLE_READ)
               ? admit_dashboard(exchange)
               : status;
}

/* The operator's tools send no version. */
static bool needs_version(const struct exchange *exchange) {
    unsigned flags = exchange->match.route->flags;
    return flags & (ROUTE_TOKEN | ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOKEN_IN_FIRST_MESSAGE) &&
           !(flags & ROUTE_VERSION_AT_JOIN) &&
           !(exchange->principal && principal_is_operator(exchange->principal));
}

static enum status admit(struct exchange *exchange) {
    unsigned flags = exchange->match.route->flags;
    enum status status = STATUS_OK;
    if (flags & ROUTE_PRODUCER)
        return admit_producer(exchange);
    if (flags & ROUTE_OPERATOR)
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

/* {"role":"read","roles":["admin","append"]} */
void admission_answer_role(struct exchange *exchange) {
    char message[ROLE_MESSAGE_BYTES_MAX];
    char details[ROLE_MESSAGE_BYTES_MAX];
    const struct principal *principal = exchange->principal;
    const char *role = key_role_name(principal->role);
    struct buffer names = buffer_over(message, sizeof(message));
    struct buffer json = buffer_over(details, sizeof(details));
    (void)buffer_printf(&names, "The key %.*s has the role %s. This request needs the role",
                        (int)principal->subject.size, principal->subject.data, role);
    (void)buffer_printf(&json, "{\"role\":\"%s\",\"roles\":[", role);
    bool is_first = true;
    for (unsigned i = KEY_ROLE_NONE + 1; i < KEY_ROLE_COUNT; i++) {
        const char *name = key_role_name((enum key_role)i);
        if (!(exchange->match.route->roles & KEY_ROLE_BIT(i)))
            continue;
        (void)buffer_printf(&names, is_first ? " %s" : " or %s", name);
        (void)buffer_printf(&json, is_first ? "\"%s\"" : ",\"%s\"", name);
        is_first = false;
    }
    (void)buffer_append(&names, ".", 2);
    enum status status = buffer_append_slice(&json, SLICE("]}"));
    exchange_answer_error(exchange, &(struct exchange_error){
                                        .status = STATUS_FORBIDDEN_ROLE,
                                        .message = message,
                                        .details = status == STATUS_OK ? buffer_slice(&json)
                                                                       : (struct slice){NULL, 0}});
}
