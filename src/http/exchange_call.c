#include "http/exchange_call.h"

#include "auth/principal.h"

static void call_done(struct call *call) {
    struct exchange_call *ended = container_of(call, struct exchange_call, call);
    if (exchange_unref(ended->exchange))
        ended->answer(ended);
}

/* The body of a request that is still arriving shows by itself that its client is gone. */
static bool has_whole_request(const struct exchange *exchange) {
    return exchange->conn->state == CONN_HANDLING || exchange->conn->is_body_done;
}

void exchange_post_store(struct exchange *exchange, struct call *call) {
    char name[PRINCIPAL_NAME_BYTES_MAX];
    const struct principal *principal = exchange_caller(exchange, STATUS_OK);
    struct store_client client = {.name = {"", 0}};
    if (principal) {
        client.name = (struct slice){name, principal_name(principal, name)};
        client.is_bounded = principal != &principal_operator;
    }
    exchange_ref(exchange);
    exchange->store_call = call;
    call_store(call, exchange->loop, exchange->http->store_pool, &client);
    if (has_whole_request(exchange))
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
