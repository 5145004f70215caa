/* The endpoints that append one event. They read the body and post it to the writer. The answer is
 * sent when the commit is durable. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/append/append_answer.h"
#include "api/handlers.h"
#include "authority/append_read.h"
#include "authority/body_hash.h"
#include "base/limits.h"
#include "http/admit/admission.h"
#include "http/exchange_call.h"

static void work_free(void *memory) {
    struct append_work *work = memory;
    append_work_give(api_appends(work->call.exchange), work);
}

static void answer_done(struct exchange *exchange, const struct append_request *request) {
    struct buffer *out = &api_appends(exchange)->answer;
    buffer_clear(out);
    enum status status = append_write_answer(out, exchange, request);
    if (status == STATUS_OK)
        exchange_answer_json(exchange, append_http_status(request), buffer_slice(out));
    else
        exchange_answer_status(exchange, status);
    if (out->capacity > APPEND_WORK_KEPT_BYTES)
        buffer_release(out);
}

static void answer_refused(struct exchange *exchange, const struct append_request *request) {
    struct buffer details;
    char seconds[24];
    char message[APPEND_MESSAGE_BYTES_MAX];
    uint64_t retry_after_ms = 0;
    buffer_init(&details, APPEND_DETAILS_BYTES_MAX);
    if (request->status == STATUS_KHALA_PUBLISH_RATE_LIMITED ||
        request->status == STATUS_QUOTA_EXCEEDED)
        retry_after_ms = request->refusal.retry_after_ms;
    else if (status_http(request->status) == 503)
        retry_after_ms = 1000;
    snprintf(seconds, sizeof(seconds), "%llu", (unsigned long long)(retry_after_ms + 999) / 1000);
    struct http1_header header = {SLICE("Retry-After"), slice_of(seconds)};
    if (append_write_details(&details, request) != STATUS_OK)
        buffer_clear(&details);
    exchange_answer_error(exchange,
                          &(struct exchange_error){.status = request->status,
                                                   .message = append_message(request, message),
                                                   .details = buffer_slice(&details),
                                                   .topic = append_refused_topic(request),
                                                   .headers = &header,
                                                   .header_count = retry_after_ms > 0});
    buffer_release(&details);
}

static void work_answer(struct exchange_call *call) {
    struct append_work *work = container_of(call, struct append_work, call);
    if (call->call.status != STATUS_OK)
        append_refuse(&work->request, call->call.status, NULL);
    if (work->request.status == STATUS_OK)
        answer_done(call->exchange, &work->request);
    else
        answer_refused(call->exchange, &work->request);
}

/* On the writer's thread. */
static void group_done(struct append_group *group) {
    struct append_work *work = group->user;
    struct exchange *exchange = work->call.exchange;
    store_health_note(&api_of(exchange)->health, work->request.status);
    call_return_post(&work->call.call);
}

static enum status check_hash(struct append_work *work, struct json_value body) {
    enum status status = body_hash_check(api_parser(work->call.exchange), body);
    const char *message = "event_hash must be 64 hexadecimal digits, with or without sha256:.";
    if (status != STATUS_OK)
        append_refuse(&work->request, status, status == STATUS_INVALID_REQUEST ? message : NULL);
    return status;
}

static enum status work_read(struct append_work *work, enum append_kind kind, struct slice id) {
    struct exchange *exchange = work->call.exchange;
    const struct json_limits limits = {exchange->http->options.append_bytes_max, JSON_DEPTH_MAX};
    struct slice text = buffer_slice(&exchange->body);
    struct json_value body;
    api_parser(exchange)->producer = api_producer(exchange);
    /* If all members are optional, the body may be empty. */
    enum status status = json_parse(text.size > 0 ? text : SLICE("{}"), &limits, &body);
    if (status != STATUS_OK) {
        work->request = (struct append_request){.kind = kind};
        append_refuse(&work->request, status, NULL);
        return status;
    }
    status = append_read(api_parser(exchange), kind, id, body, &work->group.arena, &work->request);
    return status == STATUS_OK && kind == APPEND_AUDIT_EVENT ? check_hash(work, body) : status;
}

enum status api_check_producer(const struct exchange *exchange) {
    if (exchange_token_expired(exchange))
        return STATUS_TOKEN_EXPIRED;
    uint64_t now_ms = clock_wall_ms(&exchange->loop->clock);
    return admission_is_revoked(exchange->http, exchange->principal, now_ms) ? STATUS_TOKEN_REVOKED
                                                                             : STATUS_OK;
}

static void append(struct exchange *exchange, enum append_kind kind, struct slice id) {
    enum status admitted = api_check_producer(exchange);
    struct append_work *work =
        admitted == STATUS_OK ? append_work_take(api_appends(exchange)) : NULL;
    if (!work) {
        exchange_answer_status(exchange, admitted == STATUS_OK ? STATUS_OUT_OF_MEMORY : admitted);
        return;
    }
    work->call = (struct exchange_call){.exchange = exchange, .answer = work_answer};
    work->group.requests = &work->request;
    work->group.request_count = 1;
    work->group.done = group_done;
    work->group.user = work;
    exchange->work = work;
    exchange->work_free = work_free;
    if (work_read(work, kind, id) != STATUS_OK) {
        answer_refused(exchange, &work->request);
        return;
    }
    exchange_call_begin(&work->call);
    enum status status = call_post_group(&work->call.call, api_of(exchange)->writer, &work->group);
    if (status != STATUS_OK)
        exchange_call_fail(&work->call, status);
}

static const struct slice no_id = {NULL, 0};

void handle_run_create(struct exchange *exchange) {
    append(exchange, APPEND_RUN_CREATE, no_id);
}

void handle_run_append(struct exchange *exchange) {
    append(exchange, APPEND_RUN_EVENT, exchange->match.parameters[0]);
}

void handle_worker_create(struct exchange *exchange) {
    append(exchange, APPEND_WORKER_CREATE, no_id);
}

void handle_worker_heartbeat(struct exchange *exchange) {
    append(exchange, APPEND_WORKER_HEARTBEAT, exchange->match.parameters[0]);
}

void handle_worker_status(struct exchange *exchange) {
    append(exchange, APPEND_WORKER_STATUS, exchange->match.parameters[0]);
}

void handle_worker_append(struct exchange *exchange) {
    append(exchange, APPEND_WORKER_EVENT, exchange->match.parameters[0]);
}

void handle_topic_append(struct exchange *exchange) {
    append(exchange, APPEND_TOPIC_EVENT, exchange->match.parameters[0]);
}

void handle_notification(struct exchange *exchange) {
    append(exchange, APPEND_NOTIFICATION, no_id);
}

void handle_event_ingest(struct exchange *exchange) {
    append(exchange, APPEND_AUDIT_EVENT, no_id);
}
