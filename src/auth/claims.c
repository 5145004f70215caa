#include "auth/claims.h"

#include <assert.h>

#include "base/utf8.h"

enum claim {
    CLAIM_ISS,
    CLAIM_AUD,
    CLAIM_SUB,
    CLAIM_IAT,
    CLAIM_NBF,
    CLAIM_EXP,
    CLAIM_JTI,
    CLAIM_USER_ID,
    CLAIM_ORG_ID,
    CLAIM_GUEST_SCOPE,
    CLAIM_SESSION_ID,
    CLAIM_DEVICE_ID,
    CLAIM_SCOPES,
    CLAIM_TOPICS,
    CLAIM_STREAMS,
    CLAIM_VERSION,
    CLAIM_COUNT,
};

bool claims_given(const struct json_field *field) {
    return field->present && field->value.kind != JSON_KIND_NULL;
}

/* Escaped or not. The buffer has room for the whole payload, so decoded texts never move. */
static bool string_text(struct json_value value, struct buffer *memory, struct slice *text) {
    if (value.kind != JSON_KIND_STRING)
        return false;
    if (!json_string_slice(value, text)) {
        size_t begin = memory->size;
        if (buffer_reserve(memory, CLAIMS_BYTES_MAX - begin) != STATUS_OK ||
            json_string_decode(value, memory) != STATUS_OK)
            return false;
        *text = slice_from(buffer_slice(memory), begin);
    }
    return text->size > 0 && text->size <= CLAIMS_TEXT_BYTES_MAX && !utf8_has_control(*text);
}

bool claims_text(const struct json_field *field, struct buffer *memory, struct slice *text) {
    return !claims_given(field) || string_text(field->value, memory, text);
}

/* Some issuers use numbers as ids. */
bool claims_id(const struct json_field *field, struct buffer *memory, struct slice *text) {
    uint64_t number;
    if (claims_given(field) && json_u64(field->value, JSON_INTEGER_MAX, &number)) {
        *text = field->value.raw;
        return true;
    }
    return claims_text(field, memory, text);
}

static bool read_time(const struct json_field *field, uint64_t *time_s, bool *has_time) {
    *has_time = claims_given(field);
    return !*has_time || json_u64(field->value, JSON_INTEGER_MAX, time_s);
}

bool claims_names(const struct json_field *field, struct buffer *memory, struct claims_list *list) {
    struct json_value element;
    list->count = 0;
    if (!claims_given(field))
        return true;
    if (field->value.kind != JSON_KIND_ARRAY)
        return false;
    struct json_iterator iterator = json_iterate(field->value);
    while (json_next_element(&iterator, &element)) {
        if (list->count == CLAIMS_LIST_MAX ||
            !string_text(element, memory, &list->names[list->count]))
            return false;
        list->count++;
    }
    return true;
}

#define RULE_TEXT " must be text of 1 to 640 bytes without control characters"
#define RULE_TIME " must be a whole number of seconds"
#define RULE_LIST " must be a list of at most 256 texts"
_Static_assert(CLAIMS_TEXT_BYTES_MAX == 640 && CLAIMS_LIST_MAX == 256, "the rules name them");

/* NULL, or the rule that failed. */
static const char *read_fields(const struct json_field *fields, struct claims *claims,
                               struct buffer *memory) {
    const struct json_field *audience = &fields[CLAIM_AUD];
    bool has_not_before;
    if (!claims_text(&fields[CLAIM_ISS], memory, &claims->issuer))
        return "iss:" RULE_TEXT;
    if (!claims_text(&fields[CLAIM_SUB], memory, &claims->subject))
        return "sub:" RULE_TEXT;
    if (!claims_text(&fields[CLAIM_JTI], memory, &claims->token_id))
        return "jti:" RULE_TEXT;
    if (!claims_text(&fields[CLAIM_VERSION], memory, &claims->version))
        return "oa_claims_version:" RULE_TEXT;
    /* One audience is text, several are a list (RFC 7519 section 4.1.3). */
    bool is_single = audience->present && audience->value.kind == JSON_KIND_STRING;
    claims->audiences.count = 1;
    if (is_single ? !string_text(audience->value, memory, &claims->audiences.names[0])
                  : !claims_names(audience, memory, &claims->audiences))
        return "aud: must be text, or a list of at most 256 texts";
    if (!read_time(&fields[CLAIM_IAT], &claims->issued_at_s, &claims->has_issued_at))
        return "iat:" RULE_TIME;
    if (!read_time(&fields[CLAIM_NBF], &claims->not_before_s, &has_not_before))
        return "nbf:" RULE_TIME;
    if (!read_time(&fields[CLAIM_EXP], &claims->expires_at_s, &claims->has_expires_at))
        return "exp:" RULE_TIME;
    if (!claims_id(&fields[CLAIM_USER_ID], memory, &claims->identity.user_id))
        return "oa_user_id:" RULE_TEXT;
    if (!claims_id(&fields[CLAIM_ORG_ID], memory, &claims->identity.org_id))
        return "oa_org_id:" RULE_TEXT;
    if (!claims_text(&fields[CLAIM_GUEST_SCOPE], memory, &claims->identity.guest_scope))
        return "oa_guest_scope:" RULE_TEXT;
    if (!claims_text(&fields[CLAIM_SESSION_ID], memory, &claims->session_id))
        return "oa_session_id:" RULE_TEXT;
    if (!claims_text(&fields[CLAIM_DEVICE_ID], memory, &claims->device_id))
        return "oa_device_id:" RULE_TEXT;
    if (claims->identity.user_id.data && claims->identity.guest_scope.data)
        return "oa_user_id: and oa_guest_scope exclude each other";
    if (!claims_names(&fields[CLAIM_SCOPES], memory, &claims->scopes))
        return "oa_sync_scopes:" RULE_LIST;
    if (!claims_names(&fields[CLAIM_TOPICS], memory, &claims->topics))
        return "oa_sync_topics:" RULE_LIST;
    if (!claims_names(&fields[CLAIM_STREAMS], memory, &claims->streams))
        return "oa_sync_streams:" RULE_LIST;
    return NULL;
}

enum status claims_read(struct slice json, struct claims *claims, struct buffer *memory,
                        const char **rule) {
    const struct json_limits limits = {CLAIMS_BYTES_MAX, 8};
    struct json_field fields[CLAIM_COUNT] = {
        [CLAIM_ISS] = {.name = SLICE("iss")},
        [CLAIM_AUD] = {.name = SLICE("aud")},
        [CLAIM_SUB] = {.name = SLICE("sub")},
        [CLAIM_IAT] = {.name = SLICE("iat")},
        [CLAIM_NBF] = {.name = SLICE("nbf")},
        [CLAIM_EXP] = {.name = SLICE("exp")},
        [CLAIM_JTI] = {.name = SLICE("jti")},
        [CLAIM_USER_ID] = {.name = SLICE("oa_user_id")},
        [CLAIM_ORG_ID] = {.name = SLICE("oa_org_id")},
        [CLAIM_GUEST_SCOPE] = {.name = SLICE("oa_guest_scope")},
        [CLAIM_SESSION_ID] = {.name = SLICE("oa_session_id")},
        [CLAIM_DEVICE_ID] = {.name = SLICE("oa_device_id")},
        [CLAIM_SCOPES] = {.name = SLICE("oa_sync_scopes")},
        [CLAIM_TOPICS] = {.name = SLICE("oa_sync_topics")},
        [CLAIM_STREAMS] = {.name = SLICE("oa_sync_streams")},
        [CLAIM_VERSION] = {.name = SLICE("oa_claims_version")},
    };
    assert(memory->size == 0 && memory->size_max >= CLAIMS_BYTES_MAX);
    claims->issuer = claims->subject = claims->token_id = claims->version = (struct slice){0};
    claims->session_id = claims->device_id = (struct slice){0};
    claims->identity = (struct owner){.user_id = {NULL, 0}};
    claims->issued_at_s = claims->not_before_s = claims->expires_at_s = 0;
    if (json_read_object(json, &limits, fields, CLAIM_COUNT) == STATUS_OK)
        *rule = read_fields(fields, claims, memory);
    else
        *rule = "claims: must be a JSON object";
    return *rule ? STATUS_INVALID_TOKEN : STATUS_OK;
}
