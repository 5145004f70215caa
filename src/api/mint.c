#include "api/mint.h"

#include <stdio.h>

#include "auth/grant.h"
#include "topic/stream_id.h"
#include "wire/object_writer.h"

#define ID_BYTES_MAX 512
_Static_assert(TOKEN_BYTES_MAX == 8192, "the message below names the limit");
#define MS_PER_S 1000

enum field {
    FIELD_USER_ID,
    FIELD_GUEST_SCOPE,
    FIELD_ORG_ID,
    FIELD_SCOPES,
    FIELD_TOPICS,
    FIELD_STREAMS,
    FIELD_TTL_SECONDS,
    FIELD_DEVICE_ID,
    FIELD_SESSION_ID,
    FIELD_COUNT,
};

struct minting {
    struct json_field fields[FIELD_COUNT];
    struct buffer memory; /* decoded texts */
    struct claims_list scopes;
    struct claims_list topics;
    struct claims_list streams;
    struct token_request request;
    char token_id[UUID_TEXT_SIZE];
    char session_id[UUID_TEXT_SIZE];
};

/* ---- the request ---- */

static bool read_texts(struct minting *minting) {
    const struct json_field *fields = minting->fields;
    struct token_request *request = &minting->request;
    struct buffer *memory = &minting->memory;
    return claims_id(&fields[FIELD_USER_ID], memory, &request->identity.user_id) &&
           claims_text(&fields[FIELD_GUEST_SCOPE], memory, &request->identity.guest_scope) &&
           claims_id(&fields[FIELD_ORG_ID], memory, &request->identity.org_id) &&
           claims_text(&fields[FIELD_DEVICE_ID], memory, &request->device_id) &&
           claims_text(&fields[FIELD_SESSION_ID], memory, &request->session_id) &&
           request->identity.user_id.size <= ID_BYTES_MAX &&
           request->identity.guest_scope.size <= ID_BYTES_MAX &&
           request->identity.org_id.size <= ID_BYTES_MAX;
}

static bool read_lists(struct minting *minting) {
    const struct json_field *fields = minting->fields;
    struct token_request *request = &minting->request;
    struct buffer *memory = &minting->memory;
    if (!claims_names(&fields[FIELD_SCOPES], memory, &minting->scopes) ||
        !claims_names(&fields[FIELD_TOPICS], memory, &minting->topics) ||
        !claims_names(&fields[FIELD_STREAMS], memory, &minting->streams))
        return false;
    for (size_t i = 0; i < minting->topics.count; i++)
        if (address_check(minting->topics.names[i]) != STATUS_OK)
            return false;
    request->scopes = (struct grant_list){minting->scopes.names, minting->scopes.count};
    request->topics = (struct grant_list){minting->topics.names, minting->topics.count};
    request->streams = (struct grant_list){minting->streams.names, minting->streams.count};
    return true;
}

static enum status refuse(struct mint_reason *reason, const char *text) {
    snprintf(reason->text, sizeof(reason->text), "%s", text);
    return STATUS_INVALID_REQUEST;
}

/* An unknown scope is most often a misspelt one, and opens nothing. */
static enum status check_scopes(const struct grant_list *scopes, struct mint_reason *reason) {
    for (size_t i = 0; i < scopes->count; i++) {
        struct slice name = scopes->names[i];
        if (scope_of(name) != 0 || slice_equal(name, SLICE(SCOPE_READ_ALL_NAME)))
            continue;
        int size = snprintf(reason->text, sizeof(reason->text),
                            "The scope '%.*s' is not known. The scopes are " SCOPE_READ_ALL_NAME,
                            (int)name.size, name.data);
        for (unsigned bit = 0; bit < SCOPE_COUNT; bit++)
            size += snprintf(reason->text + size, sizeof(reason->text) - (size_t)size, ", %s",
                             scope_name((enum scope)(1u << bit)));
        snprintf(reason->text + size, sizeof(reason->text) - (size_t)size, ".");
        return STATUS_INVALID_SCOPE;
    }
    return STATUS_OK;
}

/* The scopes were checked, so each is known. */
static enum status check_mint_role(const struct grant_list *scopes, struct mint_reason *reason) {
    for (size_t i = 0; i < scopes->count; i++) {
        if (scope_of(scopes->names[i]) & SCOPES_MINTABLE)
            continue;
        snprintf(reason->text, sizeof(reason->text),
                 "A key of the role mint may not mint the scope %.*s.", (int)scopes->names[i].size,
                 scopes->names[i].data);
        return STATUS_FORBIDDEN_SCOPE;
    }
    return STATUS_OK;
}

static enum status read_request(struct minting *minting, struct slice text,
                                struct mint_reason *reason) {
    const struct json_limits limits = {MINT_BYTES_MAX, 8};
    struct token_request *request = &minting->request;
    const struct json_field *ttl = &minting->fields[FIELD_TTL_SECONDS];
    enum status status = json_read_object(text, &limits, minting->fields, FIELD_COUNT);
    if (status != STATUS_OK)
        return status;
    if (!read_texts(minting))
        return refuse(
            reason,
            "user_id, guest_scope, org_id, device_id and session_id are text of 1 to 512 bytes.");
    if (request->identity.user_id.data && request->identity.guest_scope.data)
        return refuse(reason, "user_id and guest_scope exclude each other.");
    if (!read_lists(minting))
        return refuse(reason, "scopes, topics and streams are lists of at most 256 names.");
    if (claims_given(ttl) && ttl->value.kind != JSON_KIND_NUMBER)
        return refuse(reason, "ttl_seconds is a whole number.");
    if (claims_given(ttl) && !json_u64(ttl->value, JSON_INTEGER_MAX, &request->ttl_s))
        return STATUS_INVALID_TTL;
    return check_scopes(&request->scopes, reason);
}

static void set_ids(struct minting *minting, const struct mint_moment *moment) {
    struct token_request *request = &minting->request;
    request->issued_at_s = moment->now_ms / MS_PER_S;
    uuid_format(&moment->token_id, minting->token_id);
    uuid_format(&moment->session_id, minting->session_id);
    request->token_id = (struct slice){minting->token_id, UUID_TEXT_SIZE};
    /* Every token has a session id, so that it can be revoked by session. */
    if (!request->session_id.data)
        request->session_id = (struct slice){minting->session_id, UUID_TEXT_SIZE};
}

/* ---- the answer ---- */

static void put_list(struct object_writer *object, struct slice name,
                     const struct grant_list *list) {
    object_json(object, name, SLICE("["));
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0)
            buffer_append_byte(object->out, ',');
        json_write_string(object->out, list->names[i]);
    }
    buffer_append_byte(object->out, ']');
}

/* Why the token opens nothing, or NULL for a token that opens something. */
static const char *warning_of(const struct token_request *request) {
    struct principal principal = {
        .identity = request->identity, .topics = request->topics, .streams = request->streams};
    for (size_t i = 0; i < request->scopes.count; i++) {
        principal.scopes |= scope_of(request->scopes.names[i]);
        principal.read_all |= slice_equal(request->scopes.names[i], SLICE(SCOPE_READ_ALL_NAME));
    }
    if (grant_opens_any(&principal))
        return NULL;
    if (request->scopes.count + request->topics.count + request->streams.count == 0)
        return "This token opens nothing: it has no scope and grants no topic.";
    if (request->topics.count + request->streams.count == 0)
        return "This token opens nothing: it names no user, guest or organisation.";
    return "This token opens nothing: its scopes and its principal open none of the granted "
           "topics.";
}

/* Early enough that the server need not ask the client for a new token. */
static uint64_t refresh_after_s(uint64_t ttl_s) {
    uint64_t early_s = 2 * TOKEN_SKEW_S;
    return ttl_s > 2 * early_s ? ttl_s - early_s : ttl_s / 2;
}

static enum status write_answer(const struct minting *minting, const struct gate *gate,
                                const struct key *key, const struct slice texts[2],
                                struct buffer *out) {
    const struct token_request *request = &minting->request;
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("token"), texts[0]);
    object_text(&object, SLICE("token_type"), SLICE("Bearer"));
    object_number(&object, SLICE("expires_in"), request->ttl_s);
    object_number(&object, SLICE("issued_at"), request->issued_at_s * MS_PER_S);
    object_number(&object, SLICE("expires_at"), (request->issued_at_s + request->ttl_s) * MS_PER_S);
    object_number(&object, SLICE("refresh_after_in"), refresh_after_s(request->ttl_s));
    object_text(&object, SLICE("issuer"), gate->policy.issuer);
    object_text(&object, SLICE("audience"), gate->policy.audience);
    object_text(&object, SLICE("subject"), texts[1]);
    object_text(&object, SLICE("claims_version"), SLICE(CLAIMS_VERSION));
    put_list(&object, SLICE("scopes"), &request->scopes);
    put_list(&object, SLICE("granted_topics"), &request->topics);
    put_list(&object, SLICE("granted_streams"), &request->streams);
    object_text(&object, SLICE("kid"), slice_of(key->id));
    object_text(&object, SLICE("token_id"), request->token_id);
    object_text(&object, SLICE("session_id"), request->session_id);
    object_text(&object, SLICE("device_id"), request->device_id);
    const char *warning = warning_of(request);
    if (warning)
        put_list(&object, SLICE("warnings"),
                 &(struct grant_list){(struct slice[]){slice_of(warning)}, 1});
    enum status status = object_end(&object);
    return status == STATUS_OK ? buffer_append_byte(out, '\n') : status;
}

/* Sorted by name: the payload of the event is canonical. */
static void write_record(const struct token_request *request, struct slice subject,
                         struct object_writer *record) {
    object_text_given(record, SLICE("device_id"), request->device_id);
    object_number(record, SLICE("expires_at"), (request->issued_at_s + request->ttl_s) * MS_PER_S);
    object_text(record, SLICE("jti"), request->token_id);
    put_list(record, SLICE("scopes"), &request->scopes);
    object_text(record, SLICE("session_id"), request->session_id);
    put_list(record, SLICE("streams"), &request->streams);
    object_text(record, SLICE("subject"), subject);
    put_list(record, SLICE("topics"), &request->topics);
}

static enum status sign_and_answer(const struct minting *minting, const struct gate *gate,
                                   const struct key_set *keys, struct buffer *out,
                                   struct object_writer *record) {
    struct buffer token;
    struct buffer subject;
    buffer_init(&token, 8 * MINT_BYTES_MAX);
    buffer_init(&subject, 2 * ID_BYTES_MAX);
    enum status status = token_mint(&gate->policy, keys, &minting->request, &token);
    if (status == STATUS_OK)
        status = token_subject(&minting->request.identity, &subject);
    if (status == STATUS_OK)
        status = write_answer(minting, gate, key_set_signer(keys, minting->request.issued_at_s),
                              (struct slice[]){buffer_slice(&token), buffer_slice(&subject)}, out);
    if (status == STATUS_OK && record)
        write_record(&minting->request, buffer_slice(&subject), record);
    buffer_release(&token);
    buffer_release(&subject);
    return status;
}

enum status mint(const struct gate *gate, struct slice request, const struct mint_moment *moment,
                 struct buffer *out, struct mint_reason *reason, struct object_writer *record) {
    struct minting minting = {
        .fields = {[FIELD_USER_ID] = {.name = SLICE("user_id")},
                   [FIELD_GUEST_SCOPE] = {.name = SLICE("guest_scope")},
                   [FIELD_ORG_ID] = {.name = SLICE("org_id")},
                   [FIELD_SCOPES] = {.name = SLICE("scopes")},
                   [FIELD_TOPICS] = {.name = SLICE("topics")},
                   [FIELD_STREAMS] = {.name = SLICE("streams")},
                   [FIELD_TTL_SECONDS] = {.name = SLICE("ttl_seconds")},
                   [FIELD_DEVICE_ID] = {.name = SLICE("device_id")},
                   [FIELD_SESSION_ID] = {.name = SLICE("session_id")}},
    };
    uint64_t ttl_s_max = token_ttl_s_max(&gate->policy);
    minting.request.ttl_s = TOKEN_TTL_S < ttl_s_max ? TOKEN_TTL_S : ttl_s_max;
    reason->text[0] = '\0';
    buffer_init(&minting.memory, CLAIMS_BYTES_MAX);
    enum status status = read_request(&minting, request, reason);
    if (status == STATUS_OK && moment->has_mint_role)
        status = check_mint_role(&minting.request.scopes, reason);
    if (status == STATUS_OK) {
        struct key_set *keys = keys_current(gate->keys);
        set_ids(&minting, moment);
        status = sign_and_answer(&minting, gate, keys, out, record);
        if (status == STATUS_PAYLOAD_TOO_LARGE)
            snprintf(reason->text, sizeof(reason->text),
                     "The token would be longer than 8192 bytes: grant fewer or shorter names.");
        key_set_unref(keys);
    }
    buffer_release(&minting.memory);
    return status;
}
