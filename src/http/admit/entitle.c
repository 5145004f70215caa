#include "http/admit/entitle.h"

#include <assert.h>
#include <stdlib.h>

#include "auth/token.h"
#include "base/limits.h"
#include "delivery/access.h"
#include "http/admit/single_use.h"
#include "http/conn.h"
#include "store/store_pool.h"
#include "topic/topic_name.h"

/* A check that needs the store: for the topic of a stream id. */
struct stream_check {
    struct exchange_call call;
    struct slice address;
    bool is_of_path; /* the address is a parameter of the route, which becomes the topic */
    void (*next)(struct exchange *exchange);
    struct arena arena;
    struct topic_address found;
    struct grant grant;
};

static void check_free(void *memory) {
    struct stream_check *check = memory;
    arena_release(&check->arena);
    free(check);
}

static void decide(struct exchange *exchange, const struct grant *grant, struct slice topic,
                   void (*next)(struct exchange *exchange)) {
    exchange->view = grant->view;
    exchange->scopes_needed = topic_row(topic_kind_of(topic, NULL))->scopes_any;
    if (grant->status == STATUS_OK)
        exchange_handle(exchange, next);
    else
        exchange_answer_status(exchange, grant->status);
}

/* Handlers find the name of the topic in the parameters of the route. Routes of topics have no
 * other parameter. */
static enum status rename_topic(struct exchange *exchange, struct slice topic) {
    struct buffer *memory = &exchange->parameter_memory;
    assert(exchange->match.parameter_count == 1);
    buffer_clear(memory);
    buffer_append_slice(memory, topic);
    if (buffer_status(memory) == STATUS_OK)
        exchange->match.parameters[0] = buffer_slice(memory);
    return buffer_status(memory);
}

static void check_run(struct call *call, struct store_session *store) {
    struct stream_check *check = container_of(call, struct stream_check, call.call);
    struct slice topic = check->address;
    call->status = topic_address_find(store, topic, &check->arena, &check->found);
    if (check->found.topic.data)
        topic = check->found.topic;
    if (call->status == STATUS_OK)
        check->grant = grant_subscribe(check->call.exchange->principal, topic);
}

static void check_answer(struct exchange_call *call) {
    struct stream_check *check = container_of(call, struct stream_check, call);
    struct exchange *exchange = call->exchange;
    enum status status = call->call.status;
    struct grant grant = check->grant;
    struct slice address = check->address;
    if (status == STATUS_OK && check->is_of_path && check->found.topic.data)
        status = rename_topic(exchange, check->found.topic);
    void (*next)(struct exchange * exchange) = check->next;
    exchange->work = NULL;
    check_free(check);
    if (status == STATUS_OK)
        decide(exchange, &grant, address, next);
    else
        exchange_answer_status(exchange, status);
}

static void entitle_as(struct exchange *exchange, struct slice address, bool is_of_path,
                       void (*next)(struct exchange *exchange)) {
    if (address_kind(address) != ADDRESS_STORED_STREAM) {
        struct grant grant = grant_subscribe(exchange->principal, address);
        decide(exchange, &grant, address, next);
        return;
    }
    struct stream_check *check = calloc(1, sizeof(*check));
    if (!check) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    check->call =
        (struct exchange_call){.call.run = check_run, .exchange = exchange, .answer = check_answer};
    check->address = address;
    check->is_of_path = is_of_path;
    check->next = next;
    arena_init(&check->arena, ENTITLE_ARENA_BYTES_MAX);
    exchange->work = check;
    exchange->work_free = check_free;
    exchange_call_store(&check->call);
}

void entitle(struct exchange *exchange, struct slice topic,
             void (*next)(struct exchange *exchange)) {
    entitle_as(exchange, topic, false, next);
}

void entitle_path(struct exchange *exchange, void (*next)(struct exchange *exchange)) {
    char text[TOPIC_NAME_BYTES_MAX];
    struct buffer topic = buffer_over(text, sizeof(text));
    enum status status = address_check(exchange->match.parameters[0]);
    if (status == STATUS_OK && address_kind(exchange->match.parameters[0]) == ADDRESS_STREAM) {
        status = address_topic(exchange->match.parameters[0], &topic);
        if (status == STATUS_OK)
            status = rename_topic(exchange, buffer_slice(&topic));
    }
    if (status == STATUS_OK)
        entitle_as(exchange, exchange->match.parameters[0], true, next);
    else
        exchange_answer_status(exchange,
                               status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_INVALID_TOPIC : status);
}

void entitle_run(struct exchange *exchange, void (*next)(struct exchange *exchange)) {
    struct arena arena;
    struct slice topic;
    arena_init(&arena, ENTITLE_ARENA_BYTES_MAX);
    enum status status =
        topic_name_of_entity(&arena, ENTITY_RUN, exchange->match.parameters[0], &topic);
    if (status == STATUS_OK) {
        struct grant grant = grant_subscribe(exchange->principal, topic);
        decide(exchange, &grant, topic, next);
    } else {
        exchange_answer_status(exchange, status);
    }
    arena_release(&arena);
}

/* ---- single use of tokens ----------------------------------------------------------------- */

struct opening {
    struct exchange_call call;
    struct single_use use;
};

static void opening_answer(struct exchange_call *call) {
    struct exchange *exchange = call->exchange;
    enum status status = call->call.status;
    exchange->work = NULL;
    free(container_of(call, struct opening, call));
    exchange->token_rule = status == STATUS_TOKEN_REPLAYED ? TOKEN_RULE_USED : NULL;
    if (status == STATUS_OK)
        exchange_handle(exchange, exchange->match.route->handle);
    else
        exchange_answer_status(exchange, status);
}

void open_once(struct exchange *exchange) {
    struct slice id = exchange->principal->token_id;
    if (exchange_is_head(exchange) || principal_is_operator(exchange->principal)) {
        exchange->match.route->handle(exchange);
        return;
    }
    struct opening *opening = id.data ? calloc(1, sizeof(*opening)) : NULL;
    enum status status = id.data ? STATUS_OUT_OF_MEMORY : STATUS_MISSING_JTI;
    if (opening)
        status = single_use_init(&opening->use, SINGLE_USE_TOKEN, id);
    if (status != STATUS_OK) {
        free(opening);
        exchange_answer_status(exchange, status);
        return;
    }
    opening->use.expires_at_ms = single_use_token_until_ms(exchange->principal);
    opening->use.forget_ms = io_loop_forget_ms(exchange->loop);
    opening->call = (struct exchange_call){.exchange = exchange, .answer = opening_answer};
    exchange->work = opening;
    exchange->work_free = free;
    exchange_call_begin(&opening->call);
    single_use_post(&exchange->http->single_uses, &opening->use, &opening->call.call,
                    exchange->principal);
}
