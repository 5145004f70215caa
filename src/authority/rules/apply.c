#include "authority/rules/rules.h"

#include <assert.h>

#include "authority/append.h"
#include "authority/producer.h"

/* The rule of the request's kind. */
static enum status apply_rule(struct ledger *ledger, struct draft *draft) {
    assert((unsigned)draft->request->kind < APPEND_KIND_COUNT);
    switch (draft->request->kind) {
    case APPEND_RUN_CREATE:
        return rules_create_run(ledger, draft);
    case APPEND_RUN_EVENT:
        return rules_append_to_run(ledger, draft);
    case APPEND_WORKER_CREATE:
        return rules_create_worker(ledger, draft);
    case APPEND_WORKER_HEARTBEAT:
        return rules_heartbeat_worker(ledger, draft);
    case APPEND_WORKER_STATUS:
        return rules_set_worker_status(ledger, draft);
    case APPEND_WORKER_EVENT:
        return rules_append_to_worker(ledger, draft);
    case APPEND_TOPIC_EVENT:
        return rules_append_to_topic(ledger, draft);
    case APPEND_AUDIT_EVENT:
        return rules_audit(ledger, draft);
    case APPEND_NOTIFICATION:
        return rules_notify(ledger, draft);
    case APPEND_KIND_COUNT:
        break;
    }
    return STATUS_INTERNAL_ERROR;
}

/* Sets time and cursor of the event, which is also its id unless the client supplied one. An import
 * must continue the log exactly where it ends. */
static enum status begin_event(struct ledger *ledger, struct draft *draft) {
    const struct append_import *import = draft->request->import;
    const struct store_state *state = &ledger->state;
    draft->time_ms = import ? import->recorded_at_ms : ledger->now.wall_ms;
    if (import) {
        draft->cursor = import->cursor;
        bool follows = import->log_id == state->log_id + 1 &&
                       (state->log_id == 0 || uuid_compare(&import->cursor, &state->cursor) > 0);
        return follows ? STATUS_OK : STATUS_IMPORT_REFUSED;
    }
    if (state->log_id > 0 && uuid_compare(&ledger->minter.last, &state->cursor) < 0) {
        enum status status = ledger_start_minting(ledger);
        if (status != STATUS_OK)
            return status;
    }
    /* A client that saw the last id may supply one slightly above it, which is the id that is
     * minted next. Then another one is minted. The commit finds an id that was supplied too long
     * ago to be remembered, and refuses the batch. */
    do
        draft->cursor = id_minter_next(&ledger->minter, ledger->now.wall_ms);
    while (!draft->request->has_event_id && recent_ids_has_minted(&ledger->recent, &draft->cursor));
    return STATUS_OK;
}

void rules_skip(struct ledger *ledger, const struct append_request *request) {
    (void)lookups_take(&ledger->lookups, request);
}

void rules_apply(struct ledger *ledger, struct append_request *request, struct arena *arena) {
    assert(request->status == STATUS_OK);
    struct draft draft = {
        .request = request,
        .lookup = lookups_take(&ledger->lookups, request),
        .arena = arena,
        .type = request->event_type,
        .payload = request->payload,
    };
    memcpy(draft.payload_hash, request->payload_hash, SHA256_BYTES);
    request->status = draft.lookup->status;
    if (request->status == STATUS_OK)
        request->status = begin_event(ledger, &draft);
    if (request->status == STATUS_OK) {
        /* The entity as the requests before this one left it. */
        const struct entity_entry *entry = draft.lookup->entry;
        bool exists = entry && entry->status == STATUS_OK && ledger_find(&draft) == STATUS_OK;
        request->status = producer_check(request, exists ? &draft.entity : NULL, arena);
    }
    if (request->status == STATUS_OK)
        request->status = apply_rule(ledger, &draft);
    if (request->status == STATUS_OK)
        return;
    request->event = (struct store_event){0};
    /* A refusal is final. One that rests on this batch must not outlive the batch's failure. */
    if (draft.rests_on_batch || ledger_is_under_way(ledger, &draft))
        ledger_hold_back(ledger, &draft);
}

/* ---- groups ---- */

void rules_gather_group(struct ledger *ledger, struct append_group *group) {
    for (size_t i = 0; i < group->request_count; i++)
        if (group->requests[i].status == STATUS_OK)
            ledger_gather(ledger, &group->requests[i], &group->arena);
}

void rules_apply_group(struct ledger *ledger, struct append_group *group) {
    for (size_t i = 0; i < group->request_count; i++) {
        struct append_request *request = &group->requests[i];
        if (request->status == STATUS_OK && group->order &&
            append_order_blocks(group->order, request)) {
            /* The request would overtake a refused one. */
            rules_skip(ledger, request);
            request->status = STATUS_NOT_ATTEMPTED;
        } else if (request->status == STATUS_OK) {
            rules_apply(ledger, request, &group->arena);
        }
        if (group->order)
            append_order_note(group->order, request);
    }
}
