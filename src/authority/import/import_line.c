#include "authority/import/import_line.h"

#include "authority/chain_hash.h"
#include "authority/entity_cache.h"
#include "authority/run_state.h"
#include "authority/worker_state.h"
#include "topic/topic_name.h"

#define HASH_PREFIX "sha256:"

enum line_field {
    LINE_EVENT_ID,
    LINE_CURSOR,
    LINE_ENTITY,
    LINE_ENTITY_ID,
    LINE_SEQ,
    LINE_EVENT_TYPE,
    LINE_PAYLOAD,
    LINE_PAYLOAD_HASH,
    LINE_OWNER,
    LINE_RECORDED_AT,
    LINE_PREV_CHAIN_HASH,
    LINE_CHAIN_HASH,
    LINE_CHAIN_VERSION, /* absent: the current one */
    LINE_MANIFEST,
    LINE_FIELD_COUNT,
};

static const struct json_field line_fields[LINE_FIELD_COUNT] = {
    [LINE_EVENT_ID] = {.name = {"event_id", 8}},
    [LINE_CURSOR] = {.name = {"cursor", 6}},
    [LINE_ENTITY] = {.name = {"entity", 6}},
    [LINE_ENTITY_ID] = {.name = {"entity_id", 9}},
    [LINE_SEQ] = {.name = {"seq", 3}},
    [LINE_EVENT_TYPE] = {.name = {"event_type", 10}},
    [LINE_PAYLOAD] = {.name = {"payload", 7}},
    [LINE_PAYLOAD_HASH] = {.name = {"payload_hash", 12}},
    [LINE_OWNER] = {.name = {"owner", 5}},
    [LINE_RECORDED_AT] = {.name = {"recorded_at", 11}},
    [LINE_PREV_CHAIN_HASH] = {.name = {"prev_chain_hash", 15}},
    [LINE_CHAIN_HASH] = {.name = {"chain_hash", 10}},
    [LINE_CHAIN_VERSION] = {.name = {"chain_version", 13}},
    [LINE_MANIFEST] = {.name = {"manifest", 8}},
};

/* ---- members ---- */

static int hex_digit(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool read_hex(struct slice text, uint8_t digest[SHA256_BYTES]) {
    if (text.size != (size_t)2 * SHA256_BYTES)
        return false;
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        int high = hex_digit(text.data[2 * i]);
        int low = hex_digit(text.data[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool read_hash(const struct json_field *field, uint8_t digest[SHA256_BYTES]) {
    struct slice text;
    return field->present && json_string_slice(field->value, &text) &&
           slice_starts(text, SLICE(HASH_PREFIX)) &&
           read_hex(slice_from(text, sizeof(HASH_PREFIX) - 1), digest);
}

/* A text of an event, which the authority took once: bounded, and not empty. */
static bool read_text(const struct json_field *field, size_t bytes_max, struct arena *arena,
                      struct slice *text) {
    if (!field->present || field->value.kind != JSON_KIND_STRING ||
        field->value.raw.size > 6 * bytes_max + 2)
        return false;
    struct buffer decoded;
    buffer_init(&decoded, 6 * bytes_max + 2);
    bool is_read = json_string_decode(field->value, &decoded) == STATUS_OK && decoded.size > 0 &&
                   decoded.size <= bytes_max;
    *text = is_read ? arena_copy(arena, buffer_slice(&decoded)) : (struct slice){NULL, 0};
    buffer_release(&decoded);
    return text->data != NULL;
}

static bool read_owner(const struct json_field *field, struct arena *arena, struct owner *owner) {
    struct json_field parts[] = {
        {.name = SLICE("user_id")}, {.name = SLICE("guest_scope")}, {.name = SLICE("org_id")}};
    struct slice *texts[] = {&owner->user_id, &owner->guest_scope, &owner->org_id};
    if (!field->present || field->value.kind != JSON_KIND_OBJECT ||
        json_read_members(field->value, parts, 3) != STATUS_OK)
        return false;
    for (size_t i = 0; i < 3; i++)
        if (parts[i].present && !read_text(&parts[i], APPEND_ID_BYTES_MAX, arena, texts[i]))
            return false;
    /* As in an append: an event belongs to a user or to a guest. */
    return !owner->user_id.data || !owner->guest_scope.data;
}

static bool read_kind(const struct json_field *field, enum entity_kind *kind) {
    for (unsigned i = 0; field->present && i < ENTITY_KIND_COUNT; i++)
        if (json_string_is(field->value, slice_of(entity_kind_name((enum entity_kind)i)))) {
            *kind = (enum entity_kind)i;
            return true;
        }
    return false;
}

static bool read_times(const struct json_field *fields, struct store_event *event) {
    struct slice text;
    struct event_cursor cursor;
    if (!fields[LINE_CURSOR].present || !json_string_slice(fields[LINE_CURSOR].value, &text) ||
        event_cursor_decode(text, &cursor, NULL) != STATUS_OK ||
        cursor.timestamp_ms != uuid7_timestamp_ms(&cursor.uuid))
        return false;
    event->cursor = cursor.uuid;
    return fields[LINE_RECORDED_AT].present &&
           json_u64(fields[LINE_RECORDED_AT].value, JSON_INTEGER_MAX, &event->recorded_at_ms) &&
           event->recorded_at_ms <= cursor.timestamp_ms;
}

static bool read_version(const struct json_field *field, unsigned *version) {
    uint64_t number = STORE_CHAIN_VERSION;
    if (field->present && (!json_u64(field->value, STORE_CHAIN_VERSION, &number) || number == 0))
        return false;
    *version = (unsigned)number;
    return true;
}

/* ---- lines ---- */

static bool read_event(const struct json_field *fields, struct arena *arena,
                       struct store_event *event) {
    struct slice id;
    if (!fields[LINE_EVENT_ID].present || !json_string_slice(fields[LINE_EVENT_ID].value, &id) ||
        uuid7_parse(id, &event->event_id) != STATUS_OK || !read_times(fields, event) ||
        !read_kind(&fields[LINE_ENTITY], &event->entity_kind) ||
        !read_text(&fields[LINE_ENTITY_ID], TOPIC_NAME_BYTES_MAX, arena, &event->entity_id) ||
        !read_text(&fields[LINE_EVENT_TYPE], APPEND_TYPE_BYTES_MAX, arena, &event->type))
        return false;
    if (!fields[LINE_SEQ].present ||
        !json_u64(fields[LINE_SEQ].value, JSON_INTEGER_MAX, &event->seq) || event->seq == 0 ||
        !fields[LINE_PAYLOAD].present || fields[LINE_PAYLOAD].value.kind != JSON_KIND_OBJECT)
        return false;
    event->payload = fields[LINE_PAYLOAD].value.raw;
    return read_hash(&fields[LINE_PAYLOAD_HASH], event->payload_hash) &&
           read_hash(&fields[LINE_PREV_CHAIN_HASH], event->prev_chain_hash) &&
           read_hash(&fields[LINE_CHAIN_HASH], event->chain_hash) &&
           read_owner(&fields[LINE_OWNER], arena, &event->owner) &&
           read_version(&fields[LINE_CHAIN_VERSION], &event->chain_version);
}

static enum status read_manifest(struct json_value value, struct import_line *line,
                                 const char **reason) {
    struct json_field fields[] = {{.name = SLICE("format")},
                                  {.name = SLICE("count")},
                                  {.name = SLICE("sha256")},
                                  {.name = SLICE("fork_log_id")}};
    struct slice digest;
    line->is_manifest = true;
    if (value.kind == JSON_KIND_OBJECT && json_read_members(value, fields, 4) == STATUS_OK &&
        fields[0].present && json_string_is(fields[0].value, SLICE("ndjson")) &&
        fields[1].present && json_u64(fields[1].value, JSON_INTEGER_MAX, &line->count) &&
        fields[2].present && json_string_slice(fields[2].value, &digest) &&
        read_hex(digest, line->sha256) &&
        (!fields[3].present || json_u64(fields[3].value, JSON_INTEGER_MAX, &line->fork_log_id))) {
        line->has_fork = fields[3].present;
        return STATUS_OK;
    }
    *reason = "the line is not the manifest of an export";
    return STATUS_IMPORT_REFUSED;
}

static enum status check_hashes(const struct store_event *event, struct buffer *scratch,
                                const char **reason) {
    uint8_t digest[SHA256_BYTES];
    sha256(event->payload.data, event->payload.size, digest);
    if (memcmp(digest, event->payload_hash, SHA256_BYTES) != 0) {
        *reason = "the payload does not hash to its payload_hash";
        return STATUS_IMPORT_REFUSED;
    }
    enum status status = chain_hash(event, scratch, digest);
    if (status == STATUS_OK && memcmp(digest, event->chain_hash, SHA256_BYTES) == 0)
        return STATUS_OK;
    *reason = "the event does not hash to its chain_hash";
    return status == STATUS_OUT_OF_MEMORY ? status : STATUS_IMPORT_REFUSED;
}

enum status import_line_read(struct json_value value, struct buffer *scratch, struct arena *arena,
                             struct import_line *line, const char **reason) {
    struct json_field fields[LINE_FIELD_COUNT];
    *line = (struct import_line){.is_manifest = false};
    *reason = "the line is not an event of an export";
    memcpy(fields, line_fields, sizeof(fields));
    if (value.kind != JSON_KIND_OBJECT ||
        json_read_members(value, fields, LINE_FIELD_COUNT) != STATUS_OK)
        return STATUS_IMPORT_REFUSED;
    if (fields[LINE_MANIFEST].present)
        return read_manifest(fields[LINE_MANIFEST].value, line, reason);
    if (!read_event(fields, arena, &line->event))
        return STATUS_IMPORT_REFUSED;
    *reason = NULL;
    return check_hashes(&line->event, scratch, reason);
}

enum status import_check_names(const struct store_event *event, const char **reason) {
    static const struct owner none = {.user_id = {NULL, 0}};
    const struct owner *owner =
        entity_row(event->entity_kind)->has_event_owner ? &none : &event->owner;
    const struct slice names[] = {event->entity_id, owner->user_id, owner->guest_scope,
                                  owner->org_id};
    for (size_t i = 0; event->seq == 1 && i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].data && entity_name_problem(names[i])) {
            *reason = "the event creates an entity whose name or owner is not allowed";
            return STATUS_IMPORT_REFUSED;
        }
    return STATUS_OK;
}

/* ---- requests ---- */

static enum append_kind kind_of(const struct store_event *event) {
    switch (event->entity_kind) {
    case ENTITY_RUN:
        return event->seq == 1 ? APPEND_RUN_CREATE : APPEND_RUN_EVENT;
    case ENTITY_WORKER:
        if (slice_equal(event->type, SLICE(WORKER_EVENT_REGISTERED)))
            return APPEND_WORKER_CREATE;
        if (slice_equal(event->type, SLICE(WORKER_EVENT_HEARTBEAT)))
            return APPEND_WORKER_HEARTBEAT;
        return slice_equal(event->type, SLICE(WORKER_EVENT_STATUS_CHANGED)) ? APPEND_WORKER_STATUS
                                                                            : APPEND_WORKER_EVENT;
    case ENTITY_AUDIT:
        return APPEND_AUDIT_EVENT;
    case ENTITY_TOPIC:
    case ENTITY_KIND_COUNT:
        break;
    }
    return slice_equal(event->entity_id, topic_name(TOPIC_NOTIFICATIONS)) ? APPEND_NOTIFICATION
                                                                          : APPEND_TOPIC_EVENT;
}

/* Rules that a line breaks on its own account, so that it is refused before the first write. */
static bool may_exist(const struct store_event *event, enum append_kind kind) {
    if (kind == APPEND_RUN_CREATE)
        return slice_equal(event->type, SLICE(RUN_EVENT_STARTED));
    if (event->entity_kind == ENTITY_WORKER)
        return event->seq > 1 || kind == APPEND_WORKER_CREATE;
    if (kind == APPEND_AUDIT_EVENT)
        return slice_equal(event->entity_id, SLICE(AUDIT_ENTITY_ID));
    return kind != APPEND_TOPIC_EVENT || !topic_is_projection_owned(event->entity_id);
}

static bool is_same_text(struct slice a, struct slice b) {
    return a.data && b.data ? slice_equal(a, b) : a.data == b.data;
}

static bool is_same_owner(const struct owner *a, const struct owner *b) {
    return is_same_text(a->user_id, b->user_id) && is_same_text(a->guest_scope, b->guest_scope) &&
           is_same_text(a->org_id, b->org_id);
}

/* The payload of these holds the members of the request that made it. */
static bool is_asked_by_payload(enum append_kind kind) {
    return kind == APPEND_RUN_CREATE || kind == APPEND_WORKER_CREATE ||
           kind == APPEND_WORKER_HEARTBEAT || kind == APPEND_WORKER_STATUS;
}

static struct append_import *import_of(const struct store_event *event, struct arena *arena) {
    struct append_import *import = arena_alloc(arena, sizeof(*import));
    if (!import)
        return NULL;
    *import = (struct append_import){
        .log_id = event->log_id,
        .cursor = event->cursor,
        .recorded_at_ms = event->recorded_at_ms,
        .chain_version = event->chain_version,
        .seq = event->seq,
    };
    memcpy(import->chain_hash, event->chain_hash, SHA256_BYTES);
    return import;
}

enum status import_request_read(struct append_parser *parser, struct json_value value,
                                const struct import_line *line, struct arena *arena,
                                struct append_request *request) {
    const struct store_event *event = &line->event;
    enum append_kind kind = kind_of(event);
    struct json_value body = value;
    if (is_asked_by_payload(kind))
        body = (struct json_value){JSON_KIND_OBJECT, event->payload};
    if (!may_exist(event, kind))
        return STATUS_IMPORT_REFUSED;
    parser->takes_reserved = true;
    enum status status = append_read(parser, kind, event->entity_id, body, arena, request);
    parser->takes_reserved = false;
    if (status == STATUS_OUT_OF_MEMORY)
        return status;
    bool is_creation = kind == APPEND_RUN_CREATE || kind == APPEND_WORKER_CREATE;
    if (status != STATUS_OK ||
        (is_creation &&
         (!request->entity_id.data || !slice_equal(request->entity_id, event->entity_id) ||
          !is_same_owner(&request->owner, &event->owner))))
        return STATUS_IMPORT_REFUSED;
    request->has_event_id = true;
    request->event_id = event->event_id;
    request->idempotency_key = (struct slice){NULL, 0};
    request->has_expected_seq = false;
    if (entity_row(event->entity_kind)->has_event_owner &&
        !owner_copy(arena, &event->owner, &request->owner))
        return STATUS_OUT_OF_MEMORY;
    request->import = import_of(event, arena);
    return request->import ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}
