/* POST /api/sync/token, under its three names: mints a token for a user that the calling backend
 * has authenticated. mint is also the work of the verb "token mint". */
#include "api/mint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/handlers.h"
#include "api/record.h"
#include "auth/grant.h"
#include "http/exchange.h"
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

static enum status refuse_shape(struct mint_reason *reason, const char *text) {
    snprintf(reason->text, sizeof(reason->text), "%s", text);
    return STATUS_INVALID_REQUEST;
}

static enum status read_request(struct minting *minting, struct slice text,
                                struct mint_reason *reason) {
    const struct json_limits limits = {MINT_BYTES_MAX, 8};
    const struct json_field *fields = minting->fields;
    const struct json_field *ttl = &fields[FIELD_TTL_SECONDS];
    struct token_request *request = &minting->request;
    struct owner *identity = &request->identity;
    struct buffer *memory = &minting->memory;
    enum status status = json_read_object(text, &limits, minting->fields, FIELD_COUNT);
    if (status != STATUS_OK)
        return status;
    if (!claims_id(&fields[FIELD_USER_ID], memory, &identity->user_id) ||
        !claims_text(&fields[FIELD_GUEST_SCOPE], memory, &identity->guest_scope) ||
        !claims_id(&fields[FIELD_ORG_ID], memory, &identity->org_id) ||
        !claims_text(&fields[FIELD_DEVICE_ID], memory, &request->device_id) ||
        !claims_text(&fields[FIELD_SESSION_ID], memory, &request->session_id) ||
        identity->user_id.size > ID_BYTES_MAX || identity->guest_scope.size > ID_BYTES_MAX ||
        identity->org_id.size > ID_BYTES_MAX)
        return refuse_shape(
            reason,
            "user_id, guest_scope, org_id, device_id and session_id are text of 1 to 512 bytes.");
    if (identity->user_id.data && identity->guest_scope.data)
        return refuse_shape(reason, "user_id and guest_scope exclude each other.");
    bool has_lists = claims_names(&fields[FIELD_SCOPES], memory, &minting->scopes) &&
                     claims_names(&fields[FIELD_TOPICS], memory, &minting->topics) &&
                     claims_names(&fields[FIELD_STREAMS], memory, &minting->streams);
    for (size_t i = 0; has_lists && i < minting->topics.count; i++)
        has_lists = address_check(minting->topics.names[i]) == STATUS_OK;
    if (!has_lists)
        return refuse_shape(reason, "scopes, topics and streams are lists of at most 256 names.");
    request->scopes = (struct grant_list){minting->scopes.names, minting->scopes.count};
    request->topics = (struct grant_list){minting->topics.names, minting->topics.count};
    request->streams = (struct grant_list){minting->streams.names, minting->streams.count};
    if (claims_given(ttl) && ttl->value.kind != JSON_KIND_NUMBER)
        return refuse_shape(reason, "ttl_seconds is a whole number.");
    if (claims_given(ttl) && !json_u64(ttl->value, JSON_INTEGER_MAX, &request->ttl_s))
        return STATUS_INVALID_TTL;
    return STATUS_OK;
}

/* An unknown scope is most often a misspelt one, and opens nothing. A key of the role mint may not
 * mint every known scope. */
static enum status check_scopes(const struct grant_list *scopes, bool has_mint_role,
                                struct mint_reason *reason) {
    char *text = reason->text;
    size_t size_max = sizeof(reason->text);
    for (size_t i = 0; i < scopes->count; i++) {
        struct slice name = scopes->names[i];
        if (scope_of(name) != 0 || slice_equal(name, SLICE(SCOPE_READ_ALL_NAME)))
            continue;
        int size = snprintf(text, size_max,
                            "The scope '%.*s' is not known. The scopes are " SCOPE_READ_ALL_NAME,
                            (int)name.size, name.data);
        for (unsigned bit = 0; bit < SCOPE_COUNT; bit++)
            size += snprintf(text + size, size_max - (size_t)size, ", %s",
                             scope_name((enum scope)(1u << bit)));
        snprintf(text + size, size_max - (size_t)size, ".");
        return STATUS_INVALID_SCOPE;
    }
    for (size_t i = 0; has_mint_role && i < scopes->count; i++) {
        if (scope_of(scopes->names[i]) & SCOPES_MINTABLE)
            continue;
        snprintf(text, size_max, "A key of the role mint may not mint the scope %.*s.",
                 (int)scopes->names[i].size, scopes->names[i].data);
        return STATUS_FORBIDDEN_SCOPE;
    }
    return STATUS_OK;
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

static enum status write_answer(const struct minting *minting, const struct gate *gate,
                                const struct key *key, const struct slice texts[2],
                                struct buffer *out) {
    const struct token_request *request = &minting->request;
    const uint64_t early_s = 2 * TOKEN_SKEW_S;
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("token"), texts[0]);
    object_text(&object, SLICE("token_type"), SLICE("Bearer"));
    object_number(&object, SLICE("expires_in"), request->ttl_s);
    object_number(&object, SLICE("issued_at"), request->issued_at_s * MS_PER_S);
    object_number(&object, SLICE("expires_at"), (request->issued_at_s + request->ttl_s) * MS_PER_S);
    /* Early enough that the server need not ask the client for a new token. */
    object_number(&object, SLICE("refresh_after_in"),
                  request->ttl_s > 2 * early_s ? request->ttl_s - early_s : request->ttl_s / 2);
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
    object_close(&object);
    buffer_append_byte(out, '\n');
    return buffer_end(out, object.begin);
}

/* Signs the token and writes the answer. The members of the record are sorted by name: the payload
 * of the event is canonical. */
static enum status mint_signed(const struct minting *minting, const struct gate *gate,
                               struct buffer *out, struct object_writer *record) {
    const struct token_request *request = &minting->request;
    struct key_set *keys = keys_current(gate->keys);
    struct buffer token;
    struct buffer subject;
    buffer_init(&token, 8 * MINT_BYTES_MAX);
    buffer_init(&subject, 2 * ID_BYTES_MAX);
    enum status status = token_mint(&gate->policy, keys, request, &token);
    if (status == STATUS_OK)
        status = token_subject(&request->identity, &subject);
    if (status == STATUS_OK)
        status = write_answer(minting, gate, key_set_signer(keys, request->issued_at_s),
                              (struct slice[]){buffer_slice(&token), buffer_slice(&subject)}, out);
    if (status == STATUS_OK && record) {
        object_text_given(record, SLICE("device_id"), request->device_id);
        object_number(record, SLICE("expires_at"),
                      (request->issued_at_s + request->ttl_s) * MS_PER_S);
        object_text(record, SLICE("jti"), request->token_id);
        put_list(record, SLICE("scopes"), &request->scopes);
        object_text(record, SLICE("session_id"), request->session_id);
        put_list(record, SLICE("streams"), &request->streams);
        object_text(record, SLICE("subject"), buffer_slice(&subject));
        put_list(record, SLICE("topics"), &request->topics);
    }
    buffer_release(&token);
    buffer_release(&subject);
    key_set_unref(keys);
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
    if (status == STATUS_OK)
        status = check_scopes(&minting.request.scopes, moment->has_mint_role, reason);
    if (status == STATUS_OK) {
        struct token_request *token = &minting.request;
        token->issued_at_s = moment->now_ms / MS_PER_S;
        uuid_format(&moment->token_id, minting.token_id);
        uuid_format(&moment->session_id, minting.session_id);
        token->token_id = (struct slice){minting.token_id, UUID_TEXT_SIZE};
        /* Every token has a session id, so that it can be revoked by session. */
        if (!token->session_id.data)
            token->session_id = (struct slice){minting.session_id, UUID_TEXT_SIZE};
        status = mint_signed(&minting, gate, out, record);
        if (status == STATUS_PAYLOAD_TOO_LARGE)
            snprintf(reason->text, sizeof(reason->text),
                     "The token would be longer than 8192 bytes: grant fewer or shorter names.");
    }
    buffer_release(&minting.memory);
    return status;
}

/* ---- the endpoint -------------------------------------------------------------------------- */

/* An answer that waits until the token is recorded. */
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
    struct exchange_error error = {.status = STATUS_OK};
    struct mint_reason reason;
    char bounds[96];
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
        return;
    }
    record_free(record);
    error.status = status;
    error.message = *reason.text ? reason.text : NULL;
    if (status == STATUS_INVALID_TTL) {
        snprintf(bounds, sizeof(bounds), "{\"ttl_seconds_min\":%d,\"ttl_seconds_max\":%" PRIu64 "}",
                 TOKEN_TTL_S_MIN, token_ttl_s_max(&exchange->http->gate.policy));
        error.details = slice_of(bounds);
    }
    exchange_answer_error(exchange, &error);
}
