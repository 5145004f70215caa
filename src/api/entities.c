/* The current state of runs and workers, and the receipt of a run. */
#include "api/api.h"
#include "api/handlers.h"
#include "api/run_read.h"
#include "authority/event_write.h"
#include "delivery/repair.h"
#include "http/store_read.h"
#include "projector/summary.h"
#include "topic/topic_name.h"
#include "wire/object_writer.h"

enum status run_load_entitled(struct store_read *read, struct store_session *store,
                              struct store_entity *entity) {
    struct slice topic;
    enum status status = store_read_entity(read, store, entity);
    if (status != STATUS_OK || read->exchange->view != GRANT_VIEW_PENDING)
        return status;
    status = topic_name_of_entity(&read->arena, entity->kind, entity->id, &topic);
    if (status == STATUS_OK)
        status = grant_check(read->exchange->principal, topic, &entity->owner).status;
    return status == STATUS_OWNER_MISMATCH ? entity_row(entity->kind)->not_found : status;
}

enum status run_write(struct store_read *read, struct store_session *store,
                      const struct store_entity *entity) {
    struct store_document document;
    struct json_field members[] = {
        {.name = SLICE("parent_run_id")}, {.name = SLICE("title")},
        {.name = SLICE("tags")},          {.name = SLICE("current_step")},
        {.name = SLICE("open_steps")},    {.name = SLICE("waiting")},
        {.name = SLICE("usage")},         {.name = SLICE("error")},
        {.name = SLICE("updated_at")},
    };
    const size_t count = sizeof(members) / sizeof(members[0]);
    enum status status = repair_load_document(api_of(read->exchange)->writer, store, entity,
                                              &read->arena, &document);
    if (status == STATUS_OK)
        summary_payload_fields(document.payload, members, count);
    else if (status != STATUS_NOT_FOUND)
        return status;
    struct object_writer run = object_begin(&read->out);
    run_put_members(&run, entity);
    for (size_t i = 0; i < count; i++)
        object_json(&run, members[i].name,
                    members[i].present ? members[i].value.raw : SLICE("null"));
    return object_end(&run);
}

static void read_entity(struct store_read *read, struct store_session *store) {
    struct store_entity entity;
    struct buffer *out = &read->out;
    read->status = run_load_entitled(read, store, &entity);
    if (read->status != STATUS_OK)
        return;
    buffer_printf(out, "{\"%s\":", entity_kind_name(entity.kind));
    read->status = entity.kind == ENTITY_RUN ? run_write(read, store, &entity)
                                             : worker_write_json(out, &entity, read->now_ms);
    buffer_append_slice(out, SLICE("}\n"));
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

/* Sequences have no gaps: the last one is the count. */
static void read_receipt(struct store_read *read, struct store_session *store) {
    struct store_entity run;
    struct receipt first = {.seq = 0};
    struct receipt last = {.seq = 0};
    char event_id[UUID_TEXT_SIZE], cursor_text[EVENT_CURSOR_SIZE_MAX];
    enum status status = store_read_entity(read, store, &run);
    if (status == STATUS_OK && run.head_seq == 0)
        status = STATUS_RUN_NOT_FOUND;
    if (status == STATUS_OK)
        status = store_walk_entity_events(store, run.ref, 0, 1, &first, take_event);
    if (status == STATUS_OK)
        status = store_walk_entity_events(store, run.ref, run.head_seq - 1, 1, &last, take_event);
    if (status == STATUS_OK && (first.seq != 1 || last.seq != run.head_seq))
        status = STATUS_INTERNAL_ERROR;
    read->status = status;
    if (status != STATUS_OK)
        return;
    struct event_cursor cursor = event_cursor_of(&last.cursor);
    uuid_format(&last.event_id, event_id);
    struct object_writer receipt = object_begin(&read->out);
    object_text(&receipt, SLICE("schema"), SLICE("openagents.receipt.v1"));
    object_text(&receipt, SLICE("run_id"), run.id);
    object_text(&receipt, SLICE("status"), run.status);
    object_text(&receipt, SLICE("owner_user_id"), run.owner.user_id);
    object_text(&receipt, SLICE("owner_guest_scope"), run.owner.guest_scope);
    object_text(&receipt, SLICE("org_id"), run.owner.org_id);
    object_number(&receipt, SLICE("event_count"), last.seq);
    object_hash(&receipt, SLICE("first_hash"), first.chain_hash);
    object_hash(&receipt, SLICE("last_hash"), last.chain_hash);
    object_json(&receipt, SLICE("head"), SLICE(""));
    struct object_writer head = object_begin(&read->out);
    object_number(&head, SLICE("seq"), last.seq);
    object_text(&head, SLICE("event_id"), (struct slice){event_id, UUID_TEXT_SIZE});
    object_text(&head, SLICE("cursor"),
                (struct slice){cursor_text, event_cursor_encode(&cursor, cursor_text)});
    object_close(&head);
    object_close(&receipt);
    buffer_append_byte(&read->out, '\n');
}

void handle_run_receipt(struct exchange *exchange) {
    struct store_read *read = store_read_new(exchange, ENTITY_RUN, read_receipt);
    if (read)
        store_read_post(read);
}
