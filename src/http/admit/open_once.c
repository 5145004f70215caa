#include "http/admit/open_once.h"

#include <stdlib.h>

#include "auth/principal.h"
#include "http/admit/single_use.h"
#include "http/conn.h"
#include "http/route.h"

struct opening {
    struct single_use use; /* first */
    struct exchange *exchange;
};

static void opening_done(struct opening *opening) {
    struct exchange *exchange = opening->exchange;
    enum status status = opening->use.status;
    exchange->work = NULL;
    free(opening);
    if (status == STATUS_OK)
        exchange_handle(exchange, exchange->match.route->handle);
    else
        exchange_answer_status(exchange, status);
}

static void use_done(struct single_use *use) {
    struct opening *opening = (struct opening *)use;
    if (exchange_unref(opening->exchange))
        opening_done(opening);
}

void open_once(struct exchange *exchange) {
    struct slice id = exchange->principal->token_id;
    if (exchange_is_head(exchange) || exchange->principal == &principal_operator) {
        exchange->match.route->handle(exchange);
        return;
    }
    struct opening *opening = id.data ? calloc(1, sizeof(*opening)) : NULL;
    if (!opening) {
        exchange_answer_status(exchange, id.data ? STATUS_OUT_OF_MEMORY : STATUS_MISSING_JTI);
        return;
    }
    opening->exchange = exchange;
    opening->use.kind = SINGLE_USE_TOKEN;
    opening->use.expires_at_ms = single_use_token_until_ms(exchange->principal);
    opening->use.done = use_done;
    exchange->work = opening;
    exchange->work_free = free;
    exchange_ref(exchange);
    /* Once posted it is the writer's: nothing of it is touched here. */
    enum status status = single_use_post(&opening->use, exchange->http->writer, exchange->loop, id);
    if (status == STATUS_OK)
        return;
    opening->use.status = status;
    if (exchange_unref(exchange))
        opening_done(opening);
}
