/* The results of the projector: summaries, checkpoints, drift. */
#include "api/api.h"
#include "api/handlers.h"
#include "delivery/relay/relay.h"
#include "delivery/repair.h"
#include "http/store_read.h"
#include "wire/object_writer.h"

#define DRIFT_LIMIT_DEFAULT 100
#define DRIFT_LIMIT_MAX     1000
#define MESSAGE_BYTES_MAX   256

static void read_summary(struct store_read *read, struct store_session *store) {
    struct store_entity entity;
    struct store_document document;
    enum status status = store_read_entity(read, store, &entity);
    if (status == STATUS_OK)
        status = repair_load_document(api_of(read->exchange)->writer, store, &entity, &read->arena,
                                      &document);
    if (status == STATUS_OK)
        buffer_append_slice(&read->out, document.payload);
    buffer_append_byte(&read->out, '\n');
    read->status = status;
}

static void handle_read(struct exchange *exchange, enum entity_kind kind,
                        void (*run)(struct store_read *read, struct store_session *store)) {
    struct store_read *read = store_read_new(exchange, kind, run);
    if (read)
        store_read_post(read);
}

void handle_run_summary(struct exchange *exchange) {
    handle_read(exchange, ENTITY_RUN, read_summary);
}

void handle_worker_summary(struct exchange *exchange) {
    handle_read(exchange, ENTITY_WORKER, read_summary);
}

static void read_checkpoint(struct store_read *read, struct store_session *store) {
    struct store_entity entity;
    struct store_checkpoint checkpoint;
    enum status status = store_read_entity(read, store, &entity);
    if (status == STATUS_OK)
        status = store_load_checkpoint(store, entity_row(read->entity_kind)->summary, entity.ref,
                                       &read->arena, &checkpoint);
    read->status = status;
    if (status != STATUS_OK)
        return;
    struct object_writer object = object_begin(&read->out);
    object_text(&object, SLICE("projection_name"), slice_of(document_kind_name(checkpoint.kind)));
    object_text(&object, SLICE("entity_id"), read->id);
    object_text(&object, SLICE("document_id"), checkpoint.document_id);
    object_number(&object, SLICE("last_runtime_seq"), checkpoint.last_runtime_seq);
    object_text(&object, SLICE("projection_version"), checkpoint.projection_version);
    object_hash(&object, SLICE("summary_hash"), checkpoint.summary_hash);
    object_number(&object, SLICE("last_projected_at"), checkpoint.last_projected_at_ms);
    object_close(&object);
    buffer_append_byte(&read->out, '\n');
}

void handle_checkpoint(struct exchange *exchange) {
    enum document_kind projection = document_kind_of(exchange->match.parameters[0]);
    if (projection != DOCUMENT_NONE) {
        handle_read(exchange, document_row(projection)->entity, read_checkpoint);
        return;
    }
    char text[MESSAGE_BYTES_MAX];
    struct buffer message = buffer_over(text, sizeof(text));
    buffer_append_slice(&message, SLICE("The projections are "));
    for (enum document_kind kind = 0; kind < DOCUMENT_KIND_COUNT; kind++)
        buffer_printf(&message, "%s%s", kind > 0 ? ", " : "", document_kind_name(kind));
    bool is_whole = buffer_append(&message, ".", 2) == STATUS_OK;
    exchange_answer_error(exchange, &(struct exchange_error){.status = STATUS_NOT_FOUND,
                                                             .message = is_whole ? text : NULL});
}

static enum status write_drift(void *user, const struct store_drift *drift) {
    struct store_read *read = user;
    struct buffer *out = &read->out;
    if (read->has_more)
        buffer_append_byte(out, ',');
    read->has_more = true;
    struct object_writer object = object_begin(out);
    if (drift->subject.data) {
        object_text(&object, SLICE("subject"), drift->subject);
    } else {
        object_text(&object, SLICE("projection_name"), slice_of(document_kind_name(drift->kind)));
        object_text(&object, SLICE("entity_id"),
                    drift->entity_id.data ? drift->entity_id : SLICE(""));
    }
    object_text(&object, SLICE("reason_code"), slice_of(reason_code(drift->reason)));
    object_number(&object, SLICE("expected_seq"), drift->expected_seq);
    object_number(&object, SLICE("actual_seq"), drift->actual_seq);
    object_number(&object, SLICE("seen_at"), drift->seen_at_ms);
    object_close(&object);
    return buffer_status(out);
}

/* A sink that fails or holds documents lacks documents that the tables have. */
static void write_sink(struct buffer *out, size_t index, struct relay_stats stats) {
    const char *state = stats.held > 0 ? "holding" : "ok";
    if (index > 0)
        buffer_append_byte(out, ',');
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("sink"), slice_of(label_sink_name(stats.sink)));
    object_text(&object, SLICE("status"), slice_of(stats.failing_since_ms > 0 ? "failing" : state));
    object_number(&object, SLICE("sent"), stats.sent);
    object_number(&object, SLICE("waiting"), stats.waiting);
    object_number(&object, SLICE("failures"), stats.failures);
    object_number(&object, SLICE("held"), stats.held);
    if (stats.failing_since_ms > 0) {
        object_number(&object, SLICE("failing_since"), stats.failing_since_ms);
        object_text(&object, SLICE("reason"), slice_of(stats.error));
    }
    if (stats.held > 0) {
        object_text(&object, SLICE("held_doc_key"), slice_of(stats.held_key));
        object_number(&object, SLICE("held_since"), stats.held_since_ms);
        object_text(&object, SLICE("held_reason"), slice_of(stats.refusal));
    }
    object_close(&object);
}

static void read_drift(struct store_read *read, struct store_session *store) {
    const struct api *api = api_of(read->exchange);
    buffer_append_slice(&read->out, SLICE("{\"drift\":["));
    read->status = store_walk_drifts(store, read->limit, read, write_drift);
    buffer_append_slice(&read->out, SLICE("],\"sinks\":["));
    for (size_t i = 0; i < api->relay_count; i++)
        write_sink(&read->out, i, relay_stats(api->relays[i]));
    buffer_append_slice(&read->out, SLICE("]}\n"));
}

void handle_drift(struct exchange *exchange) {
    uint64_t limit = DRIFT_LIMIT_DEFAULT;
    enum status status = query_number(exchange, SLICE("limit"), 1, DRIFT_LIMIT_MAX, &limit);
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return;
    }
    struct store_read *read = store_read_new(exchange, ENTITY_RUN, read_drift);
    if (!read)
        return;
    read->limit = limit;
    store_read_post(read);
}
