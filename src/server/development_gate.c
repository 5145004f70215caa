#include "server/development_gate.h"

enum status development_gate_check_token(const struct operator_key *key, struct slice token) {
    return operator_key_is(key, token) ? STATUS_OK : STATUS_INVALID_TOKEN;
}

enum status development_gate_check(const struct operator_key *key,
                                   const struct http1_request *request) {
    struct buffer token;
    bool found = false;
    buffer_init(&token, OPERATOR_KEY_BYTES_MAX);
    enum status status = http1_query_find(request->query, SLICE("token"), &token, &found);
    if (status == STATUS_PAYLOAD_TOO_LARGE)
        status = STATUS_INVALID_TOKEN;
    else if (status == STATUS_OK && found)
        status = development_gate_check_token(key, buffer_slice(&token));
    else if (status == STATUS_OK)
        status = operator_key_check(key, request);
    buffer_release(&token);
    return status;
}
