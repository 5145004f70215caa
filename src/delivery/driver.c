#include "delivery/driver.h"

#include <assert.h>

enum status driver_open(struct driver *driver, struct feeds *feeds, struct slice topic,
                        const struct policy_table *policies,
                        const struct subscription_options *options) {
    enum status status = feed_join(feeds, topic, &driver->member);
    if (status != STATUS_OK)
        return status;
    struct subscription_options filled = *options;
    filled.watch = feed_watch(driver->member.feed);
    filled.topic = feed_name(driver->member.feed);
    filled.policy = policy_of(policies, filled.topic);
    subscription_init(&driver->subscription, &filled);
    return STATUS_OK;
}

void driver_close(struct driver *driver) {
    subscription_release(&driver->subscription);
    feed_leave(&driver->member);
}

void driver_step(struct driver *driver, size_t frames_max, size_t bytes_max,
                 const struct driver_sink *sink) {
    struct delivery_batch batch;
    /* Not initialized: clearing the room for all frames costs more than a delivery. */
    batch.count_max = frames_max;
    batch.bytes_max = bytes_max;
    switch (subscription_next(&driver->subscription, &batch)) {
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

void driver_read_run(struct driver *driver, struct store_session *store) {
    journal_read_run(driver->subscription.read, store);
}

void driver_read_done(struct driver *driver, enum status status) {
    if (status == STATUS_OK)
        subscription_read_done(&driver->subscription);
    else
        subscription_read_failed(&driver->subscription, status);
}

uint64_t driver_lag(const struct driver *driver) {
    uint64_t head_seq = driver->subscription.window.head_seq;
    uint64_t next_seq = driver->subscription.next_seq;
    return head_seq >= next_seq ? head_seq - next_seq + 1 : 0;
}
