/* Who is served when is the scheduler's: whatever makes a subscriber worth asking again (its topic
 * advanced, its socket has room, its read is back) puts it in line, and sessions_serve, before the
 * loop sleeps, serves the line. So nothing here calls back into itself. */
#include "delivery/session.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/dialect.h"
#include "delivery/session_snapshot.h"
#include "delivery/session_token.h"
#include "delivery/topic_reader.h"
#include "hub/frame_row.h"
#include "server/server.h"

static void job_run(struct store_task *task, struct store_session *store);
static void job_back(struct loop_task *task);
static void next_job(struct session *session);

/* ---- life ---- */

static void count(const struct session *session, enum metric metric) {
    metrics_add(metric, METRIC_LABELS(session->dialect->label), 1);
}

void session_end(struct session *session, enum status status) {
    session_log_end(session, status, (unsigned)ws_close_code(status));
    if (session->dialect->failed &&
        session->dialect->failed(session, status, &session->replies) != STATUS_OK)
        outlet_close(session->outlet);
    else
        session_close(session);
}

struct session *session_new(const struct session_options *options) {
    struct session *session = calloc(1, sizeof(*session));
    if (!session) {
        if (options->dialect->state_free)
            options->dialect->state_free(options->state);
        return NULL;
    }
    session->outlet = options->outlet;
    session->loop = options->loop;
    session->server = options->loop->server;
    session->dialect = options->dialect;
    session->state = options->state;
    session->principal = options->principal ? principal_ref(options->principal) : NULL;
    session->task.run = job_run;
    session->back.run = job_back;
    assert(options->name.size < sizeof(session->name));
    memcpy(session->name, options->name.data, options->name.size);
    buffer_init(&session->replies, SESSION_REPLIES_BYTES_MAX);
    count(session, METRIC_SYNC_SOCKET_CONNECTIONS);
    count(session, METRIC_SYNC_SOCKET_OPENED);
    if (buffer_append_slice(&session->replies, options->head) != STATUS_OK) {
        session_disconnected(session);
        session_free(session);
        return NULL;
    }
    if (session->dialect->heartbeat)
        io_loop_deadline(session->loop, &session->heartbeat_deadline, DEADLINE_HEARTBEAT);
    session_arm_expiry(session);
    return session;
}

static bool subscriber_is_at_work(const struct subscriber *subscriber) {
    return subscriber->subscription.is_reading ||
           (subscriber->snapshot && subscriber->snapshot->is_reading);
}

/* A subscriber thread has something of it. */
static bool subscriber_is_lent(const struct subscriber *subscriber) {
    return subscriber_is_at_work(subscriber) || subscriber->subscription.ahead;
}

static void subscriber_free(struct subscriber *subscriber) {
    struct session *session = subscriber->session;
    assert(!subscriber_is_lent(subscriber));
    *(subscriber->previous ? &subscriber->previous->next : &session->subscribers) =
        subscriber->next;
    if (subscriber->next)
        subscriber->next->previous = subscriber->previous;
    session->subscriber_count--;
    metrics_sub(METRIC_SYNC_SOCKET_SUBSCRIPTIONS,
                METRIC_LABELS(subscriber->subscription.options.policy->topic_class), 1);
    scheduler_leave(&session->loop->scheduler, &subscriber->turn);
    subscription_release(&subscriber->subscription);
    subscriber_snapshot_drop(subscriber);
    feed_leave(&subscriber->member);
    free(subscriber);
}

void subscriber_drop(struct subscriber *subscriber) {
    subscriber->is_open = false;
    subscriber->is_leaving = true;
    /* Its read waits for another of the session: nobody would bring it back. */
    if (subscriber->wants_read && subscriber->subscription.is_reading)
        subscription_read_failed(&subscriber->subscription, STATUS_SHUTTING_DOWN);
    subscriber->wants_read = false;
    if (!subscriber_is_lent(subscriber))
        subscriber_free(subscriber);
}

static void drop_subscribers(struct session *session) {
    for (struct subscriber *subscriber = session->subscribers, *next; subscriber;
         subscriber = next) {
        next = subscriber->next;
        subscriber_drop(subscriber);
    }
}

/* Nobody is left to be told. */
static void opening_free(struct session *session, struct session_opening *opening) {
    if (session->dialect->opening_gone)
        session->dialect->opening_gone(opening);
    free(opening);
}

void session_disconnected(struct session *session) {
    if (!session->outlet)
        return;
    session->outlet = NULL;
    metrics_sub(METRIC_SYNC_SOCKET_CONNECTIONS, METRIC_LABELS(session->dialect->label), 1);
    metrics_add(METRIC_SYNC_SOCKET_CLOSED,
                METRIC_LABELS(session->dialect->label, label_close_code(session->close_code)), 1);
    deadline_drop(&session->heartbeat_deadline);
    deadline_drop(&session->strike_deadline);
    deadline_drop(&session->expiry_deadline);
    if (session->opening && session->job != SESSION_JOB_OPEN) {
        opening_free(session, session->opening);
        session->opening = NULL;
    }
    if (session->call && session->job != SESSION_JOB_LOOKUP) {
        session->call->free(session->call);
        session->call = NULL;
    }
    drop_subscribers(session);
}

void session_free(struct session *session) {
    assert(!session->outlet);
    session->is_lingering = true;
    if (session->job != SESSION_JOB_NONE)
        return;
    assert(!session->subscribers && !session->opening);
    if (session->dialect->state_free)
        session->dialect->state_free(session->state);
    principal_unref(session->principal);
    free(session->bearer);
    if (session->framing)
        session->framing->table->free(session->framing);
    buffer_release(&session->replies);
    free(session);
}

/* ---- writing ---- */

static bool is_blocked(const struct session *session) {
    return outlet_is_blocked(session->outlet);
}

static void note_put(struct session *session, enum outlet_result put, size_t size) {
    if (put == OUTLET_CLOSED)
        return;
    session->sent_bytes += size;
    if (put == OUTLET_SENT)
        return;
    session->was_blocked = true;
    if (session->strike_deadline.at_ms == 0 && !session->is_closing)
        io_loop_deadline(session->loop, &session->strike_deadline, DEADLINE_STRIKE_CHECK);
}

/* The last words are out, once: each time would give a peer that goes on sending new time. */
static void finish(struct session *session) {
    if (session->is_ended)
        return;
    session->is_ended = true;
    if (session->framing)
        session->framing->table->ended(session);
    else
        session->outlet->table->linger(session->outlet);
}

void session_flush(struct session *session) {
    if (!session->outlet || is_blocked(session))
        return;
    if (session->replies.size > 0) {
        size_t size = session->replies.size;
        struct buffer own = session->replies;
        buffer_init(&session->replies, SESSION_REPLIES_BYTES_MAX);
        enum outlet_result put =
            session->outlet->table->push_bytes(session->outlet, buffer_slice(&own));
        buffer_release(&own);
        note_put(session, put, size);
        if (put != OUTLET_SENT)
            return;
    }
    if (session->is_closing)
        finish(session);
}

void session_close(struct session *session) {
    if (!session->outlet || session->is_closing)
        return;
    session->is_closing = true;
    deadline_drop(&session->heartbeat_deadline);
    deadline_drop(&session->strike_deadline);
    deadline_drop(&session->expiry_deadline);
    drop_subscribers(session);
    session->outlet->table->lift_unsent_limit(session->outlet);
    /* Whoever does not read its last words is closed without. */
    session->outlet->table->set_deadline(session->outlet, DEADLINE_LINGER);
    session_flush(session);
}

/* Everybody who may have something to send gets in line again. */
static void line_up(struct session *session) {
    for (struct subscriber *subscriber = session->subscribers; subscriber;
         subscriber = subscriber->next)
        subscriber_ready(subscriber);
}

void session_writable(struct session *session) {
    session_flush(session);
    if (!session->outlet || session->is_closing || is_blocked(session))
        return;
    line_up(session);
    next_job(session);
    if (session->framing)
        session->framing->table->resume(session);
}

/* What was written to own goes out, or the session ends for want of memory. */
static void send_own(struct session *session, enum status status) {
    if (status == STATUS_OK)
        session_flush(session);
    else
        outlet_close(session->outlet);
}

/* ---- subscribers ---- */

void subscriber_ready(struct subscriber *subscriber) {
    if (subscriber->is_open && !subscriber_is_at_work(subscriber))
        scheduler_add(&subscriber->session->loop->scheduler, &subscriber->turn);
}

static void member_advanced(struct feed_member *member) {
    subscriber_ready((struct subscriber *)member);
}

enum status subscriber_new(struct session *session, struct slice topic,
                           const struct subscription_options *options, struct subscriber **made) {
    char who[PRINCIPAL_NAME_BYTES_MAX];
    struct subscriber *subscriber = calloc(1, sizeof(*subscriber));
    if (!subscriber)
        return STATUS_OUT_OF_MEMORY;
    subscriber->session = session;
    subscriber->member.advanced = member_advanced;
    subscriber->frames_max = DELIVERY_FRAMES_MAX;
    enum status status = feed_join(&session->loop->feeds, topic, &subscriber->member);
    if (status != STATUS_OK) {
        free(subscriber);
        return status;
    }
    subscriber->turn.topic = subscriber->member.feed;
    subscriber->turn.tier = policy_of(&session->server->config.policies, topic)->qos_tier;
    struct slice name = {who, principal_name(session->principal, who)};
    status = scheduler_join(&session->loop->scheduler, name, &subscriber->turn);
    if (status != STATUS_OK) {
        feed_leave(&subscriber->member);
        free(subscriber);
        return status;
    }
    struct subscription_options own = *options;
    own.watch = feed_watch(subscriber->member.feed);
    own.topic = feed_name(subscriber->member.feed);
    own.policy = policy_of(&session->server->config.policies, own.topic);
    own.principal = session->principal;
    subscription_init(&subscriber->subscription, &own);
    subscriber->next = session->subscribers;
    if (session->subscribers)
        session->subscribers->previous = subscriber;
    session->subscribers = subscriber;
    session->subscriber_count++;
    metrics_add(METRIC_SYNC_SOCKET_SUBSCRIPTIONS, METRIC_LABELS(own.policy->topic_class), 1);
    *made = subscriber;
    return STATUS_OK;
}

/* A bootstrap of a summary topic is its snapshot, and the tail behind it. */
static void begin_anew(struct subscriber *subscriber) {
    const struct subscription_options *options = &subscriber->subscription.options;
    subscriber->is_bootstrap_due = true;
    subscriber->is_caught_up = false;
    if (!policy_has_snapshot(options->policy) || !subscriber->session->dialect->snapshot ||
        options->from_head)
        return;
    enum status status = subscriber_snapshot_begin(subscriber, policy_row_of(options->topic));
    if (status != STATUS_OK)
        subscriber->subscription.status = status;
}

void subscriber_start(struct subscriber *subscriber) {
    const struct subscription *subscription = &subscriber->subscription;
    subscriber->is_open = true;
    metrics_add(subscription->is_bootstrap ? METRIC_SYNC_REPLAY_BOOTSTRAP
                                           : METRIC_SYNC_REPLAY_STARTED,
                METRIC_LABELS(subscriber->session->dialect->label,
                              subscription->options.policy->topic_class),
                1);
    if (subscriber->subscription.is_bootstrap)
        begin_anew(subscriber);
    scheduler_add(&subscriber->session->loop->scheduler, &subscriber->turn);
}

/* ---- jobs: reads of the store, one at a time ---- */

static void use_done(struct single_use *use) {
    struct session *session = ((struct session_use *)use)->session;
    session->call_status = use->status;
    job_back(&session->back);
}

static enum status use_post(struct session *session, struct session_use *use) {
    use->session = session;
    use->use.done = use_done;
    return single_use_post(&use->use, session->server->writer, session->loop, use->id);
}

static void job_post(struct session *session, enum session_job job) {
    session->job = job;
    io_loop_hold(session->loop);
    enum status status = job == SESSION_JOB_LOOKUP && session->call->use
                             ? use_post(session, session->call->use)
                             : store_pool_post(session->server->store_pool, &session->task);
    if (status == STATUS_OK)
        return;
    /* Comes back by the same way, as what it would have read. */
    if (job == SESSION_JOB_READ)
        session->reading->subscription.read->status = status;
    else if (job == SESSION_JOB_AHEAD)
        session->reading->subscription.ahead->status = status;
    else if (job == SESSION_JOB_PART)
        session->reading->snapshot->status = status;
    else if (job == SESSION_JOB_LOOKUP)
        session->call_status = status;
    else
        session->opening->status = status;
    status = io_loop_post(session->loop, &session->back);
    assert(status == STATUS_OK);
    (void)status;
}

static void next_job(struct session *session) {
    if (session->job != SESSION_JOB_NONE || !session->outlet || session->is_closing)
        return;
    if (session->call) {
        session->call_status = STATUS_OK;
        job_post(session, SESSION_JOB_LOOKUP);
        return;
    }
    if (session->opening) {
        for (size_t i = 0; i < session->opening->count; i++) {
            struct subscription *subscription = &session->opening->subscribers[i]->subscription;
            if (subscription_ask_place(subscription) != STATUS_OK)
                session->opening->status = STATUS_OUT_OF_MEMORY;
        }
        job_post(session, SESSION_JOB_OPEN);
        return;
    }
    /* A page for each topic of a peer that does not read would be its queue. */
    if (is_blocked(session))
        return;
    for (struct subscriber *subscriber = session->subscribers; subscriber;
         subscriber = subscriber->next) {
        if (!subscriber->wants_read)
            continue;
        subscriber->wants_read = false;
        session->reading = subscriber;
        if (subscriber->snapshot)
            subscriber_snapshot_read_begin(subscriber->snapshot, session->principal);
        job_post(session, subscriber->snapshot ? SESSION_JOB_PART : SESSION_JOB_READ);
        return;
    }
}

bool session_is_opening(const struct session *session) {
    return session->opening || session->call;
}

void session_look_up(struct session *session, struct session_lookup *call) {
    assert(!session_is_opening(session));
    session->call = call;
    next_job(session);
}

void session_open(struct session *session, struct session_opening *opening) {
    assert(!session_is_opening(session));
    opening->status = STATUS_OK;
    session->opening = opening;
    next_job(session);
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

static void job_run(struct store_task *task, struct store_session *store) {
    struct session *session = (struct session *)((char *)task - offsetof(struct session, task));
    if (session->job == SESSION_JOB_READ)
        journal_read_run(session->reading->subscription.read, store);
    else if (session->job == SESSION_JOB_AHEAD)
        journal_read_run(session->reading->subscription.ahead, store);
    else if (session->job == SESSION_JOB_PART)
        subscriber_snapshot_read(session->reading->snapshot);
    else if (session->job == SESSION_JOB_LOOKUP)
        session->call->run(session->call, store);
    else
        for (size_t i = 0; i < session->opening->count; i++)
            if (session->opening->subscribers[i]->subscription.read)
                journal_read_run(session->opening->subscribers[i]->subscription.read, store);
    /* The loop waits for whatever is owed to it, so it takes the task. */
    enum status status = io_loop_post(session->loop, &session->back);
    assert(status == STATUS_OK);
    (void)status;
}

static void subscriber_back(struct subscriber *subscriber, enum status status) {
    if (subscriber->subscription.is_reading) {
        if (status == STATUS_OK)
            subscription_read_done(&subscriber->subscription);
        else
            subscription_read_failed(&subscriber->subscription, status);
    }
    if (subscriber->is_leaving)
        subscriber_free(subscriber);
    else
        subscriber_ready(subscriber);
}

static void opening_back(struct session *session) {
    struct session_opening *opening = session->opening;
    bool is_wanted = session->outlet && !session->is_closing;
    session->opening = NULL;
    for (size_t i = 0; i < opening->count; i++)
        subscriber_back(opening->subscribers[i], opening->status);
    if (!is_wanted) {
        opening_free(session, opening);
        return;
    }
    session->dialect->opened(session, opening);
    free(opening);
}

static void ahead_back(struct session *session) {
    struct subscriber *subscriber = session->reading;
    session->reading = NULL;
    subscription_ahead_done(&subscriber->subscription);
    if (subscriber->is_leaving)
        subscriber_free(subscriber);
    else
        subscriber_ready(subscriber);
}

static void call_back(struct session *session) {
    struct session_lookup *call = session->call;
    session->call = NULL;
    if (session->outlet && !session->is_closing)
        call->done(session, call, session->call_status);
    else
        call->free(call);
}

static void job_back(struct loop_task *task) {
    struct session *session = (struct session *)((char *)task - offsetof(struct session, back));
    struct io_loop *loop = session->loop;
    enum session_job job = session->job;
    /* While the job still counts as under way: what it brings is taken back below. */
    (void)session_ends_with_token(session);
    session->job = SESSION_JOB_NONE;
    if (job == SESSION_JOB_READ || job == SESSION_JOB_PART) {
        struct subscriber *subscriber = session->reading;
        session->reading = NULL;
        if (job == SESSION_JOB_PART) {
            subscriber_snapshot_read_end(subscriber->snapshot);
        }
        subscriber_back(subscriber, STATUS_OK);
    } else if (job == SESSION_JOB_AHEAD) {
        ahead_back(session);
    } else if (job == SESSION_JOB_LOOKUP) {
        call_back(session);
    } else {
        opening_back(session);
    }
    if (session->outlet && session->framing)
        session->framing->table->resume(session);
    if (session->outlet)
        next_job(session);
    else if (session->is_lingering)
        session_free(session);
    io_loop_release(loop);
}

/* ---- serving ---- */

static uint64_t subscriber_lag(const struct subscriber *subscriber) {
    uint64_t head = subscriber->subscription.window.head_seq;
    uint64_t at = subscriber->subscription.next_seq - 1;
    return head > at ? head - at : 0;
}

static void fail(struct subscriber *subscriber) {
    struct session *session = subscriber->session;
    session_end(session, subscriber->subscription.status);
}

static void tell_stale(struct subscriber *subscriber) {
    struct session *session = subscriber->session;
    enum status status = session->dialect->stale(subscriber, &session->replies);
    session_log_stale(subscriber);
    if (session->dialect->restarts_stale) {
        subscription_restart(&subscriber->subscription);
        begin_anew(subscriber);
        scheduler_add(&session->loop->scheduler, &subscriber->turn);
    } else {
        subscriber_drop(subscriber);
    }
    send_own(session, status);
}

static void tell_caught_up(struct subscriber *subscriber) {
    struct session *session = subscriber->session;
    if (subscriber->is_caught_up)
        return;
    subscriber->is_caught_up = true;
    if (session->dialect->caught_up)
        send_own(session, session->dialect->caught_up(subscriber, &session->replies));
}

static void tell_bootstrap(struct subscriber *subscriber) {
    struct session *session = subscriber->session;
    subscriber->is_bootstrap_due = false;
    scheduler_add(&session->loop->scheduler, &subscriber->turn);
    if (session->dialect->bootstrap)
        send_own(session, session->dialect->bootstrap(subscriber, &session->replies));
}

/* A step of the snapshot the subscriber begins with. */
static void serve_snapshot(struct subscriber *subscriber) {
    struct session *session = subscriber->session;
    struct subscriber_snapshot *snapshot = subscriber->snapshot;
    if (snapshot->is_waiting)
        return;
    if (snapshot->status != STATUS_OK) {
        subscriber->subscription.status = snapshot->status;
        fail(subscriber);
        return;
    }
    if (!snapshot->has_part) {
        subscriber->wants_read = true;
        next_job(session);
        return;
    }
    bool is_last = subscriber_snapshot_is_last(snapshot);
    enum status status = STATUS_OK;
    /* Parts that are empty for this principal would say how many documents others have. */
    if (snapshot->documents.size > 0 || is_last) {
        status = session->dialect->snapshot(subscriber, &session->replies);
        snapshot->parts_told++;
    }
    buffer_clear(&snapshot->documents);
    snapshot->has_part = false;
    snapshot->part++;
    if (is_last) {
        subscription_place(&subscriber->subscription, snapshot->snapshot->watermark);
        subscriber_snapshot_drop(subscriber);
    }
    scheduler_add(&session->loop->scheduler, &subscriber->turn);
    send_own(session, status);
}

/* The page that others at the same place were sent already. */
static struct page *shared_page(struct subscriber *subscriber, size_t frames_max) {
    struct page *page = feed_page(subscriber->member.feed);
    struct subscription *subscription = &subscriber->subscription;
    /* What one subscriber did not ask for would be missing for the others. */
    if (!page || subscription->options.wants || page->batch.count > frames_max ||
        !subscription_stands_at(subscription, page->batch.after_seq) ||
        !page_suits(page, subscription->options.principal, subscription->options.view))
        return NULL;
    subscription_pass(subscription, &page->batch, page->head_seq);
    return page;
}

static void send_page(struct subscriber *subscriber, struct page *page, bool is_shared) {
    struct session *session = subscriber->session;
    struct push *push = NULL;
    size_t frames = page->batch.count;
    bool is_last = page->batch.through_seq >= page->head_seq;
    bool has_more = subscriber_lag(subscriber) > 0;
    enum status status = page_push(page, subscriber->form, &session->loop->page_tools, &push);
    if (status == STATUS_OK)
        telemetry_handed(session->dialect->label, subscriber->subscription.options.policy,
                         page->batch.frames, frames, clock_now().mono_ns);
    if (!is_shared)
        page_free(page);
    count(session, METRIC_KHALA_FANOUT_POLLS);
    if (scheduler_served(&session->loop->scheduler, &subscriber->turn, frames, has_more))
        count(session, METRIC_KHALA_FANOUT_FAIRNESS_LIMITED_POLLS);
    if (status != STATUS_OK) {
        outlet_close(session->outlet);
        return;
    }
    if (is_last && session->dialect->page_says_caught_up)
        subscriber->is_caught_up = true;
    /* Or it is said next. */
    else if (is_last && session->dialect->caught_up && !subscriber->is_caught_up)
        scheduler_add(&session->loop->scheduler, &subscriber->turn);
    size_t size = push->size;
    if (size == 0)
        push_unref(push);
    else
        note_put(session, session->outlet->table->push(session->outlet, push), size);
}

/* Before the frames are put into bytes: that takes about as long as reading the next ones. */
static void read_ahead(struct subscriber *subscriber, const struct delivery_batch *batch) {
    struct session *session = subscriber->session;
    if (session->job != SESSION_JOB_NONE ||
        !subscription_ask_ahead(&subscriber->subscription, batch))
        return;
    session->reading = subscriber;
    job_post(session, SESSION_JOB_AHEAD);
}

static void send_batch(struct subscriber *subscriber, struct delivery_batch *batch) {
    struct session *session = subscriber->session;
    struct page *page = NULL;
    bool is_whole = batch->count == batch->through_seq - batch->after_seq;
    uint64_t head_seq = subscriber->subscription.window.head_seq;
    enum status status = page_make(&page, subscriber->subscription.options.topic, head_seq, batch);
    delivery_batch_release(batch);
    if (status != STATUS_OK) {
        (void)scheduler_served(&session->loop->scheduler, &subscriber->turn, 0, false);
        outlet_close(session->outlet);
        return;
    }
    if (is_whole)
        feed_page_set(subscriber->member.feed, page);
    send_page(subscriber, page, is_whole);
}

static void serve(struct subscriber *subscriber, size_t frames_max) {
    struct session *session = subscriber->session;
    struct scheduler *scheduler = &session->loop->scheduler;
    struct delivery_batch batch;
    if (frames_max > subscriber->frames_max)
        frames_max = subscriber->frames_max;
    if (!session->outlet || session->is_closing || is_blocked(session) || !subscriber->is_open ||
        subscriber_is_at_work(subscriber)) {
        (void)scheduler_served(scheduler, &subscriber->turn, 0, false);
        return;
    }
    if (session_is_expired(session)) {
        (void)scheduler_served(scheduler, &subscriber->turn, 0, false);
        session_reset(session, STATUS_TOKEN_EXPIRED);
        return;
    }
    bool knows_place = subscriber->subscription.is_open || subscriber->snapshot;
    if (subscriber->is_bootstrap_due && knows_place) {
        (void)scheduler_served(scheduler, &subscriber->turn, 0, false);
        tell_bootstrap(subscriber);
        return;
    }
    if (subscriber->snapshot) {
        (void)scheduler_served(scheduler, &subscriber->turn, 0, false);
        serve_snapshot(subscriber);
        return;
    }
    struct page *page = shared_page(subscriber, frames_max);
    if (page) {
        send_page(subscriber, page, true);
        return;
    }
    /* Not before: emptying it costs more than a delivery of a shared page. */
    batch.count_max = frames_max;
    batch.bytes_max = SESSION_PUSH_BYTES;
    enum subscription_step step = subscription_next(&subscriber->subscription, &batch);
    if (step == SUBSCRIPTION_FRAMES) {
        read_ahead(subscriber, &batch);
        send_batch(subscriber, &batch);
        return;
    }
    (void)scheduler_served(scheduler, &subscriber->turn, 0, false);
    if (step == SUBSCRIPTION_AHEAD)
        return;
    if (step == SUBSCRIPTION_WAIT) {
        tell_caught_up(subscriber);
    } else if (step == SUBSCRIPTION_READ) {
        subscriber->wants_read = true;
        next_job(session);
    } else if (step == SUBSCRIPTION_STALE) {
        tell_stale(subscriber);
    } else {
        fail(subscriber);
    }
}

bool sessions_serve(struct io_loop *loop) {
    size_t frames_max;
    for (unsigned turns = 0; turns < SESSION_TURNS_MAX; turns++) {
        struct turn *turn = scheduler_next(&loop->scheduler, &frames_max);
        if (!turn)
            break;
        serve((struct subscriber *)((char *)turn - offsetof(struct subscriber, turn)), frames_max);
    }
    /* Nobody stands where the pages are any more. */
    if (loop->scheduler.line_count == 0)
        feeds_forget_pages(&loop->feeds);
    return loop->scheduler.line_count > 0;
}

/* ---- the peer, and time ---- */

void session_received(struct session *session, struct slice bytes) {
    (void)session_ends_with_token(session);
    /* A peer of an event stream has nothing to say. */
    if (session->outlet && session->framing)
        session->framing->table->received(session, bytes);
}

static void pulse(struct session *session) {
    if (session_ends_with_token(session))
        return;
    io_loop_deadline(session->loop, &session->heartbeat_deadline, DEADLINE_HEARTBEAT);
    session_arm_expiry(session);
    /* What fills the socket is sign of life enough. */
    if (!is_blocked(session))
        send_own(session, session->dialect->heartbeat(session, &session->replies));
}

static uint64_t session_lag(const struct session *session) {
    uint64_t lag = 0;
    for (const struct subscriber *subscriber = session->subscribers; subscriber;
         subscriber = subscriber->next)
        lag += subscriber->is_open ? subscriber_lag(subscriber) : 0;
    return lag;
}

static const struct subscriber *furthest_behind(const struct session *session) {
    const struct subscriber *worst = NULL;
    for (const struct subscriber *subscriber = session->subscribers; subscriber;
         subscriber = subscriber->next)
        if (subscriber->is_open && (!worst || subscriber_lag(subscriber) > subscriber_lag(worst)))
            worst = subscriber;
    return worst;
}

static void evict(struct session *session) {
    struct cause_names names;
    struct cause cause = session_cause(session, furthest_behind(session), &names);
    cause.close_code = session->close_code = CLOSE_SLOW_CONSUMER;
    telemetry_evicted(&session->server->telemetry, cause);
    if (session->dialect->slow && session->dialect->slow(session, &session->replies) != STATUS_OK)
        outlet_close(session->outlet);
    else
        session_close(session);
}

/* Whoever does not read keeps nothing but its push. */
static void rest(struct session *session) {
    for (struct subscriber *subscriber = session->subscribers; subscriber;
         subscriber = subscriber->next)
        subscription_rest(&subscriber->subscription);
}

static void look(struct session *session) {
    const struct config *config = &session->server->config;
    bool blocked = is_blocked(session);
    uint64_t strikes_before = session->strikes.count;
    const struct strikes_look seen = {
        .was_blocked = session->was_blocked,
        .is_blocked = blocked,
        .sent_bytes = session->sent_bytes - session->outlet->table->unsent_bytes(session->outlet),
        .lag = session_lag(session),
        .lag_max = config->slow_consumer_lag_threshold,
        .strikes_max = config->slow_consumer_max_strikes,
    };
    session->was_blocked = blocked;
    bool is_over = strikes_look(&session->strikes, &seen);
    if (session->strikes.count > strikes_before)
        count(session, METRIC_SYNC_SLOW_CONSUMER_STRIKES);
    if (blocked)
        rest(session);
    if (is_over)
        evict(session);
    else if (blocked || seen.was_blocked || session->strikes.count > 0)
        io_loop_deadline(session->loop, &session->strike_deadline, DEADLINE_STRIKE_CHECK);
}

void session_drain(struct session *session) {
    if (session->is_closing)
        return;
    session->close_code = CLOSE_RESTARTING;
    uint64_t retry_ms = io_loop_backoff_ms(session->loop);
    if (session->dialect->leaving &&
        session->dialect->leaving(session, retry_ms, &session->replies) != STATUS_OK)
        outlet_close(session->outlet);
    else
        session_close(session);
}

void session_expired(struct session *session, enum deadline_kind kind) {
    if (kind == DEADLINE_HEARTBEAT)
        pulse(session);
    else if (kind == DEADLINE_STRIKE_CHECK)
        look(session);
    else if (kind == DEADLINE_EXPIRY)
        session_expiry_near(session);
    else if (kind == DEADLINE_SILENCE && !session->is_closing)
        session_end(session, STATUS_WS_SILENT);
    else
        outlet_close(session->outlet);
}

/* ---- the loop's part ---- */

static void heartbeat_expired(struct deadline *deadline) {
    session_expired(container_of(deadline, struct session, heartbeat_deadline), deadline->kind);
}

static void strike_expired(struct deadline *deadline) {
    session_expired(container_of(deadline, struct session, strike_deadline), deadline->kind);
}

static void expiry_expired(struct deadline *deadline) {
    session_expired(container_of(deadline, struct session, expiry_deadline), deadline->kind);
}

static void wait_expired(struct deadline *deadline) {
    topic_reader_expired(topic_reader_of_deadline(deadline));
}

static void run_advanced(struct loop_task *task) {
    feeds_run(&container_of(task, struct io_loop, advanced)->feeds);
}

void sessions_open_loop(struct io_loop *loop, struct server *server) {
    const struct config *config = &server->config;
    struct deadline_queue *queue = &loop->deadlines;
    loop->server = server;
    loop->config = config;
    loop->advanced.run = run_advanced;
    deadline_queue_define(queue, DEADLINE_HEARTBEAT, config->heartbeat_ms, heartbeat_expired);
    deadline_queue_define(queue, DEADLINE_STRIKE_CHECK, config->slow_consumer_check_ms,
                          strike_expired);
    deadline_queue_define(queue, DEADLINE_EXPIRY, 0, expiry_expired);
    deadline_queue_define(queue, DEADLINE_WAIT, 0, wait_expired);
    scheduler_init(&loop->scheduler, &(struct scheduler_options){config->fair_topic_slice_limit,
                                                                 DELIVERY_FRAMES_MAX});
    page_tools_init(&loop->page_tools, loop);
    ws_shared_init(&loop->websockets);
    feeds_open(&loop->feeds, loop, server->hub);
}

void sessions_close_loop(struct io_loop *loop) {
    feeds_close(&loop->feeds);
    scheduler_release(&loop->scheduler);
    page_tools_release(&loop->page_tools);
    ws_shared_release(&loop->websockets);
    if (loop->deflater)
        ws_deflater_release(loop->deflater);
    free(loop->deflater);
}
