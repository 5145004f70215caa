#include "delivery/session/session_jobs.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/session/dialect.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_token.h"
#include "delivery/session/subscriber.h"
#include "delivery/session/subscriber_snapshot.h"

static void job_run(struct call *call, struct store_session *store);
static void job_done(struct call *call);

static void begin(struct session *session, enum session_job job) {
    const struct delivery *shared = session->delivery->shared;
    char key[PRINCIPAL_KEY_BYTES_MAX];
    /* A session has one job at a time, so its connections bound the jobs of a principal. */
    struct store_client client = {.key = {"", 0}};
    if (session->principal)
        client.key = principal_key(session->principal, key);
    struct call *call = &session->work->call;
    session->work->job = job;
    call->run = job_run;
    call->done = job_done;
    call->any_node = true; /* a lookup writes only single uses */
    if (job == SESSION_JOB_LOOKUP && session->work->lookup->is_write)
        call_writer(call, session->delivery->io, shared->writer);
    else
        call_store(call, session->delivery->io, shared->store_pool, &client);
}

/* False: there is no memory. */
static bool make_work(struct session *session) {
    if (session->work)
        return true;
    session->work = calloc(1, sizeof(*session->work));
    if (session->work)
        session->work->session = session;
    return session->work;
}

static void free_work(struct session *session) {
    free(session->work);
    session->work = NULL;
}

static void begin_opening(struct session *session) {
    struct session_opening *opening = session->work->opening;
    for (size_t i = 0; i < opening->count; i++)
        if (subscription_ask_position(&opening->subscribers[i]->driver.subscription) != STATUS_OK)
            opening->status = STATUS_OUT_OF_MEMORY;
    begin(session, SESSION_JOB_OPEN);
}

void session_next_job(struct session *session) {
    const struct session_work *work = session->work;
    if (session_job(session) != SESSION_JOB_NONE || !session_is_open(session))
        return;
    if (work && work->lookup) {
        begin(session, SESSION_JOB_LOOKUP);
        return;
    }
    if (work && work->opening) {
        begin_opening(session);
        return;
    }
    /* A page for each topic of a peer that does not read would be a queue. */
    if (session_is_blocked(session))
        return;
    struct subscriber *subscriber = session_first(session);
    while (subscriber && !subscriber_wants_job(subscriber))
        subscriber = subscriber_next(subscriber);
    if (!subscriber)
        return;
    if (!make_work(session)) {
        outlet_close(session->outlet);
        return;
    }
    session->work->reading = subscriber;
    if (subscriber->snapshot)
        subscriber_snapshot_read_begin(subscriber->snapshot, session->principal);
    begin(session, subscriber->snapshot ? SESSION_JOB_PART : SESSION_JOB_READ);
}

void session_look_up(struct session *session, struct session_lookup *lookup) {
    assert(!session_is_opening(session));
    if (!make_work(session)) {
        lookup->free(lookup);
        outlet_close(session->outlet);
        return;
    }
    session->work->lookup = lookup;
    session_next_job(session);
}

void session_open(struct session *session, struct session_opening *opening) {
    assert(!session_is_opening(session));
    if (!make_work(session)) {
        if (session->dialect->opening_gone)
            session->dialect->opening_gone(opening);
        free(opening);
        outlet_close(session->outlet);
        return;
    }
    opening->status = STATUS_OK;
    opening->read_count = 0;
    session->work->opening = opening;
    session_next_job(session);
}

enum status session_open_one(struct session *session, struct subscriber *subscriber) {
    struct session_opening *opening = malloc(sizeof(*opening) + sizeof(struct subscriber *));
    if (!opening)
        return STATUS_OUT_OF_MEMORY;
    opening->count = 1;
    opening->user = NULL;
    opening->subscribers[0] = subscriber;
    session_open(session, opening);
    return STATUS_OK;
}

void session_read_ahead(struct subscriber *subscriber, const struct delivery_batch *batch) {
    struct session *session = subscriber->session;
    if (session_job(session) != SESSION_JOB_NONE ||
        !subscription_ask_ahead(&subscriber->driver.subscription, batch))
        return;
    /* The frames are read when the position gets there. */
    if (!make_work(session)) {
        subscription_ahead_done(&subscriber->driver.subscription);
        return;
    }
    session->work->reading = subscriber;
    begin(session, SESSION_JOB_AHEAD);
}

/* ---- on another thread ---- */

/* A slice of an opening. True: another one must follow. */
static bool open_run(struct session_opening *opening, struct store_session *store) {
    uint64_t rows_max = store_session_rows_read(store) + STORE_TASK_ROWS;
    size_t end = opening->read_count + OPENING_SLICE_TOPICS;
    while (opening->read_count < opening->count) {
        if (opening->read_count == end || store_session_rows_read(store) >= rows_max)
            return true;
        struct driver *driver = &opening->subscribers[opening->read_count]->driver;
        if (driver->subscription.read && driver_read_run(driver, store))
            return true;
        opening->read_count++;
    }
    return false;
}

static void job_run(struct call *call, struct store_session *store) {
    const struct session_work *work = container_of(call, struct session_work, call);
    assert(work->job != SESSION_JOB_NONE);
    switch (work->job) {
    case SESSION_JOB_OPEN:
        call->has_more = open_run(work->opening, store);
        return;
    case SESSION_JOB_READ:
        call->has_more = driver_read_run(&work->reading->driver, store);
        return;
    case SESSION_JOB_AHEAD:
        call->has_more = journal_read_run(work->reading->driver.subscription.ahead, store);
        return;
    case SESSION_JOB_PART:
        subscriber_snapshot_read(work->reading->snapshot);
        return;
    case SESSION_JOB_LOOKUP:
        call->has_more = work->lookup->run(work->lookup, store);
        return;
    case SESSION_JOB_NONE:
        return;
    }
}

/* ---- back on the loop ---- */

static void open_done(struct session *session, enum status status) {
    struct session_opening *opening = session->work->opening;
    session->work->opening = NULL;
    if (opening->status == STATUS_OK)
        opening->status = status;
    for (size_t i = 0; i < opening->count; i++)
        subscriber_read_back(opening->subscribers[i], opening->status);
    if (session_is_open(session))
        session->dialect->opened(session, opening);
    else if (session->dialect->opening_gone)
        session->dialect->opening_gone(opening);
    free(opening);
}

static void lookup_done(struct session *session, enum status status) {
    struct session_lookup *lookup = session->work->lookup;
    session->work->lookup = NULL;
    if (session_is_open(session))
        lookup->done(session, lookup, status);
    else
        lookup->free(lookup);
}

static void job_done(struct call *call) {
    struct session_work *work = container_of(call, struct session_work, call);
    struct session *session = work->session;
    enum status status = call->status;
    /* While the job still counts as under way, so that its results are taken back below. */
    (void)session_ends_with_token(session);
    enum session_job job = work->job;
    struct subscriber *reading = work->reading;
    work->job = SESSION_JOB_NONE;
    work->reading = NULL;
    if (job == SESSION_JOB_OPEN)
        open_done(session, status);
    else if (job == SESSION_JOB_LOOKUP)
        lookup_done(session, status);
    else if (job == SESSION_JOB_AHEAD)
        subscriber_ahead_back(reading);
    else
        subscriber_read_back(reading, status);
    if (session_is_connected(session) && session->framing)
        session->framing->table->resume(session);
    if (session_is_connected(session))
        session_next_job(session);
    if (work->job == SESSION_JOB_NONE && !session_is_opening(session))
        free_work(session);
    if (session->state == SESSION_RELEASED)
        session_free(session);
}
