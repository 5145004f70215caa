/* GET /internal/v1/khala/snapshots: the snapshots and their cost. */
#include "api/api.h"
#include "api/handlers.h"
#include "base/limits.h"
#include "http/exchange.h"
#include "wire/object_writer.h"

static enum status write_state(struct buffer *out, const struct snapshots_state *state) {
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), state->topic);
    object_json(&object, SLICE("building"), state->is_building ? SLICE("true") : SLICE("false"));
    if (state->has_current) {
        object_number(&object, SLICE("watermark"), state->watermark);
        object_number(&object, SLICE("documents"), state->document_count);
        object_number(&object, SLICE("bytes"), state->file_bytes);
        object_number(&object, SLICE("age_ms"), state->age_ms);
    }
    object_number(&object, SLICE("built"), state->built_count);
    object_number(&object, SLICE("failed"), state->failed_count);
    object_number(&object, SLICE("served"), state->served_count);
    return object_end(&object);
}

static enum status write_all(struct api *api, uint64_t now_ms, struct buffer *out) {
    struct snapshots *snapshots = api->snapshot_service->snapshots;
    struct snapshots_state state;
    enum status status = buffer_append_slice(out, SLICE("{\"snapshots\":["));
    bool is_first = true;
    for (size_t i = 0; status == STATUS_OK && i < POLICY_ROW_COUNT; i++) {
        if (!snapshots_read_state(snapshots, (enum policy_row)i, now_ms, &state))
            continue;
        if (!is_first)
            status = buffer_append_byte(out, ',');
        if (status == STATUS_OK)
            status = write_state(out, &state);
        is_first = false;
    }
    uint64_t rows_read = store_pool_rows_read(api->store_pool) +
                         store_pool_rows_read(api->snapshot_service->builder);
    return status == STATUS_OK
               ? buffer_printf(
                     out, "],\"bytes\":%llu,\"bytes_max\":%llu,\"store_rows_read\":%llu}\n",
                     (unsigned long long)snapshots_bytes(snapshots),
                     (unsigned long long)api->snapshots_bytes_max, (unsigned long long)rows_read)
               : status;
}

void handle_snapshots(struct exchange *exchange) {
    struct buffer out;
    buffer_init(&out, SNAPSHOTS_ANSWER_BYTES_MAX);
    enum status status = write_all(api_of(exchange), clock_mono_ms(&exchange->loop->clock), &out);
    if (status == STATUS_OK)
        exchange_answer_json(exchange, 200, buffer_slice(&out));
    else
        exchange_answer_status(exchange, status);
    buffer_release(&out);
}
