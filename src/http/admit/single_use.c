#include "http/admit/single_use.h"

#include <string.h>

#include "auth/token.h"

enum status single_use_init(struct single_use *use, enum single_use_kind kind, struct slice id) {
    if (id.size == 0 || id.size > sizeof(use->id))
        return STATUS_INVALID_TOKEN;
    use->kind = kind;
    memcpy(use->id, id.data, id.size);
    use->id_size = id.size;
    return STATUS_OK;
}

enum status single_use_decide(const struct single_use *use, struct store_session *store) {
    enum status status = store_use_once(store, use->kind, (struct slice){use->id, use->id_size},
                                        use->expires_at_ms, use->forget_ms);
    return status == STATUS_ALREADY_EXISTS ? STATUS_TOKEN_REPLAYED : status;
}

uint64_t single_use_token_until_ms(const struct principal *principal) {
    return principal->expires_at_ms + UINT64_C(2000) * TOKEN_SKEW_S;
}
