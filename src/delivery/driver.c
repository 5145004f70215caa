#include "delivery/driver.h"

#include <assert.h>

enum status driver_open(struct driver *driver, struct feeds *feeds, struct slice topic,
                        const struct driver_rules *rules,
                        const struct subscription_options *options) {
    enum status status =
        feed_join(feeds, topic, &driver->member, options->principal, options->view);
    if (status != STATUS_OK)
        return status;
    struct subscription_topic *shared = feed_topic(driver->member.feed);
    shared->policy = policy_of(rules->policies, shared->name);
    shared->writer = rules->writer;
    status = subscription_init(&driver->subscription, shared, options);
    if (status != STATUS_OK)
        feed_leave(&driver->member);
    return status;
}

void driver_close(struct driver *driver) {
    subscription_release(&driver->subscription);
    feed_leave(&driver->member);
}

/* At the head, from now on only wake-ups of the feed bring frames for it. */
static void settle(struct driver *driver) {
    struct subscription *subscription = &driver->subscription;
    if (subscription->state != SUBSCRIPTION_OPEN || driver_lag(driver) > 0)
        return;
    subscription->is_settled = true;
    feed_settled(&driver->member, subscription->head_seq);
}

void driver_skip_hidden(struct driver *driver) {
    const struct uuid *cursor;
    if (!driver->subscription.is_settled)
        return;
    uint64_t through_seq = feed_hidden_seq(&driver->member, &cursor);
    subscription_skip(&driver->subscription, through_seq, cursor);
}

void driver_pass(struct driver *driver, const struct delivery_batch *batch, uint64_t head_seq) {
    subscription_pass(&driver->subscription, batch, head_seq);
    feed_taken(&driver->member, batch->count);
    settle(driver);
}

void driver_step(struct driver *driver, size_t frames_max, size_t bytes_max,
                 const struct driver_sink *sink) {
    struct delivery_batch batch;
    /* Not initialized: clearing the room for all frames costs more than a delivery. */
    batch.count_max = frames_max;
    batch.bytes_max = bytes_max;
    driver_skip_hidden(driver);
    enum subscription_step step = subscription_next(&driver->subscription, &batch);
    if (step == STEP_FRAMES)
        feed_taken(&driver->member, batch.count);
    settle(driver);
    switch (step) {
    case STEP_FRAMES:
        sink->frames(driver, &batch);
        return;
    case STEP_WAIT:
        sink->at_head(driver);
        return;
    case STEP_READ:
        sink->read(driver);
        return;
    case STEP_AHEAD:
        assert(sink->ahead);
        sink->ahead(driver);
        return;
    case STEP_STALE:
        sink->stale(driver);
        return;
    case STEP_FAILED:
        sink->failed(driver);
        return;
    }
}

bool driver_read_run(struct driver *driver, struct store_session *store) {
    return journal_read_run(driver->subscription.read, store);
}

void driver_read_done(struct driver *driver, enum status status) {
    if (status == STATUS_OK)
        subscription_read_done(&driver->subscription);
    else
        subscription_read_failed(&driver->subscription, status);
}

uint64_t driver_lag(const struct driver *driver) {
    uint64_t head_seq = driver->subscription.head_seq;
    uint64_t next_seq = driver->subscription.next_seq;
    return head_seq >= next_seq ? head_seq - next_seq + 1 : 0;
}

/* By the present head: a session that is blocked asks for no frames, and so learns no head. */
uint64_t driver_own_lag(const struct driver *driver) {
    const struct subscription *subscription = &driver->subscription;
    if (subscription->is_settled && feed_own_count(&driver->member) != FEED_UNKNOWN)
        return feed_own_count(&driver->member);
    uint64_t head_seq = subscription_newest_head(subscription);
    uint64_t next_seq = subscription->next_seq;
    uint64_t lag = head_seq >= next_seq ? head_seq - next_seq + 1 : 0;
    return lag > driver_lag(driver) ? lag : driver_lag(driver);
}

bool driver_hides_lag(const struct driver *driver) {
    const struct subscription *subscription = &driver->subscription;
    bool is_counted = subscription->is_settled && feed_own_count(&driver->member) != FEED_UNKNOWN;
    return driver_lag(driver) > 0 && !is_counted && subscription->view == GRANT_VIEW_OWN &&
           topic_row(topic_kind_of(subscription->topic->name, NULL))->ownership == TOPIC_SHARED;
}
