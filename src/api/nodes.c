/* GET /internal/v1/nodes: the nodes over the store, as this node read them last. */
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "base/limits.h"
#include "http/exchange.h"
#include "wire/object_writer.h"

static enum status write_node(struct buffer *out, const struct node_row *row) {
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("node_id"), slice_of(row->address.id));
    object_text(&object, SLICE("address"), slice_of(row->address.text));
    if (*row->address.operator_text)
        object_text(&object, SLICE("operator_address"), slice_of(row->address.operator_text));
    object_text(&object, SLICE("role"), row->is_writer ? SLICE("writer") : SLICE("follower"));
    object_text(&object, SLICE("status"), row->is_live ? SLICE("live") : SLICE("lost"));
    object_json(&object, SLICE("is_self"), row->address.is_self ? SLICE("true") : SLICE("false"));
    object_text(&object, SLICE("version"), slice_of(row->version));
    object_number(&object, SLICE("schema_version"), row->schema_version);
    object_number(&object, SLICE("term"), row->term);
    object_number(&object, SLICE("log_id"), row->log_id);
    object_number(&object, SLICE("revocations_seen"), row->revocations_seen);
    object_number(&object, SLICE("started_at_ms"), row->started_at_ms);
    object_number(&object, SLICE("seen_ms_ago"), row->age_ms);
    return object_end(&object);
}

static enum status write_all(const struct api *api, struct buffer *out) {
    struct node_row *rows = calloc(NODES_MAX, sizeof(*rows));
    if (!rows)
        return STATUS_OUT_OF_MEMORY;
    size_t count = nodes_list(api->nodes, rows);
    enum status status =
        buffer_printf(out, "{\"node_id\":\"%s\",\"role\":\"%s\",\"nodes\":[",
                      nodes_self(api->nodes), writer_has_role(api->writer) ? "writer" : "follower");
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        if (i > 0)
            status = buffer_append_byte(out, ',');
        if (status == STATUS_OK)
            status = write_node(out, &rows[i]);
    }
    free(rows);
    return status == STATUS_OK ? buffer_append_slice(out, SLICE("]}\n")) : status;
}

void handle_nodes(struct exchange *exchange) {
    struct buffer out;
    buffer_init(&out, NODES_ANSWER_BYTES_MAX);
    enum status status = write_all(api_of(exchange), &out);
    if (status == STATUS_OK)
        exchange_answer_json(exchange, 200, buffer_slice(&out));
    else
        exchange_answer_status(exchange, status);
    buffer_release(&out);
}
