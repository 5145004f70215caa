#include "authority/rules/rules.h"

#include <assert.h>

#include "topic/stream_id.h"
#include "topic/topic_name.h"

/* Two names may have one stream id (a.b and a:b). The first topic to use a stream id keeps it. The
 * stream id of the audit log is reserved from the start. */
static enum status check_stream(struct ledger *ledger, struct draft *draft) {
    struct slice audit;
    draft->rests_on_batch = ledger_batch_find_stream(&ledger->batch, draft->stream_id) != NULL;
    enum status status = topic_stream(draft->arena, topic_name(TOPIC_AUDIT), &audit);
    if (status != STATUS_OK)
        return status;
    if (draft->rests_on_batch || slice_equal(draft->stream_id, audit))
        return STATUS_STREAM_ID_CONFLICT;
    return draft->lookup->entry->is_stream_taken ? STATUS_STREAM_ID_CONFLICT : STATUS_OK;
}

/* Appends to a topic or to the audit log, which the first event creates. */
static enum status append_to(struct ledger *ledger, struct draft *draft, enum entity_kind kind) {
    enum status status = ledger_find(draft);
    if (status == STATUS_NOT_FOUND) {
        draft->entity = (struct store_entity){
            .kind = kind,
            .id = draft->request->entity_id,
            .created_at_ms = draft->time_ms,
        };
        status = rules_check_names(draft);
        if (status == STATUS_OK)
            status = topic_name_of_entity(draft->arena, kind, draft->entity.id, &draft->topic);
        if (status == STATUS_OK)
            status = topic_stream(draft->arena, draft->topic, &draft->stream_id);
        if (status == STATUS_OK && kind == ENTITY_TOPIC)
            status = check_stream(ledger, draft);
    }
    if (status == STATUS_OK)
        status = rules_check_conditions(ledger, draft);
    return status == STATUS_OK && !draft->is_answered ? ledger_append(ledger, draft) : status;
}

enum status rules_append_to_topic(struct ledger *ledger, struct draft *draft) {
    /* A name that the projector owns was not looked up. */
    if (!draft->lookup->entry)
        return STATUS_PROJECTION_OWNED_TOPIC;
    return append_to(ledger, draft, ENTITY_TOPIC);
}

enum status rules_notify(struct ledger *ledger, struct draft *draft) {
    draft->request->entity_id = topic_name(TOPIC_NOTIFICATIONS);
    return append_to(ledger, draft, ENTITY_TOPIC);
}

enum status rules_audit(struct ledger *ledger, struct draft *draft) {
    draft->request->entity_id = SLICE(AUDIT_ENTITY_ID);
    return append_to(ledger, draft, ENTITY_AUDIT);
}
