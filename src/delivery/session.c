/* Who is served when is the scheduler's: whatever makes a reader worth asking again (its topic
 * advanced, its socket has room, its read is back) puts it in line, and link_serve, before the
 * loop sleeps, serves the line. So nothing here calls back into itself. */
#include "delivery/session.h"

#include <assert.h>
#include <stdlib.h>

#include "hub/frame_row.h"
#include "http/conn.h"
#include "delivery/dialect.h"
#include "delivery/session_snapshot.h"
#include "delivery/session_token.h"
#include "server/server.h"
#include "dialect/websocket.h"

/* Replies to the largest message there can be. */
#define OWN_BYTES_MAX (200u << 20)
/* Turns between two looks at the sockets. */
#define TURNS_MAX  512
#define PUSH_BYTES (64u << 10)

static void job_run(struct reader_task *task, struct store_session *session);
static void job_back(struct loop_task *task);
static void next_job(struct link *link);

/* ---- life ---- */

static void count(const struct link *link, enum metric metric) {
    metrics_add(metric, METRIC_LABELS(link->dialect->label), 1);
}

void link_end(struct link *link, enum status status) {
    link_tell_why(link, status, (unsigned)ws_close_code(status));
    if (link->dialect->failed && link->dialect->failed(link, status, &link->own) != STATUS_OK)
        conn_close(link->conn);
    else
        link_close(link);
}

struct link *link_make(struct exchange *exchange, const struct link_options *options) {
    struct io_loop *loop = exchange->loop;
    struct link *link = calloc(1, sizeof(*link));
    if (!link) {
        if (options->dialect->state_free)
            options->dialect->state_free(options->state);
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return NULL;
    }
    link->conn = exchange->conn;
    link->loop = loop;
    link->server = exchange->server;
    link->dialect = options->dialect;
    link->state = options->state;
    link->principal = options->principal ? principal_ref(options->principal) : NULL;
    link->task.run = job_run;
    link->back.run = job_back;
    (void)snprintf(link->name, sizeof(link->name), "%s", exchange_request_id(exchange).data);
    buffer_init(&link->own, OWN_BYTES_MAX);
    enum status status = buffer_append_slice(&link->own, options->head);
    conn_link(link->conn, link);
    count(link, METRIC_SYNC_SOCKET_CONNECTIONS);
    count(link, METRIC_SYNC_SOCKET_OPENED);
    if (link->dialect->heartbeat)
        io_loop_deadline(loop, &link->pulse, DEADLINE_PULSE);
    link_watch_expiry(link);
    if (status != STATUS_OK)
        conn_close(link->conn);
    return link;
}

static bool reader_is_at_work(const struct link_reader *reader) {
    return reader->subscription.is_reading || (reader->snapshot && reader->snapshot->is_reading);
}

/* A reader thread has something of it. */
static bool reader_is_lent(const struct link_reader *reader) {
    return reader_is_at_work(reader) || reader->subscription.ahead;
}

static void reader_free(struct link_reader *reader) {
    struct link *link = reader->link;
    assert(!reader_is_lent(reader));
    *(reader->previous ? &reader->previous->next : &link->readers) = reader->next;
    if (reader->next)
        reader->next->previous = reader->previous;
    link->reader_count--;
    metrics_sub(METRIC_SYNC_SOCKET_SUBSCRIPTIONS,
                METRIC_LABELS(reader->subscription.options.policy->topic_class), 1);
    scheduler_leave(&link->loop->scheduler, &reader->turn);
    subscription_release(&reader->subscription);
    link_snapshot_drop(reader);
    feed_leave(&reader->member);
    free(reader);
}

void link_reader_drop(struct link_reader *reader) {
    reader->is_open = false;
    reader->is_leaving = true;
    /* Its read waits for another of the link: nobody would bring it back. */
    if (reader->wants_read && reader->subscription.is_reading)
        subscription_read_failed(&reader->subscription, STATUS_SHUTTING_DOWN);
    reader->wants_read = false;
    if (!reader_is_lent(reader))
        reader_free(reader);
}

static void drop_readers(struct link *link) {
    for (struct link_reader *reader = link->readers, *next; reader; reader = next) {
        next = reader->next;
        link_reader_drop(reader);
    }
}

/* Nobody is left to be told. */
static void opening_free(struct link *link, struct link_opening *opening) {
    if (link->dialect->opening_gone)
        link->dialect->opening_gone(opening);
    free(opening);
}

void link_gone(struct link *link) {
    if (!link->conn)
        return;
    link->conn = NULL;
    metrics_sub(METRIC_SYNC_SOCKET_CONNECTIONS, METRIC_LABELS(link->dialect->label), 1);
    metrics_add(METRIC_SYNC_SOCKET_CLOSED,
                METRIC_LABELS(link->dialect->label, label_close_code(link->close_code)), 1);
    deadline_drop(&link->pulse);
    deadline_drop(&link->look);
    deadline_drop(&link->expiry);
    if (link->opening && link->job != LINK_JOB_OPEN) {
        opening_free(link, link->opening);
        link->opening = NULL;
    }
    if (link->call && link->job != LINK_JOB_CALL) {
        link->call->free(link->call);
        link->call = NULL;
    }
    drop_readers(link);
}

void link_free(struct link *link) {
    assert(!link->conn);
    link->is_lingering = true;
    if (link->job != LINK_JOB_NONE)
        return;
    assert(!link->readers && !link->opening);
    if (link->dialect->state_free)
        link->dialect->state_free(link->state);
    principal_unref(link->principal);
    free(link->bearer);
    if (link->websocket)
        websocket_free(link->websocket);
    buffer_release(&link->own);
    free(link);
}

/* ---- writing ---- */

static bool is_blocked(const struct link *link) {
    return link->conn->pushed != NULL;
}

static void note_put(struct link *link, enum conn_put put, size_t size) {
    if (put == CONN_PUT_CLOSED)
        return;
    link->sent_bytes += size;
    if (put == CONN_PUT_SENT)
        return;
    link->was_blocked = true;
    if (link->look.at_ms == 0 && !link->is_closing)
        io_loop_deadline(link->loop, &link->look, DEADLINE_LOOK);
}

/* The last words are out, once: each time would give a peer that goes on sending new time. */
static void finish(struct link *link) {
    if (link->is_ended)
        return;
    link->is_ended = true;
    if (link->websocket)
        websocket_ended(link);
    else
        conn_linger(link->conn);
}

void link_flush(struct link *link) {
    if (!link->conn || is_blocked(link))
        return;
    if (link->own.size > 0) {
        size_t size = link->own.size;
        struct buffer own = link->own;
        buffer_init(&link->own, OWN_BYTES_MAX);
        enum conn_put put = conn_put_bytes(link->conn, buffer_slice(&own));
        buffer_release(&own);
        note_put(link, put, size);
        if (put != CONN_PUT_SENT)
            return;
    }
    if (link->is_closing)
        finish(link);
}

void link_close(struct link *link) {
    if (!link->conn || link->is_closing)
        return;
    link->is_closing = true;
    deadline_drop(&link->pulse);
    deadline_drop(&link->look);
    deadline_drop(&link->expiry);
    drop_readers(link);
    conn_widen(link->conn);
    /* Whoever does not read its last words is closed without. */
    io_loop_deadline(link->loop, &link->conn->deadline, DEADLINE_LINGER);
    link_flush(link);
}

/* Everybody who may have something to send gets in line again. */
static void line_up(struct link *link) {
    for (struct link_reader *reader = link->readers; reader; reader = reader->next)
        link_reader_ready(reader);
}

void link_writable(struct link *link) {
    link_flush(link);
    if (!link->conn || link->is_closing || is_blocked(link))
        return;
    line_up(link);
    next_job(link);
    if (link->websocket)
        websocket_go_on(link);
}

/* What was written to own goes out, or the link ends for want of memory. */
static void send_own(struct link *link, enum status status) {
    if (status == STATUS_OK)
        link_flush(link);
    else
        conn_close(link->conn);
}

/* ---- readers ---- */

void link_reader_ready(struct link_reader *reader) {
    if (reader->is_open && !reader_is_at_work(reader))
        scheduler_add(&reader->link->loop->scheduler, &reader->turn);
}

static void member_advanced(struct feed_reader *member) {
    link_reader_ready((struct link_reader *)member);
}

enum status link_reader_make(struct link *link, struct slice topic,
                             const struct subscription_options *options,
                             struct link_reader **made) {
    char who[PRINCIPAL_NAME_BYTES_MAX];
    struct link_reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return STATUS_OUT_OF_MEMORY;
    reader->link = link;
    reader->member.advanced = member_advanced;
    reader->frames_max = DELIVERY_FRAMES_MAX;
    enum status status = feed_join(&link->loop->feeds, topic, &reader->member);
    if (status != STATUS_OK) {
        free(reader);
        return status;
    }
    reader->turn.topic = reader->member.feed;
    reader->turn.tier = policy_of(&link->server->config.policies, topic)->qos_tier;
    struct slice name = {who, principal_name(link->principal, who)};
    status = scheduler_join(&link->loop->scheduler, name, &reader->turn);
    if (status != STATUS_OK) {
        feed_leave(&reader->member);
        free(reader);
        return status;
    }
    struct subscription_options own = *options;
    own.watch = feed_watch(reader->member.feed);
    own.topic = feed_name(reader->member.feed);
    own.policy = policy_of(&link->server->config.policies, own.topic);
    own.principal = link->principal;
    subscription_init(&reader->subscription, &own);
    reader->next = link->readers;
    if (link->readers)
        link->readers->previous = reader;
    link->readers = reader;
    link->reader_count++;
    metrics_add(METRIC_SYNC_SOCKET_SUBSCRIPTIONS, METRIC_LABELS(own.policy->topic_class), 1);
    *made = reader;
    return STATUS_OK;
}

/* A bootstrap of a summary topic is its snapshot, and the tail behind it. */
static void begin_anew(struct link_reader *reader) {
    const struct subscription_options *options = &reader->subscription.options;
    reader->is_bootstrap_due = true;
    reader->is_caught_up = false;
    if (!policy_has_snapshot(options->policy) || !reader->link->dialect->snapshot ||
        options->from_head)
        return;
    enum status status = link_snapshot_begin(reader, policy_row_of(options->topic));
    if (status != STATUS_OK)
        reader->subscription.status = status;
}

void link_reader_start(struct link_reader *reader) {
    const struct subscription *subscription = &reader->subscription;
    reader->is_open = true;
    metrics_add(
        subscription->is_bootstrap ? METRIC_SYNC_REPLAY_BOOTSTRAP : METRIC_SYNC_REPLAY_STARTED,
        METRIC_LABELS(reader->link->dialect->label, subscription->options.policy->topic_class), 1);
    if (reader->subscription.is_bootstrap)
        begin_anew(reader);
    scheduler_add(&reader->link->loop->scheduler, &reader->turn);
}

/* ---- jobs: reads of the store, one at a time ---- */

static void use_done(struct single_use *use) {
    struct link *link = ((struct link_use *)use)->link;
    link->call_status = use->status;
    job_back(&link->back);
}

static enum status use_post(struct link *link, struct link_use *use) {
    use->link = link;
    use->use.done = use_done;
    return single_use_post(&use->use, link->server->writer, link->loop, use->id);
}

static void job_post(struct link *link, enum link_job job) {
    link->job = job;
    link->loop->owed_count++;
    enum status status = job == LINK_JOB_CALL && link->call->use
                             ? use_post(link, link->call->use)
                             : readers_post(link->server->readers, &link->task);
    if (status == STATUS_OK)
        return;
    /* Comes back by the same way, as what it would have read. */
    if (job == LINK_JOB_READ)
        link->reading->subscription.read->status = status;
    else if (job == LINK_JOB_AHEAD)
        link->reading->subscription.ahead->status = status;
    else if (job == LINK_JOB_PART)
        link->reading->snapshot->status = status;
    else if (job == LINK_JOB_CALL)
        link->call_status = status;
    else
        link->opening->status = status;
    status = io_loop_post(link->loop, &link->back);
    assert(status == STATUS_OK);
    (void)status;
}

static void next_job(struct link *link) {
    if (link->job != LINK_JOB_NONE || !link->conn || link->is_closing)
        return;
    if (link->call) {
        link->call_status = STATUS_OK;
        job_post(link, LINK_JOB_CALL);
        return;
    }
    if (link->opening) {
        for (size_t i = 0; i < link->opening->count; i++) {
            struct subscription *subscription = &link->opening->readers[i]->subscription;
            if (subscription_ask_place(subscription) != STATUS_OK)
                link->opening->status = STATUS_OUT_OF_MEMORY;
        }
        job_post(link, LINK_JOB_OPEN);
        return;
    }
    /* A page for each topic of a peer that does not read would be its queue. */
    if (is_blocked(link))
        return;
    for (struct link_reader *reader = link->readers; reader; reader = reader->next) {
        if (!reader->wants_read)
            continue;
        reader->wants_read = false;
        link->reading = reader;
        if (reader->snapshot)
            link_snapshot_read_begin(reader->snapshot, link->principal);
        job_post(link, reader->snapshot ? LINK_JOB_PART : LINK_JOB_READ);
        return;
    }
}

bool link_is_opening(const struct link *link) {
    return link->opening || link->call;
}

void link_call(struct link *link, struct link_call *call) {
    assert(!link_is_opening(link));
    link->call = call;
    next_job(link);
}

void link_open(struct link *link, struct link_opening *opening) {
    assert(!link_is_opening(link));
    opening->status = STATUS_OK;
    link->opening = opening;
    next_job(link);
}

enum status link_open_one(struct link *link, struct link_reader *reader) {
    struct link_opening *opening = malloc(sizeof(*opening) + sizeof(struct link_reader *));
    if (!opening)
        return STATUS_OUT_OF_MEMORY;
    opening->count = 1;
    opening->user = NULL;
    opening->readers[0] = reader;
    link_open(link, opening);
    return STATUS_OK;
}

static void job_run(struct reader_task *task, struct store_session *session) {
    struct link *link = (struct link *)((char *)task - offsetof(struct link, task));
    if (link->job == LINK_JOB_READ)
        journal_read_run(link->reading->subscription.read, session);
    else if (link->job == LINK_JOB_AHEAD)
        journal_read_run(link->reading->subscription.ahead, session);
    else if (link->job == LINK_JOB_PART)
        link_snapshot_read(link->reading->snapshot);
    else if (link->job == LINK_JOB_CALL)
        link->call->run(link->call, session);
    else
        for (size_t i = 0; i < link->opening->count; i++)
            if (link->opening->readers[i]->subscription.read)
                journal_read_run(link->opening->readers[i]->subscription.read, session);
    /* The loop waits for whatever is owed to it, so it takes the task. */
    enum status status = io_loop_post(link->loop, &link->back);
    assert(status == STATUS_OK);
    (void)status;
}

static void reader_back(struct link_reader *reader, enum status status) {
    if (reader->subscription.is_reading) {
        if (status == STATUS_OK)
            subscription_read_done(&reader->subscription);
        else
            subscription_read_failed(&reader->subscription, status);
    }
    if (reader->is_leaving)
        reader_free(reader);
    else
        link_reader_ready(reader);
}

static void opening_back(struct link *link) {
    struct link_opening *opening = link->opening;
    bool is_wanted = link->conn && !link->is_closing;
    link->opening = NULL;
    for (size_t i = 0; i < opening->count; i++)
        reader_back(opening->readers[i], opening->status);
    if (!is_wanted) {
        opening_free(link, opening);
        return;
    }
    link->dialect->opened(link, opening);
    free(opening);
}

static void ahead_back(struct link *link) {
    struct link_reader *reader = link->reading;
    link->reading = NULL;
    subscription_ahead_done(&reader->subscription);
    if (reader->is_leaving)
        reader_free(reader);
    else
        link_reader_ready(reader);
}

static void call_back(struct link *link) {
    struct link_call *call = link->call;
    link->call = NULL;
    if (link->conn && !link->is_closing)
        call->done(link, call, link->call_status);
    else
        call->free(call);
}

static void job_back(struct loop_task *task) {
    struct link *link = (struct link *)((char *)task - offsetof(struct link, back));
    struct io_loop *loop = link->loop;
    enum link_job job = link->job;
    /* While the job still counts as under way: what it brings is taken back below. */
    (void)link_ends_with_token(link);
    link->job = LINK_JOB_NONE;
    if (job == LINK_JOB_READ || job == LINK_JOB_PART) {
        struct link_reader *reader = link->reading;
        link->reading = NULL;
        if (job == LINK_JOB_PART) {
            link_snapshot_read_end(reader->snapshot);
        }
        reader_back(reader, STATUS_OK);
    } else if (job == LINK_JOB_AHEAD) {
        ahead_back(link);
    } else if (job == LINK_JOB_CALL) {
        call_back(link);
    } else {
        opening_back(link);
    }
    if (link->conn && link->websocket)
        websocket_go_on(link);
    if (link->conn)
        next_job(link);
    else if (link->is_lingering)
        link_free(link);
    io_loop_owed_back(loop);
}

/* ---- serving ---- */

static uint64_t reader_lag(const struct link_reader *reader) {
    uint64_t head = reader->subscription.window.head_seq;
    uint64_t at = reader->subscription.next_seq - 1;
    return head > at ? head - at : 0;
}

static void fail(struct link_reader *reader) {
    struct link *link = reader->link;
    link_end(link, reader->subscription.status);
}

static void tell_stale(struct link_reader *reader) {
    struct link *link = reader->link;
    enum status status = link->dialect->stale(reader, &link->own);
    link_tell_stale(reader);
    if (link->dialect->restarts_stale) {
        subscription_restart(&reader->subscription);
        begin_anew(reader);
        scheduler_add(&link->loop->scheduler, &reader->turn);
    } else {
        link_reader_drop(reader);
    }
    send_own(link, status);
}

static void tell_caught_up(struct link_reader *reader) {
    struct link *link = reader->link;
    if (reader->is_caught_up)
        return;
    reader->is_caught_up = true;
    if (link->dialect->caught_up)
        send_own(link, link->dialect->caught_up(reader, &link->own));
}

static void tell_bootstrap(struct link_reader *reader) {
    struct link *link = reader->link;
    reader->is_bootstrap_due = false;
    scheduler_add(&link->loop->scheduler, &reader->turn);
    if (link->dialect->bootstrap)
        send_own(link, link->dialect->bootstrap(reader, &link->own));
}

/* A step of the snapshot the reader begins with. */
static void serve_snapshot(struct link_reader *reader) {
    struct link *link = reader->link;
    struct link_snapshot *snapshot = reader->snapshot;
    if (snapshot->is_waiting)
        return;
    if (snapshot->status != STATUS_OK) {
        reader->subscription.status = snapshot->status;
        fail(reader);
        return;
    }
    if (!snapshot->has_part) {
        reader->wants_read = true;
        next_job(link);
        return;
    }
    bool is_last = link_snapshot_is_last(snapshot);
    enum status status = STATUS_OK;
    /* Parts that are empty for this principal would say how many documents others have. */
    if (snapshot->documents.size > 0 || is_last) {
        status = link->dialect->snapshot(reader, &link->own);
        snapshot->parts_told++;
    }
    buffer_clear(&snapshot->documents);
    snapshot->has_part = false;
    snapshot->part++;
    if (is_last) {
        subscription_place(&reader->subscription, snapshot->snapshot->watermark);
        link_snapshot_drop(reader);
    }
    scheduler_add(&link->loop->scheduler, &reader->turn);
    send_own(link, status);
}

/* The page that others at the same place were sent already. */
static struct page *shared_page(struct link_reader *reader, size_t frames_max) {
    struct page *page = feed_page(reader->member.feed);
    struct subscription *subscription = &reader->subscription;
    /* What one reader did not ask for would be missing for the others. */
    if (!page || subscription->options.wants || page->batch.count > frames_max ||
        !subscription_stands_at(subscription, page->batch.after_seq) ||
        !page_suits(page, subscription->options.principal, subscription->options.view))
        return NULL;
    subscription_pass(subscription, &page->batch, page->head_seq);
    return page;
}

static void send_page(struct link_reader *reader, struct page *page, bool is_shared) {
    struct link *link = reader->link;
    struct push *push = NULL;
    size_t frames = page->batch.count;
    bool is_last = page->batch.through_seq >= page->head_seq;
    bool has_more = reader_lag(reader) > 0;
    enum status status = page_push(page, reader->form, &link->loop->page_tools, &push);
    if (status == STATUS_OK)
        telemetry_handed(link->dialect->label, reader->subscription.options.policy,
                         page->batch.frames, frames, clock_now().mono_ns);
    if (!is_shared)
        page_free(page);
    count(link, METRIC_KHALA_FANOUT_POLLS);
    if (scheduler_served(&link->loop->scheduler, &reader->turn, frames, has_more))
        count(link, METRIC_KHALA_FANOUT_FAIRNESS_LIMITED_POLLS);
    if (status != STATUS_OK) {
        conn_close(link->conn);
        return;
    }
    if (is_last && link->dialect->page_says_caught_up)
        reader->is_caught_up = true;
    /* Or it is said next. */
    else if (is_last && link->dialect->caught_up && !reader->is_caught_up)
        scheduler_add(&link->loop->scheduler, &reader->turn);
    size_t size = push->size;
    if (size == 0)
        push_unref(push);
    else
        note_put(link, conn_put(link->conn, push), size);
}

/* Before the frames are put into bytes: that takes about as long as reading the next ones. */
static void read_ahead(struct link_reader *reader, const struct delivery_batch *batch) {
    struct link *link = reader->link;
    if (link->job != LINK_JOB_NONE || !subscription_ask_ahead(&reader->subscription, batch))
        return;
    link->reading = reader;
    job_post(link, LINK_JOB_AHEAD);
}

static void send_batch(struct link_reader *reader, struct delivery_batch *batch) {
    struct link *link = reader->link;
    struct page *page = NULL;
    bool is_whole = batch->count == batch->through_seq - batch->after_seq;
    uint64_t head_seq = reader->subscription.window.head_seq;
    enum status status = page_make(&page, reader->subscription.options.topic, head_seq, batch);
    delivery_batch_release(batch);
    if (status != STATUS_OK) {
        (void)scheduler_served(&link->loop->scheduler, &reader->turn, 0, false);
        conn_close(link->conn);
        return;
    }
    if (is_whole)
        feed_page_set(reader->member.feed, page);
    send_page(reader, page, is_whole);
}

static void serve(struct link_reader *reader, size_t frames_max) {
    struct link *link = reader->link;
    struct scheduler *scheduler = &link->loop->scheduler;
    struct delivery_batch batch;
    if (frames_max > reader->frames_max)
        frames_max = reader->frames_max;
    if (!link->conn || link->is_closing || is_blocked(link) || !reader->is_open ||
        reader_is_at_work(reader)) {
        (void)scheduler_served(scheduler, &reader->turn, 0, false);
        return;
    }
    if (link_is_expired(link)) {
        (void)scheduler_served(scheduler, &reader->turn, 0, false);
        link_cut(link, STATUS_TOKEN_EXPIRED);
        return;
    }
    bool knows_place = reader->subscription.is_open || reader->snapshot;
    if (reader->is_bootstrap_due && knows_place) {
        (void)scheduler_served(scheduler, &reader->turn, 0, false);
        tell_bootstrap(reader);
        return;
    }
    if (reader->snapshot) {
        (void)scheduler_served(scheduler, &reader->turn, 0, false);
        serve_snapshot(reader);
        return;
    }
    struct page *page = shared_page(reader, frames_max);
    if (page) {
        send_page(reader, page, true);
        return;
    }
    /* Not before: emptying it costs more than a delivery of a shared page. */
    batch.count_max = frames_max;
    batch.bytes_max = PUSH_BYTES;
    enum subscription_step step = subscription_next(&reader->subscription, &batch);
    if (step == SUBSCRIPTION_FRAMES) {
        read_ahead(reader, &batch);
        send_batch(reader, &batch);
        return;
    }
    (void)scheduler_served(scheduler, &reader->turn, 0, false);
    if (step == SUBSCRIPTION_AHEAD)
        return;
    if (step == SUBSCRIPTION_WAIT) {
        tell_caught_up(reader);
    } else if (step == SUBSCRIPTION_READ) {
        reader->wants_read = true;
        next_job(link);
    } else if (step == SUBSCRIPTION_STALE) {
        tell_stale(reader);
    } else {
        fail(reader);
    }
}

void link_serve(struct io_loop *loop) {
    size_t frames_max;
    for (unsigned turns = 0; turns < TURNS_MAX; turns++) {
        struct turn *turn = scheduler_next(&loop->scheduler, &frames_max);
        if (!turn)
            break;
        serve((struct link_reader *)((char *)turn - offsetof(struct link_reader, turn)),
              frames_max);
    }
    /* Nobody stands where the pages are any more. */
    if (loop->scheduler.line_count == 0)
        feeds_forget_pages(&loop->feeds);
}

/* ---- the peer, and time ---- */

void link_received(struct link *link, struct slice bytes) {
    (void)link_ends_with_token(link);
    /* A peer of an event stream has nothing to say. */
    if (link->conn && link->websocket)
        websocket_received(link, bytes);
}

struct link *link_of_pulse(struct deadline *deadline) {
    return (struct link *)((char *)deadline - offsetof(struct link, pulse));
}

struct link *link_of_expiry(struct deadline *deadline) {
    return (struct link *)((char *)deadline - offsetof(struct link, expiry));
}

struct link *link_of_look(struct deadline *deadline) {
    return (struct link *)((char *)deadline - offsetof(struct link, look));
}

static void pulse(struct link *link) {
    if (link_ends_with_token(link))
        return;
    io_loop_deadline(link->loop, &link->pulse, DEADLINE_PULSE);
    link_watch_expiry(link);
    /* What fills the socket is sign of life enough. */
    if (!is_blocked(link))
        send_own(link, link->dialect->heartbeat(link, &link->own));
}

static uint64_t link_lag(const struct link *link) {
    uint64_t lag = 0;
    for (const struct link_reader *reader = link->readers; reader; reader = reader->next)
        lag += reader->is_open ? reader_lag(reader) : 0;
    return lag;
}

static const struct link_reader *furthest_behind(const struct link *link) {
    const struct link_reader *worst = NULL;
    for (const struct link_reader *reader = link->readers; reader; reader = reader->next)
        if (reader->is_open && (!worst || reader_lag(reader) > reader_lag(worst)))
            worst = reader;
    return worst;
}

static void evict(struct link *link) {
    struct cause_names names;
    struct cause cause = link_cause(link, furthest_behind(link), &names);
    cause.close_code = link->close_code = CLOSE_SLOW_CONSUMER;
    telemetry_evicted(link->server, cause);
    if (link->dialect->slow && link->dialect->slow(link, &link->own) != STATUS_OK)
        conn_close(link->conn);
    else
        link_close(link);
}

/* Whoever does not read keeps nothing but its push. */
static void rest(struct link *link) {
    for (struct link_reader *reader = link->readers; reader; reader = reader->next)
        subscription_rest(&reader->subscription);
}

static void look(struct link *link) {
    const struct config *config = &link->server->config;
    bool blocked = is_blocked(link);
    uint64_t strikes_before = link->strikes.count;
    const struct strikes_look seen = {
        .was_blocked = link->was_blocked,
        .is_blocked = blocked,
        .sent_bytes = link->sent_bytes - conn_unsent_bytes(link->conn),
        .lag = link_lag(link),
        .lag_max = config->slow_consumer_lag_threshold,
        .strikes_max = config->slow_consumer_max_strikes,
    };
    link->was_blocked = blocked;
    bool is_over = strikes_look(&link->strikes, &seen);
    if (link->strikes.count > strikes_before)
        count(link, METRIC_SYNC_SLOW_CONSUMER_STRIKES);
    if (blocked)
        rest(link);
    if (is_over)
        evict(link);
    else if (blocked || seen.was_blocked || link->strikes.count > 0)
        io_loop_deadline(link->loop, &link->look, DEADLINE_LOOK);
}

void link_leave(struct link *link) {
    if (link->is_closing)
        return;
    link->close_code = CLOSE_RESTARTING;
    uint64_t retry_ms = io_loop_backoff_ms(link->loop);
    if (link->dialect->leaving && link->dialect->leaving(link, retry_ms, &link->own) != STATUS_OK)
        conn_close(link->conn);
    else
        link_close(link);
}

void link_expired(struct link *link, enum deadline_kind kind) {
    if (kind == DEADLINE_PULSE)
        pulse(link);
    else if (kind == DEADLINE_LOOK)
        look(link);
    else if (kind == DEADLINE_EXPIRY)
        link_expiry_near(link);
    else if (kind == DEADLINE_SILENCE && !link->is_closing)
        link_end(link, STATUS_WS_SILENT);
    else
        conn_close(link->conn);
}
