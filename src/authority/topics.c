#include "authority/topics.h"

#include <assert.h>

#include "topic/stream_id.h"
#include "topic/topic_name.h"

#define AUDIT_STREAM_ID "runtime.topic.runtime.audit"

static struct slice join(struct arena *arena, struct slice before, struct slice id,
                         struct slice after) {
    char *text = arena_alloc(arena, before.size + id.size + after.size);
    if (!text)
        return (struct slice){NULL, 0};
    memcpy(text, before.data, before.size);
    memcpy(text + before.size, id.data, id.size);
    memcpy(text + before.size + id.size, after.data, after.size);
    return (struct slice){text, before.size + id.size + after.size};
}

enum status topics_name(struct arena *arena, enum entity_kind kind, struct slice id,
                        struct slice *topic) {
    assert((unsigned)kind < ENTITY_KIND_COUNT);
    *topic = (struct slice){NULL, 0};
    switch (kind) {
    case ENTITY_RUN:
        *topic = join(arena, SLICE("run:"), id, SLICE(":events"));
        break;
    case ENTITY_WORKER:
        *topic = join(arena, SLICE("worker:"), id, SLICE(":lifecycle"));
        break;
    case ENTITY_TOPIC:
        *topic = arena_copy(arena, id);
        break;
    case ENTITY_AUDIT:
        *topic = SLICE(TOPIC_AUDIT);
        break;
    case ENTITY_KIND_COUNT:
        break;
    }
    return topic->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

enum status topics_stream(struct arena *arena, struct slice topic, struct slice *stream_id) {
    char *text = arena_alloc(arena, topic.size + STREAM_ID_BYTES_MAX - TOPIC_NAME_BYTES_MAX);
    if (!text)
        return STATUS_OUT_OF_MEMORY;
    size_t size_max = topic.size + STREAM_ID_BYTES_MAX - TOPIC_NAME_BYTES_MAX;
    struct buffer out = {.data = text, .capacity = size_max, .size_max = size_max};
    enum status status = topic_to_stream(topic, &out);
    *stream_id = buffer_slice(&out);
    return status;
}

/* Two names may have one stream id (a.b and a:b): the first to be used has it for good. The audit
 * log's is kept free from the start. */
static enum status check_stream(struct ledger *ledger, struct draft *draft) {
    draft->rests_on_batch = batch_find_stream(&ledger->batch, draft->stream_id) != NULL;
    if (draft->rests_on_batch || slice_equal(draft->stream_id, SLICE(AUDIT_STREAM_ID)))
        return STATUS_STREAM_ID_CONFLICT;
    struct store_topic other;
    enum status status = store_load_stream(ledger->session, draft->stream_id, draft->arena, &other);
    if (status == STATUS_OK)
        return STATUS_STREAM_ID_CONFLICT;
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status begin_entity(struct ledger *ledger, struct draft *draft, enum entity_kind kind) {
    draft->entity = (struct store_entity){
        .kind = kind,
        .id = draft->request->entity_id,
        .created_at_ms = draft->time_ms,
    };
    enum status status = topics_name(draft->arena, kind, draft->entity.id, &draft->topic);
    if (status == STATUS_OK)
        status = topics_stream(draft->arena, draft->topic, &draft->stream_id);
    if (status == STATUS_OK && kind == ENTITY_TOPIC)
        status = check_stream(ledger, draft);
    return status;
}

static enum status append_to(struct ledger *ledger, struct draft *draft, enum entity_kind kind) {
    enum status status = ledger_find(ledger, draft, kind, draft->request->entity_id);
    if (status == STATUS_NOT_FOUND)
        status = begin_entity(ledger, draft, kind);
    if (status == STATUS_OK)
        status = ledger_check_conditions(ledger, draft);
    return status == STATUS_OK && !draft->is_answered ? ledger_append(ledger, draft) : status;
}

enum status topics_append(struct ledger *ledger, struct draft *draft) {
    if (topic_is_projection_owned(draft->request->entity_id))
        return STATUS_PROJECTION_OWNED_TOPIC;
    return append_to(ledger, draft, ENTITY_TOPIC);
}

enum status topics_notify(struct ledger *ledger, struct draft *draft) {
    draft->request->entity_id = SLICE(TOPIC_NOTIFICATIONS);
    return append_to(ledger, draft, ENTITY_TOPIC);
}

enum status topics_audit(struct ledger *ledger, struct draft *draft) {
    draft->request->entity_id = SLICE(AUDIT_ENTITY_ID);
    return append_to(ledger, draft, ENTITY_AUDIT);
}
