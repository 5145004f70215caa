/* POST /internal/v1/projectors/reproject: rebuilds documents from the log, beside the appends.
 *
 * The writer runs one job for each entity. Between two jobs it commits the appends that wait. Each
 * rewritten document is sent when it is found. While none is found, white space is sent once a
 * second to show progress. */
#include <assert.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/record.h"
#include "authority/append_read.h"
#include "base/limits.h"
#include "base/log.h"
#include "http/exchange.h"
#include "projector/reproject.h"
#include "wire/json.h"

#define ID_BYTES_MAX 4096
#define PROGRESS_MS  1000
#define TOPICS_PAGE  256

struct reproject_work {
    struct exchange_call call;
    struct exchange *exchange;
    struct api *api;
    /* The request: one entity, or all. */
    enum document_kind document; /* the kind that is rebuilt now */
    struct buffer id;
    bool all;
    bool journal; /* the journals are rebuilt at the end */
    /* For all entities: the last one that was rebuilt, and the last one that existed at the start.
     */
    uint64_t after_ref;
    uint64_t until_ref;
    bool is_over;
    /* The current step. */
    enum status status;
    uint64_t now_ms;
    struct arena arena;
    struct store_entity entity;
    struct reproject_result total;
    struct buffer out;
    uint64_t last_sent_ms;
};

static void work_free(void *memory) {
    struct reproject_work *work = memory;
    buffer_release(&work->id);
    buffer_release(&work->out);
    arena_release(&work->arena);
    free(work);
}

/* ---- on the writer's thread ----------------------------------------------------------------- */

static void on_drift(void *user, const struct reproject_drift *drift) {
    struct reproject_work *work = user;
    struct buffer *out = &work->out;
    buffer_append_slice(out, work->total.drifted > 0 ? SLICE(",\n{") : SLICE("\n{"));
    buffer_append_slice(out, SLICE("\"document_id\":"));
    json_write_string(out, drift->document_key);
    buffer_printf(out,
                  ",\"reason\":\"%s\",\"message\":\"%s\",\"expected_seq\":%llu,"
                  "\"actual_seq\":%llu}",
                  reason_code(drift->reason), drift->message,
                  (unsigned long long)drift->expected_seq, (unsigned long long)drift->actual_seq);
}

static void on_commit(void *user, const struct store_batch *batch) {
    struct reproject_work *work = user;
    /* A rewritten document has no event in the batch. Readers get it from the store. */
    writer_announce(work->api->writer, batch, NULL);
}

static enum status keep_entity(void *user, const struct store_entity *entity) {
    struct reproject_work *work = user;
    work->entity = *entity;
    work->entity.id = arena_copy(&work->arena, entity->id);
    return work->entity.id.data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

/* Finds the next entity; ref 0: there is none. Entities created since the start need no rebuild. */
static enum status find_next(struct reproject_work *work, struct store_session *store) {
    enum status status = STATUS_OK;
    if (work->until_ref == 0) {
        struct store_state state;
        status = store_read_state(store, &state);
        work->until_ref = state.entity_ref;
    }
    if (status == STATUS_OK)
        status = store_walk_entities(store, document_row(work->document)->entity, work->after_ref,
                                     1, work, keep_entity);
    if (status == STATUS_OK && work->entity.ref > work->until_ref)
        work->entity.ref = 0;
    return status;
}

static enum status rebuild_entity(struct reproject_work *work, struct store_session *store) {
    const struct reproject_options options = {
        .kind = work->entity.kind,
        .id = work->entity.id,
        .apply = true,
        .now_ms = work->now_ms,
        .projection_version = work->api->projection_version,
        .user = work,
        .on_drift = on_drift,
        .on_commit = on_commit,
    };
    struct reproject_result result;
    enum status status = reproject(store, &options, &result);
    if (result.drifted > 0)
        projector_forget(work->api->projector, work->entity.ref);
    work->total.entities += result.entities;
    work->total.events += result.events;
    work->total.drifted += result.drifted;
    work->total.repaired += result.repaired;
    return status == STATUS_OK ? buffer_status(&work->out) : status;
}

struct topic_page {
    struct reproject_work *work;
    uint64_t after_ref;
    bool has_more;
};

/* Subscribers of the topic find their position stale, and bootstrap. */
static enum status announce_topic(void *user, const struct store_topic *topic) {
    struct topic_page *page = user;
    const struct store_batch batch = {.topics = topic, .topic_count = 1};
    page->after_ref = topic->ref;
    page->has_more = true;
    if (topic->entity_ref == 0)
        writer_announce(page->work->api->writer, &batch, NULL);
    return STATUS_OK;
}

static enum status rebuild_journals(struct reproject_work *work, struct store_session *store) {
    struct topic_page page = {.work = work};
    const struct policy *policy =
        policy_of(work->api->policies, topic_name(TOPIC_CODEX_WORKER_EVENTS));
    enum status status = store_heal(store, work->now_ms);
    if (status == STATUS_OK)
        status = store_rebuild_journal(store, policy->replay_budget_events, work->now_ms);
    do {
        page.has_more = false;
        if (status == STATUS_OK)
            status = store_walk_topics(store, page.after_ref, TOPICS_PAGE, &page, announce_topic);
    } while (status == STATUS_OK && page.has_more);
    return status;
}

static void run_step(struct call *call, struct store_session *store) {
    struct reproject_work *work = container_of(call, struct reproject_work, call.call);
    enum status status;
    arena_reset(&work->arena);
    work->entity = (struct store_entity){.ref = 0};
    if (work->all) {
        status = find_next(work, store);
        while (status == STATUS_OK && work->entity.ref == 0 &&
               work->document + 1 < DOCUMENT_KIND_COUNT) {
            work->document++;
            work->after_ref = 0;
            status = find_next(work, store);
        }
        work->after_ref = work->entity.ref;
    } else {
        status = store_load_entity(store, document_row(work->document)->entity,
                                   buffer_slice(&work->id), &work->arena, &work->entity);
    }
    if (status == STATUS_OK && work->entity.ref > 0)
        status = rebuild_entity(work, store);
    work->is_over = !work->all || work->entity.ref == 0;
    if (status == STATUS_OK && work->is_over && work->journal)
        status = rebuild_journals(work, store);
    work->status = status;
}

/* ---- on the loop ---------------------------------------------------------------------------- */

static void fail(struct reproject_work *work, enum status status) {
    struct exchange *exchange = work->exchange;
    if (status == STATUS_NOT_FOUND && !work->all)
        status = entity_row(document_row(work->document)->entity)->not_found;
    log_event(LOG_WARN, "reproject.failed", log_str("status", status_code(status)),
              log_slice("entity_id", work->entity.id),
              log_int("repaired", (int64_t)work->total.repaired));
    if (exchange_is_answered(exchange))
        exchange_abort(exchange, status);
    else
        exchange_answer_status(exchange, status);
}

static void post_step(struct reproject_work *work) {
    struct exchange *exchange = work->exchange;
    work->now_ms = clock_wall_ms(&exchange->loop->clock);
    if (atomic_load(&work->api->http->is_draining))
        fail(work, STATUS_SHUTTING_DOWN);
    else
        exchange_call_writer(&work->call);
}

/* Sends the output. The next step follows when the connection has taken it. */
static void step_answer(struct exchange_call *call) {
    struct reproject_work *work = container_of(call, struct reproject_work, call);
    struct exchange *exchange = work->exchange;
    uint64_t now_ms = clock_mono_ms(&exchange->loop->clock);
    enum status status = call->call.status == STATUS_OK ? work->status : call->call.status;
    if (status == STATUS_OK && work->is_over)
        status = buffer_printf(
            &work->out,
            "],\n\"entities\":%llu,\"events\":%llu,\"drifted\":%llu,"
            "\"repaired\":%llu}\n",
            (unsigned long long)work->total.entities, (unsigned long long)work->total.events,
            (unsigned long long)work->total.drifted, (unsigned long long)work->total.repaired);
    else if (status == STATUS_OK && work->out.size == 0 &&
             now_ms - work->last_sent_ms >= PROGRESS_MS)
        status = buffer_append_byte(&work->out, '\n');
    if (status != STATUS_OK) {
        fail(work, status);
        return;
    }
    if (work->out.size == 0) {
        post_step(work);
        return;
    }
    work->last_sent_ms = now_ms;
    if (!exchange_is_answered(exchange))
        exchange_begin(exchange, 200, SLICE("application/json"));
    if (work->is_over) {
        exchange_end(exchange, buffer_slice(&work->out));
    } else if (exchange_send(exchange, buffer_slice(&work->out))) {
        buffer_clear(&work->out);
        post_step(work);
    }
}

static void piece_sent(struct exchange *exchange) {
    struct reproject_work *work = exchange->work;
    buffer_clear(&work->out);
    post_step(work);
}

static const struct exchange_stream reproject_stream = {.sent = piece_sent};

/* Exactly one of "all" and the members that name an entity: run_id, worker_id. "journal" goes with
 * "all". */
static enum status read_request(struct reproject_work *work) {
    const struct json_limits limits = {work->exchange->body.size, JSON_DEPTH_MAX};
    struct json_field fields[DOCUMENT_KIND_COUNT + 2] = {
        [DOCUMENT_KIND_COUNT] = {.name = SLICE("all")},
        [DOCUMENT_KIND_COUNT + 1] = {.name = SLICE("journal")}};
    const struct json_field *all = &fields[DOCUMENT_KIND_COUNT];
    const struct json_field *journal = &fields[DOCUMENT_KIND_COUNT + 1];
    size_t given = 0;
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT; i++)
        fields[i].name =
            slice_of(entity_row(document_row((enum document_kind)i)->entity)->id_member);
    enum status status = json_read_object(buffer_slice(&work->exchange->body), &limits, fields,
                                          DOCUMENT_KIND_COUNT + 2);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i <= DOCUMENT_KIND_COUNT; i++)
        given += fields[i].present;
    work->journal = journal->present && journal->value.kind == JSON_KIND_TRUE;
    if (given != 1 || (journal->present && (!work->journal || !all->present)))
        return STATUS_INVALID_REQUEST;
    work->all = all->present;
    if (work->all)
        return all->value.kind == JSON_KIND_TRUE ? STATUS_OK : STATUS_INVALID_REQUEST;
    while (!fields[work->document].present)
        work->document++;
    struct json_value id = fields[work->document].value;
    if (id.kind != JSON_KIND_STRING)
        return STATUS_INVALID_REQUEST;
    status = json_string_decode(id, &work->id);
    if (status == STATUS_OK && !append_id_valid(buffer_slice(&work->id)))
        status = STATUS_INVALID_REQUEST;
    return status;
}

static void run(struct exchange *exchange) {
    post_step(exchange->work);
}

void handle_reproject(struct exchange *exchange) {
    struct reproject_work *work = calloc(1, sizeof(*work));
    if (!work) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    work->exchange = exchange;
    work->api = api_of(exchange);
    work->call =
        (struct exchange_call){.call.run = run_step, .exchange = exchange, .answer = step_answer};
    buffer_init(&work->id, ID_BYTES_MAX);
    buffer_init(&work->out, REPROJECT_ANSWER_BYTES_MAX);
    arena_init(&work->arena, REPROJECT_ARENA_BYTES_MAX);
    exchange->work = work;
    exchange->work_free = work_free;
    exchange->stream = &reproject_stream;
    enum status status = read_request(work);
    if (status == STATUS_INVALID_REQUEST) {
        exchange_answer_error(exchange,
                              &(struct exchange_error){
                                  .status = status,
                                  .message = "The body is {\"run_id\":ID}, {\"worker_id\":ID} or "
                                             "{\"all\":true}, the last also with "
                                             "\"journal\":true."});
        return;
    }
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return;
    }
    buffer_append_slice(&work->out, SLICE("{\"rewritten\":["));
    struct record *record = record_new(exchange, 1);
    if (!record)
        return;
    struct object_writer event = record_begin(record);
    if (work->all) {
        object_json(&event, SLICE("journal"), work->journal ? SLICE("true") : SLICE("false"));
    } else {
        enum entity_kind kind = document_row(work->document)->entity;
        object_text(&event, slice_of(entity_row(kind)->id_member), buffer_slice(&work->id));
    }
    record_end(record, &event, "operator.reprojected");
    record_post(record, run);
}
