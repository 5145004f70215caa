/* POST /internal/v1/sync/sessions/revoke: revokes sessions, devices or tokens.
 *
 *   writer: durable ──▶ in memory ──▶ every loop: sweep ──▶ other nodes: the same ──▶ answer
 *
 * The order matters: the answer survives a crash, no revoked token is admitted after the sweep, and
 * nothing is delivered to a revoked principal after the answer. */
#include <assert.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/revoke_request.h"
#include "base/log.h"
#include "base/metrics.h"
#include "http/exchange.h"
#include "http/sweep.h"
#include "io/call.h"
#include "wire/object_writer.h"

struct revoke_work {
    struct call call;
    struct writer_job job;
    struct sweep sweep;
    struct nodes_wait wait;
    struct exchange *exchange;
    uint64_t forget_ms;
    uint64_t expires_at_ms;
    enum status status;
    struct revoke_request request;
};

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

static void job_run(struct writer_job *job, struct store_session *session) {
    struct revoke_work *work = container_of(job, struct revoke_work, job);
    work->status = store_put_revocations(session, work->request.revocations, work->request.count,
                                         work->forget_ms);
    struct store_progress progress;
    if (work->status == STATUS_OK && api_of(work->exchange)->is_shared) {
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

static void answer(struct revoke_work *work) {
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
    if (status == STATUS_OK)
        count_and_log(work);
    if (!exchange_unref(work->exchange))
        return;
    if (status == STATUS_OK)
        answer(work);
    else
        exchange_answer_status(work->exchange, status);
}

static void post(struct revoke_work *work) {
    struct exchange *exchange = work->exchange;
    exchange_ref(exchange);
    call_begin(&work->call, exchange->loop);
    enum status status = writer_post_job(api_of(exchange)->writer, &work->job);
    if (status == STATUS_OK)
        return;
    work->call.status = status;
    call_return_post(&work->call);
}

void handle_revoke(struct exchange *exchange) {
    struct api *api = api_of(exchange);
    const char *message = NULL;
    /* A loop that is starting could admit a revoked token and miss the sweep. */
    if (atomic_load(&api->http->loops_started) < api->http->loop_count) {
        exchange_answer_error(exchange,
                              &(struct exchange_error){.status = STATUS_LIMIT_REACHED,
                                                       .message = "The server is still starting."});
        return;
    }
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
    /* Made on the loop: the writer only reads it. */
    (void)exchange_request_id(exchange);
    work->exchange = exchange;
    work->job.run = job_run;
    work->job.any_node = true;
    work->sweep.done = sweep_done;
    work->call.done = revoke_done;
    work->forget_ms = io_loop_forget_ms(exchange->loop);
    uint64_t now_ms = clock_wall_ms(&exchange->loop->clock);
    work->expires_at_ms = gate_revocation_expires_at_ms(&exchange->http->gate, now_ms);
    for (size_t i = 0; i < work->request.count; i++) {
        work->request.revocations[i].revoked_at_ms = now_ms;
        work->request.revocations[i].expires_at_ms = work->expires_at_ms;
    }
    exchange->work = work;
    exchange->work_free = work_free;
    post(work);
}
