/* POST /internal/v1/sync/sessions/revoke: revokes sessions, devices or tokens.
 *
 *   record ──▶ writer: durable ──▶ in memory ──▶ every loop: sweep ──▶ other nodes: the same
 *          ──▶ answer
 *
 * The events of the audit log come first, so that none is missing. The writer stores the rows in
 * one job, which any node may run. Then the revocations are in memory, where admission reads them,
 * and each loop ends its sessions and requests of these principals. The last loop that has done so
 * lets the other nodes know. The answer waits until all nodes have confirmed, or for five seconds.
 */
#include "api/revoke.h"

#include <assert.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/record.h"
#include "base/log.h"
#include "base/metrics.h"
#include "wire/json.h"

#define DEPTH_MAX 4

/* ---- the request -------------------------------------------------------------------------- */

/* The first fields are the lists, in the order of enum revocation_kind. */
enum field { FIELD_REASON = REVOCATION_KIND_COUNT, FIELD_COUNT };

static bool decode(struct revoke_request *request, struct json_value value, size_t bytes_max,
                   struct slice *text) {
    struct buffer *texts = &request->texts;
    size_t begin = texts->size;
    /* The buffer has room: a decoded text is never longer than the request. */
    if (value.kind != JSON_KIND_STRING || json_string_decode(value, texts) != STATUS_OK)
        return false;
    *text = (struct slice){texts->data + begin, texts->size - begin};
    return text->size > 0 && text->size <= bytes_max;
}

static bool read_list(struct revoke_request *request, enum revocation_kind kind,
                      struct json_value list) {
    struct json_value element;
    if (list.kind == JSON_KIND_NULL)
        return true;
    if (list.kind != JSON_KIND_ARRAY)
        return false;
    struct json_iterator elements = json_iterate(list);
    while (json_next_element(&elements, &element)) {
        struct store_revocation *revocation = &request->revocations[request->count];
        if (request->count == REVOKE_IDS_MAX)
            return false;
        *revocation = (struct store_revocation){.kind = kind, .reason = request->reason};
        if (!decode(request, element, REVOCATION_ID_BYTES_MAX, &revocation->id))
            return false;
        request->count++;
        request->counts[kind]++;
    }
    return true;
}

enum status revoke_request_read(struct slice text, struct revoke_request *request,
                                const char **message) {
    const struct json_limits limits = {REVOKE_BYTES_MAX, DEPTH_MAX};
    struct json_field fields[FIELD_COUNT] = {
        [REVOCATION_SESSION] = {.name = SLICE("session_ids")},
        [REVOCATION_DEVICE] = {.name = SLICE("device_ids")},
        [REVOCATION_TOKEN] = {.name = SLICE("jtis")},
        [FIELD_REASON] = {.name = SLICE("reason")},
    };
    const struct json_field *reason = &fields[FIELD_REASON];
    struct json_value object, name, value;
    size_t present = 0;
    request->count = 0;
    memset(request->counts, 0, sizeof(request->counts));
    request->reason = (struct slice){NULL, 0};
    buffer_init(&request->texts, text.size + 1);
    *message = NULL;
    enum status status = json_read_object(text, &limits, fields, FIELD_COUNT);
    if (status != STATUS_OK)
        return status;
    *message =
        "The request may have session_ids, device_ids, jtis and reason, and no other member.";
    if (json_parse(text, &limits, &object) != STATUS_OK)
        return STATUS_INVALID_REQUEST;
    for (size_t i = 0; i < FIELD_COUNT; i++)
        present += fields[i].present;
    struct json_iterator members = json_iterate(object);
    while (json_next_member(&members, &name, &value))
        present--;
    if (present != 0)
        return STATUS_INVALID_REQUEST;
    status = buffer_reserve(&request->texts, text.size + 1);
    if (status != STATUS_OK)
        goto out;
    status = STATUS_INVALID_REQUEST;
    *message = "The reason is text of 1 to 512 bytes.";
    if (reason->present && reason->value.kind != JSON_KIND_NULL &&
        !decode(request, reason->value, REVOKE_REASON_BYTES_MAX, &request->reason))
        goto out;
    *message =
        "Ids are texts of 1 to 640 bytes in the lists session_ids, device_ids and jtis, at most "
        "1000 of them.";
    for (size_t kind = 0; kind < REVOCATION_KIND_COUNT; kind++)
        if (fields[kind].present &&
            !read_list(request, (enum revocation_kind)kind, fields[kind].value))
            goto out;
    *message = "The request names nothing to revoke: session_ids, device_ids or jtis.";
    if (request->count > 0)
        status = STATUS_OK;
out:
    if (status != STATUS_OK)
        revoke_request_release(request);
    return status;
}

void revoke_request_release(struct revoke_request *request) {
    buffer_release(&request->texts);
}

/* ---- the work ----------------------------------------------------------------------------- */

static void work_free(void *memory) {
    struct revoke_work *work = memory;
    revoke_request_release(&work->request);
    free(work);
}

/* ---- on the writer's thread ---- */

static void wait_done(struct nodes_wait *wait) {
    call_return_post(&container_of(wait, struct revoke_work, wait)->call);
}

/* The revocation is in force here. The other nodes of the store confirm it. */
static void sweep_done(struct sweep *sweep) {
    struct revoke_work *work = container_of(sweep, struct revoke_work, sweep);
    const struct api *api = api_of(work->exchange);
    work->wait.confirmed = 1;
    if (!api->is_shared) {
        call_return_post(&work->call);
        return;
    }
    work->wait.done = wait_done;
    nodes_confirm_post(api->nodes, &work->wait);
    fanout_nudge(api->fanout, api->epoch);
    writer_beat_post(api->writer);
}

void revoke_add(struct revoke_work *work, enum revocation_kind kind, struct slice id) {
    struct revoke_request *request = &work->request;
    assert(request->count < REVOKE_IDS_MAX);
    request->revocations[request->count++] =
        (struct store_revocation){.kind = kind,
                                  .id = id,
                                  .reason = request->reason,
                                  .revoked_at_ms = work->now_ms,
                                  .expires_at_ms = work->expires_at_ms};
    request->counts[kind]++;
}

static void job_run(struct writer_job *job, struct store_session *store) {
    struct revoke_work *work = container_of(job, struct revoke_work, job);
    const struct revoke_request *request = &work->request;
    const struct api *api = api_of(work->exchange);
    work->status = work->first ? work->first(work, store) : STATUS_OK;
    if (work->status == STATUS_OK && request->count == 0) {
        /* Other nodes read what first changed with their next beat. */
        if (api->is_shared)
            fanout_nudge(api->fanout, api->epoch);
        call_return_post(&work->call);
        return;
    }
    struct store_progress progress;
    if (work->status == STATUS_OK)
        work->status =
            store_put_revocations(store, request->revocations, request->count, work->forget_ms);
    if (work->status == STATUS_OK && api->is_shared) {
        work->status = store_read_progress(store, 0, &progress);
        work->wait.serial = progress.revocation_serial;
    }
    if (work->status != STATUS_OK) {
        call_return_post(&work->call);
        return;
    }
    /* All are added, even if one of them finds no room. The first failure counts. */
    for (size_t i = 0; i < request->count; i++) {
        const struct store_revocation *one = &request->revocations[i];
        enum status added = revocations_add(work->exchange->http->gate.revocations, one->kind,
                                            one->id, one->expires_at_ms, work->forget_ms);
        if (work->status == STATUS_OK)
            work->status = added;
    }
    /* Logged before the sweep: the sweep may log so many lines that some are dropped. */
    log_event(LOG_INFO, "sessions.revoked", log_str("request_id", work->exchange->request_id),
              log_int("sessions", (int64_t)request->counts[REVOCATION_SESSION]),
              log_int("devices", (int64_t)request->counts[REVOCATION_DEVICE]),
              log_int("tokens", (int64_t)request->counts[REVOCATION_TOKEN]),
              log_slice("reason", request->reason.data ? request->reason : SLICE("-")));
    sweep_post(&work->sweep, work->exchange->http);
}

/* ---- on the loop ---- */

static void answer_revoked(struct revoke_work *work) {
    const struct revoke_request *request = &work->request;
    struct buffer out;
    buffer_init(&out, 1024);
    struct object_writer object = object_begin(&out);
    object_number(&object, SLICE("sessions_revoked"), request->counts[REVOCATION_SESSION]);
    object_number(&object, SLICE("devices_revoked"), request->counts[REVOCATION_DEVICE]);
    object_number(&object, SLICE("tokens_revoked"), request->counts[REVOCATION_TOKEN]);
    object_number(&object, SLICE("connections_dropped"), atomic_load(&work->sweep.session_count));
    object_number(&object, SLICE("requests_dropped"), atomic_load(&work->sweep.request_count));
    object_number(&object, SLICE("remembered_until"), work->expires_at_ms);
    object_number(&object, SLICE("nodes_confirmed"), work->wait.confirmed);
    object_number(&object, SLICE("nodes_unconfirmed"), work->wait.unconfirmed);
    object_close(&object);
    buffer_append_byte(&out, '\n');
    exchange_answer_text(work->exchange, work->status, &out);
    buffer_release(&out);
}

/* Runs also when the client is gone: the revocation is in force and is counted. */
static void revoke_done(struct call *call) {
    struct revoke_work *work = container_of(call, struct revoke_work, call);
    enum status status = call->status == STATUS_OK ? work->status : call->status;
    if (status == STATUS_OK && work->request.count > 0) {
        size_t sessions = atomic_load(&work->sweep.session_count);
        size_t requests = atomic_load(&work->sweep.request_count);
        for (size_t i = 0; i < REVOCATION_KIND_COUNT; i++)
            if (work->request.counts[i] > 0)
                metrics_add(METRIC_AUTH_REVOCATIONS, METRIC_LABELS(i), work->request.counts[i]);
        metrics_add(METRIC_AUTH_REVOKED_CONNECTIONS, METRIC_PLAIN, sessions + requests);
        log_event(LOG_INFO, "sessions.swept",
                  log_slice("request_id", exchange_request_id(work->exchange)),
                  log_int("connections", (int64_t)sessions),
                  log_int("requests", (int64_t)requests));
    }
    work->status = status;
    if (exchange_unref(work->exchange))
        work->answer(work);
}

void revoke_post(struct exchange *exchange) {
    struct revoke_work *work = exchange->work;
    exchange_ref(exchange);
    call_begin(&work->call, exchange->loop);
    enum status status = writer_post_job(api_of(exchange)->writer, &work->job);
    if (status == STATUS_OK)
        return;
    work->call.status = status;
    call_return_post(&work->call);
}

bool revoke_is_possible(struct exchange *exchange) {
    /* A loop that is starting could admit a revoked token and miss the sweep. */
    const struct http *http = exchange->http;
    if (atomic_load(&http->loops_started) == http->loop_count)
        return true;
    exchange_answer_error(exchange,
                          &(struct exchange_error){.status = STATUS_LIMIT_REACHED,
                                                   .message = "The server is still starting."});
    return false;
}

void revoke_begin(struct revoke_work *work, struct exchange *exchange) {
    /* Made on the loop: the writer only reads it. */
    (void)exchange_request_id(exchange);
    work->exchange = exchange;
    work->job.run = job_run;
    work->job.any_node = !work->first;
    work->sweep.done = sweep_done;
    work->call.done = revoke_done;
    work->now_ms = clock_wall_ms(&exchange->loop->clock);
    work->forget_ms = io_loop_forget_ms(exchange->loop);
    work->expires_at_ms = gate_revocation_expires_at_ms(&exchange->http->gate, work->now_ms);
    for (size_t i = 0; i < work->request.count; i++) {
        work->request.revocations[i].revoked_at_ms = work->now_ms;
        work->request.revocations[i].expires_at_ms = work->expires_at_ms;
    }
}

void handle_revoke(struct exchange *exchange) {
    static const char *const kinds[REVOCATION_KIND_COUNT] = {"session_id", "device_id", "jti"};
    const char *message = NULL;
    if (!revoke_is_possible(exchange))
        return;
    struct revoke_work *work = calloc(1, sizeof(*work));
    enum status status =
        work ? revoke_request_read(buffer_slice(&exchange->body), &work->request, &message)
             : STATUS_OUT_OF_MEMORY;
    if (status != STATUS_OK) {
        free(work);
        exchange_answer_error(exchange,
                              &(struct exchange_error){.status = status, .message = message});
        return;
    }
    work->answer = answer_revoked;
    exchange->work = work;
    exchange->work_free = work_free;
    revoke_begin(work, exchange);
    struct record *record = record_new(exchange, work->request.count);
    if (!record)
        return;
    /* One event for each id, so that a search for an id finds it. */
    for (size_t i = 0; i < work->request.count; i++) {
        const struct store_revocation *one = &work->request.revocations[i];
        struct object_writer event = record_begin(record);
        bool is_after = one->kind == REVOCATION_SESSION; /* members are sorted by name */
        if (is_after)
            object_text_given(&event, SLICE("reason"), one->reason);
        object_text(&event, slice_of(kinds[one->kind]), one->id);
        if (!is_after)
            object_text_given(&event, SLICE("reason"), one->reason);
        record_end(record, &event, "operator.token_revoked");
    }
    record_post_anyway(record, revoke_post);
}
