/* A single use of a token or nonce: the store decides whether it is the first.
 * single_use_decide belongs to the writer's thread; the rest to any thread.
 * Memory: the struct holds its own copy of the id.
 * Errors: STATUS_INVALID_TOKEN for an id that is empty or too long, STATUS_TOKEN_REPLAYED for a
 * second use; when the store fails, the use may or may not count.
 * A use that was decided stays used across restarts, until it expires. */
#ifndef HTTP_ADMIT_SINGLE_USE_H
#define HTTP_ADMIT_SINGLE_USE_H

#include "auth/principal.h"
#include "store/store.h"

#define SINGLE_USE_ID_BYTES_MAX 640

struct single_use {
    enum single_use_kind kind;
    char id[SINGLE_USE_ID_BYTES_MAX];
    size_t id_size;
    uint64_t expires_at_ms;
    uint64_t forget_ms; /* uses that expired before this time may be forgotten */
};

MUST_CHECK enum status single_use_init(struct single_use *use, enum single_use_kind kind,
                                       struct slice id);
/* STATUS_OK once the first use is durable. */
MUST_CHECK enum status single_use_decide(const struct single_use *use, struct store_session *store);

/* Until when the use of a token must be remembered. Later every clock refuses the token. */
uint64_t single_use_token_until_ms(const struct principal *principal);

#endif
