#include "http/admit/gate.h"

#include "api/mint.h"
#include "base/log.h"
#include "server/config.h"
#include "server/config_options.h"
#include "test.h"

#define NOW_MS UINT64_C(1800000000000)

static struct config config;
static struct gate gate;

static const char *environment(const char *name) {
    if (strcmp(name, "RUNTIME_SYNC_TOKEN_SIGNING_KEY") == 0)
        return "a-secret-that-is-long-enough-for-a-test";
    if (strcmp(name, "RUNTIME_KHALA_ALLOWED_ORIGINS") == 0)
        return "https://app.example";
    return NULL;
}

static int setup(void **state) {
    (void)state;
    struct config_error error;
    struct key_message message;
    log_configure(LOG_OFF, LOG_TEXT, 2);
    if (config_load(&config, NULL, environment, NULL, 0, &error) != STATUS_OK)
        return -1;
    const struct gate_options options = config_gate_options(&config);
    return gate_init(&gate, &options, &message) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    gate_release(&gate);
    return 0;
}

/* Mints a token for the request and writes it to out. */
static void mint_text(const char *request, char out[TOKEN_BYTES_MAX + 1]) {
    const struct json_limits limits = {1 << 17, 8};
    const struct mint_moment moment = {.now_ms = NOW_MS};
    struct json_field token = {.name = SLICE("token")};
    struct buffer answer;
    struct slice text;
    struct mint_reason reason;
    buffer_init(&answer, 1 << 17);
    assert_ok(mint(&gate, slice_of(request), &moment, &answer, &reason, NULL));
    assert_ok(json_read_object(buffer_slice(&answer), &limits, &token, 1));
    assert_true(json_string_slice(token.value, &text));
    memcpy(out, text.data, text.size);
    out[text.size] = '\0';
    buffer_release(&answer);
}

static enum status admit(const char *authorization, const char *query) {
    struct http1_header header = {SLICE("Authorization"),
                                  slice_of(authorization ? authorization : "")};
    struct http1_request request = {
        .headers = &header, .header_count = authorization ? 1 : 0, .query = slice_of(query)};
    const struct principal *principal = NULL;
    struct token_refusal refusal = {0};
    enum status status = gate_admit(&gate, &request, NOW_MS, &principal, &refusal);
    assert_int_equal(refusal.name_size > 0, status == STATUS_TOKEN_REVOKED);
    assert_int_equal(principal != NULL, status == STATUS_OK);
    principal_unref(principal);
    return status;
}

static void a_token_is_read_from_the_header_or_the_query(void **state) {
    (void)state;
    char token[TOKEN_BYTES_MAX + 1], field[TOKEN_BYTES_MAX + 64], query[TOKEN_BYTES_MAX + 64];
    mint_text("{\"user_id\":\"u\"}", token);
    snprintf(field, sizeof(field), "Bearer %s", token);
    snprintf(query, sizeof(query), "vsn=2.0.0&token=%s", token);
    assert_ok(admit(field, ""));
    assert_ok(admit(NULL, query));
    assert_ok(admit("Basic abc", query));
    snprintf(field, sizeof(field), "bEARER   %s", token);
    assert_ok(admit(field, ""));
}

static void an_invalid_token_is_refused_with_its_reason(void **state) {
    (void)state;
    char token[TOKEN_BYTES_MAX + 1];
    static char longest[TOKEN_BYTES_MAX + 64] = "token=";
    mint_text("{}", token);
    assert_int_equal(admit(NULL, ""), STATUS_MISSING_AUTHORIZATION);
    assert_int_equal(admit("", ""), STATUS_MISSING_AUTHORIZATION);
    assert_int_equal(admit(NULL, "token="), STATUS_MISSING_AUTHORIZATION);
    assert_int_equal(admit("Basic abc", ""), STATUS_INVALID_AUTHORIZATION_SCHEME);
    assert_int_equal(admit(token, ""), STATUS_INVALID_AUTHORIZATION_SCHEME);
    assert_int_equal(admit("Bearerx abc", ""), STATUS_INVALID_AUTHORIZATION_SCHEME);
    assert_int_equal(admit("Bearer", ""), STATUS_INVALID_TOKEN);
    assert_int_equal(admit("Bearer operator-key", ""), STATUS_INVALID_TOKEN);
    assert_int_equal(admit(NULL, "token=operator-key"), STATUS_INVALID_TOKEN);
    assert_int_equal(admit(NULL, "token=a&token=b"), STATUS_BAD_REQUEST);
    assert_int_equal(admit(NULL, "token=%00"), STATUS_BAD_REQUEST);
    memset(longest + 6, 'a', TOKEN_BYTES_MAX + 1);
    assert_int_equal(admit(NULL, longest), STATUS_INVALID_TOKEN);
}

static void a_revoked_principal_is_not_admitted(void **state) {
    (void)state;
    char token[TOKEN_BYTES_MAX + 1], query[TOKEN_BYTES_MAX + 64];
    mint_text("{\"user_id\":\"u\",\"session_id\":\"stolen\"}", token);
    snprintf(query, sizeof(query), "token=%s", token);
    assert_ok(admit(NULL, query));
    assert_ok(revocations_add(gate.revocations, REVOCATION_SESSION, SLICE("stolen"),
                              gate_revocation_expires_at_ms(&gate, NOW_MS), NOW_MS));
    assert_int_equal(admit(NULL, query), STATUS_TOKEN_REVOKED);
}

static void a_revocation_outlives_every_token_it_covers(void **state) {
    (void)state;
    uint64_t last_ms = (config.token_max_age_s + 2 * TOKEN_SKEW_S) * 1000;
    assert_true(gate_revocation_expires_at_ms(&gate, NOW_MS) > NOW_MS + last_ms);
}

static enum status origin(const char *text) {
    struct http1_header header = {SLICE("origin"), slice_of(text ? text : "")};
    struct http1_request request = {.headers = &header, .header_count = text ? 1 : 0};
    return gate_check_origin(&gate, &request);
}

static void pages_of_other_origins_are_refused_if_origins_are_enforced(void **state) {
    (void)state;
    assert_ok(origin(NULL));
    assert_ok(origin("https://app.example"));
    assert_int_equal(origin("https://evil.example"), STATUS_ORIGIN_NOT_ALLOWED);
    assert_int_equal(origin(""), STATUS_ORIGIN_NOT_ALLOWED);
    assert_int_equal(origin("null"), STATUS_ORIGIN_NOT_ALLOWED);
    gate.enforces_origin = false;
    assert_ok(origin("https://evil.example"));
    gate.enforces_origin = true;
}

static void a_mint_request_that_is_refused_has_a_message(void **state) {
    (void)state;
    static const struct {
        const char *request;
        enum status status;
    } rows[] = {
        {"", STATUS_INVALID_JSON},
        {"[]", STATUS_INVALID_REQUEST},
        {"{\"user_id\":\"\"}", STATUS_INVALID_REQUEST},
        {"{\"user_id\":true}", STATUS_INVALID_REQUEST},
        {"{\"user_id\":\"a\",\"user_id\":\"b\"}", STATUS_JSON_DUPLICATE_KEY},
        {"{\"user_id\":\"a\",\"guest_scope\":\"b\"}", STATUS_INVALID_REQUEST},
        {"{\"scopes\":\"runtime.run_events\"}", STATUS_INVALID_REQUEST},
        {"{\"topics\":[5]}", STATUS_INVALID_REQUEST},
        {"{\"scopes\":[\"runtime.run_events\",\"runtime.run_event\"]}", STATUS_INVALID_SCOPE},
        {"{\"topics\":[\"a\\nb\"]}", STATUS_INVALID_REQUEST},
        {"{\"ttl_seconds\":\"60\"}", STATUS_INVALID_REQUEST},
        {"{\"ttl_seconds\":59}", STATUS_INVALID_TTL},
        {"{\"ttl_seconds\":901}", STATUS_INVALID_TTL},
        {"{\"ttl_seconds\":-1}", STATUS_INVALID_TTL},
        {"{\"ttl_seconds\":60.5}", STATUS_INVALID_TTL},
        {"{\"ttl_seconds\":1e99}", STATUS_INVALID_TTL},
    };
    const struct mint_moment moment = {.now_ms = NOW_MS};
    struct buffer out;
    buffer_init(&out, 1 << 17);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct mint_reason reason;
        enum status status = mint(&gate, slice_of(rows[i].request), &moment, &out, &reason, NULL);
        if (status != rows[i].status)
            fail_msg("%s: %s", rows[i].request, status_code(status));
        assert_int_equal(out.size, 0);
    }
    buffer_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_read_from_the_header_or_the_query),
        cmocka_unit_test(an_invalid_token_is_refused_with_its_reason),
        cmocka_unit_test(a_revoked_principal_is_not_admitted),
        cmocka_unit_test(a_revocation_outlives_every_token_it_covers),
        cmocka_unit_test(pages_of_other_origins_are_refused_if_origins_are_enforced),
        cmocka_unit_test(a_mint_request_that_is_refused_has_a_message),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
