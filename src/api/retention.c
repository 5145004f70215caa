/* POST /internal/v1/retention/run: runs a retention pass over all topics and answers its report.
 *
 * The retention thread runs the pass and holds the exchange until it is done. A pass over a large
 * store may take long, so white space is sent now and then to show progress. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/record.h"
#include "authority/call.h"
#include "base/limits.h"
#include "http/exchange.h"
#include "wire/json.h"

struct retention_work {
    struct retention_request request;
    struct call done;
    struct loop_task progress;
    atomic_bool is_progress_posted;
    struct exchange *exchange;
    bool is_done; /* the answer follows when the last piece is written */
};

static void work_free(void *memory) {
    struct retention_work *work = memory;
    retention_report_unref(work->request.report);
    free(work);
}

/* ---- on the retention thread ---- */

static struct retention_work *work_of(struct retention_request *request) {
    return container_of(request, struct retention_work, request);
}

static void on_done(struct retention_request *request) {
    call_return_post(&work_of(request)->done);
}

/* The call keeps the loop alive, so its mailbox is open. */
static void on_progress(struct retention_request *request) {
    struct retention_work *work = work_of(request);
    if (atomic_exchange(&work->is_progress_posted, true))
        return;
    enum status status = io_loop_post(work->exchange->loop, &work->progress);
    assert(status == STATUS_OK);
    (void)status;
}

/* ---- on the loop ---- */

static void answer(struct retention_work *work) {
    struct exchange *exchange = work->exchange;
    struct buffer out;
    buffer_init(&out, RETENTION_ANSWER_BYTES_MAX);
    enum status status = work->request.status;
    if (status == STATUS_OK)
        status = retention_report_write(work->request.report, &out);
    if (status != STATUS_OK && exchange_is_answered(exchange))
        exchange_abort(exchange, status);
    else if (status != STATUS_OK)
        exchange_answer_status(exchange, status);
    else if (exchange_is_answered(exchange))
        exchange_end(exchange, buffer_slice(&out));
    else
        exchange_answer_json(exchange, 200, buffer_slice(&out));
    buffer_release(&out);
}

static void done_on_loop(struct call *call) {
    struct retention_work *work = container_of(call, struct retention_work, done);
    struct exchange *exchange = work->exchange;
    if (call->status != STATUS_OK)
        work->request.status = call->status;
    if (!exchange_unref(exchange))
        return;
    if (exchange_is_answered(exchange) && exchange_is_sending(exchange))
        work->is_done = true;
    else
        answer(work);
}

/* Runs before done_on_loop, so the exchange still exists. */
static void progress_on_loop(struct loop_task *task) {
    struct retention_work *work = container_of(task, struct retention_work, progress);
    struct exchange *exchange = work->exchange;
    atomic_store(&work->is_progress_posted, false);
    if (!exchange->conn || (exchange_is_answered(exchange) && exchange_is_sending(exchange)))
        return;
    if (!exchange_is_answered(exchange))
        exchange_begin(exchange, 200, SLICE("application/json"));
    bool is_sent = exchange_send(exchange, SLICE("\n"));
    (void)is_sent;
}

static void piece_sent(struct exchange *exchange) {
    struct retention_work *work = exchange->work;
    if (work->is_done)
        answer(work);
}

static const struct exchange_stream retention_stream = {.sent = piece_sent};

/* The request has no parameters: the body is empty, or an empty object. */
static bool is_empty(struct slice body) {
    const struct json_limits limits = {body.size, JSON_DEPTH_MAX};
    struct json_value value, name, member;
    if (body.size == 0)
        return true;
    if (json_parse(body, &limits, &value) != STATUS_OK || value.kind != JSON_KIND_OBJECT)
        return false;
    struct json_iterator members = json_iterate(value);
    return !json_next_member(&members, &name, &member);
}

static void run(struct exchange *exchange) {
    struct retention_work *work = exchange->work;
    exchange_ref(exchange);
    call_begin(&work->done, exchange->loop);
    enum status status = retention_run_post(api_of(exchange)->retention, &work->request);
    if (status != STATUS_OK) {
        work->done.status = status;
        call_return_post(&work->done);
    }
}

void handle_retention_run(struct exchange *exchange) {
    if (!is_empty(buffer_slice(&exchange->body))) {
        exchange_answer_error(exchange,
                              &(struct exchange_error){.status = STATUS_INVALID_REQUEST,
                                                       .message = "The body is empty or {}."});
        return;
    }
    struct retention_work *work = calloc(1, sizeof(*work));
    if (!work) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    work->exchange = exchange;
    work->request.done = on_done;
    work->request.progress = on_progress;
    work->done.done = done_on_loop;
    work->progress.run = progress_on_loop;
    exchange->work = work;
    exchange->work_free = work_free;
    exchange->stream = &retention_stream;
    /* Retention makes room on a full disk, although nothing can be recorded there. */
    struct record *record = record_new(exchange, 1);
    if (!record)
        return;
    struct object_writer event = record_begin(record);
    record_end(record, &event, "operator.retention_run");
    record_post_anyway(record, run);
}
