#include "http/admit/open_once.h"

#include <stdlib.h>

#include "auth/token.h"
#include "http/admit/single_use.h"
#include "http/exchange_call.h"

struct opening {
    struct exchange_call call;
    struct single_use use;
};

static void opening_answer(struct exchange_call *call) {
    struct exchange *exchange = call->exchange;
    enum status status = call->call.status;
    exchange->work = NULL;
    free(container_of(call, struct opening, call));
    exchange->token_rule = status == STATUS_TOKEN_REPLAYED ? TOKEN_RULE_USED : NULL;
    if (status == STATUS_OK)
        exchange_handle(exchange, exchange->match.route->handle);
    else
        exchange_answer_status(exchange, status);
}

void open_once(struct exchange *exchange) {
    struct slice id = exchange->principal->token_id;
    if (exchange_is_head(exchange) || principal_is_operator(exchange->principal)) {
        exchange->match.route->handle(exchange);
        return;
    }
    struct opening *opening = id.data ? calloc(1, sizeof(*opening)) : NULL;
    enum status status = id.data ? STATUS_OUT_OF_MEMORY : STATUS_MISSING_JTI;
    if (opening)
        status = single_use_init(&opening->use, SINGLE_USE_TOKEN, id);
    if (status != STATUS_OK) {
        free(opening);
        exchange_answer_status(exchange, status);
        return;
    }
    opening->use.expires_at_ms = single_use_token_until_ms(exchange->principal);
    opening->use.forget_ms = io_loop_forget_ms(exchange->loop);
    opening->call = (struct exchange_call){.exchange = exchange, .answer = opening_answer};
    exchange->work = opening;
    exchange->work_free = free;
    exchange_call_begin(&opening->call);
    single_use_post(&exchange->http->single_uses, &opening->use, &opening->call.call,
                    exchange->principal);
}
