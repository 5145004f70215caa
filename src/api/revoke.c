/* POST /internal/v1/sync/sessions/revoke: revokes sessions, devices or tokens.
 *
 *   record ──▶ writer: durable ──▶ in memory ──▶ every loop: sweep ──▶ other nodes: the same
 *          ──▶ answer
 */
#include "api/revoke.h"

#include <assert.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/record.h"
#include "base/log.h"
#include "base/metrics.h"

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

/* Adds all revocations, even if one of them finds no room. Returns the first failure. */
static enum status remember(const struct revoke_work *work) {
    struct revocations *revocations = work->exchange->http->gate.revocations;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < work->request.count; i++) {
        const struct store_revocation *one = &work->request.revocations[i];
        enum status added =
            revocations_add(revocations, one->kind, one->id, one->expires_at_ms, work->forget_ms);
        if (status == STATUS_OK)
            status = added;
    }
    return status;
}

/* Logged before the sweep: the sweep may log so many lines that some are dropped. */
static void log_revocation(const struct revoke_work *work) {
    const struct revoke_request *request = &work->request;
    log_event(LOG_INFO, "sessions.revoked", log_str("request_id", work->exchange->request_id),
              log_int("sessions", (int64_t)request->counts[REVOCATION_SESSION]),
              log_int("devices", (int64_t)request->counts[REVOCATION_DEVICE]),
              log_int("tokens", (int64_t)request->counts[REVOCATION_TOKEN]),
              log_slice("reason", request->reason.data ? request->reason : SLICE("-")));
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

static void job_run(struct writer_job *job, struct store_session *session) {
    struct revoke_work *work = container_of(job, struct revoke_work, job);
    const struct api *api = api_of(work->exchange);
    work->status = work->first ? work->first(work, session) : STATUS_OK;
    if (work->status == STATUS_OK && work->request.count == 0) {
        /* Other nodes read what first changed with their next beat. */
        if (api->is_shared)
            fanout_nudge(api->fanout, api->epoch);
        call_return_post(&work->call);
        return;
    }
    struct store_progress progress;
    if (work->status == STATUS_OK)
        work->status = store_put_revocations(session, work->request.revocations,
                                             work->request.count, work->forget_ms);
    if (work->status == STATUS_OK && api->is_shared) {
        work->status = store_read_progress(session, 0, &progress);
        work->wait.serial = progress.revocation_serial;
    }
    if (work->status != STATUS_OK) {
        call_return_post(&work->call);
        return;
    }
    work->status = remember(work);
    log_revocation(work);
    sweep_post(&work->sweep, work->exchange->http);
}

/* ---- on the loop ---- */

static void count_and_log(struct revoke_work *work) {
    size_t sessions = atomic_load(&work->sweep.session_count);
    size_t requests = atomic_load(&work->sweep.request_count);
    for (size_t kind = 0; kind < REVOCATION_KIND_COUNT; kind++)
        if (work->request.counts[kind] > 0)
            metrics_add(METRIC_AUTH_REVOCATIONS, METRIC_LABELS(kind), work->request.counts[kind]);
    metrics_add(METRIC_AUTH_REVOKED_CONNECTIONS, METRIC_PLAIN, sessions + requests);
    log_event(LOG_INFO, "sessions.swept",
              log_slice("request_id", exchange_request_id(work->exchange)),
              log_int("connections", (int64_t)sessions), log_int("requests", (int64_t)requests));
}

static void answer_revoked(struct revoke_work *work) {
    const struct revoke_request *request = &work->request;
    struct buffer out;
    if (work->status != STATUS_OK) {
        exchange_answer_status(work->exchange, work->status);
        return;
    }
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
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = buffer_append_byte(&out, '\n');
    if (status == STATUS_OK)
        exchange_answer_json(work->exchange, 200, buffer_slice(&out));
    else
        exchange_answer_status(work->exchange, status);
    buffer_release(&out);
}

/* Runs also when the client is gone: the revocation is in force and is counted. */
static void revoke_done(struct call *call) {
    struct revoke_work *work = container_of(call, struct revoke_work, call);
    enum status status = call->status == STATUS_OK ? work->status : call->status;
    if (status == STATUS_OK && work->request.count > 0)
        count_and_log(work);
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

/* One event for each id, so that a search for an id finds it. */
static void record_all(struct revoke_work *work) {
    static const char *const kinds[REVOCATION_KIND_COUNT] = {"session_id", "device_id", "jti"};
    const struct revoke_request *request = &work->request;
    struct record *record = record_new(work->exchange, request->count);
    if (!record)
        return;
    for (size_t i = 0; i < request->count; i++) {
        const struct store_revocation *one = &request->revocations[i];
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

void handle_revoke(struct exchange *exchange) {
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
    record_all(work);
}
