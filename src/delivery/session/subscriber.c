/* A subscriber begins with a bootstrap, a snapshot or a replay, and is live after that. Each event
 * that leaves it something to send gives it a turn in the scheduler, and serving decides what to
 * send. A subscriber that is dropped while another thread uses something of it is freed when that
 * comes back. */
#include "delivery/session/subscriber.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/session/session.h"
#include "delivery/stale.h"
#include "wire/json.h"

/* ---- the snapshot that it begins with ---- */

static void snapshot_free(struct subscriber_snapshot *snapshot) {
    if (snapshot->snapshot)
        snapshot_unref(snapshot->snapshot);
    selection_unref(snapshot->selection);
    buffer_release(&snapshot->documents);
    free(snapshot);
}

static void fail(struct subscriber_snapshot *snapshot, enum status status) {
    snapshot->state = SUBSCRIBER_SNAPSHOT_FAILED;
    snapshot->status = status;
}

static void wait_done(struct snapshot_wait *wait) {
    struct subscriber_snapshot *snapshot = container_of(wait, struct subscriber_snapshot, wait);
    struct subscriber *subscriber = snapshot->subscriber;
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_WAITING);
    snapshot->state = SUBSCRIBER_SNAPSHOT_READY;
    if (wait->status == STATUS_OK)
        snapshot->snapshot = wait->snapshot;
    else
        fail(snapshot, wait->status);
    /* A subscriber that leaves has no turn any more. */
    if (!subscriber)
        snapshot_free(snapshot);
    else if (subscriber->turn.lane)
        scheduler_add(&subscriber->session->delivery->scheduler, &subscriber->turn);
}

enum status subscriber_snapshot_begin(struct subscriber *subscriber, enum policy_row row) {
    struct delivery_loop *delivery = subscriber->session->delivery;
    struct subscriber_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    char key[PRINCIPAL_KEY_BYTES_MAX];
    assert(!subscriber->snapshot);
    if (!snapshot)
        return STATUS_OUT_OF_MEMORY;
    subscriber->snapshot = snapshot;
    snapshot->subscriber = subscriber;
    if (subscriber->subscription.selected)
        snapshot->selection = selection_ref(subscriber->subscription.selected->selection);
    buffer_init(&snapshot->documents, SESSION_PART_BYTES_MAX);
    snapshot->wait.done = wait_done;
    const struct store_client client = {.key = principal_key(subscriber->session->principal, key)};
    snapshot_wait_begin(&snapshot->wait, delivery->shared->snapshots, delivery->io, row, &client);
    return STATUS_OK;
}

void subscriber_snapshot_drop(struct subscriber *subscriber) {
    struct subscriber_snapshot *snapshot = subscriber->snapshot;
    if (!snapshot)
        return;
    assert(snapshot->state != SUBSCRIBER_SNAPSHOT_READING);
    subscriber->snapshot = NULL;
    snapshot->subscriber = NULL;
    if (snapshot->state != SUBSCRIBER_SNAPSHOT_WAITING)
        snapshot_free(snapshot);
}

void subscriber_snapshot_ask(struct subscriber_snapshot *snapshot) {
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_READY);
    snapshot->state = SUBSCRIBER_SNAPSHOT_READING;
}

void subscriber_snapshot_cancel(struct subscriber_snapshot *snapshot) {
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_READING && !snapshot->principal);
    snapshot->state = SUBSCRIBER_SNAPSHOT_READY;
}

void subscriber_snapshot_read_begin(struct subscriber_snapshot *snapshot,
                                    const struct principal *principal) {
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_READING);
    snapshot->principal = principal_ref(principal);
}

void subscriber_snapshot_read_end(struct subscriber_snapshot *snapshot, enum status status) {
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_READING);
    snapshot->state = SUBSCRIBER_SNAPSHOT_PART;
    if (status == STATUS_OK)
        status = snapshot->status;
    if (status != STATUS_OK)
        fail(snapshot, status);
    principal_unref(snapshot->principal);
    snapshot->principal = NULL;
}

void subscriber_snapshot_read(struct subscriber_snapshot *snapshot) {
    size_t part_count = snapshot->snapshot->part_count;
    const struct snapshot_view view = {snapshot->principal, snapshot->selection};
    size_t part = snapshot_part_next(snapshot->snapshot, snapshot->part, &view);
    /* The last part may be empty. A topic without documents has one empty part. */
    snapshot->part = part < part_count || part_count == 0 ? part : part_count - 1;
    snapshot->document_count = 0;
    if (part < part_count)
        snapshot->status = snapshot_part_read(snapshot->snapshot, snapshot->part, &view,
                                              &snapshot->documents, &snapshot->document_count);
}

void subscriber_snapshot_next(struct subscriber_snapshot *snapshot) {
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_PART);
    buffer_clear(&snapshot->documents);
    snapshot->state = SUBSCRIBER_SNAPSHOT_READY;
    snapshot->part++;
}

bool subscriber_snapshot_is_reading(const struct subscriber_snapshot *snapshot) {
    return snapshot->state == SUBSCRIBER_SNAPSHOT_READING;
}

bool subscriber_snapshot_is_last(const struct subscriber_snapshot *snapshot) {
    return snapshot->part + 1 >= snapshot->snapshot->part_count;
}

enum status subscriber_snapshot_write(const struct subscriber_snapshot *snapshot,
                                      struct buffer *out) {
    const struct snapshot *source = snapshot->snapshot;
    buffer_append_slice(out, SLICE("{\"topic\":"));
    buffer_note(out, json_write_string(out, source->topic));
    buffer_printf(out,
                  ",\"format\":\"" SNAPSHOT_FORMAT
                  "\",\"schema_version\":%d,\"epoch\":\"%s\",\"watermark\":%" PRIu64
                  ",\"part\":%zu,\"last\":%s,\"documents\":[",
                  SNAPSHOT_SCHEMA_VERSION, source->epoch.text, source->watermark,
                  snapshot->parts_sent, subscriber_snapshot_is_last(snapshot) ? "true" : "false");
    buffer_append_slice(out, buffer_slice(&snapshot->documents));
    return buffer_append_slice(out, SLICE("]}"));
}

/* ---- lives ---- */

void subscriber_set_state(struct subscriber *subscriber, enum subscriber_state state) {
    /* Which state may follow which, one row for each state. */
    static const unsigned allowed[SUBSCRIBER_STATE_COUNT] = {
        [SUBSCRIBER_NEW] =
            1u << SUBSCRIBER_BOOTSTRAP | 1u << SUBSCRIBER_REPLAY | 1u << SUBSCRIBER_LEAVING,
        [SUBSCRIBER_BOOTSTRAP] =
            1u << SUBSCRIBER_SNAPSHOT | 1u << SUBSCRIBER_REPLAY | 1u << SUBSCRIBER_LEAVING,
        [SUBSCRIBER_SNAPSHOT] = 1u << SUBSCRIBER_REPLAY | 1u << SUBSCRIBER_LEAVING,
        [SUBSCRIBER_REPLAY] =
            1u << SUBSCRIBER_LIVE | 1u << SUBSCRIBER_BOOTSTRAP | 1u << SUBSCRIBER_LEAVING,
        [SUBSCRIBER_LIVE] = 1u << SUBSCRIBER_BOOTSTRAP | 1u << SUBSCRIBER_LEAVING,
        [SUBSCRIBER_LEAVING] = 1u << SUBSCRIBER_LEAVING,
    };
    assert(state < SUBSCRIBER_STATE_COUNT && allowed[subscriber->state] & 1u << state);
    subscriber->state = (uint8_t)state;
}

bool subscriber_is_started(const struct subscriber *subscriber) {
    return subscriber->state != SUBSCRIBER_NEW && subscriber->state != SUBSCRIBER_LEAVING;
}

bool subscriber_has_position(const struct subscriber *subscriber) {
    return subscriber_is_started(subscriber) && !subscriber->snapshot;
}

uint64_t subscriber_position(const struct subscriber *subscriber) {
    return subscriber->subscription.next_seq - 1;
}

bool subscriber_is_reading(const struct subscriber *subscriber) {
    return subscription_is_reading(&subscriber->subscription) ||
           (subscriber->snapshot && subscriber_snapshot_is_reading(subscriber->snapshot));
}

bool subscriber_wants_job(const struct subscriber *subscriber) {
    const struct session *session = subscriber->session;
    bool is_under_way = session->work && session->work->reading == subscriber &&
                        session->work->job != SESSION_JOB_AHEAD;
    /* The positions of new subscribers are read by their opening. */
    return subscriber_is_started(subscriber) && subscriber_is_reading(subscriber) && !is_under_way;
}

const struct subscriber *session_furthest_behind(const struct session *session) {
    const struct subscriber *worst = NULL;
    for (const struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber))
        if (subscriber_is_started(subscriber) &&
            (!worst || subscription_own_lag(&subscriber->subscription) >
                           subscription_own_lag(&worst->subscription)))
            worst = subscriber;
    return worst;
}

/* Another thread uses something of it. */
static bool is_lent(const struct subscriber *subscriber) {
    return subscriber_is_reading(subscriber) || subscriber->subscription.ahead;
}

static struct scheduler *scheduler_of(const struct subscriber *subscriber) {
    return &subscriber->session->delivery->scheduler;
}

static void subscriber_free(struct subscriber *subscriber) {
    assert(!is_lent(subscriber));
    hlist_remove(&subscriber->node);
    metrics_sub(METRIC_SYNC_SOCKET_SUBSCRIPTIONS, METRIC_LABELS(subscriber->topic_class), 1);
    subscriber_snapshot_drop(subscriber);
    subscription_close(&subscriber->subscription);
    slab_give(&subscriber->session->delivery->subscribers, subscriber);
}

void subscriber_drop(struct subscriber *subscriber) {
    /* A read that still waits for the session's job would never come back. */
    if (subscriber_wants_job(subscriber)) {
        if (subscriber->snapshot)
            subscriber_snapshot_cancel(subscriber->snapshot);
        else
            subscription_read_done(&subscriber->subscription, STATUS_SHUTTING_DOWN);
    }
    subscriber_set_state(subscriber, SUBSCRIBER_LEAVING);
    /* The session's other topics do not wait for a read that nobody needs. */
    scheduler_leave(scheduler_of(subscriber), &subscriber->turn);
    if (!is_lent(subscriber))
        subscriber_free(subscriber);
}

void subscriber_drop_all(struct session *session) {
    for (struct subscriber *subscriber = session_first(session), *next; subscriber;
         subscriber = next) {
        next = subscriber_next(subscriber);
        subscriber_drop(subscriber);
    }
    subscribers_dropped(session);
}

void subscribers_dropped(struct session *session) {
    size_t count = 0;
    for (const struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber))
        count += subscriber->state != SUBSCRIBER_LEAVING;
    subscription_quota_lower(session->delivery->shared->subscription_quota, &session->subscriptions,
                             count);
}

void subscriber_ready(struct subscriber *subscriber) {
    const struct subscription_selected *selected = subscriber->subscription.selected;
    bool is_waiting = selected && selected->deadline.at_ms != 0;
    if (subscriber_is_started(subscriber) && !subscriber_is_reading(subscriber) && !is_waiting)
        scheduler_add(scheduler_of(subscriber), &subscriber->turn);
}

void subscriber_conflate_expired(struct deadline *deadline) {
    const struct subscription_selected *selected =
        container_of(deadline, struct subscription_selected, deadline);
    subscriber_ready(container_of(selected->subscription, struct subscriber, subscription));
}

bool subscriber_must_wait(struct subscriber *subscriber) {
    const struct subscription *subscription = &subscriber->subscription;
    struct subscription_selected *selected = subscription->selected;
    struct io_loop *io = subscriber->session->delivery->io;
    bool conflates = selected && selected->selection->conflate_ms > 0;
    /* A replay is not delayed, nor what is left of the frames that were there when it began. */
    if (!conflates || subscriber->state != SUBSCRIBER_LIVE ||
        subscription->next_seq <= selected->until_seq)
        return false;
    uint64_t now_ms = clock_mono_ms(&io->clock);
    uint64_t head_seq = subscription_newest_head(subscription);
    if (head_seq < subscription->next_seq)
        return false;
    if (now_ms < selected->due_ms) {
        io_loop_deadline_in(io, &selected->deadline, DEADLINE_CONFLATE, selected->due_ms - now_ms);
        return true;
    }
    selected->until_seq = head_seq;
    selected->due_ms = now_ms + selected->selection->conflate_ms;
    return false;
}

static void member_advanced(struct feed_member *member) {
    subscriber_ready(container_of(member, struct subscriber, subscription.member));
}

enum status subscriber_new(struct session *session, struct slice topic,
                           const struct subscription_options *options, struct subscriber **made) {
    struct delivery_loop *delivery = session->delivery;
    char key[PRINCIPAL_KEY_BYTES_MAX];
    struct subscription_options filled = *options;
    struct subscriber *subscriber = slab_take(&delivery->subscribers, sizeof(*subscriber));
    if (!subscriber)
        return STATUS_OUT_OF_MEMORY;
    subscriber->session = session;
    subscriber->subscription.member.advanced = member_advanced;
    subscriber->frames_max = DELIVERY_FRAMES_MAX;
    filled.principal = session->principal;
    const struct subscription_rules rules = {delivery->shared->policies, delivery->shared->writer};
    enum status status =
        subscription_open(&subscriber->subscription, &delivery->feeds, topic, &rules, &filled);
    if (status != STATUS_OK)
        goto out;
    const struct policy *policy = subscriber->subscription.topic->policy;
    const struct turn_place place = {principal_key(session->principal, key),
                                     subscriber->subscription.member.feed, policy->qos_tier,
                                     session_turn(session)};
    status = scheduler_join(&delivery->scheduler, &place, &subscriber->turn);
    if (status != STATUS_OK) {
        subscription_close(&subscriber->subscription);
        goto out;
    }
    hlist_push_front(&session->subscribers, &subscriber->node);
    /* Another rule may name another class until it is closed. */
    subscriber->topic_class = (uint8_t)policy->topic_class;
    metrics_add(METRIC_SYNC_SOCKET_SUBSCRIPTIONS, METRIC_LABELS(policy->topic_class), 1);
    *made = subscriber;
    return STATUS_OK;
out:
    slab_give(&delivery->subscribers, subscriber);
    return status;
}

/* A bootstrap of a summary topic is its snapshot, and then the frames behind the snapshot. */
static void bootstrap(struct subscriber *subscriber) {
    struct subscription *subscription = &subscriber->subscription;
    const struct feed_topic *topic = subscription->topic;
    subscriber_set_state(subscriber, SUBSCRIBER_BOOTSTRAP);
    if (!policy_has_snapshot(topic->policy) || !subscriber->session->dialect->snapshot ||
        subscription->start->asked.from_head)
        return;
    enum status status = subscriber_snapshot_begin(subscriber, policy_row_of(topic->name));
    if (status != STATUS_OK)
        subscription_fail(subscription, status);
}

void subscriber_start(struct subscriber *subscriber) {
    const struct subscription *subscription = &subscriber->subscription;
    /* The client waits without an answer; the log tells operators why. */
    if (subscription->view == GRANT_VIEW_NONE)
        session_log_refused(subscriber->session, subscription->topic->name, STATUS_OWNER_MISMATCH);
    metrics_add(subscription->is_bootstrap ? METRIC_SYNC_REPLAY_BOOTSTRAP
                                           : METRIC_SYNC_REPLAY_STARTED,
                METRIC_LABELS(subscriber->session->dialect->label,
                              subscription->topic->policy->topic_class),
                1);
    if (subscription->is_bootstrap)
        bootstrap(subscriber);
    else
        subscriber_set_state(subscriber, SUBSCRIBER_REPLAY);
    scheduler_add(scheduler_of(subscriber), &subscriber->turn);
}

void subscriber_restart(struct subscriber *subscriber) {
    subscription_restart(&subscriber->subscription);
    if (subscriber->subscription.state != SUBSCRIPTION_FAILED)
        bootstrap(subscriber);
    scheduler_add(scheduler_of(subscriber), &subscriber->turn);
}

/* Whether the client asked for the topic by another name too. */
static bool is_repeated(const struct subscriber *subscriber) {
    const struct subscription *subscription = &subscriber->subscription;
    const struct subscriber *other = session_first(subscriber->session);
    if (!subscription->owns_topic || !subscriber_is_started(subscriber))
        return false;
    while (other && (other == subscriber || !subscriber_is_started(other) ||
                     !slice_equal(other->subscription.topic->name, subscription->topic->name)))
        other = subscriber_next(other);
    return other;
}

/* A read is back: the subscriber continues, or leaves. */
static void resume(struct subscriber *subscriber) {
    struct session *session = subscriber->session;
    if (is_repeated(subscriber)) {
        subscriber_drop(subscriber);
        subscribers_dropped(session);
    } else if (subscriber->state != SUBSCRIBER_LEAVING) {
        subscriber_ready(subscriber);
    } else if (!is_lent(subscriber)) {
        subscriber_free(subscriber);
    }
}

void subscriber_read_back(struct subscriber *subscriber, enum status status) {
    if (subscriber->snapshot && subscriber_snapshot_is_reading(subscriber->snapshot))
        subscriber_snapshot_read_end(subscriber->snapshot, status);
    else
        subscription_read_done(&subscriber->subscription, status);
    resume(subscriber);
}

void subscriber_ahead_back(struct subscriber *subscriber) {
    subscription_ahead_done(&subscriber->subscription);
    resume(subscriber);
}
