#include "dialect/upgrade.h"

#include "delivery/session/dialect.h"
#include "http/conn_outlet.h"

static void refuse(struct exchange *exchange, enum status status,
                   const struct quota_refusal *refusal) {
    char text[QUOTA_REFUSAL_BYTES_MAX];
    struct buffer details = {.data = text, .capacity = sizeof(text), .size_max = sizeof(text)};
    struct exchange_error error = {.status = status};
    if (status == STATUS_QUOTA_EXCEEDED && quota_refusal_write(refusal, &details) == STATUS_OK)
        error.details = buffer_slice(&details);
    exchange_answer_error(exchange, &error);
}

struct session *upgrade_to_session(struct exchange *exchange, struct session_options options) {
    struct delivery_loop *delivery = conn_loop(exchange->conn)->delivery;
    struct subscription_quota *quota = delivery->shared->subscription_quota;
    struct subscription_count count = {0};
    struct quota_refusal refusal = {0};
    enum status status = STATUS_OK;
    options.delivery = delivery;
    options.outlet = conn_outlet(exchange->conn);
    options.name = exchange_request_id(exchange);
    if (options.dialect->has_one_topic)
        status = subscription_quota_set(quota, &count, options.principal, 1, &refusal);
    if (status != STATUS_OK) {
        if (options.dialect->state_free)
            options.dialect->state_free(options.dialect_state);
        refuse(exchange, status, &refusal);
        return NULL;
    }
    struct session *session = session_new(&options);
    if (session) {
        session->subscriptions = count;
        conn_attach(exchange->conn, session);
    } else {
        subscription_quota_lower(quota, &count, 0);
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
    }
    return session;
}
