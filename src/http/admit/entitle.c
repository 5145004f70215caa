#include "http/admit/entitle.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "http/conn.h"
#include "http/exchange_call.h"
#include "io/store_pool.h"

enum status entitle_load(struct store_session *session, const struct principal *principal,
                         struct slice topic, struct arena *arena, struct grant *grant) {
    struct store_entity entity;
    struct slice id;
    bool is_narrowed = principal->topics.count + principal->streams.count > 0;
    enum entity_kind kind = ENTITY_NONE;
    *grant = grant_check(principal, topic, NULL);
    if (topic.data)
        kind = grant_entity_of(topic, &id);
    else if (principal->read_all && !is_narrowed)
        *grant = (struct grant){STATUS_OK, GRANT_VIEW_ALL};
    if (grant->status != STATUS_OWNER_MISMATCH || kind == ENTITY_NONE)
        return STATUS_OK;
    enum status status = store_load_entity(session, kind, id, arena, &entity);
    if (status == STATUS_OK)
        *grant = grant_check(principal, topic, &entity.owner);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* A check that needs the owner from the store. */
struct owner_check {
    struct exchange_call call;
    struct slice topic;
    void (*next)(struct exchange *exchange);
    struct arena arena;
    struct grant grant;
};

static void check_free(void *memory) {
    struct owner_check *check = memory;
    arena_release(&check->arena);
    free(check);
}

static void decide(struct exchange *exchange, const struct grant *grant,
                   void (*next)(struct exchange *exchange)) {
    exchange->view = grant->view;
    if (grant->status == STATUS_OK)
        exchange_handle(exchange, next);
    else
        exchange_answer_status(exchange, grant->status);
}

static void check_run(struct call *call, struct store_session *store) {
    struct owner_check *check = container_of(call, struct owner_check, call.call);
    call->status = entitle_load(store, check->call.exchange->principal, check->topic, &check->arena,
                                &check->grant);
}

static void check_answer(struct exchange_call *call) {
    struct owner_check *check = container_of(call, struct owner_check, call);
    struct exchange *exchange = call->exchange;
    enum status status = call->call.status;
    struct grant grant = check->grant;
    void (*next)(struct exchange * exchange) = check->next;
    exchange->work = NULL;
    check_free(check);
    if (status == STATUS_OK)
        decide(exchange, &grant, next);
    else
        exchange_answer_status(exchange, status);
}

void entitle(struct exchange *exchange, struct slice topic,
             void (*next)(struct exchange *exchange)) {
    struct slice id;
    enum entity_kind entity = grant_entity_of(topic, &id);
    struct grant grant = grant_check(exchange->principal, topic, NULL);
    if (grant.status != STATUS_OWNER_MISMATCH || entity == ENTITY_NONE) {
        decide(exchange, &grant, next);
        return;
    }
    struct owner_check *check = calloc(1, sizeof(*check));
    if (!check) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    check->call =
        (struct exchange_call){.call.run = check_run, .exchange = exchange, .answer = check_answer};
    check->topic = topic;
    check->next = next;
    arena_init(&check->arena, ENTITLE_ARENA_BYTES_MAX);
    exchange->work = check;
    exchange->work_free = check_free;
    exchange_call_store(&check->call);
}
