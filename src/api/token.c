/* POST /api/sync/token, under its three names: mints a token for a user that the calling backend
 * has authenticated. */
#include <inttypes.h>
#include <stdio.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/mint.h"
#include "http/exchange.h"

static void answer_refusal(struct exchange *exchange, enum status status,
                           const struct mint_reason *reason) {
    char bounds[96];
    struct exchange_error error = {.status = status,
                                   .message = *reason->text ? reason->text : NULL};
    if (status == STATUS_INVALID_TTL) {
        int size = snprintf(bounds, sizeof(bounds),
                            "{\"ttl_seconds_min\":%d,\"ttl_seconds_max\":%" PRIu64 "}",
                            TOKEN_TTL_S_MIN, token_ttl_s_max(&exchange->http->gate.policy));
        error.details = (struct slice){bounds, (size_t)size};
    }
    exchange_answer_error(exchange, &error);
}

void handle_token(struct exchange *exchange) {
    struct io_loop *loop = exchange->loop;
    uint64_t now_ms = clock_wall_ms(&loop->clock);
    struct mint_moment moment = {.now_ms = now_ms,
                                 .token_id = uuid7_next(&loop->ids, now_ms),
                                 .session_id = uuid7_next(&loop->ids, now_ms),
                                 .has_mint_key = exchange->has_mint_key};
    struct mint_reason reason;
    struct buffer out;
    buffer_init(&out, 16 * MINT_BYTES_MAX);
    enum status status =
        mint(&exchange->http->gate, buffer_slice(&exchange->body), &moment, &out, &reason);
    if (status == STATUS_OK)
        exchange_answer_json(exchange, 200, buffer_slice(&out));
    else
        answer_refusal(exchange, status, &reason);
    buffer_release(&out);
}
