#include "http/exchange_call.h"

static void call_done(struct call *call) {
    struct exchange_call *ended = container_of(call, struct exchange_call, call);
    if (exchange_unref(ended->exchange))
        ended->answer(ended);
}

void exchange_call_store(struct exchange_call *call) {
    exchange_ref(call->exchange);
    call->call.done = call_done;
    call_store(&call->call, call->exchange->loop, call->exchange->http->store_pool);
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
