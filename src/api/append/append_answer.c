#include "api/append/append_answer.h"

#include <stdatomic.h>
#include <stdio.h>

#include "authority/event_json.h"
#include "authority/lookups.h"
#include "authority/run_state.h"
#include "base/limits.h"
#include "base/log.h"
#include "topic/policy.h"
#include "wire/json.h"

unsigned append_http_status(const struct append_request *request) {
    if (request->status == STATUS_OK && request->created)
        return 201;
    return (unsigned)status_http(request->status);
}

static const char *hint_of(const struct append_request *request, unsigned *index) {
    return request->kind == APPEND_RUN_EVENT ? run_event_hint(request->event_type, index) : NULL;
}

/* A person who does not look at answers finds the hint in the log, once for each type. */
static atomic_uint hints_logged;

static void log_hint(struct exchange *exchange, const struct append_request *request) {
    unsigned index = 0;
    const char *hint = hint_of(request, &index);
    if (!hint || atomic_fetch_or(&hints_logged, 1u << index) & 1u << index)
        return;
    log_event(LOG_WARN, "append.no_state_change",
              log_slice("request_id", exchange_request_id(exchange)),
              log_slice("event_type", request->event_type), log_str("hint", hint));
}

static enum status write_hint(struct buffer *out, const struct append_request *request) {
    unsigned index = 0;
    const char *hint = hint_of(request, &index);
    if (!hint)
        return STATUS_OK;
    enum status status = buffer_append_slice(out, SLICE(",\"hint\":"));
    return status == STATUS_OK ? json_write_string(out, slice_of(hint)) : status;
}

static enum status write_event(struct buffer *out, const struct append_request *request) {
    enum status status = buffer_append_slice(out, SLICE("\"event\":"));
    if (status == STATUS_OK)
        status = event_write_json(out, &request->event);
    if (status == STATUS_OK)
        status = buffer_append_slice(out, request->deduplicated ? SLICE(",\"deduplicated\":true")
                                                                : SLICE(",\"deduplicated\":false"));
    return status == STATUS_OK ? write_hint(out, request) : status;
}

static enum status write_entity(struct buffer *out, const struct append_request *request,
                                uint64_t now_ms) {
    enum status status = STATUS_OK;
    if (request->kind == APPEND_RUN_CREATE) {
        status = buffer_append_slice(out, SLICE("\"run\":"));
        if (status == STATUS_OK)
            status = run_write_json(out, &request->entity);
    } else if (request->kind == APPEND_WORKER_CREATE || request->kind == APPEND_WORKER_HEARTBEAT ||
               request->kind == APPEND_WORKER_STATUS) {
        status = buffer_append_slice(out, SLICE("\"worker\":"));
        if (status == STATUS_OK)
            status = worker_write_json(out, &request->entity, now_ms);
    } else {
        return STATUS_OK;
    }
    return status == STATUS_OK ? buffer_append_byte(out, ',') : status;
}

enum status append_write_answer(struct buffer *out, struct exchange *exchange,
                                const struct append_request *request) {
    uint64_t now_ms = clock_wall_ms(&exchange->loop->clock);
    enum status status = buffer_append_byte(out, '{');
    log_hint(exchange, request);
    /* A producer may append to an entity that it may not read. */
    if (status == STATUS_OK && (!request->producer || request->created))
        status = write_entity(out, request, now_ms);
    if (status == STATUS_OK)
        status = write_event(out, request);
    return status == STATUS_OK ? buffer_append_slice(out, SLICE("}\n")) : status;
}

static enum status write_limit(struct buffer *out, const struct append_refusal *refusal) {
    enum status status = buffer_append_slice(out, SLICE("{\"topic\":"));
    if (status == STATUS_OK)
        status = refusal->topic.data ? json_write_string(out, refusal->topic)
                                     : buffer_append_slice(out, SLICE("null"));
    if (status == STATUS_OK)
        status = buffer_printf(out, ",\"topic_class\":\"%s\",\"publish_class\":\"%s\",",
                               topic_class_name(refusal->policy->topic_class),
                               publish_class_name(refusal->policy->publish_class));
    return status;
}

struct slice append_refused_topic(const struct append_request *request) {
    return request->kind == APPEND_TOPIC_EVENT ? request->entity_id : request->refusal.topic;
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
                 policy_publish_setting(refusal->policy->publish_class,
                                        POLICY_FIELD_PUBLISH_RATE_PER_SECOND));
    else if (request->status == STATUS_QUOTA_EXCEEDED)
        snprintf(text, APPEND_MESSAGE_BYTES_MAX, "The owner's quota %s of %llu is used up.",
                 refusal->quota, (unsigned long long)refusal->limit);
    else
        return NULL;
    return text;
}

enum status append_write_details(struct buffer *out, const struct append_request *request) {
    const struct append_refusal *refusal = &request->refusal;
    enum status status;
    if (request->status == STATUS_SEQUENCE_CONFLICT)
        return buffer_printf(out, "{\"expected_previous_seq\":%llu,\"actual_seq\":%llu}",
                             (unsigned long long)request->expected_previous_seq,
                             (unsigned long long)refusal->actual_seq);
    if (request->status == STATUS_INVALID_TRANSITION && refusal->state)
        return buffer_printf(out, "{\"state\":\"%s\"}", refusal->state);
    if (request->status == STATUS_KHALA_PUBLISH_RATE_LIMITED) {
        status = write_limit(out, refusal);
        return status != STATUS_OK ? status
                                   : buffer_printf(out, "\"limit\":%llu,\"retry_after_ms\":%llu}",
                                                   (unsigned long long)refusal->limit,
                                                   (unsigned long long)refusal->retry_after_ms);
    }
    if (request->status == STATUS_QUOTA_EXCEEDED) {
        status =
            buffer_printf(out, "{\"quota\":\"%s\",\"used\":%llu,\"limit\":%llu", refusal->quota,
                          (unsigned long long)refusal->used, (unsigned long long)refusal->limit);
        if (status == STATUS_OK && refusal->retry_after_ms > 0)
            status = buffer_printf(out, ",\"retry_after_ms\":%llu",
                                   (unsigned long long)refusal->retry_after_ms);
        return status == STATUS_OK ? buffer_append_byte(out, '}') : status;
    }
    if (request->status == STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE) {
        status = write_limit(out, refusal);
        return status != STATUS_OK
                   ? status
                   : buffer_printf(out, "\"payload_bytes\":%llu,\"max_payload_bytes\":%llu}",
                                   (unsigned long long)refusal->payload_bytes,
                                   (unsigned long long)refusal->max_payload_bytes);
    }
    return STATUS_OK;
}

static enum status write_item_error(struct buffer *out, struct exchange *exchange,
                                    const struct append_request *request) {
    struct buffer details;
    char message[APPEND_MESSAGE_BYTES_MAX];
    buffer_init(&details, APPEND_DETAILS_BYTES_MAX);
    exchange_log_refusal(exchange, request->status, append_refused_topic(request));
    enum status status = append_write_details(&details, request);
    const struct exchange_error error = {.status = request->status,
                                         .message = append_message(request, message),
                                         .details = buffer_slice(&details)};
    if (status == STATUS_OK)
        status = buffer_append_slice(out, SLICE("\"error\":"));
    if (status == STATUS_OK)
        status = exchange_error_write(exchange, &error, out);
    buffer_release(&details);
    return status;
}

static enum status write_index(struct buffer *out, uint64_t index, unsigned http_status) {
    enum status status = buffer_append_slice(out, SLICE("{\"index\":"));
    if (status == STATUS_OK)
        status = buffer_append_u64(out, index);
    if (status == STATUS_OK)
        status = buffer_append_slice(out, SLICE(",\"status\":"));
    if (status == STATUS_OK)
        status = buffer_append_u64(out, http_status);
    return status == STATUS_OK ? buffer_append_byte(out, ',') : status;
}

enum status append_write_item(struct buffer *out, struct exchange *exchange, uint64_t index,
                              const struct append_request *request) {
    size_t before = out->size;
    enum status status = write_index(out, index, append_http_status(request));
    if (request->status == STATUS_OK)
        log_hint(exchange, request);
    if (status == STATUS_OK)
        status = request->status == STATUS_OK ? write_event(out, request)
                                              : write_item_error(out, exchange, request);
    if (status == STATUS_OK)
        status = buffer_append_byte(out, '}');
    if (status != STATUS_OK)
        buffer_truncate(out, before);
    return status;
}
