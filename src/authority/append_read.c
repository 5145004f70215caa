/* One pass over the object finds the fields of all kinds. The target of an item decides its kind;
 * the endpoint decides the kind of a body. The fields of that kind are then read one by one:
 * decoded, checked, and copied into the group's arena; objects become canonical text. Other fields
 * are ignored, so that newer clients still work. The first field that breaks a rule refuses the
 * request, with a message that names it. */
#include "authority/append_read.h"

#include <assert.h>
#include <stdio.h>

#include "authority/entity_state.h"
#include "authority/run_report.h"
#include "base/hex.h"
#include "base/utf8.h"
#include "topic/topic_name.h"

#define MESSAGE_BYTES_MAX      192
#define REFERENCE_BYTES_MAX    1024
#define REASON_BYTES_MAX       1024
#define NOTIFICATION_TYPE      "notification"
#define METADATA_PATCH_OPENING "{\"metadata_patch\":"
#define HASH_MEMBER            "event_hash"

enum field {
    FIELD_RUN_ID,
    FIELD_WORKER_ID,
    FIELD_TOPIC,
    FIELD_AUDIT,
    FIELD_EVENT_TYPE,
    FIELD_PAYLOAD,
    FIELD_EVENT_ID,
    FIELD_IDEMPOTENCY_KEY,
    FIELD_EXPECTED_PREVIOUS_SEQ,
    FIELD_OWNER_USER_ID,
    FIELD_OWNER_GUEST_SCOPE,
    FIELD_ORG_ID,
    FIELD_THREAD_ID,
    FIELD_PARENT_RUN_ID,
    FIELD_TITLE,
    FIELD_TAGS,
    FIELD_WORKSPACE_REF,
    FIELD_CODEX_HOME_REF,
    FIELD_ADAPTER,
    FIELD_METADATA,
    FIELD_METADATA_PATCH,
    FIELD_STATUS,
    FIELD_REASON,
    FIELD_COUNT,
};

static const struct slice field_names[FIELD_COUNT] = {
    [FIELD_RUN_ID] = SLICE("run_id"),
    [FIELD_WORKER_ID] = SLICE("worker_id"),
    [FIELD_TOPIC] = SLICE("topic"),
    [FIELD_AUDIT] = SLICE("audit"),
    [FIELD_EVENT_TYPE] = SLICE("event_type"),
    [FIELD_PAYLOAD] = SLICE("payload"),
    [FIELD_EVENT_ID] = SLICE("event_id"),
    [FIELD_IDEMPOTENCY_KEY] = SLICE("idempotency_key"),
    [FIELD_EXPECTED_PREVIOUS_SEQ] = SLICE("expected_previous_seq"),
    [FIELD_OWNER_USER_ID] = SLICE("owner_user_id"),
    [FIELD_OWNER_GUEST_SCOPE] = SLICE("owner_guest_scope"),
    [FIELD_ORG_ID] = SLICE("org_id"),
    [FIELD_THREAD_ID] = SLICE("thread_id"),
    [FIELD_PARENT_RUN_ID] = SLICE("parent_run_id"),
    [FIELD_TITLE] = SLICE("title"),
    [FIELD_TAGS] = SLICE("tags"),
    [FIELD_WORKSPACE_REF] = SLICE("workspace_ref"),
    [FIELD_CODEX_HOME_REF] = SLICE("codex_home_ref"),
    [FIELD_ADAPTER] = SLICE("adapter"),
    [FIELD_METADATA] = SLICE("metadata"),
    [FIELD_METADATA_PATCH] = SLICE("metadata_patch"),
    [FIELD_STATUS] = SLICE("status"),
    [FIELD_REASON] = SLICE("reason"),
};

struct reading {
    struct append_parser *parser;
    struct arena *arena;
    struct append_request *request;
    struct json_field fields[FIELD_COUNT];
};

void append_parser_init(struct append_parser *parser, size_t body_bytes_max) {
    canonical_scratch_init(&parser->scratch, body_bytes_max);
    buffer_init(&parser->text, parser->scratch.text.size_max);
    parser->producer = NULL;
    parser->takes_reserved = parser->takes_any_shape = false;
}

void append_parser_release(struct append_parser *parser) {
    canonical_scratch_release(&parser->scratch);
    buffer_release(&parser->text);
}

void append_refuse(struct append_request *request, enum status status, const char *message) {
    assert(status != STATUS_OK);
    request->status = status;
    request->refusal.message = message;
}

bool append_id_valid(struct slice id) {
    return id.size > 0 && id.size <= APPEND_ID_BYTES_MAX && utf8_valid(id) &&
           !utf8_has_control(id) && !utf8_has_outer_space(id);
}

bool append_type_is_reserved(struct slice type) {
    return slice_starts(type, SLICE("operator.")) || slice_ends(type, SLICE(".erased"));
}

/* ---- refusing ---- */

static enum status refuse_member(struct reading *reading, enum status status, const char *place,
                                 const struct run_fault *fault) {
    char *message = arena_alloc(reading->arena, MESSAGE_BYTES_MAX);
    if (!message)
        return STATUS_OUT_OF_MEMORY;
    (void)snprintf(message, MESSAGE_BYTES_MAX, "%s%s %s.", place, fault->member, fault->problem);
    reading->request->refusal.message = message;
    return status;
}

static enum status refuse_field(struct reading *reading, enum field field, const char *problem) {
    const struct run_fault fault = {field_names[field].data, problem};
    return refuse_member(reading, STATUS_INVALID_REQUEST, "", &fault);
}

static enum status refuse_text(struct reading *reading, enum field field, size_t bytes_max) {
    char problem[MESSAGE_BYTES_MAX / 2];
    (void)snprintf(problem, sizeof(problem),
                   "must be 1 to %zu bytes without control characters or outer white space",
                   bytes_max);
    return refuse_field(reading, field, problem);
}

/* ---- single fields ---- */

/* A null counts as absent. */
static bool is_given(const struct reading *reading, enum field field) {
    return reading->fields[field].present && reading->fields[field].value.kind != JSON_KIND_NULL;
}

static enum status keep(struct reading *reading, struct slice text, struct slice *kept) {
    *kept = arena_copy(reading->arena, text);
    return kept->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

/* Decodes a string into the parser's text. A string without escapes stays where it is. */
static enum status decode(struct reading *reading, enum field field, struct slice *text) {
    struct json_value value = reading->fields[field].value;
    if (json_string_slice(value, text))
        return STATUS_OK;
    if (value.kind != JSON_KIND_STRING)
        return refuse_field(reading, field, "must be a string");
    buffer_clear(&reading->parser->text);
    enum status status = json_string_decode(value, &reading->parser->text);
    *text = buffer_slice(&reading->parser->text);
    return status;
}

/* A name or an id. An absent field leaves data NULL. */
static enum status read_text(struct reading *reading, enum field field, size_t bytes_max,
                             struct slice *text) {
    if (!is_given(reading, field))
        return STATUS_OK;
    struct slice decoded;
    enum status status = decode(reading, field, &decoded);
    if (status != STATUS_OK)
        return status;
    if (decoded.size == 0 || decoded.size > bytes_max || utf8_has_control(decoded) ||
        utf8_has_outer_space(decoded))
        return refuse_text(reading, field, bytes_max);
    return keep(reading, decoded, text);
}

/* A value in canonical form, an object or an array. digest may be NULL. */
static enum status read_canonical(struct reading *reading, enum field field, enum json_kind kind,
                                  struct slice *text, uint8_t *digest) {
    if (!is_given(reading, field))
        return STATUS_OK;
    struct json_value value = reading->fields[field].value;
    if (value.kind != kind)
        return refuse_field(reading, field,
                            kind == JSON_KIND_OBJECT ? "must be an object" : "must be an array");
    struct buffer *canonical = &reading->parser->scratch.text;
    buffer_clear(canonical);
    enum status status = canonical_write(value, &reading->parser->scratch, canonical);
    if (status != STATUS_OK)
        return status;
    if (digest)
        sha256(canonical->data, canonical->size, digest);
    return keep(reading, buffer_slice(canonical), text);
}

static enum status read_object(struct reading *reading, enum field field, struct slice *text,
                               uint8_t *digest) {
    return read_canonical(reading, field, JSON_KIND_OBJECT, text, digest);
}

/* ---- groups of fields ---- */

/* The fields that make an append repeatable. */
static enum status read_repeat(struct reading *reading) {
    struct append_request *request = reading->request;
    if (is_given(reading, FIELD_EVENT_ID)) {
        struct slice text;
        request->has_event_id = json_string_slice(reading->fields[FIELD_EVENT_ID].value, &text) &&
                                uuid7_parse(text, &request->event_id) == STATUS_OK;
        if (!request->has_event_id)
            return refuse_field(reading, FIELD_EVENT_ID, "must be a lower-case UUIDv7");
    }
    return read_text(reading, FIELD_IDEMPOTENCY_KEY, APPEND_IDEMPOTENCY_BYTES_MAX,
                     &request->idempotency_key);
}

/* The fields that make an append repeatable or conditional. */
static enum status read_conditions(struct reading *reading) {
    struct append_request *request = reading->request;
    if (is_given(reading, FIELD_EXPECTED_PREVIOUS_SEQ)) {
        struct json_value value = reading->fields[FIELD_EXPECTED_PREVIOUS_SEQ].value;
        request->has_expected_seq =
            json_u64(value, JSON_INTEGER_MAX, &request->expected_previous_seq);
        if (!request->has_expected_seq)
            return refuse_field(reading, FIELD_EXPECTED_PREVIOUS_SEQ,
                                "must be an integer of 0 to 9007199254740991");
    }
    return read_repeat(reading);
}

static enum status claim(struct slice *given, struct slice own, bool is_filled,
                         struct arena *arena) {
    if (given->data && !(own.data && slice_equal(*given, own)))
        return STATUS_OWNER_MISMATCH;
    if (!is_filled || given->data || !own.data)
        return STATUS_OK;
    *given = arena_copy(arena, own);
    return given->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

/* A producer may name no other owner than its own. Runs, workers and notifications that it creates
 * get its owner. */
static enum status claim_owner(struct append_request *request, struct arena *arena) {
    if (!request->producer)
        return STATUS_OK;
    const struct owner *own = &request->producer->identity;
    struct owner *owner = &request->owner;
    /* An event of an application topic may have no owner: every reader of the topic sees it. */
    bool is_filled = request->kind == APPEND_RUN_CREATE || request->kind == APPEND_WORKER_CREATE ||
                     request->kind == APPEND_NOTIFICATION;
    enum status status = claim(&owner->user_id, own->user_id, is_filled, arena);
    if (status == STATUS_OK)
        status = claim(&owner->guest_scope, own->guest_scope, is_filled, arena);
    if (status == STATUS_OK)
        status = claim(&owner->org_id, own->org_id, is_filled, arena);
    bool has_owner = owner->user_id.data || owner->guest_scope.data || owner->org_id.data;
    return status == STATUS_OK && is_filled && !has_owner ? STATUS_OWNER_MISMATCH : status;
}

static enum status read_owner(struct reading *reading) {
    struct owner *owner = &reading->request->owner;
    if (is_given(reading, FIELD_OWNER_USER_ID) && is_given(reading, FIELD_OWNER_GUEST_SCOPE))
        return refuse_field(reading, FIELD_OWNER_USER_ID,
                            "and owner_guest_scope exclude each other");
    enum status status =
        read_text(reading, FIELD_OWNER_USER_ID, APPEND_ID_BYTES_MAX, &owner->user_id);
    if (status == STATUS_OK)
        status =
            read_text(reading, FIELD_OWNER_GUEST_SCOPE, APPEND_ID_BYTES_MAX, &owner->guest_scope);
    if (status == STATUS_OK)
        status = read_text(reading, FIELD_ORG_ID, APPEND_ID_BYTES_MAX, &owner->org_id);
    return status == STATUS_OK ? claim_owner(reading->request, reading->arena) : status;
}

/* The fields of an event. A notification may leave out its type. */
static enum status read_event(struct reading *reading) {
    struct append_request *request = reading->request;
    struct slice *type = &request->event_type;
    enum status status = STATUS_OK;
    if (is_given(reading, FIELD_EVENT_TYPE))
        status = read_text(reading, FIELD_EVENT_TYPE, APPEND_TYPE_BYTES_MAX, type);
    else if (request->kind == APPEND_NOTIFICATION)
        *type = SLICE(NOTIFICATION_TYPE);
    else
        return refuse_field(reading, FIELD_EVENT_TYPE, "is required");
    if (status == STATUS_OK && !reading->parser->takes_reserved && append_type_is_reserved(*type))
        status = STATUS_RESERVED_EVENT_TYPE;
    if (!is_given(reading, FIELD_PAYLOAD)) {
        request->payload = SLICE("{}");
        sha256("{}", 2, request->payload_hash);
    } else if (status == STATUS_OK) {
        status = read_object(reading, FIELD_PAYLOAD, &request->payload, request->payload_hash);
    }
    if (status == STATUS_OK)
        status = read_conditions(reading);
    return status == STATUS_OK ? read_owner(reading) : status;
}

/* ---- kinds ---- */

static enum status read_run_create(struct reading *reading) {
    struct append_request *request = reading->request;
    enum status status = read_text(reading, FIELD_RUN_ID, APPEND_ID_BYTES_MAX, &request->entity_id);
    if (status == STATUS_OK)
        status = read_text(reading, FIELD_WORKER_ID, APPEND_ID_BYTES_MAX, &request->worker_id);
    if (status == STATUS_OK)
        status = read_text(reading, FIELD_THREAD_ID, APPEND_ID_BYTES_MAX, &request->thread_id);
    if (status == STATUS_OK)
        status =
            read_text(reading, FIELD_PARENT_RUN_ID, APPEND_ID_BYTES_MAX, &request->parent_run_id);
    if (status == STATUS_OK)
        status = read_text(reading, FIELD_TITLE, RUN_TITLE_BYTES_MAX, &request->title);
    if (status == STATUS_OK)
        status = read_canonical(reading, FIELD_TAGS, JSON_KIND_ARRAY, &request->tags, NULL);
    if (status == STATUS_OK)
        status = read_repeat(reading);
    if (status == STATUS_OK)
        status = read_owner(reading);
    if (status == STATUS_OK)
        status = read_object(reading, FIELD_METADATA, &request->metadata, NULL);
    struct run_fault fault;
    if (status == STATUS_OK && request->tags.data) {
        status = run_member_check(RUN_MEMBER_TAGS,
                                  (struct json_value){JSON_KIND_ARRAY, request->tags}, &fault);
        if (status != STATUS_OK)
            return refuse_member(reading, status, "", &fault);
    }
    if (status == STATUS_OK && request->metadata.data && !reading->parser->takes_any_shape) {
        status = run_member_check(RUN_MEMBER_METADATA_PATCH,
                                  (struct json_value){JSON_KIND_OBJECT, request->metadata}, &fault);
        fault.member = field_names[FIELD_METADATA].data;
        if (status != STATUS_OK)
            return refuse_member(reading, status, "", &fault);
    }
    return status;
}

/* What the event says of its run. The log of another server may hold the type with other members.
 */
static enum status read_report(struct reading *reading) {
    struct append_request *request = reading->request;
    struct run_report report;
    struct run_fault fault;
    enum status status = run_report_read(request->event_type, request->payload, &report, &fault);
    if (status != STATUS_OK && !reading->parser->takes_any_shape)
        return refuse_member(reading, status, "payload.", &fault);
    if (status == STATUS_OK && report.kind == RUN_REPORT_UPDATED &&
        report.members[RUN_MEMBER_METADATA_PATCH].present)
        request->metadata = report.members[RUN_MEMBER_METADATA_PATCH].value.raw;
    return STATUS_OK;
}

/* The state that a run.finished names. */
static enum status read_outcome(struct reading *reading) {
    static const char spelled[] = "\"canceled\"";
    struct append_request *request = reading->request;
    struct json_value payload = {JSON_KIND_OBJECT, request->payload};
    struct json_field field = {.name = SLICE("status")};
    enum status status = json_read_members(payload, &field, 1);
    if (status != STATUS_OK)
        return status;
    struct slice name = {NULL, 0};
    enum run_state outcome;
    if (field.present && json_string_is(field.value, SLICE("cancelled"))) {
        /* The log holds only one spelling, so that all its readers see the same word. Canonical
         * text stays canonical without that letter. */
        struct slice raw = field.value.raw;
        char *from = (char *)raw.data;
        const char *rest = from + raw.size;
        size_t rest_size = (size_t)(request->payload.data + request->payload.size - rest);
        memcpy(from, spelled, sizeof(spelled) - 1);
        memmove(from + sizeof(spelled) - 1, rest, rest_size);
        request->payload.size -= raw.size - (sizeof(spelled) - 1);
        sha256(request->payload.data, request->payload.size, request->payload_hash);
        name = SLICE("canceled");
    } else if (field.present) {
        (void)json_string_slice(field.value, &name);
    }
    if (!name.data || !run_state_parse(name, &outcome) || !run_state_is_final(outcome))
        return refuse_field(reading, FIELD_PAYLOAD,
                            "of run.finished needs a status: succeeded, failed or canceled");
    request->status_name = slice_of(run_state_name(outcome));
    return STATUS_OK;
}

static enum status read_worker_create(struct reading *reading) {
    struct append_request *request = reading->request;
    enum status status =
        read_text(reading, FIELD_WORKER_ID, APPEND_ID_BYTES_MAX, &request->entity_id);
    if (status == STATUS_OK)
        status = read_repeat(reading);
    if (status == STATUS_OK)
        status = read_owner(reading);
    if (status == STATUS_OK && !request->owner.user_id.data && !request->owner.guest_scope.data)
        return refuse_field(reading, FIELD_OWNER_USER_ID, "or owner_guest_scope is required");
    if (status == STATUS_OK)
        status =
            read_text(reading, FIELD_WORKSPACE_REF, REFERENCE_BYTES_MAX, &request->workspace_ref);
    if (status == STATUS_OK)
        status =
            read_text(reading, FIELD_CODEX_HOME_REF, REFERENCE_BYTES_MAX, &request->codex_home_ref);
    if (status == STATUS_OK)
        status = read_text(reading, FIELD_ADAPTER, APPEND_ID_BYTES_MAX, &request->adapter);
    if (status == STATUS_OK)
        status = read_object(reading, FIELD_METADATA, &request->metadata, NULL);
    return status;
}

/* The payload of the event is {"metadata_patch": …}. The patch itself is a slice of it. */
static enum status read_heartbeat(struct reading *reading) {
    struct append_request *request = reading->request;
    request->event_type = SLICE(WORKER_EVENT_HEARTBEAT);
    request->payload = SLICE("{}");
    enum status status = read_conditions(reading);
    if (status == STATUS_OK)
        status = read_owner(reading);
    if (status == STATUS_OK)
        status = read_object(reading, FIELD_METADATA_PATCH, &request->metadata, NULL);
    if (status != STATUS_OK)
        return status;
    if (request->metadata.data) {
        struct slice patch = request->metadata;
        size_t opening = sizeof(METADATA_PATCH_OPENING) - 1;
        char *text = arena_alloc(reading->arena, opening + patch.size + 1);
        if (!text)
            return STATUS_OUT_OF_MEMORY;
        memcpy(text, METADATA_PATCH_OPENING, opening);
        memcpy(text + opening, patch.data, patch.size);
        text[opening + patch.size] = '}';
        request->payload = (struct slice){text, opening + patch.size + 1};
        request->metadata = (struct slice){text + opening, patch.size};
    }
    sha256(request->payload.data, request->payload.size, request->payload_hash);
    return STATUS_OK;
}

static enum status read_worker_status(struct reading *reading) {
    struct append_request *request = reading->request;
    request->event_type = SLICE(WORKER_EVENT_STATUS_CHANGED);
    struct slice name = {NULL, 0};
    struct slice reason;
    enum worker_state state;
    if (!is_given(reading, FIELD_STATUS) ||
        !json_string_slice(reading->fields[FIELD_STATUS].value, &name) ||
        !worker_state_parse(name, &state))
        return refuse_field(reading, FIELD_STATUS,
                            "must be starting, running, stopping, stopped or failed");
    request->status_name = slice_of(worker_state_name(state));
    enum status status = STATUS_OK;
    if (is_given(reading, FIELD_REASON)) {
        status = decode(reading, FIELD_REASON, &reason);
        if (status == STATUS_OK && reason.size > REASON_BYTES_MAX)
            return refuse_field(reading, FIELD_REASON, "must be at most 1024 bytes");
        if (status == STATUS_OK)
            status = keep(reading, reason, &request->reason);
    }
    if (status == STATUS_OK)
        status = read_conditions(reading);
    return status == STATUS_OK ? read_owner(reading) : status;
}

static enum status read_kind(struct reading *reading) {
    const struct slice *type = &reading->request->event_type;
    enum status status = STATUS_OK;
    assert((unsigned)reading->request->kind < APPEND_KIND_COUNT);
    switch (reading->request->kind) {
    case APPEND_RUN_CREATE:
        return read_run_create(reading);
    case APPEND_WORKER_CREATE:
        return read_worker_create(reading);
    case APPEND_WORKER_HEARTBEAT:
        return read_heartbeat(reading);
    case APPEND_WORKER_STATUS:
        return read_worker_status(reading);
    case APPEND_RUN_EVENT:
        status = read_event(reading);
        if (status == STATUS_OK && slice_equal(*type, SLICE(RUN_EVENT_FINISHED)))
            return read_outcome(reading);
        return status == STATUS_OK ? read_report(reading) : status;
    case APPEND_WORKER_EVENT:
        status = read_event(reading);
        if (status != STATUS_OK)
            return status;
        if (!slice_starts(*type, SLICE("worker.")) || type->size == sizeof("worker.") - 1)
            return refuse_field(reading, FIELD_EVENT_TYPE, "must begin with \"worker.\"");
        /* A worker's state follows from the log alone, so each type that changes it has one
         * endpoint. */
        if (slice_equal(*type, SLICE(WORKER_EVENT_REGISTERED)) ||
            slice_equal(*type, SLICE(WORKER_EVENT_HEARTBEAT)) ||
            slice_equal(*type, SLICE(WORKER_EVENT_STATUS_CHANGED)))
            return refuse_field(reading, FIELD_EVENT_TYPE,
                                "is reserved: use the worker's own endpoint for it");
        return STATUS_OK;
    case APPEND_TOPIC_EVENT:
    case APPEND_AUDIT_EVENT:
    case APPEND_NOTIFICATION:
        return read_event(reading);
    case APPEND_KIND_COUNT:
        break;
    }
    return STATUS_INTERNAL_ERROR;
}

/* ---- targets ---- */

/* The id of an existing entity, from the path or from an item. */
static enum status take_id(struct reading *reading, enum field field, struct slice id) {
    if (field == FIELD_TOPIC && topic_name_check(id) != STATUS_OK)
        return STATUS_INVALID_TOPIC;
    if (field != FIELD_TOPIC && !append_id_valid(id))
        return refuse_text(reading, field, APPEND_ID_BYTES_MAX);
    return keep(reading, id, &reading->request->entity_id);
}

/* The target of an item, exactly one, and with it the kind of the request. */
static enum status read_target(struct reading *reading) {
    static const enum field targets[] = {FIELD_RUN_ID, FIELD_WORKER_ID, FIELD_TOPIC, FIELD_AUDIT};
    struct append_request *request = reading->request;
    enum field target = FIELD_COUNT;
    struct slice id;
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        bool is_audit = true;
        if (!is_given(reading, targets[i]))
            continue;
        if (targets[i] == FIELD_AUDIT && !json_bool(reading->fields[FIELD_AUDIT].value, &is_audit))
            return refuse_field(reading, FIELD_AUDIT, "must be true or false");
        if (!is_audit)
            continue;
        if (target != FIELD_COUNT)
            return refuse_field(reading, targets[i], "and another target exclude each other");
        target = targets[i];
    }
    if (target == FIELD_COUNT)
        return refuse_field(reading, FIELD_RUN_ID, "or worker_id, topic or audit is required");
    request->kind = APPEND_WORKER_EVENT;
    if (target == FIELD_AUDIT)
        request->kind = APPEND_AUDIT_EVENT;
    else if (target == FIELD_RUN_ID)
        request->kind = APPEND_RUN_EVENT;
    else if (target == FIELD_TOPIC)
        request->kind =
            json_string_is(reading->fields[FIELD_TOPIC].value, topic_name(TOPIC_NOTIFICATIONS))
                ? APPEND_NOTIFICATION
                : APPEND_TOPIC_EVENT;
    else if (!is_given(reading, FIELD_EVENT_TYPE) && is_given(reading, FIELD_STATUS))
        request->kind = APPEND_WORKER_STATUS;
    else if (!is_given(reading, FIELD_EVENT_TYPE) && is_given(reading, FIELD_METADATA_PATCH))
        request->kind = APPEND_WORKER_HEARTBEAT;
    if (target == FIELD_AUDIT)
        return STATUS_OK;
    enum status status = decode(reading, target, &id);
    return status == STATUS_OK ? take_id(reading, target, id) : status;
}

/* Not an initializer: it would clear the fields, which the pass sets. */
static enum status begin(struct reading *reading, struct append_parser *parser, struct arena *arena,
                         struct append_request *request, struct json_value object) {
    reading->parser = parser;
    reading->arena = arena;
    reading->request = request;
    for (size_t i = 0; i < FIELD_COUNT; i++)
        reading->fields[i].name = field_names[i];
    if (object.kind != JSON_KIND_OBJECT) {
        request->refusal.message = "A request must be a JSON object.";
        return STATUS_INVALID_REQUEST;
    }
    return json_read_members(object, reading->fields, FIELD_COUNT);
}

enum status append_read(struct append_parser *parser, enum append_kind kind, struct slice id,
                        struct json_value body, struct arena *arena,
                        struct append_request *request) {
    *request = (struct append_request){.producer = parser->producer, .kind = kind};
    struct reading reading;
    enum status status = begin(&reading, parser, arena, request, body);
    if (status == STATUS_OK && kind == APPEND_RUN_EVENT)
        status = take_id(&reading, FIELD_RUN_ID, id);
    else if (status == STATUS_OK && kind == APPEND_TOPIC_EVENT)
        status = take_id(&reading, FIELD_TOPIC, id);
    else if (status == STATUS_OK && (kind == APPEND_WORKER_HEARTBEAT ||
                                     kind == APPEND_WORKER_STATUS || kind == APPEND_WORKER_EVENT))
        status = take_id(&reading, FIELD_WORKER_ID, id);
    if (status == STATUS_OK)
        status = read_kind(&reading);
    request->status = status;
    return status;
}

enum status append_read_item(struct append_parser *parser, struct json_value item,
                             struct arena *arena, struct append_request *request) {
    *request = (struct append_request){.producer = parser->producer, .kind = APPEND_KIND_COUNT};
    struct reading reading;
    enum status status = begin(&reading, parser, arena, request, item);
    if (status == STATUS_OK)
        status = read_target(&reading);
    if (status == STATUS_OK)
        status = read_kind(&reading);
    request->status = status;
    return status;
}

/* ---- the hash of a body ---- */

static bool read_digest(struct json_value value, uint8_t digest[SHA256_BYTES]) {
    struct slice text;
    if (!json_string_slice(value, &text))
        return false;
    if (slice_starts(text, SLICE("sha256:")))
        text = slice_from(text, sizeof("sha256:") - 1);
    if (text.size != (size_t)2 * SHA256_BYTES)
        return false;
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        int high = hex_value(text.data[2 * i]);
        int low = hex_value(text.data[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

enum status append_check_hash(struct append_parser *parser, struct json_value body) {
    struct json_field field = {.name = SLICE(HASH_MEMBER)};
    struct json_iterator members = json_iterate(body);
    struct json_value name, value;
    struct buffer *text = &parser->text;
    uint8_t given[SHA256_BYTES];
    struct payload_hash actual;
    enum status status = json_read_members(body, &field, 1);
    if (status != STATUS_OK || !field.present || field.value.kind == JSON_KIND_NULL)
        return status;
    if (!read_digest(field.value, given))
        return STATUS_INVALID_REQUEST;
    buffer_clear(text);
    while (json_next_member(&members, &name, &value)) {
        if (json_string_is(name, SLICE(HASH_MEMBER)))
            continue;
        buffer_append_byte(text, text->size > 0 ? ',' : '{');
        buffer_append_slice(text, name.raw);
        buffer_append_byte(text, ':');
        buffer_append_slice(text, value.raw);
    }
    status = buffer_append_slice(text, text->size > 0 ? SLICE("}") : SLICE("{}"));
    /* Members of a validated object, in an object, are valid. */
    const struct json_value rest = {JSON_KIND_OBJECT, buffer_slice(text)};
    if (status == STATUS_OK)
        status = payload_hash(rest, &parser->scratch, &actual);
    if (status != STATUS_OK)
        return status;
    return memcmp(given, actual.digest, SHA256_BYTES) == 0 ? STATUS_OK : STATUS_EVENT_HASH_MISMATCH;
}
