/* The results of the projector: summaries, checkpoints, drift. */
#include "api/api.h"
#include "api/handlers.h"
#include "delivery/relay/relay.h"
#include "delivery/repair.h"
#include "http/store_read.h"
#include "wire/canonical.h"
#include "wire/json.h"
#include "wire/object_writer.h"

#define DRIFT_LIMIT_DEFAULT 100
#define DRIFT_LIMIT_MAX     1000

/* A document that is missing or altered is repaired before it is answered. */
static enum status load_summary(struct store_read *read, struct store_session *session,
                                const struct store_entity *entity,
                                struct store_document *document) {
    struct writer *writer = api_of(read->exchange)->writer;
    enum document_kind kind = entity_row(entity->kind)->summary;
    const struct store_damage damage = {.kind = kind, .entity_ref = entity->ref};
    enum status status = store_load_document(session, kind, entity->ref, &read->arena, document);
    bool is_lost = store_is_lost(status) && repair_finds_missing(writer);
    if (!is_lost && (status != STATUS_OK || store_document_is_whole(document)))
        return status;
    status = repair(writer, &damage);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    status = store_load_document(session, kind, entity->ref, &read->arena, document);
    return status != STATUS_OK || store_document_is_whole(document) ? status
                                                                    : STATUS_STORE_UNAVAILABLE;
}

static void read_summary(struct store_read *read, struct store_session *session) {
    struct store_entity entity;
    struct store_document document;
    enum status status = store_read_entity(read, session, &entity);
    if (status == STATUS_OK)
        status = load_summary(read, session, &entity, &document);
    if (status == STATUS_OK)
        status = buffer_append_slice(&read->out, document.payload);
    if (status == STATUS_OK)
        status = buffer_append_byte(&read->out, '\n');
    read->status = status;
}

static void handle_read(struct exchange *exchange, enum entity_kind kind,
                        void (*run)(struct store_read *read, struct store_session *session)) {
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

static enum status write_checkpoint(struct buffer *out, struct slice entity_id,
                                    const struct store_checkpoint *checkpoint) {
    char hash[PAYLOAD_HASH_SIZE];
    payload_hash_text(checkpoint->summary_hash, hash);
    enum status status = buffer_printf(
        out, "{\"projection_name\":\"%s\",\"entity_id\":", document_kind_name(checkpoint->kind));
    if (status == STATUS_OK)
        status = json_write_string(out, entity_id);
    if (status == STATUS_OK)
        status = buffer_append_slice(out, SLICE(",\"document_id\":"));
    if (status == STATUS_OK)
        status = json_write_string(out, checkpoint->document_id);
    if (status == STATUS_OK)
        status = buffer_printf(out, ",\"last_runtime_seq\":%llu,\"projection_version\":",
                               (unsigned long long)checkpoint->last_runtime_seq);
    if (status == STATUS_OK)
        status = json_write_string(out, checkpoint->projection_version);
    if (status == STATUS_OK)
        status = buffer_printf(out, ",\"summary_hash\":\"%s\",\"last_projected_at\":%llu}\n", hash,
                               (unsigned long long)checkpoint->last_projected_at_ms);
    return status;
}

static void read_checkpoint(struct store_read *read, struct store_session *session) {
    struct store_entity entity;
    struct store_checkpoint checkpoint;
    enum status status = store_read_entity(read, session, &entity);
    if (status == STATUS_OK)
        status = store_load_checkpoint(session, entity_row(read->entity_kind)->summary, entity.ref,
                                       &read->arena, &checkpoint);
    if (status == STATUS_OK)
        status = write_checkpoint(&read->out, read->id, &checkpoint);
    read->status = status;
}

void handle_checkpoint(struct exchange *exchange) {
    enum document_kind projection = document_kind_of(exchange->match.parameters[0]);
    if (projection != DOCUMENT_NONE)
        handle_read(exchange, document_row(projection)->entity, read_checkpoint);
    else
        exchange_answer_error(
            exchange, &(struct exchange_error){.status = STATUS_NOT_FOUND,
                                               .message = "The projections are run_summary and "
                                                          "codex_worker_summary."});
}

static enum status write_drift(void *user, const struct store_drift *drift) {
    struct store_read *read = user;
    struct buffer *out = &read->out;
    enum status status = buffer_append_slice(out, read->has_more ? SLICE(",{") : SLICE("{"));
    read->has_more = true;
    if (status == STATUS_OK && drift->subject.data) {
        status = buffer_append_slice(out, SLICE("\"subject\":"));
        if (status == STATUS_OK)
            status = json_write_string(out, drift->subject);
    } else if (status == STATUS_OK) {
        status = buffer_printf(
            out, "\"projection_name\":\"%s\",\"entity_id\":", document_kind_name(drift->kind));
        if (status == STATUS_OK)
            status = json_write_string(out, drift->entity_id);
    }
    if (status == STATUS_OK)
        status = buffer_printf(
            out,
            ",\"reason_code\":\"%s\",\"expected_seq\":%llu,\"actual_seq\":%llu,\"seen_at\":%llu}",
            reason_code(drift->reason), (unsigned long long)drift->expected_seq,
            (unsigned long long)drift->actual_seq, (unsigned long long)drift->seen_at_ms);
    return status;
}

/* A sink that fails or holds documents lacks documents that the tables have. */
static enum status write_sink(struct buffer *out, size_t index, struct relay_stats stats) {
    const char *state = stats.held > 0 ? "holding" : "ok";
    enum status status = index > 0 ? buffer_append_byte(out, ',') : STATUS_OK;
    if (status != STATUS_OK)
        return status;
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
    return object_end(&object);
}

static void read_drift(struct store_read *read, struct store_session *session) {
    enum status status = buffer_append_slice(&read->out, SLICE("{\"drift\":["));
    if (status == STATUS_OK)
        status = store_walk_drifts(session, read->limit, read, write_drift);
    if (status == STATUS_OK)
        status = buffer_append_slice(&read->out, SLICE("],\"sinks\":["));
    const struct api *api = api_of(read->exchange);
    for (size_t i = 0; status == STATUS_OK && i < api->relay_count; i++)
        status = write_sink(&read->out, i, relay_stats(api->relays[i]));
    if (status == STATUS_OK)
        status = buffer_append_slice(&read->out, SLICE("]}\n"));
    read->status = status;
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
