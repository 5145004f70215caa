#include "http/exchange_call.h"

#include "base/metrics.h"

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
