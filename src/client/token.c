#include "client/token.h"

#include "base/base64url.h"
#include "wire/json.h"

#define CLAIMS_BYTES_MAX 8192
#define SECONDS_MAX      (UINT64_C(1) << 40)

bool token_life_ms(struct slice token, uint64_t wall_ms, uint64_t *life_ms) {
    const struct json_limits limits = {CLAIMS_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("iat")}, {.name = SLICE("exp")}};
    char claims[CLAIMS_BYTES_MAX];
    size_t size = 0;
    uint64_t iat, exp;
    const char *first = token.size > 0 ? memchr(token.data, '.', token.size) : NULL;
    if (!first)
        return false;
    struct slice rest = slice_from(token, (size_t)(first - token.data) + 1);
    const char *second = rest.size > 0 ? memchr(rest.data, '.', rest.size) : NULL;
    if (second)
        rest.size = (size_t)(second - rest.data);
    if (base64url_decode(rest, claims, sizeof(claims), &size) != STATUS_OK ||
        json_read_object((struct slice){claims, size}, &limits, fields, 2) != STATUS_OK ||
        !fields[0].present || !json_u64(fields[0].value, SECONDS_MAX, &iat) || !fields[1].present ||
        !json_u64(fields[1].value, SECONDS_MAX, &exp) || exp <= iat)
        return false;
    uint64_t whole_ms = (exp - iat) * 1000;
    bool is_left = exp * 1000 > wall_ms && exp * 1000 - wall_ms <= whole_ms;
    *life_ms = is_left ? exp * 1000 - wall_ms : whole_ms;
    return true;
}
