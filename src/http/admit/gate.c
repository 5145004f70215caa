#include "http/admit/gate.h"

#include <assert.h>
#include <stdio.h>
#include <strings.h>

#include "auth/origin.h"
#include "base/limits.h"
#include "base/log.h"

#define MS_PER_S 1000

enum status gate_init(struct gate *gate, const struct gate_options *options,
                      struct key_message *message) {
    *gate = (struct gate){
        .policy = options->policy,
        .compatibility = options->compatibility,
        .enforces_origin = options->enforces_origin,
        .allowed_origins = options->allowed_origins,
    };
    enum status status = keys_open(&gate->keys, &options->keys, message);
    if (status != STATUS_OK)
        return status;
    if (keys_source(gate->keys) == KEYS_GENERATED)
        log_event(LOG_INFO, "signing_key.generated", log_str("path", keys_path(gate->keys)));
    status = revocations_open(&gate->revocations, GATE_REVOCATIONS_MAX);
    if (status != STATUS_OK)
        snprintf(message->text, sizeof(message->text), "%s", status_message(status));
    return status;
}

void gate_release(struct gate *gate) {
    keys_close(gate->keys);
    revocations_close(gate->revocations);
    gate->keys = NULL;
    gate->revocations = NULL;
}

bool gate_reload(struct gate *gate, bool always) {
    return keys_reload(gate->keys, always);
}

/* ---- admission ---- */

enum status gate_admit_token(struct gate *gate, struct slice token, uint64_t now_ms,
                             const struct principal **principal, struct token_refusal *refusal) {
    if (!revocations_is_fresh(gate->revocations))
        return STATUS_REVOCATIONS_UNKNOWN;
    struct key_set *keys = keys_current(gate->keys);
    enum status status = token_verify(&gate->policy, keys, token, now_ms, principal, refusal);
    key_set_unref(keys);
    if (status == STATUS_OK && revocations_has(gate->revocations, *principal)) {
        if (refusal) {
            refusal->rule = TOKEN_RULE_REVOKED;
            refusal->name_size = principal_name(*principal, refusal->name);
        }
        principal_unref(*principal);
        *principal = NULL;
        status = STATUS_TOKEN_REVOKED;
    }
    return status;
}

enum status gate_admit_header(struct gate *gate, const struct http1_request *request,
                              uint64_t now_ms, const struct principal **principal,
                              struct token_refusal *refusal) {
    static const char scheme[] = "bearer";
    struct slice value;
    if (!http1_header_find(request, SLICE("authorization"), &value) || value.size == 0)
        return STATUS_MISSING_AUTHORIZATION;
    size_t size = strlen(scheme);
    if (value.size < size || strncasecmp(value.data, scheme, size) != 0 ||
        (value.size > size && value.data[size] != ' '))
        return STATUS_INVALID_AUTHORIZATION_SCHEME;
    struct slice token = slice_from(value, size);
    while (token.size > 0 && token.data[0] == ' ')
        token = slice_from(token, 1);
    return gate_admit_token(gate, token, now_ms, principal, refusal);
}

enum status gate_admit(struct gate *gate, const struct http1_request *request, uint64_t now_ms,
                       const struct principal **principal, struct token_refusal *refusal) {
    struct buffer token;
    bool found = false;
    buffer_init(&token, TOKEN_BYTES_MAX);
    enum status status = http1_query_find(request->query, SLICE("token"), &token, &found);
    if (status == STATUS_PAYLOAD_TOO_LARGE)
        status = STATUS_INVALID_TOKEN;
    else if (status == STATUS_OK && found)
        status = token.size > 0
                     ? gate_admit_token(gate, buffer_slice(&token), now_ms, principal, refusal)
                     : STATUS_MISSING_AUTHORIZATION;
    else if (status == STATUS_OK)
        status = gate_admit_header(gate, request, now_ms, principal, refusal);
    buffer_release(&token);
    return status;
}

bool gate_has_token(const struct http1_request *request) {
    struct buffer token;
    bool found = false;
    buffer_init(&token, TOKEN_BYTES_MAX);
    enum status status = http1_query_find(request->query, SLICE("token"), &token, &found);
    buffer_release(&token);
    return status != STATUS_OK || found;
}

enum status gate_check_origin(const struct gate *gate, const struct http1_request *request) {
    struct slice origin;
    if (!gate->enforces_origin || !http1_header_find(request, SLICE("origin"), &origin))
        return STATUS_OK;
    return origin_is_allowed(gate->allowed_origins, origin) ? STATUS_OK : STATUS_ORIGIN_NOT_ALLOWED;
}

uint64_t gate_revocation_expires_at_ms(const struct gate *gate, uint64_t now_ms) {
    /* The skew counts twice: the issuer's clock may be ahead, and this clock may be set back. */
    return now_ms + (gate->policy.max_age_s + 2 * TOKEN_SKEW_S + 1) * MS_PER_S;
}
