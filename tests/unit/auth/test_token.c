#include "auth/token.h"

#include <jose/jwk.h>

#include "base/base64url.h"
#include "test.h"

#define NOW_S UINT64_C(1800000000)

static const struct token_policy policy = {
    .issuer = {"khala", 5},
    .audience = {"openagents-sync", 15},
    .max_age_s = 900,
    .require_token_id = true,
};

static struct key_set *keys;

static int setup(void **state) {
    (void)state;
    struct key_message message;
    json_t *jwk = json_pack("{s:s, s:s}", "alg", "RS256", "kid", "rsa");
    keys = key_set_new();
    if (key_set_add_secret(keys, SLICE("hs"), SLICE("a secret of thirty-two characters"),
                           &message) != STATUS_OK ||
        !jose_jwk_gen(NULL, jwk))
        return -1;
    char *text = json_dumps(jwk, 0);
    enum status status = key_set_add_jwks(keys, slice_of(text), &message);
    free(text);
    json_decref(jwk);
    return status == STATUS_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    key_set_unref(keys);
    return 0;
}

static const char *const plain =
    "{\"iss\":\"khala\",\"aud\":\"openagents-sync\",\"sub\":\"user:u1\","
    "\"iat\":1800000000,\"nbf\":1800000000,"
    "\"exp\":1800000300,\"jti\":\"j1\",\"oa_user_id\":\"u1\",\"oa_org_id\":\"o1\","
    "\"oa_session_id\":\"s1\",\"oa_device_id\":\"d1\","
    "\"oa_sync_scopes\":[\"runtime.run_events\",\"runtime.unheard_of\"],"
    "\"oa_sync_topics\":[\"run:a:events\"],\"oa_sync_streams\":[],"
    "\"oa_claims_version\":\"oa_sync_claims_v1\"}";

/* The default claims with one text replaced. */
static const char *with(const char *from, const char *to) {
    static char text[65536];
    const char *at = strstr(plain, from);
    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - plain), plain, to, at + strlen(from));
    return text;
}

static enum status verify_as(const struct token_policy *rules, struct slice token, uint64_t now_s) {
    const struct principal *principal = NULL;
    struct token_refusal refusal = {0};
    enum status status = token_verify(rules, keys, token, now_s * 1000, &principal, &refusal);
    assert_int_equal(principal != NULL, status == STATUS_OK);
    /* The bearer is known when a signed token is refused for its times or its id. */
    assert_int_equal(refusal.name_size > 0, status != STATUS_OK && status != STATUS_INVALID_TOKEN);
    if (refusal.name_size > 0)
        assert_slice(((struct slice){refusal.name, refusal.name_size}), "user:u1");
    assert_int_equal(refusal.rule != NULL, status != STATUS_OK);
    principal_unref(principal);
    return status;
}

static void sign(const char *header, const char *claims, struct buffer *out) {
    buffer_init(out, 131072);
    assert_ok(key_sign(&keys->keys[0], slice_of(header), slice_of(claims), out));
}

static enum status verify_claims(const char *claims, uint64_t now_s) {
    struct buffer token;
    sign("{\"alg\":\"HS256\",\"kid\":\"hs\"}", claims, &token);
    enum status status = verify_as(&policy, buffer_slice(&token), now_s);
    buffer_release(&token);
    return status;
}

static void a_valid_token_becomes_a_principal(void **state) {
    (void)state;
    struct buffer token;
    const struct principal *who;
    sign("{\"alg\":\"HS256\",\"kid\":\"hs\",\"typ\":\"JWT\"}", plain, &token);
    assert_ok(token_verify(&policy, keys, buffer_slice(&token), NOW_S * 1000, &who, NULL));
    buffer_release(&token);
    assert_slice(who->identity.user_id, "u1");
    assert_slice(who->identity.org_id, "o1");
    assert_null(who->identity.guest_scope.data);
    assert_slice(who->session_id, "s1");
    assert_slice(who->device_id, "d1");
    assert_slice(who->token_id, "j1");
    assert_int_equal(who->expires_at_ms, UINT64_C(1800000300000));
    assert_int_equal(who->scopes, SCOPE_RUN_EVENTS);
    assert_false(who->read_all);
    assert_int_equal(who->topics.count, 1);
    assert_slice(who->topics.names[0], "run:a:events");
    assert_int_equal(who->streams.count, 0);
    principal_unref(who);
}

static const struct {
    const char *from;
    const char *to;
    enum status status;
} claim_rows[] = {
    {"\"aud\":\"openagents-sync\"", "\"aud\":[\"x\",\"openagents-sync\"]", STATUS_OK},
    {"\"aud\":\"openagents-sync\"", "\"aud\":\"openagents\"", STATUS_INVALID_TOKEN},
    {"\"aud\":\"openagents-sync\"", "\"aud\":[]", STATUS_INVALID_TOKEN},
    {"\"aud\":\"openagents-sync\",", "", STATUS_INVALID_TOKEN},
    {"\"aud\":\"openagents-sync\"", "\"aud\":5", STATUS_INVALID_TOKEN},
    {"oa_sync_claims_v1", "oa_sync_claims_v2", STATUS_INVALID_TOKEN},
    {",\"oa_claims_version\":\"oa_sync_claims_v1\"", "", STATUS_INVALID_TOKEN},
    {"\"jti\":\"j1\",", "", STATUS_MISSING_JTI},
    {"\"jti\":\"j1\"", "\"jti\":null", STATUS_MISSING_JTI},
    {"\"jti\":\"j1\"", "\"jti\":\"\"", STATUS_INVALID_TOKEN},
    {"\"jti\":\"j1\"", "\"jti\":7", STATUS_INVALID_TOKEN},
    {"\"iat\":1800000000,", "", STATUS_MISSING_IAT},
    {"\"iat\":1800000000", "\"iat\":-1", STATUS_INVALID_TOKEN},
    {"\"iat\":1800000000", "\"iat\":1e9", STATUS_INVALID_TOKEN},
    {"\"iat\":1800000000", "\"iat\":99999999999999999999", STATUS_INVALID_TOKEN},
    {"\"iat\":1800000000", "\"iat\":\"1800000000\"", STATUS_INVALID_TOKEN},
    {"\"iat\":1800000000", "\"iat\":1800000030", STATUS_OK},
    {"\"iat\":1800000000", "\"iat\":1800000031", STATUS_TOKEN_NOT_YET_VALID},
    {"\"iat\":1800000000", "\"iat\":1799999101", STATUS_OK},
    {"\"iat\":1800000000", "\"iat\":1799999100", STATUS_TOKEN_TOO_OLD},
    {"\"iat\":1800000000", "\"iat\":0", STATUS_TOKEN_TOO_OLD},
    {"\"nbf\":1800000000", "\"nbf\":1800000030", STATUS_OK},
    {"\"nbf\":1800000000", "\"nbf\":1800000031", STATUS_TOKEN_NOT_YET_VALID},
    {"\"nbf\":1800000000", "\"nbf\":9007199254740991", STATUS_TOKEN_NOT_YET_VALID},
    {"\"nbf\":1800000000,", "", STATUS_OK},
    {"\"nbf\":1800000000", "\"nbf\":-5", STATUS_INVALID_TOKEN},
    {"\"exp\":1800000300,", "", STATUS_INVALID_TOKEN},
    {"\"exp\":1800000300", "\"exp\":1800000001", STATUS_OK},
    {"\"exp\":1800000300", "\"exp\":1800000000", STATUS_TOKEN_EXPIRED},
    {"\"exp\":1800000300", "\"exp\":0", STATUS_TOKEN_EXPIRED},
    {"\"exp\":1800000300", "\"exp\":-1", STATUS_INVALID_TOKEN},
    {"\"exp\":1800000300", "\"exp\":9007199254740991", STATUS_OK},
    {"\"exp\":1800000300", "\"exp\":9007199254740992", STATUS_INVALID_TOKEN},
    {"\"exp\":1800000300", "\"exp\":1800000300.5", STATUS_INVALID_TOKEN},
    {"\"exp\":1800000300", "\"exp\":1800000300,\"exp\":1800000301", STATUS_INVALID_TOKEN},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":\"u1\",\"oa_user_id\":\"u2\"", STATUS_INVALID_TOKEN},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":\"u1\",\"oa_user\\u005fid\":\"u2\"",
     STATUS_INVALID_TOKEN},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":\"u1\",\"oa_guest_scope\":\"g\"",
     STATUS_INVALID_TOKEN},
    {"\"oa_user_id\":\"u1\"", "\"oa_guest_scope\":\"g\"", STATUS_OK},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":42", STATUS_OK},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":-42", STATUS_INVALID_TOKEN},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":null", STATUS_OK},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":\"\"", STATUS_INVALID_TOKEN},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":[\"u1\"]", STATUS_INVALID_TOKEN},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":\"u\\u0000\"", STATUS_INVALID_TOKEN},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":\"u\\r\\n1\"", STATUS_INVALID_TOKEN},
    {"\"oa_user_id\":\"u1\"", "\"oa_user_id\":\"\\u00fc1\"", STATUS_OK},
    {"\"oa_sync_topics\":[\"run:a:events\"]", "\"oa_sync_topics\":\"run:a:events\"",
     STATUS_INVALID_TOKEN},
    {"\"oa_sync_topics\":[\"run:a:events\"]", "\"oa_sync_topics\":[1]", STATUS_INVALID_TOKEN},
    {"\"oa_sync_topics\":[\"run:a:events\"]", "\"oa_sync_topics\":[\"\"]", STATUS_INVALID_TOKEN},
    {"\"sub\":\"user:u1\"", "\"sub\":{}", STATUS_INVALID_TOKEN},
    {"\"iss\":\"khala\",", "", STATUS_INVALID_TOKEN},
    {"\"iss\":\"khala\"", "\"iss\":\"Khala\"", STATUS_INVALID_TOKEN},
    {"\"iss\":\"khala\"", "\"iss\":[\"khala\"]", STATUS_INVALID_TOKEN},
};

static void claims_follow_the_table(void **state) {
    (void)state;
    assert_ok(verify_claims(plain, NOW_S));
    for (size_t i = 0; i < sizeof(claim_rows) / sizeof(claim_rows[0]); i++) {
        enum status status = verify_claims(with(claim_rows[i].from, claim_rows[i].to), NOW_S);
        if (status != claim_rows[i].status)
            fail_msg("row %zu (%s): %s", i, claim_rows[i].to, status_code(status));
    }
}

static void settings_decide_about_issuer_and_token_id(void **state) {
    (void)state;
    struct token_policy rules = policy;
    struct buffer token;
    sign("{\"alg\":\"HS256\",\"kid\":\"hs\"}", with("\"jti\":\"j1\",", ""), &token);
    assert_int_equal(verify_as(&rules, buffer_slice(&token), NOW_S), STATUS_MISSING_JTI);
    rules.require_token_id = false;
    assert_ok(verify_as(&rules, buffer_slice(&token), NOW_S));
    rules.issuer = SLICE("https://issuer");
    assert_int_equal(verify_as(&rules, buffer_slice(&token), NOW_S), STATUS_INVALID_TOKEN);
    buffer_release(&token);
    sign("{\"alg\":\"HS256\",\"kid\":\"hs\"}",
         with("\"iss\":\"khala\"", "\"iss\":\"https://issuer\""), &token);
    assert_ok(verify_as(&rules, buffer_slice(&token), NOW_S));
    rules.issuer = SLICE("https://issuer/");
    assert_int_equal(verify_as(&rules, buffer_slice(&token), NOW_S), STATUS_INVALID_TOKEN);
    buffer_release(&token);
}

static void a_principal_expires_with_its_token_or_its_maximum_age(void **state) {
    (void)state;
    struct buffer token;
    const struct principal *who;
    sign("{\"alg\":\"HS256\",\"kid\":\"hs\"}",
         with("\"exp\":1800000300", "\"exp\":9007199254740991"), &token);
    assert_ok(token_verify(&policy, keys, buffer_slice(&token), NOW_S * 1000, &who, NULL));
    assert_int_equal(who->expires_at_ms, (NOW_S + 900) * 1000);
    principal_unref(who);
    buffer_release(&token);
}

static void long_lists_and_long_tokens_are_refused(void **state) {
    (void)state;
    static char list[65536];
    struct {
        size_t count;
        enum status status;
    } rows[] = {{256, STATUS_OK}, {257, STATUS_INVALID_TOKEN}, {10000, STATUS_INVALID_TOKEN}};
    for (size_t i = 0; i < 3; i++) {
        size_t size = (size_t)snprintf(list, sizeof(list), "\"oa_sync_topics\":[");
        for (size_t j = 0; j < rows[i].count; j++)
            size += (size_t)snprintf(list + size, sizeof(list) - size, j ? ",\"t\"" : "\"t\"");
        snprintf(list + size, sizeof(list) - size, "]");
        assert_int_equal(verify_claims(with("\"oa_sync_topics\":[\"run:a:events\"]", list), NOW_S),
                         rows[i].status);
    }
}

static void only_the_algorithm_of_the_key_is_accepted(void **state) {
    (void)state;
    static const char *const headers[] = {
        "{\"alg\":\"none\",\"kid\":\"hs\"}",
        "{\"alg\":\"None\",\"kid\":\"hs\"}",
        "{\"alg\":\"HS384\",\"kid\":\"hs\"}",
        "{\"alg\":\"hs256\",\"kid\":\"hs\"}",
        "{\"alg\":\"RS256\",\"kid\":\"hs\"}",
        "{\"alg\":\"HS256\",\"kid\":\"rsa\"}",
        "{\"alg\":\"HS256\",\"kid\":\"other\"}",
        "{\"alg\":\"HS256\",\"kid\":\"\"}",
        "{\"alg\":\"HS256\",\"kid\":5}",
        "{\"alg\":\"HS256\"}",
        "{\"kid\":\"hs\"}",
        "{\"alg\":\"HS256\",\"kid\":\"hs\",\"crit\":[\"exp\"]}",
        "{\"alg\":\"HS256\",\"kid\":\"hs\",\"b64\":false}",
        "{\"alg\":\"HS256\",\"alg\":\"none\",\"kid\":\"hs\"}",
        "[]",
        "{",
    };
    struct buffer token;
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        sign(headers[i], plain, &token);
        if (verify_as(&policy, buffer_slice(&token), NOW_S) != STATUS_INVALID_TOKEN)
            fail_msg("%s", headers[i]);
        buffer_release(&token);
    }
}

/* The known attack: the text of the public key as the secret of an HMAC. */
static void a_public_key_is_not_accepted_as_a_secret(void **state) {
    (void)state;
    struct key_message message;
    struct key_set *confused = key_set_new();
    char *text = json_dumps(keys->keys[1].jwk, JSON_COMPACT);
    assert_ok(key_set_add_secret(confused, SLICE("rsa"),
                                 (struct slice){text, strlen(text) < 1024 ? strlen(text) : 1024},
                                 &message));
    struct buffer token;
    buffer_init(&token, 8192);
    assert_ok(key_sign(&confused->keys[0], SLICE("{\"alg\":\"HS256\",\"kid\":\"rsa\"}"),
                       slice_of(plain), &token));
    assert_int_equal(verify_as(&policy, buffer_slice(&token), NOW_S), STATUS_INVALID_TOKEN);
    buffer_release(&token);
    free(text);
    key_set_unref(confused);
}

static void a_token_changed_anywhere_is_refused(void **state) {
    (void)state;
    struct buffer token;
    sign("{\"alg\":\"HS256\",\"kid\":\"hs\"}", plain, &token);
    assert_ok(verify_as(&policy, buffer_slice(&token), NOW_S));
    for (size_t i = 0; i < token.size; i++) {
        char was = token.data[i];
        token.data[i] = was == 'A' ? 'B' : 'A';
        assert_int_equal(verify_as(&policy, buffer_slice(&token), NOW_S), STATUS_INVALID_TOKEN);
        token.data[i] = was;
        assert_int_equal(verify_as(&policy, (struct slice){token.data, i}, NOW_S),
                         STATUS_INVALID_TOKEN);
    }
    assert_ok(buffer_append_byte(&token, '='));
    assert_int_equal(verify_as(&policy, buffer_slice(&token), NOW_S), STATUS_INVALID_TOKEN);
    buffer_release(&token);
}

static void texts_that_are_no_tokens_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "", ".", "..", "...", "a", "a.b", "a..", "e30..", ".e30.", "e30.e30.", "e30.e30.e30.e30"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(verify_as(&policy, slice_of(texts[i]), NOW_S), STATUS_INVALID_TOKEN);
}

static void a_minted_token_is_verified_with_all_its_claims(void **state) {
    (void)state;
    struct slice scopes[] = {SLICE("runtime.run_events"), SLICE("runtime.read_all")};
    struct slice topics[] = {SLICE("room:\"1\"")};
    struct slice streams[] = {SLICE("runtime.run.a.events"), SLICE("runtime.topic.x")};
    struct token_request request = {
        .identity = {.guest_scope = SLICE("g"), .org_id = SLICE("o")},
        .token_id = SLICE("t"),
        .session_id = SLICE("s"),
        .scopes = {scopes, 2},
        .topics = {topics, 1},
        .streams = {streams, 2},
        .issued_at_s = NOW_S,
        .ttl_s = 60,
    };
    const struct principal *who;
    struct buffer token;
    buffer_init(&token, 16384);
    assert_ok(token_mint(&policy, keys, &request, &token));
    assert_ok(token_verify(&policy, keys, buffer_slice(&token), NOW_S * 1000, &who, NULL));
    assert_slice(who->identity.guest_scope, "g");
    assert_slice(who->identity.org_id, "o");
    assert_slice(who->token_id, "t");
    assert_slice(who->session_id, "s");
    assert_null(who->device_id.data);
    assert_true(who->read_all);
    assert_slice(who->topics.names[0], "room:\"1\"");
    assert_slice(who->streams.names[1], "runtime.topic.x");
    assert_int_equal(who->expires_at_ms, (NOW_S + 60) * 1000);
    principal_unref(who);
    struct buffer header, claims;
    buffer_init(&header, 8192);
    buffer_init(&claims, 8192);
    assert_ok(token_peek(buffer_slice(&token), &header, &claims));
    assert_slice(buffer_slice(&header), "{\"alg\":\"HS256\",\"kid\":\"hs\",\"typ\":\"JWT\"}");
    assert_non_null(memmem(claims.data, claims.size, "\"sub\":\"guest:g\"", 15));
    buffer_release(&header);
    buffer_release(&claims);
    buffer_release(&token);
}

static void a_lifetime_outside_its_bounds_is_not_minted(void **state) {
    (void)state;
    static const uint64_t refused[] = {0, 59, 901, UINT64_MAX};
    struct token_request request = {.token_id = SLICE("t"), .issued_at_s = NOW_S};
    struct token_policy rules = policy;
    struct buffer token;
    buffer_init(&token, 16384);
    for (size_t i = 0; i < 4; i++) {
        request.ttl_s = refused[i];
        assert_int_equal(token_mint(&rules, keys, &request, &token), STATUS_INVALID_TTL);
    }
    request.ttl_s = 900;
    assert_ok(token_mint(&rules, keys, &request, &token));
    rules.max_age_s = 899;
    assert_int_equal(token_mint(&rules, keys, &request, &token), STATUS_INVALID_TTL);
    buffer_release(&token);
}

static void a_token_that_would_be_refused_is_not_minted(void **state) {
    (void)state;
    static char name[600];
    struct slice topics[16];
    memset(name, 'n', sizeof(name));
    for (size_t i = 0; i < 16; i++)
        topics[i] = (struct slice){name, sizeof(name)};
    struct token_request request = {
        .token_id = SLICE("t"), .topics = {topics, 16}, .issued_at_s = NOW_S, .ttl_s = 60};
    struct buffer token;
    buffer_init(&token, 65536);
    assert_int_equal(token_mint(&policy, keys, &request, &token), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(token.size, 0);
    struct key_set *none = key_set_new();
    assert_int_equal(token_mint(&policy, none, &request, &token), STATUS_SIGNING_KEY_MISSING);
    key_set_unref(none);
    buffer_release(&token);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_valid_token_becomes_a_principal),
        cmocka_unit_test(claims_follow_the_table),
        cmocka_unit_test(settings_decide_about_issuer_and_token_id),
        cmocka_unit_test(a_principal_expires_with_its_token_or_its_maximum_age),
        cmocka_unit_test(long_lists_and_long_tokens_are_refused),
        cmocka_unit_test(only_the_algorithm_of_the_key_is_accepted),
        cmocka_unit_test(a_public_key_is_not_accepted_as_a_secret),
        cmocka_unit_test(a_token_changed_anywhere_is_refused),
        cmocka_unit_test(texts_that_are_no_tokens_are_refused),
        cmocka_unit_test(a_minted_token_is_verified_with_all_its_claims),
        cmocka_unit_test(a_lifetime_outside_its_bounds_is_not_minted),
        cmocka_unit_test(a_token_that_would_be_refused_is_not_minted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
