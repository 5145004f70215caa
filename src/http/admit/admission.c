#include "http/admit/admission.h"

#include "auth/compatibility.h"
#include "auth/principal.h"
#include "base/metrics.h"
#include "http/conn_accept.h"
#include "http/forward/forward_parts.h"

#define ROLE_MESSAGE_BYTES_MAX 256
#define VERSION_BODY_BYTES_MAX 2048

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

/* The public listener does not accept operator keys when operators have their own listener. */
static bool may_have_key(const struct exchange *exchange) {
    return exchange->conn->is_operators || !exchange->http->options.has_operator_listener;
}

static enum status check_role(const struct exchange *exchange) {
    return exchange->match.route->roles & KEY_ROLE_BIT(exchange->principal->role)
               ? STATUS_OK
               : STATUS_FORBIDDEN_ROLE;
}

static void note_refusal(struct exchange *exchange, const struct token_refusal *refusal) {
    exchange->token_rule = refusal->rule;
    if (refusal->name_size > 0)
        exchange->bearer = strndup(refusal->name, refusal->name_size);
}

static enum status admit_client(struct exchange *exchange) {
    struct gate *gate = &exchange->http->gate;
    struct token_refusal refusal = {0};
    /* Client routes accept a key only in the header and only without a token. */
    bool is_keyed = exchange->match.route->roles != 0 && may_have_key(exchange) &&
                    !gate_has_token(exchange->request);
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

enum status admission_admit(struct conn *conn, const struct principal *principal) {
    struct http *http = conn_loop(conn)->http;
    enum status status = STATUS_OK;
    if (principal && !principal_is_operator(principal) && !conn->is_node)
        status = conn_share_take_principal(&http->conn_shares, &conn->principal_share, principal,
                                           clock_wall_ms(&conn_io(conn)->clock));
    if (status == STATUS_OK)
        conn_ticket_admit(&conn->ticket);
    else
        metrics_add(METRIC_HTTP_CONNECTIONS_REFUSED,
                    METRIC_LABELS(LABEL_CONNECTION_LIMIT_PRINCIPAL), 1);
    return status;
}

enum status admission_check(struct exchange *exchange) {
    const struct route *route = exchange->match.route;
    const struct compatibility_window *window = &exchange->http->gate.compatibility;
    struct conn *conn = exchange->conn;
    unsigned flags = route->flags;
    enum status status = STATUS_OK;
    if (!conn->is_node && node_proof_check(&exchange->http->operator_key, exchange->request)) {
        /* The limits of connections for each address and principal are meant for clients. */
        conn->is_node = true;
        conn_share_return(&exchange->http->conn_shares, &conn->address_share);
    }
    /* A connection beyond the limits serves other nodes, the operator, and health checks, which
     * must not fail because clients have filled the server. Other requests are refused. */
    if (conn_ticket_is_reserved(&conn->ticket) && !conn->is_node &&
        route_class(route) != LABEL_ROUTE_CLASS_HEALTH) {
        const struct principal *principal = NULL;
        bool has_key = may_have_key(exchange) && find_key(exchange, &principal) == STATUS_OK;
        bool is_permitted = has_key && route->roles & KEY_ROLE_BIT(principal->role);
        principal_unref(principal);
        if (!is_permitted) {
            conn->keep_alive = false;
            conn_count_refusal(conn);
            return conn->refusal;
        }
    }
    if (flags & ROUTE_PRODUCER) {
        status = admit_client(exchange);
        if (status == STATUS_OK && !principal_is_operator(exchange->principal)) {
            exchange->scopes_needed = SCOPE_APPEND;
            status =
                exchange->principal->scopes & SCOPES_PRODUCER ? STATUS_OK : STATUS_MISSING_SCOPE;
        }
    } else if (flags & ROUTE_OPERATOR) {
        status = admit_operator(exchange);
    } else if (flags & (ROUTE_TOKEN | ROUTE_TOKEN_OR_OPERATOR)) {
        status = admit_client(exchange);
    } else if (flags & ROUTE_TOKEN_IN_FIRST_MESSAGE) {
        status = gate_check_origin(&exchange->http->gate, exchange->request);
    }
    /* The operator's tools send no version. Browsers can send it only in the query. */
    bool is_operator = exchange->principal && principal_is_operator(exchange->principal);
    bool needs_version =
        flags & (ROUTE_TOKEN | ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOKEN_IN_FIRST_MESSAGE) &&
        !(flags & (ROUTE_PRODUCER | ROUTE_OPERATOR | ROUTE_VERSION_AT_JOIN)) && !is_operator;
    if (status == STATUS_OK && needs_version && window->is_enforced) {
        struct compatibility_claim claim = {.schema_version.size = 0};
        compatibility_claim_query(&claim, exchange->request->query);
        struct compatibility_client client = compatibility_claim_client(&claim);
        status = compatibility_check(window, &client);
    }
    if (status != STATUS_OK ||
        !(flags & (ROUTE_OPERATOR | ROUTE_PRODUCER | ROUTE_TOKEN | ROUTE_TOKEN_OR_OPERATOR)))
        return status;
    status = admission_admit(conn, exchange->principal);
    if (status != STATUS_OK)
        conn->keep_alive = false;
    return status;
}

/* {"role":"read","roles":["admin","append"]} */
static void answer_role(struct exchange *exchange) {
    char message[ROLE_MESSAGE_BYTES_MAX];
    char details[ROLE_MESSAGE_BYTES_MAX];
    const struct principal *principal = exchange->principal;
    const char *role = key_role_name(principal->role);
    struct buffer names = buffer_over(message, sizeof(message));
    struct buffer json = buffer_over(details, sizeof(details));
    buffer_printf(&names, "The key %.*s has the role %s. This request needs the role",
                  (int)principal->subject.size, principal->subject.data, role);
    buffer_printf(&json, "{\"role\":\"%s\",\"roles\":[", role);
    bool is_first = true;
    for (unsigned i = KEY_ROLE_NONE + 1; i < KEY_ROLE_COUNT; i++) {
        const char *name = key_role_name((enum key_role)i);
        if (!(exchange->match.route->roles & KEY_ROLE_BIT(i)))
            continue;
        buffer_printf(&names, is_first ? " %s" : " or %s", name);
        buffer_printf(&json, is_first ? "\"%s\"" : ",\"%s\"", name);
        is_first = false;
    }
    buffer_append(&names, ".", 2);
    enum status status = buffer_append_slice(&json, SLICE("]}"));
    exchange_answer_error(exchange, &(struct exchange_error){
                                        .status = STATUS_FORBIDDEN_ROLE,
                                        .message = message,
                                        .details = status == STATUS_OK ? buffer_slice(&json)
                                                                       : (struct slice){NULL, 0}});
}

void admission_answer_refused(struct exchange *exchange, enum status refusal) {
    if (refusal == STATUS_FORBIDDEN_ROLE) {
        answer_role(exchange);
    } else if (compatibility_refuses(refusal)) {
        struct buffer body;
        buffer_init(&body, VERSION_BODY_BYTES_MAX);
        /* Without memory for the details the answer has only the code. */
        enum status status =
            compatibility_write_json(&exchange->http->gate.compatibility, refusal, &body);
        struct exchange_error error = {.status = refusal};
        if (status == STATUS_OK)
            error.details = buffer_slice(&body);
        exchange_answer_error(exchange, &error);
        buffer_release(&body);
    } else {
        exchange_answer_status(exchange, refusal);
    }
}

uint64_t admission_charge_failure(struct conn *conn, bool is_token) {
    struct http *http = conn_loop(conn)->http;
    struct sockaddr_storage address;
    char key[ADDRESS_KEY_BYTES_MAX];
    /* Another node forwards the requests of many clients, which it has charged itself. */
    if (conn->is_node || !transport_peer_address(&conn->transport, &address))
        return 0;
    uint64_t delay_ms =
        rate_table_charge(&http->auth_failures, address_key((const struct sockaddr *)&address, key),
                          clock_mono_ms(&conn_io(conn)->clock), AUTH_FAILURE_DELAY_MS_MAX);
    if (delay_ms == 0)
        return 0;
    conn->keep_alive = false;
    metrics_add(METRIC_AUTH_FAILURES_DELAYED,
                METRIC_LABELS(is_token ? LABEL_CREDENTIAL_TOKEN : LABEL_CREDENTIAL_KEY), 1);
    return delay_ms;
}
