#include "api/record.h"

#include <stdlib.h>

#include "api/api.h"
#include "base/limits.h"
#include "base/log.h"

struct record {
    struct call call;
    struct append_group group;
    struct exchange *exchange;
    void (*next)(struct exchange *exchange);
    bool is_unconditional; /* next runs in any case */
    enum status status;    /* while the events are written; then of the append */
    size_t event_max;
    enum store_room room_least;
    struct buffer text;
    struct append_request events[];
};

/* ---- writing ---- */

struct record *record_new(struct exchange *exchange, size_t event_max) {
    struct record *record = calloc(1, sizeof(*record) + event_max * sizeof(record->events[0]));
    if (!record) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return NULL;
    }
    record->exchange = exchange;
    record->event_max = event_max;
    record->room_least = STORE_ROOM_LAST;
    record->group.requests = record->events;
    record->group.user = record;
    arena_init(&record->group.arena, RECORD_BYTES_MAX);
    buffer_init(&record->text, RECORD_EVENT_BYTES_MAX);
    return record;
}

void record_leave_last(struct record *record) {
    record->room_least = STORE_ROOM_RESERVE;
}

void record_free(struct record *record) {
    arena_release(&record->group.arena);
    buffer_release(&record->text);
    free(record);
}

struct object_writer record_begin(struct record *record) {
    const struct principal *principal = record->exchange->principal;
    buffer_clear(&record->text);
    struct object_writer event = object_begin(&record->text);
    (void)buffer_append_slice(&record->text, SLICE("\"by\":"));
    struct object_writer by = object_begin(&record->text);
    object_text(&by, SLICE("key"), principal->subject);
    object_text(&by, SLICE("role"), slice_of(key_role_name(principal->role)));
    object_close(&by);
    return event;
}

void record_end(struct record *record, struct object_writer *event, const char *type) {
    struct append_request *request = &record->events[record->group.request_count];
    assert(record->group.request_count < record->event_max);
    enum status status = object_end(event);
    *request = (struct append_request){
        .kind = APPEND_AUDIT_EVENT,
        .event_type = slice_of(type),
        .payload = arena_copy(&record->group.arena, buffer_slice(&record->text)),
        .is_rate_free = true,
        .room_least = record->room_least,
    };
    if (status == STATUS_OK && !request->payload.data)
        status = STATUS_OUT_OF_MEMORY;
    if (record->status == STATUS_OK)
        record->status = status;
    if (status != STATUS_OK)
        return;
    sha256(request->payload.data, request->payload.size, request->payload_hash);
    record->group.request_count++;
}

/* ---- appending ---- */

/* On the writer's thread: the store has the events, and the writer takes them from there. */
static void leave(struct call *call, struct store_session *store) {
    struct record *record = container_of(call, struct record, call);
    record->status = STATUS_OK;
    for (size_t i = 0; record->status == STATUS_OK && i < record->group.request_count; i++)
        record->status =
            store_leave_audit_event(store, record->events[i].event_type, record->events[i].payload);
}

static void finish(struct record *record) {
    struct exchange *exchange = record->exchange;
    void (*next)(struct exchange * exchange) = record->next;
    bool is_unconditional = record->is_unconditional;
    enum status status = record->status;
    for (size_t i = 0; status != STATUS_OK && i < record->group.request_count; i++)
        log_event(LOG_ERROR, "operator.unrecorded", log_str("status", status_code(status)),
                  log_slice("event_type", record->events[i].event_type),
                  log_slice("payload", record->events[i].payload));
    record_free(record);
    if (is_unconditional)
        next(exchange);
    if (!exchange_unref(exchange) || is_unconditional)
        return;
    if (status == STATUS_OK)
        next(exchange);
    else
        exchange_answer_status(exchange, status);
}

static void left(struct call *call) {
    struct record *record = container_of(call, struct record, call);
    if (call->status != STATUS_OK)
        record->status = call->status;
    finish(record);
}

static void appended(struct call *call) {
    struct record *record = container_of(call, struct record, call);
    record->status = call->status;
    for (size_t i = 0; record->status == STATUS_OK && i < record->group.request_count; i++)
        record->status = record->events[i].status;
    if (record->status == STATUS_OK || !record->is_unconditional) {
        finish(record);
        return;
    }
    struct io_loop *loop = record->exchange->loop;
    record->call = (struct call){.run = leave, .done = left, .any_node = true};
    call_writer(&record->call, loop, record->exchange->http->writer);
}

/* On the writer's thread. */
static void group_done(struct append_group *group) {
    struct record *record = group->user;
    call_return_post(&record->call);
}

static void post(struct record *record, void (*next)(struct exchange *exchange)) {
    struct exchange *exchange = record->exchange;
    record->next = next;
    record->group.done = group_done;
    record->call.done = appended;
    exchange_ref(exchange);
    call_begin(&record->call, exchange->loop);
    enum status status = record->status;
    if (status == STATUS_OK)
        status = call_post_group(&record->call, exchange->http->writer, &record->group);
    if (status == STATUS_OK)
        return;
    record->call.status = status;
    call_return_post(&record->call);
}

void record_post(struct record *record, void (*next)(struct exchange *exchange)) {
    post(record, next);
}

void record_post_anyway(struct record *record, void (*next)(struct exchange *exchange)) {
    record->is_unconditional = true;
    post(record, next);
}
