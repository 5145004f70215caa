#include "http/admit/entitle.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "http/conn.h"
#include "io/store_pool.h"

enum status entitle_look(struct store_session *session, const struct principal *principal,
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

struct look {
    struct store_task task;
    struct loop_task back;
    struct exchange *exchange;
    struct slice topic;
    void (*next)(struct exchange *exchange);
    enum status status;
    struct arena arena;
    struct grant grant;
};

static void look_free(void *memory) {
    struct look *look = memory;
    arena_release(&look->arena);
    free(look);
}

static void decide(struct exchange *exchange, const struct grant *grant,
                   void (*next)(struct exchange *exchange)) {
    exchange->view = grant->view;
    if (grant->status == STATUS_OK) {
        exchange_handle(exchange, next);
        return;
    }
    exchange_answer_status(exchange, grant->status);
}

static void look_run(struct store_task *task, struct store_session *session) {
    struct look *look = (struct look *)task;
    look->status =
        entitle_look(session, look->exchange->principal, look->topic, &look->arena, &look->grant);
    enum status status = io_loop_post(look->exchange->loop, &look->back);
    assert(status == STATUS_OK);
    (void)status;
}

static void look_done(struct look *look) {
    struct exchange *exchange = look->exchange;
    enum status status = look->status;
    struct grant grant = look->grant;
    void (*next)(struct exchange * exchange) = look->next;
    exchange->work = NULL;
    look_free(look);
    if (status == STATUS_OK)
        decide(exchange, &grant, next);
    else
        exchange_answer_status(exchange, status);
}

static void look_back(struct loop_task *task) {
    struct look *look = (struct look *)((char *)task - offsetof(struct look, back));
    if (exchange_unref(look->exchange))
        look_done(look);
}

static void look_post(struct look *look) {
    struct exchange *exchange = look->exchange;
    exchange_ref(exchange);
    /* Once posted it is the reader's: nothing of it is touched here. */
    enum status status = store_pool_post(exchange->http->store_pool, &look->task);
    if (status == STATUS_OK)
        return;
    look->status = status;
    if (exchange_unref(exchange))
        look_done(look);
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
    struct look *look = calloc(1, sizeof(*look));
    if (!look) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    *look = (struct look){.task.run = look_run,
                          .back.run = look_back,
                          .exchange = exchange,
                          .topic = topic,
                          .next = next};
    arena_init(&look->arena, ENTITLE_ARENA_BYTES_MAX);
    exchange->work = look;
    exchange->work_free = look_free;
    look_post(look);
}
