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
};

static void put_cause(struct buffer *out, const struct api *api, const struct cause *cause) {
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
    object_text(&object, SLICE("topic_class"),
                cause->topic.data ? slice_of(topic_class_name(
                                        policy_of(api->policies, cause->topic)->topic_class))
                                  : cause->topic);
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
    object_close(&object);
}

static bool add_cause(void *user, const struct cause *cause) {
    struct why *why = user;
    if (why->count++ > 0)
        buffer_append_byte(&why->out, ',');
    put_cause(&why->out, why->api, cause);
    return why->count < why->limit;
}

void handle_why(struct exchange *exchange) {
    struct buffer memory[3];
    struct cause_filter filter = {0};
    struct why why = {.api = api_of(exchange), .limit = LIMIT_DEFAULT};
    buffer_init(&why.out, WHY_ANSWER_BYTES_MAX);
    for (size_t i = 0; i < 3; i++)
        buffer_init(&memory[i], QUERY_TEXT_BYTES_MAX);
    enum status status = query_text(exchange, SLICE("connection"), &memory[0], &filter.connection);
    if (status == STATUS_OK)
        status = query_text(exchange, SLICE("principal"), &memory[1], &filter.principal);
    if (status == STATUS_OK)
        status = query_text(exchange, SLICE("topic"), &memory[2], &filter.topic);
    if (status == STATUS_OK)
        status = query_number(exchange, SLICE("limit"), 1, LIMIT_MAX, &why.limit);
    buffer_append_slice(&why.out, SLICE("{\"decisions\":["));
    if (status == STATUS_OK)
        causes_walk(why.api->telemetry->causes, &filter, &why, add_cause);
    buffer_append_slice(&why.out, SLICE("]}\n"));
    exchange_answer_text(exchange, status, &why.out);
    buffer_release(&why.out);
    for (size_t i = 0; i < 3; i++)
        buffer_release(&memory[i]);
}
