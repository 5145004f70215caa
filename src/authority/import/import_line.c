/* A line is read member by member, strictly: no export has other members or other forms. Payload
 * and link must hash to the hashes that the line names. The event then becomes a request of its
 * kind. The payload of a creation, a heartbeat or a change of status is the body of that request,
 * so that the rules rebuild the entity from the log. */
#include "authority/import/import_line.h"

#include "authority/chain_hash.h"
#include "authority/entity_cache.h"
#include "authority/entity_state.h"
#include "base/hex.h"
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

static bool read_hex(struct slice text, uint8_t digest[SHA256_BYTES]) {
    if (text.size != (size_t)2 * SHA256_BYTES)
        return false;
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        char first = text.data[2 * i], second = text.data[2 * i + 1];
        bool is_lower = !(first >= 'A' && first <= 'F') && !(second >= 'A' && second <= 'F');
        int high = is_lower ? hex_value(first) : -1;
        int low = hex_value(second);
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

/* A text of an event, which the authority accepted once: bounded, and not empty. */
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
    /* An event belongs to a user or to a guest, as in an append. */
    return !owner->user_id.data || !owner->guest_scope.data;
}

/* ---- lines ---- */

static bool read_event(const struct json_field *fields, struct arena *arena,
                       struct store_event *event) {
    const struct json_field *kind = &fields[LINE_ENTITY], *version = &fields[LINE_CHAIN_VERSION];
    uint64_t chain_version = STORE_CHAIN_VERSION;
    unsigned entity_kind = 0;
    struct event_cursor cursor;
    struct slice text;
    if (!fields[LINE_EVENT_ID].present || !json_string_slice(fields[LINE_EVENT_ID].value, &text) ||
        uuid7_parse(text, &event->event_id) != STATUS_OK)
        return false;
    if (!fields[LINE_CURSOR].present || !json_string_slice(fields[LINE_CURSOR].value, &text) ||
        event_cursor_decode(text, &cursor, NULL) != STATUS_OK ||
        cursor.timestamp_ms != uuid7_timestamp_ms(&cursor.uuid))
        return false;
    event->cursor = cursor.uuid;
    if (!fields[LINE_RECORDED_AT].present ||
        !json_u64(fields[LINE_RECORDED_AT].value, JSON_INTEGER_MAX, &event->recorded_at_ms) ||
        event->recorded_at_ms > cursor.timestamp_ms)
        return false;
    while (entity_kind < ENTITY_KIND_COUNT &&
           !(kind->present && json_string_is(kind->value, slice_of(entity_kind_name(
                                                              (enum entity_kind)entity_kind)))))
        entity_kind++;
    event->entity_kind = (enum entity_kind)entity_kind;
    if (entity_kind == ENTITY_KIND_COUNT ||
        !read_text(&fields[LINE_ENTITY_ID], TOPIC_NAME_BYTES_MAX, arena, &event->entity_id) ||
        !read_text(&fields[LINE_EVENT_TYPE], APPEND_TYPE_BYTES_MAX, arena, &event->type))
        return false;
    if (!fields[LINE_SEQ].present ||
        !json_u64(fields[LINE_SEQ].value, JSON_INTEGER_MAX, &event->seq) || event->seq == 0 ||
        !fields[LINE_PAYLOAD].present || fields[LINE_PAYLOAD].value.kind != JSON_KIND_OBJECT)
        return false;
    event->payload = fields[LINE_PAYLOAD].value.raw;
    if (version->present &&
        (!json_u64(version->value, STORE_CHAIN_VERSION, &chain_version) || chain_version == 0))
        return false;
    event->chain_version = (unsigned)chain_version;
    return read_hash(&fields[LINE_PAYLOAD_HASH], event->payload_hash) &&
           read_hash(&fields[LINE_PREV_CHAIN_HASH], event->prev_chain_hash) &&
           read_hash(&fields[LINE_CHAIN_HASH], event->chain_hash) &&
           read_owner(&fields[LINE_OWNER], arena, &event->owner);
}

static bool read_manifest(struct json_value value, struct import_line *line) {
    struct json_field fields[] = {{.name = SLICE("format")},
                                  {.name = SLICE("count")},
                                  {.name = SLICE("sha256")},
                                  {.name = SLICE("fork_log_id")}};
    struct slice digest;
    if (value.kind != JSON_KIND_OBJECT || json_read_members(value, fields, 4) != STATUS_OK ||
        !fields[0].present || !json_string_is(fields[0].value, SLICE("ndjson")))
        return false;
    line->has_fork = fields[3].present;
    return fields[1].present && json_u64(fields[1].value, JSON_INTEGER_MAX, &line->count) &&
           fields[2].present && json_string_slice(fields[2].value, &digest) &&
           read_hex(digest, line->sha256) &&
           (!line->has_fork || json_u64(fields[3].value, JSON_INTEGER_MAX, &line->fork_log_id));
}

enum status import_line_read(struct json_value value, struct buffer *scratch, struct arena *arena,
                             struct import_line *line, const char **reason) {
    const struct store_event *event = &line->event;
    struct json_field fields[LINE_FIELD_COUNT];
    uint8_t digest[SHA256_BYTES];
    *line = (struct import_line){.is_manifest = false};
    *reason = "the line is not an event of an export";
    memcpy(fields, line_fields, sizeof(fields));
    if (value.kind != JSON_KIND_OBJECT ||
        json_read_members(value, fields, LINE_FIELD_COUNT) != STATUS_OK)
        return STATUS_IMPORT_REFUSED;
    if (fields[LINE_MANIFEST].present) {
        line->is_manifest = true;
        *reason = "the line is not the manifest of an export";
        return read_manifest(fields[LINE_MANIFEST].value, line) ? STATUS_OK : STATUS_IMPORT_REFUSED;
    }
    if (!read_event(fields, arena, &line->event))
        return STATUS_IMPORT_REFUSED;
    *reason = "the payload does not hash to its payload_hash";
    sha256(event->payload.data, event->payload.size, digest);
    if (memcmp(digest, event->payload_hash, SHA256_BYTES) != 0)
        return STATUS_IMPORT_REFUSED;
    *reason = "the event does not hash to its chain_hash";
    enum status status = chain_hash(event, scratch, digest);
    if (status == STATUS_OK && memcmp(digest, event->chain_hash, SHA256_BYTES) == 0) {
        *reason = NULL;
        return STATUS_OK;
    }
    return status == STATUS_OUT_OF_MEMORY ? status : STATUS_IMPORT_REFUSED;
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

/* Whether some log may hold the event. A line that breaks such a rule is refused before the first
 * write. */
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

enum status import_request_read(struct append_parser *parser, struct json_value value,
                                const struct import_line *line, struct arena *arena,
                                struct append_request *request) {
    const struct store_event *event = &line->event;
    const struct owner *owner = &event->owner;
    enum append_kind kind = kind_of(event);
    struct json_value body = value;
    /* The payload of these holds the members of the request that made it. */
    if (append_is_creation(kind) || kind == APPEND_WORKER_HEARTBEAT || kind == APPEND_WORKER_STATUS)
        body = (struct json_value){JSON_KIND_OBJECT, event->payload};
    if (!may_exist(event, kind))
        return STATUS_IMPORT_REFUSED;
    parser->takes_reserved = parser->takes_any_shape = true;
    enum status status = append_read(parser, kind, event->entity_id, body, arena, request);
    parser->takes_reserved = parser->takes_any_shape = false;
    if (status == STATUS_OUT_OF_MEMORY)
        return status;
    if (status != STATUS_OK)
        return STATUS_IMPORT_REFUSED;
    if (append_is_creation(kind) &&
        (!request->entity_id.data || !slice_equal(request->entity_id, event->entity_id) ||
         !is_same_text(request->owner.user_id, owner->user_id) ||
         !is_same_text(request->owner.guest_scope, owner->guest_scope) ||
         !is_same_text(request->owner.org_id, owner->org_id)))
        return STATUS_IMPORT_REFUSED;
    request->has_event_id = true;
    request->event_id = event->event_id;
    request->idempotency_key = (struct slice){NULL, 0};
    request->has_expected_seq = false;
    struct append_import *import = arena_alloc(arena, sizeof(*import));
    if (!import || (entity_row(event->entity_kind)->has_event_owner &&
                    !owner_copy(arena, owner, &request->owner)))
        return STATUS_OUT_OF_MEMORY;
    *import = (struct append_import){
        .log_id = event->log_id,
        .cursor = event->cursor,
        .recorded_at_ms = event->recorded_at_ms,
        .chain_version = event->chain_version,
        .seq = event->seq,
    };
    memcpy(import->chain_hash, event->chain_hash, SHA256_BYTES);
    request->import = import;
    return STATUS_OK;
}
