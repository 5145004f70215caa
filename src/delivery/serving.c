/* Each turn of the scheduler serves one subscriber: with the notice of its bootstrap, a part of its
 * snapshot, or frames. A page that another subscriber at the same position was sent is sent again
 * as it is; otherwise the subscription takes one step, and on_frames encodes what it gives. A turn
 * ends with what is left to send, so that the scheduler can queue the subscriber again. */
#include "delivery/serving.h"

#include <stdlib.h>

#include "base/limits.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_jobs.h"
#include "delivery/session/subscriber.h"

void delivery_loop_open(struct delivery_loop *delivery, struct delivery *shared,
                        struct io_loop *io) {
    const struct delivery_options *options = &shared->options;
    *delivery = (struct delivery_loop){.shared = shared, .io = io};
    scheduler_init(&delivery->scheduler,
                   &(struct scheduler_options){options->slice_frames, DELIVERY_FRAMES_MAX});
    ws_shared_init(&delivery->websockets);
    feeds_open(&delivery->feeds, io, shared->hub);
}

void delivery_loop_release(struct delivery_loop *delivery) {
    feeds_close(&delivery->feeds);
    scheduler_release(&delivery->scheduler);
    ws_shared_release(&delivery->websockets);
    slab_release(&delivery->sessions);
    slab_release(&delivery->subscribers);
    slab_release(&delivery->framings);
    if (delivery->deflater)
        ws_deflater_release(delivery->deflater);
    free(delivery->deflater);
}

static struct scheduler *scheduler_of(const struct subscriber *subscriber) {
    return &subscriber->session->delivery->scheduler;
}

static struct subscriber *subscriber_of(struct subscription *subscription) {
    return container_of(subscription, struct subscriber, subscription);
}

/* The turn sent that many frames. */
static void end_turn(struct subscriber *subscriber, size_t frames, bool has_more) {
    subscriber->turn.is_live =
        subscriber->state == SUBSCRIBER_LIVE && !subscriber->subscription.is_replaying;
    if (scheduler_served(scheduler_of(subscriber), &subscriber->turn, frames, has_more))
        session_count(subscriber->session, METRIC_FANOUT_FAIRNESS_LIMITED_POLLS);
}

/* ---- pages ---- */

/* The page that another subscriber at the same position was sent, or NULL. */
static struct page *shared_page(struct subscriber *subscriber, size_t frames_max) {
    struct subscription *subscription = &subscriber->subscription;
    const struct page_key key = {
        subscription->folds ? PAGE_READER_FOLDING : PAGE_READER_PLAIN,
        subscription->selected ? subscription->selected->selection : NULL,
    };
    struct page *page = feed_page(subscription->member.feed, subscription->sent_seq, &key);
    /* Frames that one client did not ask for would be missing for the others. */
    bool is_filtered = subscription->log && subscription->log->wants;
    if (!page || is_filtered || page->batch.count > frames_max ||
        !subscription_is_at(subscription, page->batch.after_seq))
        return NULL;
    /* Frames that were pruned have left the memory of the hub. */
    uint64_t first_seq = page->batch.after_seq + 1;
    if (feed_page_is_idle(page) && !hub_holds(subscription->topic->watch, first_seq) &&
        !hub_holds_folded(subscription->topic->watch, first_seq))
        return NULL;
    if (!page_suits(page, subscription->principal, (enum grant_view)subscription->view))
        return NULL;
    subscription_pass(subscription, &page->batch, page->head_seq);
    return page;
}

static void send_page(struct subscriber *subscriber, struct page *page, bool is_shared) {
    struct session *session = subscriber->session;
    const struct dialect *dialect = session->dialect;
    struct subscription *subscription = &subscriber->subscription;
    const struct delivery_batch *batch = &page->batch;
    struct push *push = NULL;
    size_t frames = batch->count;
    bool is_last = batch->through_seq >= page->head_seq;
    bool has_more = subscription_lag(subscription) > 0;
    enum status status = page_push(page, subscriber->form, session->delivery, &push);
    /* The position that the client has after this page: messages alone do not cover hidden frames
     * behind the last of them. */
    subscription_sent(subscription, dialect->page_covers_range
                                        ? batch->through_seq
                                        : batch->frames[frames - 1]->content.seq);
    subscription_begun(subscription);
    if (status == STATUS_OK)
        telemetry_handed(dialect->label, feed_topic_policy(subscription->topic), batch->frames,
                         frames, clock_mono_now_ns());
    if (!is_shared)
        page_free(page);
    session_count(session, METRIC_FANOUT_POLLS);
    end_turn(subscriber, frames, has_more);
    if (status != STATUS_OK) {
        outlet_close(session->outlet);
        return;
    }
    if (is_last && subscriber->state == SUBSCRIBER_REPLAY && dialect->page_says_caught_up)
        subscriber_set_state(subscriber, SUBSCRIBER_LIVE);
    else if (is_last && subscriber->state == SUBSCRIBER_REPLAY && dialect->caught_up)
        scheduler_add(scheduler_of(subscriber), &subscriber->turn);
    if (push->size == 0)
        push_unref(push);
    else
        session_push(session, push);
}

/* ---- answers of the subscription ---- */

static void on_frames(struct subscription *subscription, struct delivery_batch *batch) {
    struct subscriber *subscriber = subscriber_of(subscription);
    struct page *page = NULL;
    /* Before the frames are encoded: that takes about as long as reading the next ones. */
    session_read_ahead(subscriber, batch);
    if (batch->count == 0) {
        /* Only hidden frames were passed: the next page, the end of the replay or the heartbeat
         * covers them. */
        bool has_more =
            subscription_lag(subscription) > 0 || subscriber->state == SUBSCRIBER_REPLAY;
        end_turn(subscriber, 0, has_more);
        return;
    }
    enum status status = page_make(&page, subscription->topic->name, subscription->head_seq, batch);
    delivery_batch_release(batch);
    if (status != STATUS_OK) {
        end_turn(subscriber, 0, false);
        outlet_close(subscriber->session->outlet);
        return;
    }
    /* Seqs of two epochs do not overlap, so a page belongs to one epoch. */
    page->epoch = *subscription_epoch(subscription);
    bool is_whole = page->is_whole;
    if (is_whole)
        feed_page_add(subscription->member.feed, page);
    send_page(subscriber, page, is_whole);
}

static void on_head(struct subscription *subscription) {
    struct subscriber *subscriber = subscriber_of(subscription);
    struct session *session = subscriber->session;
    end_turn(subscriber, 0, false);
    subscription_begun(subscription);
    if (subscriber->state != SUBSCRIBER_REPLAY)
        return;
    subscriber_set_state(subscriber, SUBSCRIBER_LIVE);
    if (!session->dialect->caught_up)
        return;
    enum status status = session->dialect->caught_up(subscriber, &session->replies);
    if (session->dialect->page_covers_range)
        subscription_sent(subscription, subscriber_position(subscriber));
    session_send(session, status);
}

/* While reads pass over frames of others, the client's other topics continue. */
static void on_read(struct subscription *subscription) {
    struct subscriber *subscriber = subscriber_of(subscription);
    bool found_none = subscription->sent_seq + 1 < subscription->next_seq;
    scheduler_wait(scheduler_of(subscriber), &subscriber->turn, !found_none);
    session_next_job(subscriber->session);
}

static void on_ahead(struct subscription *subscription) {
    struct subscriber *subscriber = subscriber_of(subscription);
    scheduler_wait(scheduler_of(subscriber), &subscriber->turn, true);
}

static void on_stale(struct subscription *subscription) {
    struct subscriber *subscriber = subscriber_of(subscription);
    struct session *session = subscriber->session;
    end_turn(subscriber, 0, false);
    enum status status = session->dialect->stale(subscriber, &session->replies);
    session_log_stale(subscriber);
    if (session->dialect->restarts_stale)
        subscriber_restart(subscriber);
    else
        subscriber_drop(subscriber);
    subscribers_dropped(session);
    session_send(session, status);
}

/* The topic appeared after the subscription, and is not the one that the client may read. */
static bool is_refusal(enum status status) {
    return status == STATUS_FORBIDDEN_TOPIC || status == STATUS_STREAM_ID_CONFLICT;
}

static void on_failed(struct subscription *subscription) {
    struct subscriber *subscriber = subscriber_of(subscription);
    struct session *session = subscriber->session;
    enum status failed = subscription->status;
    end_turn(subscriber, 0, false);
    if (is_refusal(failed))
        session_log_refused(session, subscription->topic->name, failed);
    if (!is_refusal(failed) || !session->dialect->refused) {
        session_end(session, failed);
        return;
    }
    enum status status = session->dialect->refused(subscriber, failed, &session->replies);
    subscriber_drop(subscriber);
    subscribers_dropped(session);
    session_send(session, status);
}

static const struct subscription_sink push_sink = {
    .frames = on_frames,
    .at_head = on_head,
    .read = on_read,
    .ahead = on_ahead,
    .stale = on_stale,
    .failed = on_failed,
};

/* ---- turns ---- */

/* Sends a part. A document counts as a frame. */
static void serve_snapshot(struct subscriber *subscriber) {
    struct session *session = subscriber->session;
    struct subscriber_snapshot *snapshot = subscriber->snapshot;
    size_t frames = snapshot->document_count;
    size_t frames_max = session->delivery->scheduler.options.slice_frames_max;
    bool is_last;
    enum status status = STATUS_OK;
    switch (snapshot->state) {
    case SUBSCRIBER_SNAPSHOT_WAITING:
    case SUBSCRIBER_SNAPSHOT_READING:
        end_turn(subscriber, 0, false);
        return;
    case SUBSCRIBER_SNAPSHOT_READY:
        subscriber_snapshot_ask(snapshot);
        scheduler_wait(scheduler_of(subscriber), &subscriber->turn, true);
        session_next_job(session);
        return;
    case SUBSCRIBER_SNAPSHOT_PART:
        break;
    case SUBSCRIBER_SNAPSHOT_FAILED:
        end_turn(subscriber, 0, false);
        session_end(session, snapshot->status);
        return;
    }
    is_last = subscriber_snapshot_is_last(snapshot);
    /* Empty parts are not sent: their number would say how many documents others have. */
    if (snapshot->documents.size > 0 || is_last) {
        status = session->dialect->snapshot(subscriber, &session->replies);
        snapshot->parts_sent++;
    }
    subscriber_snapshot_next(snapshot);
    if (is_last) {
        subscriber->subscription.has_fork = snapshot->snapshot->has_fork;
        subscription_place(&subscriber->subscription, snapshot->snapshot->watermark,
                           &snapshot->snapshot->epoch);
        subscriber_snapshot_drop(subscriber);
        subscriber_set_state(subscriber, SUBSCRIBER_REPLAY);
    }
    end_turn(subscriber, frames < frames_max ? frames : frames_max, true);
    session_send(session, status);
}

static void serve(struct subscriber *subscriber, size_t frames_max) {
    struct session *session = subscriber->session;
    struct subscription *subscription = &subscriber->subscription;
    if (!session_is_open(session) || !subscriber_is_started(subscriber) ||
        subscriber_is_reading(subscriber)) {
        end_turn(subscriber, 0, false);
    } else if (session_is_blocked(session)) {
        scheduler_block(scheduler_of(subscriber), &subscriber->turn);
    } else if (session_is_expired(session)) {
        end_turn(subscriber, 0, false);
        session_reset(session, STATUS_TOKEN_EXPIRED);
    } else if (subscriber->state == SUBSCRIBER_BOOTSTRAP &&
               (subscriber->snapshot || subscription->state == SUBSCRIPTION_OPEN)) {
        /* The notice says where the bootstrap begins, so it waited until that was known. */
        end_turn(subscriber, 0, false);
        subscriber_set_state(subscriber,
                             subscriber->snapshot ? SUBSCRIBER_SNAPSHOT : SUBSCRIBER_REPLAY);
        scheduler_add(scheduler_of(subscriber), &subscriber->turn);
        if (session->dialect->bootstrap)
            session_send(session, session->dialect->bootstrap(subscriber, &session->replies));
    } else if (subscriber->state == SUBSCRIBER_SNAPSHOT) {
        serve_snapshot(subscriber);
    } else {
        if (frames_max > subscriber->frames_max)
            frames_max = subscriber->frames_max;
        bool waits = subscriber_must_wait(subscriber);
        struct page *page = waits ? NULL : shared_page(subscriber, frames_max);
        if (waits)
            end_turn(subscriber, 0, false);
        else if (page)
            send_page(subscriber, page, true);
        else
            subscription_serve(subscription, frames_max, SESSION_PUSH_BYTES, &push_sink);
    }
    /* Replies that waited for the first page leave without it if there is none. */
    if (session_is_open(session))
        session_flush(session);
}

bool delivery_loop_serve(struct delivery_loop *delivery) {
    struct scheduler *scheduler = &delivery->scheduler;
    size_t frames_max;
    /* Before and after the turns: the store reads while the sockets are served. */
    session_post_jobs(delivery);
    for (unsigned turns = 0; turns < SESSION_TURNS_MAX; turns++) {
        /* A session may be revoked on another node. The sweep that ends this wakes the loop. */
        if (!revocations_is_fresh(delivery->shared->revocations)) {
            session_post_jobs(delivery);
            return false;
        }
        struct turn *turn = scheduler_next(scheduler, &frames_max);
        if (!turn)
            break;
        serve(container_of(turn, struct subscriber, turn), frames_max);
    }
    bool has_more = scheduler->queued_count > 0;
    if (!has_more)
        feeds_pages_idle(&delivery->feeds);
    session_post_jobs(delivery);
    return has_more;
}
