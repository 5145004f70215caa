#include "authority/outbox/outbox_row.h"

#include "wire/object_writer.h"

/* Room for the members around a row's texts, which escapes may make six times as long. */
#define BODY_BYTES_MAX(row_bytes) (6 * (row_bytes) + 1024)

static const struct {
    const char *name;
    enum append_kind kind;
    enum policy_row policy;
} kinds[OUTBOX_KIND_COUNT] = {
    {"topic", APPEND_TOPIC_EVENT, POLICY_FALLBACK},
    {"run", APPEND_RUN_EVENT, POLICY_RUN_EVENTS},
    {"worker", APPEND_WORKER_EVENT, POLICY_WORKER_LIFECYCLE},
    {"notification", APPEND_NOTIFICATION, POLICY_NOTIFICATIONS},
};

void outbox_row_reader_init(struct outbox_row_reader *reader, size_t row_bytes_max) {
    reader->row_bytes_max = row_bytes_max;
    append_parser_init(&reader->parser, BODY_BYTES_MAX(row_bytes_max));
    buffer_init(&reader->body, BODY_BYTES_MAX(row_bytes_max));
}

void outbox_row_reader_release(struct outbox_row_reader *reader) {
    buffer_release(&reader->body);
    append_parser_release(&reader->parser);
}

void outbox_limits_of(const struct policy_table *policies,
                      struct store_outbox_limit limits[OUTBOX_KIND_COUNT]) {
    for (size_t i = 0; i < OUTBOX_KIND_COUNT; i++)
        limits[i] = (struct store_outbox_limit){slice_of(kinds[i].name),
                                                policies->rows[kinds[i].policy].max_payload_bytes};
}

static bool find_kind(struct slice name, enum append_kind *kind) {
    for (size_t i = 0; i < OUTBOX_KIND_COUNT; i++)
        if (slice_equal(name, slice_of(kinds[i].name))) {
            *kind = kinds[i].kind;
            return true;
        }
    return false;
}

/* The row as the body of the endpoint that appends the same. The payload is parsed alone first, so
 * that its text cannot add members to the body. */
static enum status write_body(struct outbox_row_reader *reader,
                              const struct store_outbox_row *row) {
    const struct json_limits limits = {reader->row_bytes_max, JSON_DEPTH_MAX - 1};
    struct json_value payload = {0};
    enum status status =
        row->payload.data ? json_parse(row->payload, &limits, &payload) : STATUS_OK;
    if (status != STATUS_OK)
        return status;
    buffer_clear(&reader->body);
    struct object_writer object = object_begin(&reader->body);
    object_text_given(&object, SLICE("event_type"), row->event_type);
    object_json_given(&object, SLICE("payload"), payload.raw);
    object_text_given(&object, SLICE("event_id"), row->event_id);
    object_text_given(&object, SLICE("idempotency_key"), row->idempotency_key);
    object_text_given(&object, SLICE("owner_user_id"), row->owner.user_id);
    object_text_given(&object, SLICE("owner_guest_scope"), row->owner.guest_scope);
    object_text_given(&object, SLICE("org_id"), row->owner.org_id);
    return object_end(&object);
}

enum status outbox_row_read(struct outbox_row_reader *reader, const struct store_outbox_row *row,
                            struct arena *arena, struct append_request *request) {
    const struct json_limits limits = {BODY_BYTES_MAX(reader->row_bytes_max), JSON_DEPTH_MAX};
    enum append_kind kind;
    struct json_value body;
    if (row->is_oversized)
        return STATUS_PAYLOAD_TOO_LARGE;
    /* Left by a node that is not the writer. No function for users makes such a row. */
    bool is_audit = slice_equal(row->kind, SLICE("audit")) && row->event_type.data &&
                    append_type_is_reserved(row->event_type);
    if (is_audit)
        kind = APPEND_AUDIT_EVENT;
    else if (!find_kind(row->kind, &kind)) {
        request->refusal.message = "kind must be topic, run, worker or notification.";
        return STATUS_INVALID_REQUEST;
    }
    enum status status = write_body(reader, row);
    if (status == STATUS_OK)
        status = json_parse(buffer_slice(&reader->body), &limits, &body);
    if (status != STATUS_OK)
        return status;
    reader->parser.takes_reserved = is_audit;
    return append_read(&reader->parser, kind, row->target, body, arena, request);
}
