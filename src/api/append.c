/* The endpoints that append one event, the memory of a loop's appends, and the form of the answers.
 *
 *   body ──append_read──▶ request ──▶ writer ──commit──▶ call returns ──▶ answer
 *
 * The handler posts a group of one request to the writer. The answer is written when the call has
 * returned, so it is sent only after the commit is durable. Batches write their items with the same
 * functions. */
#include "api/append.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/handlers.h"
#include "api/health.h"
#include "authority/append_read.h"
#include "authority/entity_state.h"
#include "authority/event_write.h"
#include "authority/lookups.h"
#include "base/limits.h"
#include "base/log.h"
#include "http/admit/admission.h"
#include "topic/policy.h"
#include "wire/json.h"

/* ---- the memory of a loop ----------------------------------------------------------------- */

void append_memory_init(struct append_memory *memory, size_t body_bytes_max) {
    *memory = (struct append_memory){.kept = NULL};
    append_parser_init(&memory->parser, body_bytes_max);
    buffer_init(&memory->answer, APPEND_ANSWER_BYTES_MAX);
}

void append_memory_release(struct append_memory *memory) {
    while (memory->kept) {
        struct append_work *work = memory->kept;
        memory->kept = work->next;
        arena_release(&work->group.arena);
        free(work);
    }
    buffer_release(&memory->answer);
    append_parser_release(&memory->parser);
}

/* The work has an empty arena, and its call and group are zero otherwise. */
static struct append_work *work_take(struct append_memory *memory) {
    struct append_work *work = memory->kept;
    if (!work) {
        work = malloc(sizeof(*work));
        if (work)
            arena_init(&work->group.arena, APPEND_ARENA_BYTES_MAX);
    } else {
        memory->kept = work->next;
        memory->kept_count--;
    }
    if (!work)
        return NULL;
    work->call = (struct exchange_call){.exchange = NULL};
    work->group = (struct append_group){.arena = work->group.arena};
    return work;
}

/* Keeps the work for a later append, within the limits of its loop. */
static void work_free(void *memory) {
    struct append_work *work = memory;
    struct append_memory *appends = api_appends(work->call.exchange);
    arena_reset(&work->group.arena);
    if (appends->kept_count == APPEND_WORKS_KEPT ||
        work->group.arena.bytes_held > APPEND_WORK_KEPT_BYTES) {
        arena_release(&work->group.arena);
        free(work);
        return;
    }
    work->next = appends->kept;
    appends->kept = work;
    appends->kept_count++;
}

/* ---- answers ------------------------------------------------------------------------------ */

unsigned append_http_status(const struct append_request *request) {
    if (request->status == STATUS_OK && request->created)
        return 201;
    return (unsigned)status_http(request->status);
}

struct slice append_refused_topic(const struct append_request *request) {
    return request->kind == APPEND_TOPIC_EVENT ? request->entity_id : request->refusal.topic;
}

/* The members "event" and "deduplicated". "hint" follows if the type of a run's event looks like
 * the end of the run. People who do not read answers find the hint in the log, once for each type.
 */
static void write_event(struct buffer *out, struct exchange *exchange,
                        const struct append_request *request) {
    static atomic_uint hints_logged;
    unsigned index = 0;
    const char *hint =
        request->kind == APPEND_RUN_EVENT ? run_event_hint(request->event_type, &index) : NULL;
    buffer_append_slice(out, SLICE("\"event\":"));
    buffer_note(out, event_write_json(out, &request->event));
    buffer_append_slice(out, request->deduplicated ? SLICE(",\"deduplicated\":true")
                                                   : SLICE(",\"deduplicated\":false"));
    if (!hint)
        return;
    buffer_append_slice(out, SLICE(",\"hint\":"));
    json_write_string(out, slice_of(hint));
    if (!(atomic_fetch_or(&hints_logged, 1u << index) & 1u << index))
        log_event(LOG_WARN, "append.no_state_change",
                  log_slice("request_id", exchange_request_id(exchange)),
                  log_slice("event_type", request->event_type), log_str("hint", hint));
}

static void write_limit(struct buffer *out, const struct append_refusal *refusal) {
    buffer_append_slice(out, SLICE("{\"topic\":"));
    if (refusal->topic.data)
        json_write_string(out, refusal->topic);
    else
        buffer_append_slice(out, SLICE("null"));
    buffer_printf(out, ",\"topic_class\":\"%s\",\"publish_class\":\"%s\",",
                  topic_class_name(refusal->policy->topic_class),
                  publish_class_name(refusal->policy->publish_class));
}

const char *append_message(const struct append_request *request,
                           char text[APPEND_MESSAGE_BYTES_MAX]) {
    const struct append_refusal *refusal = &request->refusal;
    if (refusal->message)
        return refusal->message;
    if (request->status == STATUS_INVALID_TRANSITION && refusal->state)
        snprintf(text, APPEND_MESSAGE_BYTES_MAX,
                 "The %s is %s, and that state does not allow this event.",
                 entity_kind_name(append_entity_kind(request->kind)), refusal->state);
    else if (request->status == STATUS_KHALA_PUBLISH_RATE_LIMITED)
        snprintf(text, APPEND_MESSAGE_BYTES_MAX,
                 "The topic's publish rate of %llu events per second is exceeded. %s raises it.",
                 (unsigned long long)refusal->limit,
                 refusal->policy->declared & 1u << TOPIC_RULE_PUBLISH_RATE_PER_SECOND
                     ? "Its rule in KHALA_TOPICS_FILE"
                     : policy_publish_setting(refusal->policy->publish_class,
                                              POLICY_FIELD_PUBLISH_RATE_PER_SECOND));
    else if (request->status == STATUS_QUOTA_EXCEEDED)
        snprintf(text, APPEND_MESSAGE_BYTES_MAX, "The owner's quota %s of %llu is used up.",
                 refusal->quota, (unsigned long long)refusal->limit);
    else
        return NULL;
    return text;
}

void append_write_details(struct buffer *out, const struct append_request *request) {
    const struct append_refusal *refusal = &request->refusal;
    if (request->status == STATUS_SEQUENCE_CONFLICT) {
        buffer_printf(out, "{\"expected_previous_seq\":%llu,\"actual_seq\":%llu}",
                      (unsigned long long)request->expected_previous_seq,
                      (unsigned long long)refusal->actual_seq);
    } else if (request->status == STATUS_INVALID_TRANSITION && refusal->state) {
        buffer_printf(out, "{\"state\":\"%s\"}", refusal->state);
    } else if (request->status == STATUS_KHALA_PUBLISH_RATE_LIMITED) {
        write_limit(out, refusal);
        buffer_printf(out, "\"limit\":%llu,\"retry_after_ms\":%llu}",
                      (unsigned long long)refusal->limit,
                      (unsigned long long)refusal->retry_after_ms);
    } else if (request->status == STATUS_QUOTA_EXCEEDED) {
        buffer_printf(out, "{\"quota\":\"%s\",\"used\":%llu,\"limit\":%llu", refusal->quota,
                      (unsigned long long)refusal->used, (unsigned long long)refusal->limit);
        if (refusal->retry_after_ms > 0)
            buffer_printf(out, ",\"retry_after_ms\":%llu",
                          (unsigned long long)refusal->retry_after_ms);
        buffer_append_byte(out, '}');
    } else if (request->status == STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE) {
        write_limit(out, refusal);
        buffer_printf(out, "\"payload_bytes\":%llu,\"max_payload_bytes\":%llu}",
                      (unsigned long long)refusal->payload_bytes,
                      (unsigned long long)refusal->max_payload_bytes);
    }
}

enum status append_write_item(struct buffer *out, struct exchange *exchange, uint64_t index,
                              const struct append_request *request) {
    size_t before = out->size;
    buffer_append_slice(out, SLICE("{\"index\":"));
    buffer_append_u64(out, index);
    buffer_append_slice(out, SLICE(",\"status\":"));
    buffer_append_u64(out, append_http_status(request));
    buffer_append_byte(out, ',');
    if (request->status == STATUS_OK) {
        write_event(out, exchange, request);
    } else {
        struct buffer details;
        char message[APPEND_MESSAGE_BYTES_MAX];
        buffer_init(&details, APPEND_DETAILS_BYTES_MAX);
        exchange_log_refusal(exchange, request->status, append_refused_topic(request));
        append_write_details(&details, request);
        buffer_append_slice(out, SLICE("\"error\":"));
        buffer_note(out, buffer_status(&details));
        buffer_note(out, exchange_error_write(
                             exchange,
                             &(struct exchange_error){.status = request->status,
                                                      .message = append_message(request, message),
                                                      .details = buffer_slice(&details)},
                             out));
        buffer_release(&details);
    }
    buffer_append_byte(out, '}');
    return buffer_end(out, before);
}

/* ---- one append --------------------------------------------------------------------------- */

static void answer_done(struct exchange *exchange, const struct append_request *request) {
    struct buffer *out = &api_appends(exchange)->answer;
    enum append_kind kind = request->kind;
    buffer_clear(out);
    buffer_append_byte(out, '{');
    /* A producer may append to an entity that it may not read. */
    if (!request->producer || request->created) {
        if (kind == APPEND_RUN_CREATE) {
            buffer_append_slice(out, SLICE("\"run\":"));
            buffer_note(out, run_write_json(out, &request->entity));
            buffer_append_byte(out, ',');
        } else if (kind == APPEND_WORKER_CREATE || kind == APPEND_WORKER_HEARTBEAT ||
                   kind == APPEND_WORKER_STATUS) {
            buffer_append_slice(out, SLICE("\"worker\":"));
            buffer_note(out, worker_write_json(out, &request->entity,
                                               clock_wall_ms(&exchange->loop->clock)));
            buffer_append_byte(out, ',');
        }
    }
    write_event(out, exchange, request);
    buffer_append_slice(out, SLICE("}\n"));
    if (buffer_status(out) == STATUS_OK)
        exchange_answer_json(exchange, append_http_status(request), buffer_slice(out));
    else
        exchange_answer_status(exchange, buffer_status(out));
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
    append_write_details(&details, request);
    if (buffer_status(&details) != STATUS_OK)
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

enum status api_check_producer(const struct exchange *exchange) {
    if (exchange_token_expired(exchange))
        return STATUS_TOKEN_EXPIRED;
    uint64_t now_ms = clock_wall_ms(&exchange->loop->clock);
    return admission_is_revoked(exchange->http, exchange->principal, now_ms) ? STATUS_TOKEN_REVOKED
                                                                             : STATUS_OK;
}

static void append(struct exchange *exchange, enum append_kind kind, struct slice id) {
    const struct json_limits limits = {exchange->http->options.append_bytes_max, JSON_DEPTH_MAX};
    struct append_memory *appends = api_appends(exchange);
    struct slice text = buffer_slice(&exchange->body);
    struct json_value body;
    enum status status = api_check_producer(exchange);
    struct append_work *work = status == STATUS_OK ? work_take(appends) : NULL;
    if (!work) {
        exchange_answer_status(exchange, status == STATUS_OK ? STATUS_OUT_OF_MEMORY : status);
        return;
    }
    work->call = (struct exchange_call){.exchange = exchange, .answer = work_answer};
    work->group.requests = &work->request;
    work->group.request_count = 1;
    work->group.done = group_done;
    work->group.user = work;
    exchange->work = work;
    exchange->work_free = work_free;
    appends->parser.producer = api_producer(exchange);
    /* If all members are optional, the body may be empty. */
    status = json_parse(text.size > 0 ? text : SLICE("{}"), &limits, &body);
    if (status == STATUS_OK) {
        status = append_read(&appends->parser, kind, id, body, &work->group.arena, &work->request);
    } else {
        work->request = (struct append_request){.kind = kind};
        append_refuse(&work->request, status, NULL);
    }
    if (status == STATUS_OK && kind == APPEND_AUDIT_EVENT) {
        status = append_check_hash(&appends->parser, body);
        if (status != STATUS_OK)
            append_refuse(&work->request, status,
                          status == STATUS_INVALID_REQUEST
                              ? "event_hash must be 64 hexadecimal digits, with or without sha256:."
                              : NULL);
    }
    if (status != STATUS_OK) {
        answer_refused(exchange, &work->request);
        return;
    }
    exchange_call_begin(&work->call);
    status = call_post_group(&work->call.call, api_of(exchange)->writer, &work->group);
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
