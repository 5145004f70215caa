#include "delivery/subscription.h"

#include <assert.h>
#include <stdlib.h>

void subscription_init(struct subscription *subscription,
                       const struct subscription_options *options) {
    *subscription = (struct subscription){.options = *options, .status = STATUS_OK};
    subscription->next_seq = options->has_cursor ? options->after_seq + 1 : 1;
}

static void drop_read(struct subscription *subscription) {
    if (subscription->read)
        journal_read_release(subscription->read);
    free(subscription->read);
    subscription->read = NULL;
}

void subscription_release(struct subscription *subscription) {
    assert(!subscription->is_reading);
    drop_read(subscription);
}

void subscription_restart(struct subscription *subscription) {
    assert(subscription->is_stale);
    subscription->is_stale = subscription->is_open = false;
    subscription->options.has_cursor = false;
}

static enum subscription_step ask_read(struct subscription *subscription,
                                       const struct delivery_batch *batch) {
    const struct subscription_options *options = &subscription->options;
    enum journal_read_mode mode = JOURNAL_READ_CONTINUE;
    if (!subscription->is_open)
        mode = options->has_cursor ? JOURNAL_READ_RESUME : JOURNAL_READ_BOOTSTRAP;
    struct journal_read *read = malloc(sizeof(*read));
    if (!read) {
        subscription->status = STATUS_OUT_OF_MEMORY;
        return SUBSCRIPTION_FAILED;
    }
    *read = (struct journal_read){
        .topic = options->topic,
        .policy = options->policy,
        .mode = mode,
        .after_seq = subscription->next_seq - 1,
        .below_seq = hub_first_seq(options->watch),
        .frames_max = batch->count_max,
        .status = STATUS_OK,
    };
    subscription->read = read;
    subscription->is_reading = true;
    return SUBSCRIPTION_READ;
}

static void give(struct subscription *subscription, struct delivery_batch *batch,
                 struct frame *frame) {
    assert(frame->content.seq == subscription->next_seq);
    subscription->next_seq++;
    batch->through_seq++;
    if (grant_may_read(subscription->options.principal, subscription->options.view,
                       &frame->content.owner))
        batch->frames[batch->count++] = frame;
    else
        frame_unref(frame);
}

/* From the page that was read; what does not fit stays for the next ask. */
static void give_page(struct subscription *subscription, struct delivery_batch *batch) {
    struct journal_read *read = subscription->read;
    size_t bytes = 0;
    size_t given = 0;
    while (read->taken < read->count && given < batch->count_max) {
        struct frame *frame = read->frames[read->taken];
        bytes += frame->content.payload.size;
        if (given > 0 && bytes > batch->bytes_max)
            break;
        read->taken++;
        given++;
        give(subscription, batch, frame);
    }
    if (read->taken == read->count)
        drop_read(subscription);
}

static enum hub_place give_window(struct subscription *subscription, struct delivery_batch *batch) {
    struct frame *frames[DELIVERY_FRAMES_MAX];
    struct hub_take take = {
        .next_seq = subscription->next_seq,
        .count_max = batch->count_max,
        .bytes_max = batch->bytes_max,
        .frames = frames,
    };
    enum hub_place place = hub_take(subscription->options.watch, &take);
    if (take.head_seq > subscription->window.head_seq)
        subscription->window.head_seq = take.head_seq;
    for (size_t i = 0; i < take.count; i++)
        give(subscription, batch, frames[i]);
    return place;
}

enum subscription_step subscription_next(struct subscription *subscription,
                                         struct delivery_batch *batch) {
    assert(!subscription->is_reading);
    assert(batch->count_max > 0 && batch->count_max <= DELIVERY_FRAMES_MAX);
    batch->count = 0;
    batch->after_seq = batch->through_seq = subscription->next_seq - 1;
    if (subscription->status != STATUS_OK)
        return SUBSCRIPTION_FAILED;
    if (subscription->is_stale)
        return SUBSCRIPTION_STALE;
    if (!subscription->is_open)
        return ask_read(subscription, batch);
    if (subscription->read) {
        give_page(subscription, batch);
        return SUBSCRIPTION_FRAMES;
    }
    switch (give_window(subscription, batch)) {
    case HUB_FRAMES:
        return SUBSCRIPTION_FRAMES;
    case HUB_AT_HEAD:
        return SUBSCRIPTION_WAIT;
    case HUB_BELOW:
        break;
    }
    return ask_read(subscription, batch);
}

void subscription_read_done(struct subscription *subscription) {
    struct journal_read *read = subscription->read;
    assert(subscription->is_reading);
    subscription->is_reading = false;
    subscription->status = read->status;
    if (read->status == STATUS_OK) {
        hub_learn_head(subscription->options.watch, read->window.head_seq);
        subscription->window = read->window;
        subscription->window.replay_budget_events =
            subscription->options.policy->replay_budget_events;
        subscription->is_stale = read->is_stale;
        subscription->is_open = !read->is_stale;
    }
    if (read->status == STATUS_OK && read->is_stale)
        subscription->continuity = read->continuity;
    if (read->status == STATUS_OK && read->mode == JOURNAL_READ_BOOTSTRAP) {
        subscription->is_bootstrap = true;
        subscription->bootstrap = read->bootstrap;
        subscription->next_seq = read->next_seq;
    }
    if (read->count == 0)
        drop_read(subscription);
}

void subscription_read_failed(struct subscription *subscription, enum status status) {
    assert(subscription->is_reading);
    subscription->is_reading = false;
    subscription->status = status;
    drop_read(subscription);
}

void delivery_batch_release(struct delivery_batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        frame_unref(batch->frames[i]);
    batch->count = 0;
}
