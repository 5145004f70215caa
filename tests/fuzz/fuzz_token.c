/* Any bytes as a token, as the claims of a token that is signed, and as its header. Nothing
 * unsigned is taken; what is taken is within its bounds, and verifies the same twice. */
#include "auth/token.h"
#include "fuzz.h"

#define NOW_S UINT64_C(1800000000)

static const struct token_policy policy = {
    .issuer = {"khala", 5}, .audience = {"openagents-sync", 15}, .max_age_s = 900};

static struct key_set *make_keys(void) {
    struct key_message message;
    struct key_set *keys = key_set_new();
    require(keys && key_set_add_secret(keys, SLICE("k"), SLICE("0123456789abcdef0123456789abcdef"),
                                       &message) == STATUS_OK);
    return keys;
}

static void check_list(const struct grant_list *list) {
    require(list->count <= CLAIMS_LIST_MAX);
    for (size_t i = 0; i < list->count; i++)
        require(list->names[i].size > 0 && list->names[i].size <= CLAIMS_TEXT_BYTES_MAX);
}

static void check_text(struct slice text) {
    require(!text.data || (text.size > 0 && text.size <= CLAIMS_TEXT_BYTES_MAX));
}

static void check_principal(const struct principal *who) {
    check_text(who->identity.user_id);
    check_text(who->identity.guest_scope);
    check_text(who->identity.org_id);
    check_text(who->session_id);
    check_text(who->device_id);
    check_text(who->token_id);
    check_list(&who->topics);
    check_list(&who->streams);
    require(!(who->identity.user_id.data && who->identity.guest_scope.data));
    require(who->expires_at_ms > NOW_S * 1000);
    require(who->expires_at_ms <= (NOW_S + policy.max_age_s + TOKEN_SKEW_S) * 1000);
}

static bool verify(const struct key_set *keys, struct slice token) {
    const struct principal *who = NULL;
    enum status status = token_verify(&policy, keys, token, NOW_S * 1000, &who, NULL);
    require((status == STATUS_OK) == (who != NULL));
    require(status == STATUS_OK || status_http(status) == 401);
    if (who)
        check_principal(who);
    principal_unref(who);
    return status == STATUS_OK;
}

static void check_signed(const struct key_set *keys, struct slice header, struct slice claims) {
    struct buffer token;
    buffer_init(&token, 1 << 20);
    if (key_sign(&keys->keys[0], header, claims, &token) == STATUS_OK) {
        bool taken = verify(keys, buffer_slice(&token));
        require(verify(keys, buffer_slice(&token)) == taken);
        if (taken) {
            /* One bit of the signature. */
            char *last = &token.data[token.size - 20];
            *last = *last == 'A' ? 'B' : 'A';
            require(!verify(keys, buffer_slice(&token)));
        }
    }
    buffer_release(&token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct key_set *keys;
    struct slice input = {(const char *)data, size};
    struct buffer header, claims;
    if (!keys)
        keys = make_keys();
    require(!verify(keys, input));
    check_signed(keys, SLICE("{\"alg\":\"HS256\",\"kid\":\"k\"}"), input);
    check_signed(keys, input,
                 SLICE("{\"iss\":\"khala\",\"aud\":\"openagents-sync\",\"iat\":1800000000,"
                       "\"exp\":1800000001,"
                       "\"oa_claims_version\":\"oa_sync_claims_v1\"}"));
    buffer_init(&header, TOKEN_BYTES_MAX);
    buffer_init(&claims, TOKEN_BYTES_MAX);
    if (token_peek(input, &header, &claims) == STATUS_OK)
        require(header.size > 1 && claims.size > 1);
    buffer_release(&header);
    buffer_release(&claims);
    return 0;
}
