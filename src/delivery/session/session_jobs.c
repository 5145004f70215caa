/* A session has one job at a time: an opening or a lookup first, else a read of the subscriber that
 * waits longest, else a read ahead. Openings and lookups that begin in one turn of the loop are
 * grouped by principal; at the end of the turn each group becomes one task of the store pool, which
 * runs them one after the other and shares what they read. A job that does not fit into the slice
 * of that task leaves it and is posted by itself. */
#include "delivery/session/session_jobs.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "delivery/session/subscriber.h"

/* A lookup of a batch counts as so many topics. */
#define LOOKUP_TOPICS 8

static void job_run(struct call *call, struct store_session *store);
static void job_done(struct call *call);

/* In the queue of the session's principal. */
static void post(struct call *call, const struct session *session) {
    char key[PRINCIPAL_KEY_BYTES_MAX];
    /* A session has one job at a time, so its connections bound the jobs of a principal. */
    struct store_client client = {.key = {"", 0}};
    if (session->principal)
        client.key = principal_key(session->principal, key);
    call_store(call, session->delivery->io, session->delivery->shared->store_pool, &client);
}

static void begin(struct session *session, enum session_job job) {
    struct call *call = &session->work->call;
    session->work->job = job;
    call->run = job_run;
    call->done = job_done;
    if (job == SESSION_JOB_LOOKUP && session->work->lookup->begin) {
        call_begin(call, session->delivery->io);
        session->work->lookup->begin(session->work->lookup, call);
    } else {
        post(call, session);
    }
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

/* At the end of the turn, together with jobs of the same principal; by itself if too many
 * principals have jobs in this turn. */
static void begin_together(struct session *session, enum session_job job) {
    struct session_work *work = session->work;
    struct delivery_loop *delivery = session->delivery;
    struct job_group *group = delivery->job_groups;
    const struct job_group *end = group + delivery->job_group_count;
    while (group < end && group->first->session->principal != session->principal)
        group++;
    if (group == delivery->job_groups + JOB_GROUPS_MAX) {
        begin(session, job);
        return;
    }
    work->job = job;
    work->next = NULL;
    work->has_more = false;
    if (group < end) {
        group->last->next = work;
    } else {
        group->first = work;
        delivery->job_group_count++;
        /* Until the end of the turn no call keeps the loop alive for them. */
        io_loop_hold(delivery->io);
    }
    group->last = work;
}

void session_next_job(struct session *session) {
    const struct session_work *work = session->work;
    if (session_job(session) != SESSION_JOB_NONE || !session_is_open(session))
        return;
    if (work && work->lookup && work->lookup->begin) {
        begin(session, SESSION_JOB_LOOKUP);
        return;
    }
    if (work && work->lookup) {
        begin_together(session, SESSION_JOB_LOOKUP);
        return;
    }
    if (work && work->opening) {
        struct session_opening *opening = work->opening;
        for (size_t i = 0; i < opening->count; i++)
            if (subscription_ask_position(&opening->subscribers[i]->subscription) != STATUS_OK)
                opening->status = STATUS_OUT_OF_MEMORY;
        begin_together(session, SESSION_JOB_OPEN);
        return;
    }
    /* A page for each topic of a peer that does not read would be a queue. */
    if (session_is_blocked(session))
        return;
    struct turn *turn = session_turn(session);
    struct subscriber *subscriber = NULL;
    for (turn = turn ? turn_first_reading(turn) : NULL; turn; turn = turn_next_reading(turn)) {
        subscriber = container_of(turn, struct subscriber, turn);
        if (subscriber_wants_job(subscriber))
            break;
    }
    if (!turn)
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
        !subscription_ask_ahead(&subscriber->subscription, batch))
        return;
    /* The frames are read when the position gets there. */
    if (!make_work(session)) {
        subscription_ahead_done(&subscriber->subscription);
        return;
    }
    session->work->reading = subscriber;
    begin(session, SESSION_JOB_AHEAD);
}

/* ---- on another thread ---- */

/* What the jobs of a slice share. */
struct job_slice {
    struct store_session *store;
    size_t topics_left;
    uint64_t rows_max;                   /* read by the session when the slice ends */
    struct journal_rows *rows;           /* read by the openings before; NULL: not shared */
    const struct session_lookup *lookup; /* the last one that was run; NULL: none */
};

static struct job_slice slice_of_store(struct store_session *store) {
    return (struct job_slice){.store = store,
                              .topics_left = OPENING_SLICE_TOPICS,
                              .rows_max = store_session_rows_read(store) + STORE_TASK_ROWS};
}

static bool slice_is_over(const struct job_slice *slice) {
    return slice->topics_left == 0 || store_session_rows_read(slice->store) >= slice->rows_max;
}

/* True: another slice must follow. */
static bool open_run(struct session_opening *opening, struct job_slice *slice) {
    bool has_more = false;
    while (!has_more && opening->read_count < opening->count) {
        if (slice_is_over(slice))
            return true;
        struct journal_read *read = opening->subscribers[opening->read_count]->subscription.read;
        slice->topics_left--;
        if (read) {
            read->rows = slice->rows;
            has_more = journal_read_run(read, slice->store);
            read->rows = NULL;
        }
        opening->read_count += has_more ? 0 : 1;
    }
    return has_more;
}

static void job_run(struct call *call, struct store_session *store) {
    const struct session_work *work = container_of(call, struct session_work, call);
    struct job_slice slice = slice_of_store(store);
    assert(work->job != SESSION_JOB_NONE);
    switch (work->job) {
    case SESSION_JOB_OPEN:
        call->has_more = open_run(work->opening, &slice);
        return;
    case SESSION_JOB_READ:
        call->has_more = subscription_read_run(&work->reading->subscription, store);
        return;
    case SESSION_JOB_AHEAD:
        call->has_more = journal_read_run(work->reading->subscription.ahead, store);
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

static void end_job(struct session *session, enum status status) {
    struct session_work *work = session->work;
    /* While the job still counts as under way, so that its results are taken back below. */
    (void)session_ends_with_token(session);
    enum session_job job = work->job;
    struct subscriber *reading = work->reading;
    work->job = SESSION_JOB_NONE;
    work->reading = NULL;
    if (job == SESSION_JOB_OPEN) {
        struct session_opening *opening = work->opening;
        work->opening = NULL;
        if (opening->status == STATUS_OK)
            opening->status = status;
        for (size_t i = 0; i < opening->count; i++)
            subscriber_read_back(opening->subscribers[i], opening->status);
        if (session_is_open(session))
            session->dialect->opened(session, opening);
        else if (session->dialect->opening_gone)
            session->dialect->opening_gone(opening);
        free(opening);
    } else if (job == SESSION_JOB_LOOKUP) {
        struct session_lookup *lookup = work->lookup;
        work->lookup = NULL;
        if (session_is_open(session))
            lookup->done(session, lookup, status);
        else
            lookup->free(lookup);
    } else if (job == SESSION_JOB_AHEAD) {
        subscriber_ahead_back(reading);
    } else {
        subscriber_read_back(reading, status);
    }
    if (session_is_connected(session) && session->framing)
        session->framing->table->resume(session);
    if (session_is_connected(session))
        session_next_job(session);
    if (work->job == SESSION_JOB_NONE && !session_is_opening(session)) {
        free(work);
        session->work = NULL;
    }
    if (session->state == SESSION_RELEASED)
        session_free(session);
}

static void job_done(struct call *call) {
    end_job(container_of(call, struct session_work, call)->session, call->status);
}

/* ---- jobs that run together ---- */

/* All of its jobs arrived before the task began. */
struct job_batch {
    struct call call;
    struct session_work *first;
    struct session_work *next; /* the first one that has not run */
};

/* True: the job needs another slice. */
static bool run_in_slice(const struct session_work *work, struct job_slice *slice) {
    if (work->job == SESSION_JOB_OPEN)
        return open_run(work->opening, slice);
    struct session_lookup *lookup = work->lookup;
    if (slice->lookup && lookup->copy && lookup->copy == slice->lookup->copy &&
        lookup->copy(lookup, slice->lookup))
        return false;
    slice->topics_left -= slice->topics_left < LOOKUP_TOPICS ? slice->topics_left : LOOKUP_TOPICS;
    if (lookup->run(lookup, slice->store))
        return true;
    slice->lookup = lookup;
    return false;
}

/* A job that needs more than one slice leaves the batch, and takes its turns by itself. */
static void batch_run(struct call *call, struct store_session *store) {
    struct job_batch *batch = container_of(call, struct job_batch, call);
    struct job_slice slice = slice_of_store(store);
    struct journal_rows rows;
    journal_rows_init(&rows);
    slice.rows = &rows;
    for (; batch->next && !slice_is_over(&slice); batch->next = batch->next->next)
        batch->next->has_more = run_in_slice(batch->next, &slice);
    journal_rows_release(&rows);
    call->has_more = batch->next;
}

static void batch_done(struct call *call) {
    struct job_batch *batch = container_of(call, struct job_batch, call);
    for (struct session_work *work = batch->first, *next; work; work = next) {
        next = work->next;
        if (work->has_more && session_is_connected(work->session))
            begin(work->session, work->job);
        else
            end_job(work->session, work->has_more ? STATUS_SHUTTING_DOWN : call->status);
    }
    free(batch);
}

void session_post_jobs(struct delivery_loop *delivery) {
    size_t count = delivery->job_group_count;
    delivery->job_group_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct session_work *first = delivery->job_groups[i].first;
        struct job_batch *batch = first->next ? calloc(1, sizeof(*batch)) : NULL;
        /* One job, and without memory each job, is run by itself. */
        for (struct session_work *work = first, *next; work && !batch; work = next) {
            next = work->next;
            begin(work->session, work->job);
        }
        if (batch) {
            batch->first = batch->next = first;
            batch->call.run = batch_run;
            batch->call.done = batch_done;
            post(&batch->call, first->session);
        }
        io_loop_release(delivery->io);
    }
}
