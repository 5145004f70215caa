/* A step takes frames from memory: from the page that was read, or from the hub's window. If the
 * position is below the window, it requests a read, and continues with the page that comes back.
 * The first read compares the position with the store; it is also how a client that cannot resume
 * becomes stale. Frames that the principal may not read move the position and are left out. While a
 * subscription replays, it requests the page behind the one that is being sent. */
#include "delivery/subscription.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/pick.h"

/* The next page is asked for when this many batches are left in memory: reading a page takes as
 * long as sending a few small batches. */
#define AHEAD_BATCHES 2
/* A client that folds takes as many frames as there are once so many of them became one. */
#define FOLDS_WELL_RATIO 4
/* A larger payload would be a push of its own. */
#define FOLDED_PAYLOAD_BYTES SESSION_PUSH_BYTES
/* Frames that one step examines for a selection. */
#define SELECTION_FRAMES_MAX 4096

void subscription_set_state(struct subscription *subscription, enum subscription_state state) {
    /* Which state may follow which, one row for each state. */
    static const unsigned allowed[SUBSCRIPTION_STATE_COUNT] = {
        [SUBSCRIPTION_UNPLACED] =
            1u << SUBSCRIPTION_PLACING | 1u << SUBSCRIPTION_OPEN | 1u << SUBSCRIPTION_FAILED,
        [SUBSCRIPTION_PLACING] =
            1u << SUBSCRIPTION_OPEN | 1u << SUBSCRIPTION_STALE | 1u << SUBSCRIPTION_FAILED,
        [SUBSCRIPTION_OPEN] =
            1u << SUBSCRIPTION_READING | 1u << SUBSCRIPTION_OPEN | 1u << SUBSCRIPTION_FAILED,
        [SUBSCRIPTION_READING] =
            1u << SUBSCRIPTION_OPEN | 1u << SUBSCRIPTION_STALE | 1u << SUBSCRIPTION_FAILED,
        [SUBSCRIPTION_STALE] = 1u << SUBSCRIPTION_UNPLACED | 1u << SUBSCRIPTION_FAILED,
        [SUBSCRIPTION_FAILED] = 1u << SUBSCRIPTION_FAILED,
    };
    assert(state < SUBSCRIPTION_STATE_COUNT && allowed[subscription->state] & 1u << state);
    subscription->state = (uint8_t)state;
}

void subscription_fail(struct subscription *subscription, enum status status) {
    subscription_set_state(subscription, SUBSCRIPTION_FAILED);
    subscription->status = status;
}

/* The client knows the position: it asked for it, or a notice names it. */
static void set_position(struct subscription *subscription, uint64_t next_seq) {
    subscription->next_seq = next_seq;
    subscription->sent_seq = next_seq - 1;
    subscription->is_settled = false;
    if (subscription->selected)
        subscription->selected->unread_seq = subscription->selected->until_seq = 0;
}

const struct topic_epoch *subscription_epoch(const struct subscription *subscription) {
    static const struct topic_epoch none;
    return subscription->epoch ? &subscription->epoch->epoch : &none;
}

bool subscription_is_pending(const struct subscription *subscription) {
    struct slice id;
    return subscription->is_absent &&
           grant_entity_of(subscription->topic->name, &id) != ENTITY_NONE;
}

/* The head of a run of another must not show. */
uint64_t subscription_newest_head(const struct subscription *subscription) {
    bool is_hidden = grant_view_is_pending((enum grant_view)subscription->view);
    uint64_t head_seq = is_hidden ? 0 : hub_head_seq(subscription->topic->watch);
    return head_seq > subscription->head_seq ? head_seq : subscription->head_seq;
}

const struct topic_epoch *subscription_given_epoch(const struct subscription *subscription) {
    bool needs_it = subscription->has_fork && !subscription->keeps_epoch;
    return needs_it ? subscription_epoch(subscription) : NULL;
}

enum status subscription_init(struct subscription *subscription, struct feed_topic *topic,
                              const struct subscription_options *options) {
    assert(options->has_cursor + options->has_event_cursor + options->has_since <= 1);
    assert(!options->wants || topic_is_log(topic->name));
    assert(!options->selection || selection_suits(topic->name));
    *subscription = (struct subscription){
        .member = subscription->member,
        .topic = topic,
        .principal = options->principal,
        .view = (uint8_t)options->view,
        .replay_all = options->replay_all,
        .keeps_epoch = options->keeps_epoch,
        .folds = options->folds && !options->replay_all && !topic_is_log(topic->name) &&
                 !options->selection,
        .status = STATUS_OK,
    };
    struct subscription_start *start = subscription->start = calloc(1, sizeof(*start));
    if (topic_is_log(topic->name))
        subscription->log = calloc(1, sizeof(*subscription->log));
    if (options->selection)
        subscription->selected = calloc(1, sizeof(*subscription->selected));
    if (!start || (topic_is_log(topic->name) && !subscription->log) ||
        (options->selection && !subscription->selected)) {
        free(start);
        free(subscription->log);
        free(subscription->selected);
        return STATUS_OUT_OF_MEMORY;
    }
    if (subscription->selected) {
        subscription->selected->selection = selection_ref(options->selection);
        subscription->selected->subscription = subscription;
    }
    start->asked = *options;
    start->asked.selection = NULL;
    if (subscription->log) {
        subscription->log->wants = options->wants;
        subscription->log->wants_user = options->wants_user;
    }
    set_position(subscription, options->has_cursor ? options->after_seq + 1 : 1);
    return STATUS_OK;
}

void subscription_begun(struct subscription *subscription) {
    /* A cursor in a topic that does not exist is compared with its epoch when the topic appears. */
    bool waits_with_cursor = subscription->is_absent && subscription->next_seq > 1;
    if (subscription->state != SUBSCRIPTION_OPEN || waits_with_cursor)
        return;
    free(subscription->start);
    subscription->start = NULL;
}

static void drop_read(struct subscription *subscription) {
    if (subscription->read)
        journal_read_release(subscription->read);
    free(subscription->read);
    subscription->read = NULL;
}

/* While a subscription replays, the hub keeps what was read. */
static void set_replaying(struct subscription *subscription, bool is_replaying) {
    subscription->is_replaying = is_replaying;
    if (!is_replaying)
        hub_replay_end(subscription->topic->watch, &subscription->place);
}

static bool is_behind(const struct subscription *subscription) {
    return subscription->next_seq <= subscription->head_seq;
}

static uint64_t frames_behind(const struct subscription *subscription, uint64_t head_seq) {
    uint64_t next_seq = subscription->next_seq;
    return head_seq >= next_seq ? head_seq - next_seq + 1 : 0;
}

uint64_t subscription_lag(const struct subscription *subscription) {
    return frames_behind(subscription, subscription->head_seq);
}

/* The frames for it are counted by its feed. */
static bool is_counted(const struct subscription *subscription) {
    return subscription->is_settled && feed_own_count(&subscription->member) != FEED_UNKNOWN;
}

/* By the present head: a session that is blocked requests no frames, and so learns no head. */
uint64_t subscription_own_lag(const struct subscription *subscription) {
    return is_counted(subscription)
               ? feed_own_count(&subscription->member)
               : frames_behind(subscription, subscription_newest_head(subscription));
}

bool subscription_hides_lag(const struct subscription *subscription) {
    return is_behind(subscription) && !is_counted(subscription) &&
           subscription->view == GRANT_VIEW_OWN &&
           topic_row(topic_kind_of(subscription->topic->name, NULL))->ownership == TOPIC_SHARED;
}

static struct uuid cursor_of(const struct subscription *subscription) {
    return subscription->log ? subscription->log->cursor : (struct uuid){{0}};
}

/* Only the log has event cursors. */
static void set_cursor(struct subscription *subscription, const struct uuid *cursor) {
    if (subscription->log)
        subscription->log->cursor = *cursor;
}

void subscription_release(struct subscription *subscription) {
    assert(!subscription_is_reading(subscription) && !subscription->ahead);
    drop_read(subscription);
    set_replaying(subscription, false);
    shared_epoch_unref(subscription->epoch);
    if (subscription->owns_topic) {
        feed_topic_release(subscription->topic);
        free(subscription->topic);
    }
    if (subscription->selected) {
        deadline_drop(&subscription->selected->deadline);
        selection_unref(subscription->selected->selection);
    }
    free(subscription->selected);
    free(subscription->start);
    free(subscription->log);
}

enum status subscription_open(struct subscription *subscription, struct feeds *feeds,
                              struct slice topic, const struct subscription_rules *rules,
                              const struct subscription_options *options) {
    enum status status =
        feed_join(feeds, topic, &subscription->member, options->principal, options->view);
    if (status != STATUS_OK)
        return status;
    struct feed_topic *shared = feed_topic(subscription->member.feed);
    shared->policies = rules->policies;
    (void)feed_topic_policy(shared);
    shared->writer = rules->writer;
    status = subscription_init(subscription, shared, options);
    if (status != STATUS_OK)
        feed_leave(&subscription->member);
    return status;
}

void subscription_close(struct subscription *subscription) {
    subscription_release(subscription);
    feed_leave(&subscription->member);
}

void subscription_idle(struct subscription *subscription) {
    if (subscription_is_reading(subscription) || subscription->state == SUBSCRIPTION_STALE)
        return;
    drop_read(subscription);
    set_replaying(subscription, false);
}

void subscription_restart(struct subscription *subscription) {
    static const struct uuid none;
    assert(subscription->state == SUBSCRIPTION_STALE);
    if (!subscription->start)
        subscription->start = calloc(1, sizeof(*subscription->start));
    struct subscription_start *start = subscription->start;
    if (start && subscription->read)
        start->window =
            subscription->read->window; /* the one that the position was compared with */
    drop_read(subscription);
    if (!start)
        return subscription_fail(subscription, STATUS_OUT_OF_MEMORY);
    subscription_set_state(subscription, SUBSCRIPTION_UNPLACED);
    start->asked.has_cursor = start->asked.has_event_cursor = false;
    start->asked.from_head = start->asked.has_since = false;
    subscription->is_absent = false;
    set_cursor(subscription, &none);
}

static enum journal_read_mode read_mode(const struct subscription *subscription) {
    /* A cursor was not compared with a topic that did not exist. */
    if (subscription->is_absent && subscription->next_seq > 1)
        return JOURNAL_READ_RESUME;
    if (subscription->state == SUBSCRIPTION_OPEN)
        return JOURNAL_READ_CONTINUE;
    if (subscription->start->asked.has_event_cursor)
        return JOURNAL_READ_RESUME_CURSOR;
    if (subscription->start->asked.has_since)
        return JOURNAL_READ_RESUME_TIME;
    return subscription->start->asked.has_cursor ? JOURNAL_READ_RESUME : JOURNAL_READ_BOOTSTRAP;
}

static struct journal_read *make_read(const struct subscription *subscription, uint64_t after_seq,
                                      size_t frames_max) {
    struct feed_topic *topic = subscription->topic;
    const struct subscription_start *start = subscription->start;
    struct journal_read *read = calloc(1, sizeof(*read));
    if (!read)
        return NULL;
    read->asked = (struct journal_request){
        .topic = topic->name,
        .projection_version = hub_projection_version(topic->watch->listener->hub),
        .policy = feed_topic_policy(topic),
        .policies = topic->policies,
        .mode = read_mode(subscription),
        .after_seq = after_seq,
        .writer = topic->writer,
        .replay_all = subscription->replay_all,
        .folds = subscription->folds,
        .is_unfounded = subscription->is_absent,
        .below_seq = hub_first_seq(topic->watch),
        .edition = hub_edition(topic->watch),
        .frames_max = frames_max,
        /* A fresh token may replace the principal while the read is under way. */
        .principal = principal_ref(subscription->principal),
        .view = (enum grant_view)subscription->view,
        .owner_map = hub_owner_map(topic->watch->listener->hub),
        /* The name of a topic that appeared is not known before the store was read. */
        .watch = subscription->is_absent ? NULL : topic->watch,
    };
    read->asked.given_epoch = read->asked.mode == JOURNAL_READ_CONTINUE || !start
                                  ? *subscription_epoch(subscription)
                                  : start->asked.epoch;
    if (start) {
        read->asked.event_cursor = start->asked.event_cursor;
        read->asked.since_ms = start->asked.since_ms;
    }
    return read;
}

static enum subscription_step ask_read(struct subscription *subscription,
                                       const struct delivery_batch *batch) {
    /* Few of the frames may be in the selection. */
    bool takes_many = subscription->selected || subscription->folds_well;
    size_t frames_max = takes_many ? JOURNAL_READ_FRAMES_MAX : batch->count_max;
    /* The frames need not be read if they begin where folded ones do. */
    if (subscription->folds && subscription->state == SUBSCRIPTION_UNPLACED &&
        hub_holds_folded(subscription->topic->watch, 0))
        frames_max = 0;
    set_replaying(subscription, true);
    subscription->read = make_read(subscription, subscription->next_seq - 1, frames_max);
    if (!subscription->read) {
        subscription_fail(subscription, STATUS_OUT_OF_MEMORY);
        return STEP_FAILED;
    }
    /* Frames that are read ahead are for all subscribers. */
    subscription->read->asked.may_skip = true;
    subscription->read->asked.place = &subscription->place;
    subscription_set_state(subscription, subscription->state == SUBSCRIPTION_OPEN
                                             ? SUBSCRIPTION_READING
                                             : SUBSCRIPTION_PLACING);
    return STEP_READ;
}

enum status subscription_ask_position(struct subscription *subscription) {
    assert(subscription->state == SUBSCRIPTION_UNPLACED);
    subscription->read = make_read(subscription, subscription->next_seq - 1, 0);
    subscription_set_state(subscription, SUBSCRIPTION_PLACING);
    return subscription->read ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

bool subscription_ask_ahead(struct subscription *subscription, const struct delivery_batch *batch) {
    struct hub_watch *watch = subscription->topic->watch;
    size_t near_count = batch->taken * AHEAD_BATCHES;
    uint64_t after_seq;
    if (!subscription->is_replaying || subscription->ahead || subscription->is_sparse ||
        !hub_read_ahead_begin(watch, subscription->next_seq, near_count, &after_seq))
        return false;
    subscription->ahead = make_read(subscription, after_seq, JOURNAL_READ_FRAMES_MAX);
    if (!subscription->ahead)
        hub_read_ahead_end(watch, after_seq);
    return subscription->ahead;
}

static bool is_next(const struct subscription *subscription, uint64_t after_seq) {
    return subscription->state == SUBSCRIPTION_OPEN && !subscription->read &&
           !subscription->is_absent && subscription->next_seq == after_seq + 1;
}

bool subscription_is_at(const struct subscription *subscription, uint64_t after_seq) {
    return is_next(subscription, after_seq) && subscription->sent_seq == after_seq;
}

void subscription_sent(struct subscription *subscription, uint64_t seq) {
    assert(seq >= subscription->sent_seq && seq < subscription->next_seq);
    subscription->sent_seq = seq;
}

static void note_head(struct subscription *subscription, uint64_t head_seq) {
    if (head_seq > subscription->head_seq)
        subscription->head_seq = head_seq;
}

void subscription_place(struct subscription *subscription, uint64_t after_seq,
                        const struct topic_epoch *epoch) {
    drop_read(subscription);
    if (feed_topic_set_epoch(subscription->topic, epoch, &subscription->epoch) != STATUS_OK) {
        subscription_fail(subscription, STATUS_OUT_OF_MEMORY);
        return;
    }
    subscription_set_state(subscription, SUBSCRIPTION_OPEN);
    set_position(subscription, after_seq + 1);
    /* The snapshot may be later than the last read of the store. */
    note_head(subscription, after_seq);
}

/* At the head, from now on only wake-ups of the feed bring frames for it. */
static void settle(struct subscription *subscription) {
    if (subscription->state != SUBSCRIPTION_OPEN || is_behind(subscription))
        return;
    subscription->is_settled = true;
    feed_settled(&subscription->member, subscription->head_seq);
}

static void note_taken(struct subscription *subscription, const struct delivery_batch *batch) {
    if (subscription->member.listing)
        feed_taken(&subscription->member,
                   subscription->selected ? batch->readable : delivery_batch_events(batch));
}

void subscription_pass(struct subscription *subscription, const struct delivery_batch *batch,
                       uint64_t head_seq) {
    assert(batch->through_seq + 1 > subscription->next_seq);
    subscription->next_seq = batch->through_seq + 1;
    set_cursor(subscription, &batch->through_cursor);
    note_head(subscription, head_seq);
    if (!is_behind(subscription))
        set_replaying(subscription, false);
    note_taken(subscription, batch);
    settle(subscription);
}

/* Moves the event cursor behind everything that was passed, without the id of an event that the
 * principal may not read: to the start of its millisecond, unless the position is behind that. */
static void pass_hidden_cursor(struct subscription *subscription, const struct uuid *cursor) {
    struct uuid first = uuid7_first(uuid7_timestamp_ms(cursor));
    if (subscription->log && uuid_compare(&first, &subscription->log->cursor) > 0)
        subscription->log->cursor = first;
}

/* The frames up to seq include some that the principal may not read. */
static void note_unread(struct subscription *subscription, uint64_t seq) {
    if (subscription->selected)
        subscription->selected->unread_seq = seq;
}

void subscription_skip_hidden(struct subscription *subscription) {
    const struct uuid *cursor;
    if (!subscription->is_settled)
        return;
    uint64_t through_seq = feed_hidden_seq(&subscription->member, &cursor);
    if (subscription->state != SUBSCRIPTION_OPEN || subscription->read ||
        through_seq < subscription->next_seq)
        return;
    subscription->next_seq = through_seq + 1;
    note_unread(subscription, through_seq);
    note_head(subscription, through_seq);
    if (cursor)
        pass_hidden_cursor(subscription, cursor);
}

static void give(struct subscription *subscription, struct delivery_batch *batch, struct pick *pick,
                 struct frame *frame) {
    assert(frame->first_seq == subscription->next_seq);
    const struct subscription_log *log = subscription->log;
    bool may_read = grant_may_read(subscription->principal, (enum grant_view)subscription->view,
                                   &frame->content.owner);
    bool is_wanted =
        may_read && (!log || !log->wants || log->wants(log->wants_user, &frame->content));
    batch->taken += (size_t)(frame->content.seq - frame->first_seq) + 1;
    batch->readable += may_read;
    subscription->next_seq = frame->content.seq + 1;
    batch->through_seq = frame->content.seq;
    if (may_read)
        set_cursor(subscription, &frame->content.cursor);
    else
        pass_hidden_cursor(subscription, &frame->content.cursor);
    batch->through_cursor = cursor_of(subscription);
    if (!may_read)
        note_unread(subscription, frame->content.seq);
    if (is_wanted && pick)
        pick_add(pick, frame);
    else if (is_wanted)
        batch->frames[batch->count++] = frame;
    else
        frame_unref(frame);
}

/* Frames of others up to seq were not read. */
static void pass_hidden(struct subscription *subscription, struct delivery_batch *batch,
                        uint64_t seq) {
    if (seq < subscription->next_seq)
        return;
    subscription->next_seq = seq + 1;
    note_unread(subscription, seq);
    batch->through_seq = seq;
    batch->through_cursor = cursor_of(subscription);
}

/* Folds frames in place, as far as the batch has room. Returns how many of them were used; *made:
 * how many there are afterwards. edition: the hub's before the frames were read. */
static size_t fold(struct subscription *subscription, const struct delivery_batch *batch,
                   struct replay_page *page, uint64_t edition, size_t *made) {
    uint64_t payload_bytes_max = subscription->topic->policy->max_payload_bytes;
    const struct fold_limits limits = {
        .frames_max = batch->count_max,
        .bytes_max = batch->bytes_max,
        .payload_bytes_max =
            payload_bytes_max < FOLDED_PAYLOAD_BYTES ? payload_bytes_max : FOLDED_PAYLOAD_BYTES,
    };
    size_t used = frames_fold(page->frames, page->count, &limits, made);
    if (*made == 0)
        return 0;
    const struct replay_page folded = {page->frames, *made};
    subscription->folds_well = used >= FOLDS_WELL_RATIO * *made;
    /* Frames at the head are too few each time to be kept for others. */
    if (!subscription->is_settled && !subscription->is_sparse)
        hub_keep_folded(subscription->topic->watch, &folded, edition, limits.payload_bytes_max);
    return used;
}

/* Gives frames of the page that was read. Frames that do not fit stay for the next ask, unless the
 * hub has them too. Frames that were committed during the read were announced once, while the
 * subscription was busy. So the newest head is asked for here; otherwise a client that gets the
 * last frame of the page would wait for the next announcement. */
static void give_page(struct subscription *subscription, struct delivery_batch *batch,
                      struct pick *pick) {
    struct journal_read *read = subscription->read;
    size_t bytes = 0;
    size_t given = 0;
    size_t given_max = pick ? SIZE_MAX : batch->count_max;
    if (subscription->folds && read->taken < read->count) {
        struct replay_page page = {read->frames + read->taken, read->count - read->taken};
        size_t made;
        size_t used = fold(subscription, batch, &page, read->asked.edition, &made);
        /* The frames behind are a run that did not fit; it begins the next page. */
        given_max = made < given_max ? made : given_max;
        /* The folded frames stand before those that are left. */
        read->taken += used - made;
        memmove(read->frames + read->taken, page.frames, made * sizeof(struct frame *));
    }
    while (read->taken < read->count && given < given_max) {
        struct frame *frame = read->frames[read->taken];
        bytes += frame->content.payload.size;
        if (pick ? !pick_has_room(pick, frame) : given > 0 && bytes > batch->bytes_max)
            break;
        read->taken++;
        given++;
        pass_hidden(subscription, batch, frame->first_seq - 1);
        give(subscription, batch, pick, frame);
    }
    if (read->taken == read->count)
        pass_hidden(subscription, batch, read->through_seq);
    if (read->taken == read->count || read->is_kept)
        drop_read(subscription);
    note_head(subscription, hub_head_seq(subscription->topic->watch));
}

/* Gives frames of the window. A selection takes more of them until the batch is full. */
static enum hub_take_result give_window(struct subscription *subscription,
                                        struct delivery_batch *batch, struct pick *pick) {
    struct frame *frames[DELIVERY_FRAMES_MAX];
    struct hub_watch *watch = subscription->topic->watch;
    struct hub_take take = {.next_seq = subscription->next_seq,
                            .count_max = batch->count_max,
                            .bytes_max = batch->bytes_max,
                            .frames = frames,
                            .place = &subscription->place};
    enum hub_take_result result = HUB_FRAMES;
    bool is_full = false;
    if (!subscription->folds || !hub_take_folded(watch, &take)) {
        if (subscription->folds_well) {
            take.count_max = DELIVERY_FRAMES_MAX;
            take.bytes_max = JOURNAL_READ_BYTES;
        }
        result = hub_take(watch, &take);
        if (subscription->folds) {
            struct replay_page page = {frames, take.count};
            for (size_t i = fold(subscription, batch, &page, take.edition, &take.count);
                 i < page.count; i++)
                frame_unref(frames[i]);
        }
    }
    while (true) {
        note_head(subscription, take.head_seq);
        for (size_t i = 0; i < take.count; i++) {
            is_full = is_full || (pick && !pick_has_room(pick, frames[i]));
            if (is_full)
                frame_unref(frames[i]);
            else
                give(subscription, batch, pick, frames[i]);
        }
        if (!pick || result != HUB_FRAMES || is_full || batch->taken >= SELECTION_FRAMES_MAX)
            break;
        take.next_seq = subscription->next_seq;
        take.count = 0;
        result = hub_take(watch, &take);
    }
    set_replaying(subscription, result == HUB_BELOW || (take.is_replay && is_behind(subscription)));
    return batch->taken > 0 ? HUB_FRAMES : result;
}

/* One step in memory, or the read that must come before it. */
static enum subscription_step step(struct subscription *subscription, struct delivery_batch *batch,
                                   struct pick *pick) {
    if (subscription->read) {
        give_page(subscription, batch, pick);
        set_replaying(subscription, is_behind(subscription));
        return STEP_FRAMES;
    }
    if (subscription->is_absent) {
        bool may_begin =
            subscription->view != GRANT_VIEW_NONE && hub_head_seq(subscription->topic->watch) > 0;
        return may_begin ? ask_read(subscription, batch) : STEP_WAIT;
    }
    enum hub_take_result result = give_window(subscription, batch, pick);
    if (result != HUB_BELOW)
        return result == HUB_FRAMES ? STEP_FRAMES : STEP_WAIT;
    if (subscription->ahead && subscription->ahead->asked.after_seq + 1 == subscription->next_seq)
        return STEP_AHEAD;
    return ask_read(subscription, batch);
}

enum subscription_step subscription_next(struct subscription *subscription,
                                         struct delivery_batch *batch) {
    struct subscription_selected *selected = subscription->selected;
    assert(!subscription_is_reading(subscription));
    assert(batch->count_max > 0 && batch->count_max <= DELIVERY_FRAMES_MAX);
    batch->count = batch->taken = batch->readable = 0;
    batch->is_folded = subscription->folds;
    batch->after_seq = subscription->sent_seq;
    batch->through_seq = subscription->next_seq - 1;
    batch->selection = selected ? selected->selection : NULL;
    if (subscription->state == SUBSCRIPTION_FAILED)
        return STEP_FAILED;
    if (subscription->state == SUBSCRIPTION_STALE)
        return STEP_STALE;
    if (subscription->state == SUBSCRIPTION_UNPLACED)
        return ask_read(subscription, batch);
    if (!selected)
        return step(subscription, batch, NULL);
    struct pick pick;
    pick_begin(&pick, selected->selection, batch);
    enum subscription_step result = step(subscription, batch, &pick);
    enum status status = pick_end(&pick);
    batch->is_selected_whole = selected->unread_seq <= batch->after_seq;
    if (status == STATUS_OK)
        return result;
    if (subscription_is_reading(subscription))
        drop_read(subscription);
    subscription_fail(subscription, status);
    return STEP_FAILED;
}

void subscription_serve(struct subscription *subscription, size_t frames_max, size_t bytes_max,
                        const struct subscription_sink *sink) {
    struct delivery_batch batch;
    /* Not initialized: clearing the room for all frames costs more than a delivery. */
    batch.count_max = frames_max;
    batch.bytes_max = bytes_max;
    subscription_skip_hidden(subscription);
    enum subscription_step taken = subscription_next(subscription, &batch);
    if (taken == STEP_FRAMES)
        note_taken(subscription, &batch);
    settle(subscription);
    switch (taken) {
    case STEP_FRAMES:
        sink->frames(subscription, &batch);
        return;
    case STEP_WAIT:
        sink->at_head(subscription);
        return;
    case STEP_READ:
        sink->read(subscription);
        return;
    case STEP_AHEAD:
        assert(sink->ahead);
        sink->ahead(subscription);
        return;
    case STEP_STALE:
        sink->stale(subscription);
        return;
    case STEP_FAILED:
        sink->failed(subscription);
        return;
    }
}

/* On the log: its last event. The owner of that event is not known here, so its id is hidden from
 * principals that do not see everything. */
static void set_head_cursor(struct subscription *subscription) {
    static const struct uuid none;
    const struct uuid *cursor = &subscription->read->head_cursor;
    if (uuid_compare(cursor, &none) == 0)
        return;
    if (subscription->view == GRANT_VIEW_ALL)
        set_cursor(subscription, cursor);
    else
        pass_hidden_cursor(subscription, cursor);
}

/* The stream id belongs to a topic now. The principal waited for the stream; whether it may read
 * the topic depends on the name. */
static enum status bind_topic(struct subscription *subscription, struct slice topic) {
    struct grant grant = grant_check(subscription->principal, topic, NULL);
    if (grant.status != STATUS_OK)
        return grant.status;
    assert(!subscription->owns_topic);
    struct feed_topic *bound = malloc(sizeof(*bound) + topic.size);
    if (!bound)
        return STATUS_OUT_OF_MEMORY;
    *bound = *subscription->topic;
    bound->epoch = NULL;
    bound->policy = bound->policies ? NULL : bound->policy;
    bound->name = (struct slice){(char *)(bound + 1), topic.size};
    memcpy(bound + 1, topic.data, topic.size);
    (void)feed_topic_policy(bound);
    subscription->topic = bound;
    subscription->owns_topic = true;
    subscription->view = (uint8_t)grant.view;
    return STATUS_OK;
}

/* The read has found the position, and what the client gets to know about its beginning. */
static void take_position(struct subscription *subscription, const struct journal_read *read) {
    struct subscription_start *start = subscription->start;
    enum status status = read->found.data ? bind_topic(subscription, read->found) : STATUS_OK;
    if (status == STATUS_OK && (read->mode != JOURNAL_READ_CONTINUE || read->asked.is_unfounded)) {
        subscription->has_fork = read->has_fork;
        status = feed_topic_set_epoch(subscription->topic, &read->epoch, &subscription->epoch);
    }
    if (status != STATUS_OK) {
        subscription_fail(subscription, status);
        return;
    }
    if (!read->found.data)
        subscription->view = (uint8_t)read->view;
    subscription->is_absent = !read->exists;
    hub_learn_head(subscription->topic->watch, read->window.head_seq);
    subscription->head_seq = read->window.head_seq;
    if (start) {
        start->window = read->window;
        if (!read->exists)
            start->window.replay_budget_events = subscription->topic->policy->replay_budget_events;
        if (read->mode == JOURNAL_READ_BOOTSTRAP) {
            subscription->is_bootstrap = true;
            start->bootstrap = read->bootstrap;
        }
    }
    subscription_set_state(subscription,
                           read->state == JOURNAL_STALE ? SUBSCRIPTION_STALE : SUBSCRIPTION_OPEN);
    if (read->state == JOURNAL_STALE)
        return;
    if (read->mode != JOURNAL_READ_CONTINUE)
        set_position(subscription, read->next_seq);
    /* Only a subscription that has not begun asks for a time or a bootstrap. */
    assert(start ||
           (read->mode != JOURNAL_READ_RESUME_TIME && read->mode != JOURNAL_READ_BOOTSTRAP));
    if (start && read->mode == JOURNAL_READ_RESUME_TIME) {
        /* The time that was asked for has become a position. On the log, a time later than the last
         * event becomes the cursor of that event: a later cursor would be refused after a
         * reconnect. */
        start->asked.has_since = false;
        start->asked.has_cursor = true;
        start->asked.after_seq = subscription->next_seq - 1;
        const struct uuid first = uuid7_first(start->asked.since_ms);
        if (is_behind(subscription))
            set_cursor(subscription, &first);
        else
            set_head_cursor(subscription);
    }
    if (start && read->mode == JOURNAL_READ_BOOTSTRAP && start->asked.from_head) {
        uint64_t head_seq = subscription->head_seq;
        set_head_cursor(subscription);
        journal_read_release(subscription->read);
        set_position(subscription, head_seq + 1);
        start->bootstrap = (struct continuity_bootstrap){head_seq + 1, head_seq > 0};
    }
}

bool subscription_read_run(struct subscription *subscription, struct store_session *store) {
    return journal_read_run(subscription->read, store);
}

void subscription_read_done(struct subscription *subscription, enum status status) {
    struct journal_read *read = subscription->read;
    assert(subscription_is_reading(subscription));
    if (status != STATUS_OK) {
        subscription_fail(subscription, status);
        drop_read(subscription);
        return;
    }
    if (read->state == JOURNAL_IN_MEMORY) {
        subscription_set_state(subscription, SUBSCRIPTION_OPEN);
        drop_read(subscription);
        return;
    }
    if (read->status == STATUS_OK)
        take_position(subscription, read);
    else
        subscription_fail(subscription, read->status);
    subscription->is_sparse = read->is_sparse;
    if (read->count > 0 && !read->is_sparse) {
        /* While another read ran, the topic or its head was not known to the hub. */
        const struct replay_page page = {read->frames, read->count};
        replay_place *place = subscription->is_replaying ? &subscription->place : NULL;
        if (read->mode != JOURNAL_READ_CONTINUE || !read->asked.watch)
            read->is_kept =
                hub_refill(subscription->topic->watch, &page, read->asked.edition, place);
    } else if (!read->is_sparse && subscription->state != SUBSCRIPTION_STALE) {
        drop_read(subscription);
    }
}

void subscription_ahead_done(struct subscription *subscription) {
    struct hub_watch *watch = subscription->topic->watch;
    struct journal_read *ahead = subscription->ahead;
    subscription->ahead = NULL;
    hub_read_ahead_end(watch, ahead->asked.after_seq);
    /* A failed read is repeated, and reported, when the position gets there. */
    bool is_awaited = subscription->is_replaying && is_next(subscription, ahead->asked.after_seq);
    if (ahead->count > 0 && !ahead->is_kept && is_awaited) {
        subscription->read = ahead;
        return;
    }
    journal_read_release(ahead);
    free(ahead);
}

const struct continuity *subscription_continuity(const struct subscription *subscription) {
    assert(subscription->state == SUBSCRIPTION_STALE && subscription->read);
    return &subscription->read->continuity;
}

struct stale_topic subscription_stale(const struct subscription *subscription) {
    struct slice name = subscription->topic->name;
    return (struct stale_topic){
        .topic = name,
        .policy = subscription->topic->policy,
        .continuity = subscription_continuity(subscription),
        .may_replay_all =
            principal_may_replay_all(subscription->principal) && topic_is_from_log(name),
        .epoch = &subscription->read->epoch,
    };
}
