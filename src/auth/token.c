#include "auth/token.h"

#include <assert.h>
#include <stdlib.h>

#include "base/base64url.h"

#define HEADER_BYTES_MAX 1024
#define MS_PER_S         1000

/* ---- the signature ---- */

static enum status decode(struct slice text, void *data, size_t size_max, struct slice *decoded) {
    size_t size = 0;
    enum status status = base64url_decode(text, data, size_max, &size);
    *decoded = (struct slice){data, size};
    return status == STATUS_OK ? STATUS_OK : STATUS_INVALID_TOKEN;
}

/* NULL, or the rule that failed. Escaped names are refused, because no known issuer writes them. */
static const char *check_signature(const struct key_set *keys, const struct jws *jws,
                                   uint64_t now_s) {
    const struct json_limits limits = {HEADER_BYTES_MAX, 4};
    struct json_field fields[] = {{.name = SLICE("alg")},
                                  {.name = SLICE("kid")},
                                  {.name = SLICE("crit")},
                                  {.name = SLICE("b64")}};
    char memory[HEADER_BYTES_MAX];
    struct slice json, algorithm, key_id = {NULL, 0};
    enum status status = decode(jws->header, memory, sizeof(memory), &json);
    if (status == STATUS_OK)
        status = json_read_object(json, &limits, fields, 4);
    /* Critical extensions (RFC 7515 section 4.1.11) are not supported. */
    bool is_known = status == STATUS_OK && fields[0].present && !fields[2].present &&
                    !fields[3].present && json_string_slice(fields[0].value, &algorithm) &&
                    (!fields[1].present || json_string_slice(fields[1].value, &key_id));
    if (!is_known)
        return "header: must be JSON with alg, and without crit and b64";
    const char *rule = "kid: must name a key of the server";
    /* During a rotation of secrets several keys have one id. */
    for (const struct key *key = key_set_find(keys, key_id); key; key = key_set_next(keys, key)) {
        if (key_has_ended(key, now_s))
            continue;
        if (!slice_equal(algorithm, slice_of(key_algorithm_name(key->algorithm)))) {
            rule = "alg: must be the algorithm of the key that kid names";
            continue;
        }
        if (key_verify(key, jws))
            return NULL;
        rule = "signature: must be made with the key that kid names";
    }
    return rule;
}

/* ---- the claims ---- */

static bool list_has(const struct claims_list *list, struct slice name) {
    for (size_t i = 0; i < list->count; i++)
        if (slice_equal(list->names[i], name))
            return true;
    return false;
}

static enum status reject(struct token_refusal *refusal, enum status status, const char *rule) {
    refusal->rule = rule;
    return status;
}

static enum status check_claims(const struct token_policy *policy, const struct claims *claims,
                                uint64_t now_s, struct token_refusal *refusal) {
    assert(policy->issuer.size > 0);
    if (!slice_equal(policy->issuer, claims->issuer))
        return reject(refusal, STATUS_INVALID_TOKEN, "iss: must equal RUNTIME_SYNC_TOKEN_ISSUER");
    if (!list_has(&claims->audiences, policy->audience))
        return reject(refusal, STATUS_INVALID_TOKEN,
                      "aud: must contain RUNTIME_SYNC_TOKEN_AUDIENCE");
    if (!slice_equal(claims->version, SLICE(CLAIMS_VERSION)))
        return reject(refusal, STATUS_INVALID_TOKEN, "oa_claims_version: must be " CLAIMS_VERSION);
    if (!claims->has_expires_at)
        return reject(refusal, STATUS_INVALID_TOKEN, "exp: is required");
    if (!claims->has_issued_at)
        return reject(refusal, STATUS_MISSING_IAT, "iat: is required");
    if (policy->require_token_id && !claims->token_id.data)
        return reject(refusal, STATUS_MISSING_JTI,
                      "jti: is required by RUNTIME_SYNC_TOKEN_REQUIRE_JTI");
    /* Times and the maximum age are at most 2^53 - 1, so no sum overflows. */
    if (now_s >= claims->expires_at_s)
        return reject(refusal, STATUS_TOKEN_EXPIRED, "exp: must be later than now");
    if (claims->not_before_s > now_s + TOKEN_SKEW_S)
        return reject(refusal, STATUS_TOKEN_NOT_YET_VALID,
                      "nbf: must be at most 30 seconds later than now");
    if (claims->issued_at_s > now_s + TOKEN_SKEW_S)
        return reject(refusal, STATUS_TOKEN_NOT_YET_VALID,
                      "iat: must be at most 30 seconds later than now");
    if (now_s >= claims->issued_at_s + policy->max_age_s)
        return reject(refusal, STATUS_TOKEN_TOO_OLD,
                      "iat: must be less than RUNTIME_SYNC_TOKEN_MAX_AGE_SECONDS ago");
    return STATUS_OK;
}
_Static_assert(TOKEN_SKEW_S == 30, "the rules above name it");

enum status token_verify(const struct token_policy *policy, const struct key_set *keys,
                         struct slice token, uint64_t now_ms, const struct principal **principal,
                         struct token_refusal *refusal) {
    struct token_refusal ignored;
    struct jws jws;
    struct claims claims;
    struct slice json;
    struct buffer memory;
    char payload[CLAIMS_BYTES_MAX];
    refusal = refusal ? refusal : &ignored;
    refusal->rule = NULL;
    refusal->name_size = 0;
    if (token.size > TOKEN_BYTES_MAX || !jws_split(token, &jws))
        return reject(refusal, STATUS_INVALID_TOKEN,
                      "token: must be three base64url parts of at most 8192 bytes in total");
    refusal->rule = check_signature(keys, &jws, now_ms / MS_PER_S);
    if (!refusal->rule && decode(jws.payload, payload, sizeof(payload), &json) != STATUS_OK)
        refusal->rule = "claims: must be base64url";
    if (refusal->rule)
        return STATUS_INVALID_TOKEN;
    buffer_init(&memory, CLAIMS_BYTES_MAX);
    enum status status = claims_read(json, &claims, &memory, &refusal->rule);
    if (status == STATUS_OK) {
        uint64_t oldest_s = claims.issued_at_s + policy->max_age_s;
        uint64_t end_s = claims.expires_at_s < oldest_s ? claims.expires_at_s : oldest_s;
        struct principal made = {
            .identity = claims.identity,
            .session_id = claims.session_id,
            .device_id = claims.device_id,
            .subject = claims.subject,
            .token_id = claims.token_id,
            .topics = {claims.topics.names, claims.topics.count},
            .streams = {claims.streams.names, claims.streams.count},
            .read_all = list_has(&claims.scopes, SLICE(SCOPE_READ_ALL_NAME)),
            .expires_at_ms = end_s * MS_PER_S,
        };
        for (size_t i = 0; i < claims.scopes.count; i++)
            made.scopes |= scope_of(claims.scopes.names[i]);
        status = check_claims(policy, &claims, now_ms / MS_PER_S, refusal);
        if (status == STATUS_OK)
            status = principal_new(&made, principal);
        else if (status != STATUS_INVALID_TOKEN)
            refusal->name_size =
                principal_name(&(struct principal){.identity = claims.identity}, refusal->name);
    }
    buffer_release(&memory);
    return status;
}
_Static_assert(TOKEN_BYTES_MAX == 8192, "the rule above names it");

enum status token_peek(struct slice token, struct buffer *header, struct buffer *claims) {
    char memory[TOKEN_BYTES_MAX];
    const struct json_limits limits = {TOKEN_BYTES_MAX, 8};
    struct json_value value;
    struct slice json;
    struct jws jws;
    if (token.size > TOKEN_BYTES_MAX || !jws_split(token, &jws))
        return STATUS_INVALID_TOKEN;
    for (int i = 0; i < 2; i++) {
        struct slice part = i == 0 ? jws.header : jws.payload;
        if (decode(part, memory, sizeof(memory), &json) != STATUS_OK ||
            json_parse(json, &limits, &value) != STATUS_OK || value.kind != JSON_KIND_OBJECT)
            return STATUS_INVALID_TOKEN;
        enum status status = buffer_append_slice(i == 0 ? header : claims, value.raw);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* ---- minting ---- */

enum status token_subject(const struct owner *identity, struct buffer *out) {
    struct slice id = {"", 0};
    struct slice kind = SLICE("service");
    if (identity->user_id.data) {
        kind = SLICE("user:");
        id = identity->user_id;
    } else if (identity->guest_scope.data) {
        kind = SLICE("guest:");
        id = identity->guest_scope;
    } else if (identity->org_id.data) {
        kind = SLICE("org:");
        id = identity->org_id;
    }
    buffer_append_slice(out, kind);
    return buffer_append_slice(out, id);
}

static bool put_text(json_t *object, const char *name, struct slice text) {
    return !text.data || json_object_set_new(object, name, json_stringn(text.data, text.size)) == 0;
}

static bool put_number(json_t *object, const char *name, uint64_t number) {
    return json_object_set_new(object, name, json_integer((json_int_t)number)) == 0;
}

static bool put_list(json_t *object, const char *name, const struct grant_list *list) {
    json_t *array = json_array();
    bool whole = array != NULL;
    for (size_t i = 0; whole && i < list->count; i++)
        whole = json_array_append_new(array,
                                      json_stringn(list->names[i].data, list->names[i].size)) == 0;
    return json_object_set_new(object, name, array) == 0 && whole;
}

static char *claims_json(const struct token_policy *policy, const struct token_request *request,
                         struct slice subject) {
    json_t *object = json_object();
    bool whole = object && put_text(object, "iss", policy->issuer) &&
                 put_text(object, "aud", policy->audience) && put_text(object, "sub", subject) &&
                 put_number(object, "iat", request->issued_at_s) &&
                 put_number(object, "nbf", request->issued_at_s) &&
                 put_number(object, "exp", request->issued_at_s + request->ttl_s) &&
                 put_text(object, "jti", request->token_id) &&
                 put_text(object, "oa_user_id", request->identity.user_id) &&
                 put_text(object, "oa_org_id", request->identity.org_id) &&
                 put_text(object, "oa_guest_scope", request->identity.guest_scope) &&
                 put_text(object, "oa_session_id", request->session_id) &&
                 put_text(object, "oa_device_id", request->device_id) &&
                 put_list(object, "oa_sync_scopes", &request->scopes) &&
                 put_list(object, "oa_sync_topics", &request->topics) &&
                 put_list(object, "oa_sync_streams", &request->streams) &&
                 put_text(object, "oa_claims_version", SLICE(CLAIMS_VERSION));
    char *text = whole ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

uint64_t token_ttl_s_max(const struct token_policy *policy) {
    return policy->max_age_s < TOKEN_TTL_S_MAX ? policy->max_age_s : TOKEN_TTL_S_MAX;
}

enum status token_mint(const struct token_policy *policy, const struct key_set *keys,
                       const struct token_request *request, struct buffer *out) {
    const struct key *key = key_set_signer(keys, request->issued_at_s);
    struct buffer subject;
    json_t *object = NULL;
    char *claims = NULL, *header = NULL;
    size_t begin = out->size;
    assert(request->scopes.count <= CLAIMS_LIST_MAX && request->topics.count <= CLAIMS_LIST_MAX &&
           request->streams.count <= CLAIMS_LIST_MAX);
    if (request->ttl_s < TOKEN_TTL_S_MIN || request->ttl_s > token_ttl_s_max(policy))
        return STATUS_INVALID_TTL;
    if (!key)
        return STATUS_SIGNING_KEY_MISSING;
    buffer_init(&subject, 2 * CLAIMS_TEXT_BYTES_MAX);
    enum status status = token_subject(&request->identity, &subject);
    if (status != STATUS_OK)
        goto out;
    status = STATUS_OUT_OF_MEMORY;
    claims = claims_json(policy, request, buffer_slice(&subject));
    object = json_pack("{s:s, s:s, s:s}", "alg", key_algorithm_name(key->algorithm), "kid", key->id,
                       "typ", "JWT");
    header = object ? json_dumps(object, JSON_COMPACT) : NULL;
    if (!claims || !header)
        goto out;
    status = key_sign(key, slice_of(header), slice_of(claims), out);
    if (status == STATUS_OK && out->size - begin > TOKEN_BYTES_MAX) {
        buffer_truncate(out, begin);
        status = STATUS_PAYLOAD_TOO_LARGE;
    }
out:
    free(header);
    json_decref(object);
    free(claims);
    buffer_release(&subject);
    return status;
}
