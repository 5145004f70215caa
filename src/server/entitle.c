#include "server/entitle.h"

#include <assert.h>
#include <stdlib.h>

#include "server/conn.h"
#include "server/readers.h"
#include "server/server.h"

#define ARENA_BYTES_MAX (1u << 20)

struct look {
    struct reader_task task;
    struct loop_task back;
    struct exchange *exchange;
    struct slice topic;
    void (*next)(struct exchange *exchange);
    enum entity_kind kind;
    struct slice id;
    enum status status;
    struct arena arena;
    struct store_entity entity;
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
        conn_handle(exchange, next);
        return;
    }
    exchange_answer_status(exchange, grant->status);
}

static void look_run(struct reader_task *task, struct store_session *session) {
    struct look *look = (struct look *)task;
    look->status = store_load_entity(session, look->kind, look->id, &look->arena, &look->entity);
    enum status status = io_loop_post(look->exchange->loop, &look->back);
    assert(status == STATUS_OK);
    (void)status;
}

static void look_done(struct look *look) {
    struct exchange *exchange = look->exchange;
    enum status status = look->status;
    struct slice topic = look->topic;
    void (*next)(struct exchange * exchange) = look->next;
    struct grant grant =
        grant_check(exchange->principal, topic, status == STATUS_OK ? &look->entity.owner : NULL);
    exchange->work = NULL;
    look_free(look);
    if (status == STATUS_OK || status == STATUS_NOT_FOUND)
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
    enum status status = readers_post(exchange->server->readers, &look->task);
    if (status == STATUS_OK)
        return;
    look->status = status;
    if (exchange_unref(exchange))
        look_done(look);
}

void entitle(struct exchange *exchange, struct slice topic,
             void (*next)(struct exchange *exchange)) {
    struct slice id;
    enum grant_entity entity = grant_entity_of(topic, &id);
    struct grant grant = grant_check(exchange->principal, topic, NULL);
    if (grant.status != STATUS_OWNER_MISMATCH || entity == GRANT_ENTITY_NONE) {
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
                          .next = next,
                          .kind = entity == GRANT_ENTITY_RUN ? ENTITY_RUN : ENTITY_WORKER,
                          .id = id};
    arena_init(&look->arena, ARENA_BYTES_MAX);
    exchange->work = look;
    exchange->work_free = look_free;
    look_post(look);
}
