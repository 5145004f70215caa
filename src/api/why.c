/* GET /internal/v1/khala/why: why clients were denied or disconnected, the latest decisions that
 * match the query. */
#include "api/api.h"
#include "api/handlers.h"
#include "base/limits.h"
#include "http/store_read.h"
#include "wire/object_writer.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX     1000

struct why {
    const struct api *api;
    struct buffer out;
    size_t count;
    uint64_t limit;
    enum status status;
};

static struct slice class_name_of(const struct api *api, struct slice topic) {
    return topic.data ? slice_of(topic_class_name(policy_of(api->policies, topic)->topic_class))
                      : topic;
}

static enum status write_cause(struct buffer *out, const struct api *api,
                               const struct cause *cause) {
    struct object_writer object = object_begin(out);
    object_number(&object, SLICE("at"), cause->at_ms);
    object_text(&object, SLICE("decision"),
                cause->kind == CAUSE_DENIED ? SLICE("denied") : SLICE("disconnected"));
    object_text(&object, SLICE("code"), slice_of(status_code(cause->status)));
    object_text(&object, SLICE("message"), slice_of(status_message(cause->status)));
    object_text(&object, SLICE("advice"), slice_of(status_advice(cause->status)));
    object_text(&object, SLICE("reason_code"),
                cause->reason ? slice_of(cause->reason) : (struct slice){NULL, 0});
    object_text(&object, SLICE("rule"),
                cause->rule ? slice_of(cause->rule) : (struct slice){NULL, 0});
    object_text(&object, SLICE("surface"),
                cause->surface ? slice_of(cause->surface) : (struct slice){NULL, 0});
    object_text(&object, SLICE("origin"), cause->origin);
    object_text(&object, SLICE("connection"), cause->connection);
    object_text(&object, SLICE("principal"), cause->principal);
    object_text(&object, SLICE("peer"), cause->peer);
    object_text(&object, SLICE("topic"), cause->topic);
    object_text(&object, SLICE("topic_class"), class_name_of(api, cause->topic));
    object_text(&object, SLICE("dialect"), slice_of(label_dialect_name(cause->dialect)));
    if (cause->client.build_id.data) {
        object_text(&object, SLICE("client_build_id"), cause->client.build_id);
        object_text(&object, SLICE("protocol_version"), cause->client.protocol_version);
        object_text(&object, SLICE("schema_version"), cause->client.schema_version);
    }
    if (cause->close_code > 0)
        object_number(&object, SLICE("close_code"), cause->close_code);
    else
        object_json(&object, SLICE("close_code"), SLICE("null"));
    return object_end(&object);
}

static bool add_cause(void *user, const struct cause *cause) {
    struct why *why = user;
    if (why->count > 0)
        why->status = buffer_append_byte(&why->out, ',');
    if (why->status == STATUS_OK)
        why->status = write_cause(&why->out, why->api, cause);
    why->count++;
    return why->status == STATUS_OK && why->count < why->limit;
}

static void answer(struct exchange *exchange, const struct cause_filter *filter, uint64_t limit) {
    struct why why = {.api = api_of(exchange), .limit = limit};
    buffer_init(&why.out, WHY_ANSWER_BYTES_MAX);
    why.status = buffer_append_slice(&why.out, SLICE("{\"decisions\":["));
    if (why.status == STATUS_OK)
        causes_walk(api_of(exchange)->telemetry->causes, filter, &why, add_cause);
    if (why.status == STATUS_OK)
        why.status = buffer_append_slice(&why.out, SLICE("]}\n"));
    if (why.status == STATUS_OK)
        exchange_answer_json(exchange, 200, buffer_slice(&why.out));
    else
        exchange_answer_status(exchange, why.status);
    buffer_release(&why.out);
}

void handle_why(struct exchange *exchange) {
    struct buffer memory[3];
    struct cause_filter filter = {0};
    uint64_t limit = LIMIT_DEFAULT;
    for (size_t i = 0; i < 3; i++)
        buffer_init(&memory[i], QUERY_TEXT_BYTES_MAX);
    enum status status = query_text(exchange, SLICE("connection"), &memory[0], &filter.connection);
    if (status == STATUS_OK)
        status = query_text(exchange, SLICE("principal"), &memory[1], &filter.principal);
    if (status == STATUS_OK)
        status = query_text(exchange, SLICE("topic"), &memory[2], &filter.topic);
    if (status == STATUS_OK)
        status = query_number(exchange, SLICE("limit"), 1, LIMIT_MAX, &limit);
    if (status == STATUS_OK)
        answer(exchange, &filter, limit);
    else
        exchange_answer_status(exchange, status);
    for (size_t i = 0; i < 3; i++)
        buffer_release(&memory[i]);
}
