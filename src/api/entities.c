/* The current state of runs and workers, and the receipt of a run. */
#include "api/handlers.h"
#include "authority/event_json.h"
#include "http/store_read.h"
#include "wire/canonical.h"
#include "wire/json.h"

static enum status write_entity(struct buffer *out, const struct store_entity *entity,
                                uint64_t now_ms) {
    switch (entity->kind) {
    case ENTITY_RUN:
        return run_write_json(out, entity);
    case ENTITY_WORKER:
        return worker_write_json(out, entity, now_ms);
    case ENTITY_TOPIC:
    case ENTITY_AUDIT:
    case ENTITY_KIND_COUNT:
        break;
    }
    return STATUS_INTERNAL_ERROR;
}

static void read_entity(struct store_read *read, struct store_session *session) {
    struct store_entity entity;
    enum status status = store_read_entity(read, session, &entity);
    if (status == STATUS_OK)
        status = buffer_printf(&read->out, "{\"%s\":", entity_kind_name(entity.kind));
    if (status == STATUS_OK)
        status = write_entity(&read->out, &entity, read->now_ms);
    if (status == STATUS_OK)
        status = buffer_append_slice(&read->out, SLICE("}\n"));
    read->status = status;
}

static void handle_entity(struct exchange *exchange, enum entity_kind kind) {
    struct store_read *read = store_read_new(exchange, kind, read_entity);
    if (read)
        store_read_post(read);
}

void handle_run(struct exchange *exchange) {
    handle_entity(exchange, ENTITY_RUN);
}

void handle_worker(struct exchange *exchange) {
    handle_entity(exchange, ENTITY_WORKER);
}

/* ---- receipts ----------------------------------------------------------------------------- */

struct receipt {
    struct uuid event_id;
    struct uuid cursor;
    uint64_t seq;
    uint8_t chain_hash[SHA256_BYTES];
};

static enum status take_event(void *user, const struct store_event *event) {
    struct receipt *receipt = user;
    *receipt = (struct receipt){event->event_id, event->cursor, event->seq, {0}};
    memcpy(receipt->chain_hash, event->chain_hash, SHA256_BYTES);
    return STATUS_OK;
}

static enum status write_text_or_null(struct buffer *out, const char *name, struct slice text) {
    enum status status = buffer_printf(out, ",\"%s\":", name);
    if (status != STATUS_OK)
        return status;
    return text.data ? json_write_string(out, text) : buffer_append_slice(out, SLICE("null"));
}

static enum status write_receipt(struct buffer *out, const struct store_entity *run,
                                 const struct receipt *first, const struct receipt *last) {
    char first_hash[PAYLOAD_HASH_SIZE], last_hash[PAYLOAD_HASH_SIZE];
    char event_id[UUID_TEXT_SIZE], cursor_text[EVENT_CURSOR_SIZE_MAX];
    struct event_cursor cursor = event_cursor_of(&last->cursor);
    size_t cursor_size = event_cursor_encode(&cursor, cursor_text);
    payload_hash_text(first->chain_hash, first_hash);
    payload_hash_text(last->chain_hash, last_hash);
    uuid_format(&last->event_id, event_id);
    enum status status =
        buffer_append_slice(out, SLICE("{\"schema\":\"openagents.receipt.v1\",\"run_id\":"));
    if (status == STATUS_OK)
        status = json_write_string(out, run->id);
    if (status == STATUS_OK)
        status = write_text_or_null(out, "status", run->status);
    if (status == STATUS_OK)
        status = write_text_or_null(out, "owner_user_id", run->owner.user_id);
    if (status == STATUS_OK)
        status = write_text_or_null(out, "owner_guest_scope", run->owner.guest_scope);
    if (status == STATUS_OK)
        status = write_text_or_null(out, "org_id", run->owner.org_id);
    if (status == STATUS_OK)
        status = buffer_printf(
            out,
            ",\"event_count\":%llu,\"first_hash\":\"%s\",\"last_hash\":\"%s\",\"head\":{\"seq\":"
            "%llu,\"event_id\":\"%.*s\",\"cursor\":\"%.*s\"}}\n",
            (unsigned long long)last->seq, first_hash, last_hash, (unsigned long long)last->seq,
            UUID_TEXT_SIZE, event_id, (int)cursor_size, cursor_text);
    return status;
}

/* Sequences have no gaps: the last one is the count. */
static void read_receipt(struct store_read *read, struct store_session *session) {
    struct store_entity run;
    struct receipt first = {.seq = 0};
    struct receipt last = {.seq = 0};
    enum status status = store_read_entity(read, session, &run);
    if (status == STATUS_OK && run.head_seq == 0)
        status = STATUS_RUN_NOT_FOUND;
    if (status == STATUS_OK)
        status = store_walk_entity_events(session, run.ref, 0, 1, &first, take_event);
    if (status == STATUS_OK)
        status = store_walk_entity_events(session, run.ref, run.head_seq - 1, 1, &last, take_event);
    if (status == STATUS_OK && (first.seq != 1 || last.seq != run.head_seq))
        status = STATUS_INTERNAL_ERROR;
    if (status == STATUS_OK)
        status = write_receipt(&read->out, &run, &first, &last);
    read->status = status;
}

void handle_run_receipt(struct exchange *exchange) {
    struct store_read *read = store_read_new(exchange, ENTITY_RUN, read_receipt);
    if (read)
        store_read_post(read);
}
