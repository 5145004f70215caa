#include <stdatomic.h>

#include "server/exchange.h"
#include "server/handlers.h"
#include "server/server.h"

void handle_live(struct exchange *exchange) {
    exchange_answer_json(exchange, 200, SLICE("{\"status\":\"live\"}\n"));
}

void handle_ready(struct exchange *exchange) {
    if (atomic_load(&exchange->server->draining))
        exchange_answer_status(exchange, STATUS_SHUTTING_DOWN);
    else
        exchange_answer_json(exchange, 200, SLICE("{\"status\":\"ready\"}\n"));
}
