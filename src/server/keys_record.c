#include "server/keys_record.h"

#include <stdlib.h>

#include "base/hex.h"
#include "base/limits.h"
#include "base/log.h"
#include "wire/object_writer.h"

#define IDEMPOTENCY_PREFIX "signing-keys:"

struct keys_record {
    struct append_group group;
    struct append_request request;
    struct buffer payload;
    char idempotency_key[sizeof(IDEMPOTENCY_PREFIX) - 1 + 2 * SHA256_BYTES];
};

static void record_free(struct keys_record *record) {
    arena_release(&record->group.arena);
    buffer_release(&record->payload);
    free(record);
}

/* On the writer's thread. */
static void recorded(struct append_group *group) {
    struct keys_record *record = group->user;
    enum status status = record->request.status;
    if (status != STATUS_OK && status != STATUS_NOT_WRITER && status != STATUS_WRITER_LOST)
        log_event(LOG_ERROR, "operator.unrecorded", log_str("status", status_code(status)),
                  log_str("event_type", "operator.signing_keys_changed"),
                  log_slice("payload", buffer_slice(&record->payload)));
    record_free(record);
}

/* {"kids":["new","old"]}: the ids of all keys that verify, the newest first. */
static enum status write_payload(struct keys_record *record, const struct key_set *keys) {
    struct buffer *out = &record->payload;
    struct object_writer event = object_begin(out);
    (void)buffer_append_slice(out, SLICE("\"kids\":["));
    for (size_t i = 0; i < keys->count; i++) {
        if (i > 0)
            (void)buffer_append_byte(out, ',');
        (void)json_write_string(out, slice_of(keys->keys[i].id));
    }
    (void)buffer_append_byte(out, ']');
    return object_end(&event);
}

static void post(struct keys_record *record, struct writer *writer) {
    struct append_request *request = &record->request;
    *request = (struct append_request){
        .kind = APPEND_AUDIT_EVENT,
        .event_type = SLICE("operator.signing_keys_changed"),
        .payload = buffer_slice(&record->payload),
        .idempotency_key = {record->idempotency_key, sizeof(record->idempotency_key)},
        .is_rate_free = true,
        .room_least = STORE_ROOM_LAST,
    };
    sha256(request->payload.data, request->payload.size, request->payload_hash);
    memcpy(record->idempotency_key, IDEMPOTENCY_PREFIX, sizeof(IDEMPOTENCY_PREFIX) - 1);
    hex_write(record->idempotency_key + sizeof(IDEMPOTENCY_PREFIX) - 1, request->payload_hash,
              SHA256_BYTES);
    record->group.requests = request;
    record->group.request_count = 1;
    record->group.user = record;
    record->group.done = recorded;
    enum status status = writer_post(writer, &record->group);
    if (status == STATUS_OK)
        return;
    request->status = status;
    recorded(&record->group);
}

void keys_record(struct writer *writer, const struct gate *gate, uint8_t digest[SHA256_BYTES]) {
    uint8_t before[SHA256_BYTES];
    struct keys_record *record = calloc(1, sizeof(*record));
    if (!record)
        return;
    struct key_set *keys = keys_current(gate->keys);
    buffer_init(&record->payload, RECORD_EVENT_BYTES_MAX);
    arena_init(&record->group.arena, RECORD_BYTES_MAX);
    enum status status = write_payload(record, keys);
    key_set_unref(keys);
    memcpy(before, digest, sizeof(before));
    if (status == STATUS_OK)
        sha256(record->payload.data, record->payload.size, digest);
    if (status == STATUS_OK && writer && memcmp(before, digest, sizeof(before)) != 0)
        post(record, writer);
    else
        record_free(record);
}
