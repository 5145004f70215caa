/* POST /api/sync/token, under its three names: mints a token for a user that the calling backend
 * has authenticated. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/mint.h"
#include "api/record.h"
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

/* An answer that waits until the mint is recorded. */
struct token_work {
    struct buffer out;
};

static void work_free(void *memory) {
    struct token_work *work = memory;
    buffer_release(&work->out);
    free(work);
}

/* No token leaves the server before the log says for whom it is, so that it can be found and
 * revoked. */
static void answer_minted(struct exchange *exchange) {
    const struct token_work *work = exchange->work;
    exchange_answer_json(exchange, 200, buffer_slice(&work->out));
}

void handle_token(struct exchange *exchange) {
    struct io_loop *loop = exchange->loop;
    uint64_t now_ms = clock_wall_ms(&loop->clock);
    struct mint_moment moment = {.now_ms = now_ms,
                                 .token_id = uuid7_next(&loop->ids, now_ms),
                                 .session_id = uuid7_next(&loop->ids, now_ms),
                                 .has_mint_role = exchange->principal->role == KEY_ROLE_MINT};
    struct mint_reason reason;
    struct token_work *work = calloc(1, sizeof(*work));
    if (!work) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    buffer_init(&work->out, 16 * MINT_BYTES_MAX);
    exchange->work = work;
    exchange->work_free = work_free;
    struct record *record = record_new(exchange, 1);
    if (!record)
        return;
    record_leave_last(record);
    struct object_writer event = record_begin(record);
    enum status status = mint(&exchange->http->gate, buffer_slice(&exchange->body), &moment,
                              &work->out, &reason, &event);
    if (status == STATUS_OK) {
        record_end(record, &event, "operator.token_minted");
        record_post(record, answer_minted);
    } else {
        record_free(record);
        answer_refusal(exchange, status, &reason);
    }
}
