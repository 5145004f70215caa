#include "authority/rules/apply.h"

#include <assert.h>

#include "authority/append_order.h"
#include "authority/producer.h"
#include "authority/rules/runs.h"
#include "authority/rules/topics.h"
#include "authority/rules/workers.h"

/* The entity as the requests before this one left it. */
static enum status check_producer(struct draft *draft) {
    const struct entity_entry *entry = draft->lookup->entry;
    bool exists = entry && entry->status == STATUS_OK && ledger_find(draft) == STATUS_OK;
    return producer_check(draft->request, exists ? &draft->entity : NULL, draft->arena);
}

static enum status apply_rule(struct ledger *ledger, struct draft *draft) {
    assert((unsigned)draft->request->kind < APPEND_KIND_COUNT);
    switch (draft->request->kind) {
    case APPEND_RUN_CREATE:
        return runs_create(ledger, draft);
    case APPEND_RUN_EVENT:
        return runs_append(ledger, draft);
    case APPEND_WORKER_CREATE:
        return workers_create(ledger, draft);
    case APPEND_WORKER_HEARTBEAT:
        return workers_heartbeat(ledger, draft);
    case APPEND_WORKER_STATUS:
        return workers_set_status(ledger, draft);
    case APPEND_WORKER_EVENT:
        return workers_append(ledger, draft);
    case APPEND_TOPIC_EVENT:
        return topics_append(ledger, draft);
    case APPEND_AUDIT_EVENT:
        return topics_audit(ledger, draft);
    case APPEND_NOTIFICATION:
        return topics_notify(ledger, draft);
    case APPEND_KIND_COUNT:
        break;
    }
    return STATUS_INTERNAL_ERROR;
}

/* Also the id of the event, unless the client supplied one. A client that saw the last id may
 * supply one slightly above it, and so take the id that is minted next: then another is minted. An
 * id that was supplied too long ago to be remembered is found by the commit, which refuses the
 * batch. */
static struct uuid mint_cursor(struct ledger *ledger, const struct append_request *request) {
    struct uuid cursor = id_minter_next(&ledger->minter, ledger->now.wall_ms);
    while (!request->has_event_id && recent_ids_has_minted(&ledger->recent, &cursor))
        cursor = id_minter_next(&ledger->minter, ledger->now.wall_ms);
    return cursor;
}

/* An import must continue the log exactly where it ends. */
static enum status begin_import(struct ledger *ledger, struct draft *draft) {
    const struct append_import *import = draft->request->import;
    const struct store_state *state = &ledger->state;
    draft->cursor = import->cursor;
    draft->time_ms = import->recorded_at_ms;
    bool follows = import->log_id == state->log_id + 1 &&
                   (state->log_id == 0 || uuid_compare(&import->cursor, &state->cursor) > 0);
    return follows ? STATUS_OK : STATUS_IMPORT_REFUSED;
}

static enum status begin_event(struct ledger *ledger, struct draft *draft) {
    draft->time_ms = ledger->now.wall_ms;
    enum status status = STATUS_OK;
    if (ledger->state.log_id > 0 && uuid_compare(&ledger->minter.last, &ledger->state.cursor) < 0)
        status = ledger_start_minting(ledger);
    if (status == STATUS_OK)
        draft->cursor = mint_cursor(ledger, draft->request);
    return status;
}

void ledger_skip(struct ledger *ledger, const struct append_request *request) {
    (void)lookups_take(&ledger->lookups, request);
}

void ledger_apply(struct ledger *ledger, struct append_request *request, struct arena *arena) {
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
        request->status =
            request->import ? begin_import(ledger, &draft) : begin_event(ledger, &draft);
    if (request->status == STATUS_OK)
        request->status = check_producer(&draft);
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

void append_group_refuse(struct append_group *group, enum status status) {
    for (size_t i = 0; i < group->request_count; i++)
        if (group->requests[i].status == STATUS_OK)
            group->requests[i].status = status;
}

void append_group_refuse_new(struct append_group *group, enum status status) {
    for (size_t i = 0; i < group->request_count; i++)
        if (group->requests[i].status == STATUS_OK && !group->requests[i].import)
            group->requests[i].status = status;
}

void ledger_gather_group(struct ledger *ledger, struct append_group *group) {
    for (size_t i = 0; i < group->request_count; i++)
        if (group->requests[i].status == STATUS_OK)
            ledger_gather(ledger, &group->requests[i], &group->arena);
}

/* A request that would overtake a refused one is not applied. */
static void apply_request(struct ledger *ledger, struct append_group *group,
                          struct append_request *request) {
    if (group->order && append_order_blocks(group->order, request)) {
        ledger_skip(ledger, request);
        request->status = STATUS_NOT_ATTEMPTED;
    } else {
        ledger_apply(ledger, request, &group->arena);
    }
}

void ledger_apply_group(struct ledger *ledger, struct append_group *group) {
    for (size_t i = 0; i < group->request_count; i++) {
        struct append_request *request = &group->requests[i];
        if (request->status == STATUS_OK)
            apply_request(ledger, group, request);
        if (group->order)
            append_order_note(group->order, request);
    }
}
