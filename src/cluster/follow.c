#include "cluster/follow.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"

/* Without a hook. */
#define BEAT_MS 1000

/* ---- announcing ---- */

static enum status announce_event(void *user, const struct store_event *event) {
    struct follow *follow = user;
    const struct store_entity state = {.ref = event->entity_ref,
                                       .kind = event->entity_kind,
                                       .id = event->entity_id,
                                       .owner = event->owner};
    const struct store_batch batch = {.events = event, .event_count = 1};
    if (follow->hooks.commit)
        follow->hooks.commit(follow->hooks.user, &batch, &state);
    follow->log_id = event->log_id;
    follow->cursor = event->cursor;
    return STATUS_OK;
}

/* A topic without its rows: subscribers read them from the store. */
static enum status announce_topic(void *user, const struct store_topic *topic) {
    struct follow *follow = user;
    const struct store_batch batch = {.topics = topic, .topic_count = 1};
    if (follow->hooks.commit && topic->entity_ref == 0)
        follow->hooks.commit(follow->hooks.user, &batch, NULL);
    if (follow->hooks.pruned && topic->oldest_seq > 1)
        follow->hooks.pruned(follow->hooks.user, topic->name, topic->oldest_seq);
    return STATUS_OK;
}

static enum status announce_head(void *user, const struct store_topic *topic) {
    struct follow *follow = user;
    if (follow->hooks.head && topic->entity_ref > 0)
        follow->hooks.head(follow->hooks.user, topic->name, topic->head_seq);
    return announce_topic(user, topic);
}

/* ---- a pass ---- */

/* Everything up to here is announced, or needs no announcement. */
static void reach(struct follow *follow, const struct store_progress *progress) {
    follow->log_id = progress->log_id;
    follow->cursor = progress->cursor;
    follow->commit_id = progress->commit_id;
    follow->has_commit_id = true;
}

enum status follow_pass(struct follow *follow, struct store_session *session) {
    const struct follow_hooks *hooks = &follow->hooks;
    struct store_progress progress;
    if (!follow->side) {
        enum status status =
            store_walk_log(session, follow->log_id, UINT64_MAX, follow, announce_event);
        return status == STATUS_OK
                   ? store_walk_topics(session, 0, UINT64_MAX, follow, announce_topic)
                   : status;
    }
    enum status status = store_read_progress(session, follow->commit_id, &progress);
    if (status != STATUS_OK)
        return status;
    /* Clients of the old epoch must not continue in the other history. */
    if (hooks->epoch && strcmp(hooks->epoch, progress.epoch) != 0) {
        if (hooks->epoch_changed)
            hooks->epoch_changed(hooks->user, progress.epoch);
        return STATUS_WRITER_LOST;
    }
    /* Asked after the read of the store: a reader that comes later sees all that is skipped. */
    if (hooks->is_watched && !hooks->is_watched(hooks->user)) {
        reach(follow, &progress);
        return STATUS_OK;
    }
    uint64_t behind = progress.log_id > follow->log_id ? progress.log_id - follow->log_id : 0;
    if (behind > FOLLOW_EVENTS_MAX) {
        /* Too many events to show each: only the heads of all topics. */
        status = store_walk_topics(session, 0, UINT64_MAX, follow, announce_head);
        if (status != STATUS_OK)
            return status;
        reach(follow, &progress);
        if (hooks->head)
            hooks->head(hooks->user, (struct slice){0}, follow->log_id);
        return STATUS_OK;
    }
    if (behind > 0)
        status = store_walk_log(session, follow->log_id, behind, follow, announce_event);
    if (status != STATUS_OK || (follow->has_commit_id && progress.commit_id == follow->commit_id))
        return status;
    /* The topics with journal rows that changed since the last pass. */
    bool is_listed = follow->has_commit_id && !progress.has_unlisted &&
                     progress.commit_id_min <= follow->commit_id + 1;
    status = is_listed
                 ? store_walk_changed_topics(session, follow->commit_id, follow, announce_topic)
                 : store_walk_topics(session, 0, UINT64_MAX, follow, announce_topic);
    if (status != STATUS_OK)
        return status;
    follow->commit_id = progress.commit_id;
    follow->has_commit_id = true;
    return STATUS_OK;
}

void follow_note(struct follow *follow, uint64_t log_id, const struct uuid *cursor) {
    follow->log_id = log_id;
    follow->cursor = *cursor;
    follow->has_commit_id = false;
}

/* ---- turns ---- */

void follow_wait_post(struct follow *follow, struct follow_wait *wait) {
    pthread_mutex_lock(&follow->lock);
    wait->next = follow->waits;
    follow->waits = wait;
    pthread_mutex_unlock(&follow->lock);
}

void follow_hint(struct follow *follow) {
    atomic_store(&follow->is_hinted, true);
}

void follow_ask_beat(struct follow *follow) {
    atomic_store(&follow->is_beat_asked, true);
}

static struct follow_wait *take_waits(struct follow *follow) {
    pthread_mutex_lock(&follow->lock);
    struct follow_wait *waits = follow->waits;
    follow->waits = NULL;
    pthread_mutex_unlock(&follow->lock);
    return waits;
}

static void end_waits(struct follow_wait *waits, enum status status) {
    while (waits) {
        /* done may free the wait. */
        struct follow_wait *next = waits->next;
        waits->status = status;
        waits->done(waits);
        waits = next;
    }
}

static uint64_t beat(struct follow *follow, bool is_ending) {
    const struct follow_beat state = {.role = is_ending ? WRITER_ROLE_LOST : role_get(follow->role),
                                      .is_ending = is_ending,
                                      .log_id = follow->log_id,
                                      .cursor = follow->cursor};
    return follow->hooks.beat ? follow->hooks.beat(follow->hooks.user, follow->side, &state)
                              : BEAT_MS;
}

static int64_t ms_until(uint64_t at_ns, uint64_t now_ns) {
    return at_ns > now_ns ? (int64_t)((at_ns - now_ns) / CLOCK_NS_PER_MS) + 1 : 0;
}

int64_t follow_turn(struct follow *follow) {
    /* Taken before the pass begins: a wait that is posted later gets a later pass. */
    struct follow_wait *waits = take_waits(follow);
    if (!follow->side) {
        end_waits(waits, STATUS_OK);
        return -1;
    }
    bool is_writer = role_is_writer(role_get(follow->role));
    bool is_changed = follow->role_changes != follow->role->changes;
    bool is_hinted = atomic_exchange(&follow->is_hinted, false);
    uint64_t now_ns = clock_now().mono_ns;
    bool is_beat_due = atomic_exchange(&follow->is_beat_asked, false) || is_changed ||
                       now_ns >= follow->beat_at_ns;
    bool is_pass_due = is_hinted || is_beat_due || waits || now_ns >= follow->pass_at_ns;
    enum status status = STATUS_OK;
    follow->role_changes = follow->role->changes;
    if (!is_writer && is_pass_due) {
        status = follow_pass(follow, follow->side);
        follow->pass_at_ns = clock_now().mono_ns + follow->poll_ms * CLOCK_NS_PER_MS;
    }
    end_waits(waits, status);
    if (is_beat_due) {
        uint64_t next_ms = beat(follow, false);
        follow->beat_at_ns = clock_now().mono_ns + next_ms * CLOCK_NS_PER_MS;
    }
    now_ns = clock_now().mono_ns;
    int64_t beat_ms = ms_until(follow->beat_at_ns, now_ns);
    int64_t pass_ms = is_writer ? beat_ms : ms_until(follow->pass_at_ns, now_ns);
    return pass_ms < beat_ms ? pass_ms : beat_ms;
}

/* ---- life ---- */

enum status follow_open(struct follow *follow, struct store *store, const struct role *role,
                        const struct follow_hooks *hooks, uint64_t poll_ms) {
    *follow = (struct follow){.hooks = *hooks, .role = role, .poll_ms = poll_ms};
    pthread_mutex_init(&follow->lock, NULL);
    if (!store_is_shared(store) || poll_ms == 0)
        return STATUS_OK;
    enum status status = store_session_open(store, STORE_SIDE, &follow->side);
    if (status != STATUS_OK)
        follow_close(follow);
    return status;
}

enum status follow_begin(struct follow *follow) {
    struct store_progress progress;
    enum status status = store_read_progress(follow->side, 0, &progress);
    if (status != STATUS_OK)
        return status;
    reach(follow, &progress);
    return STATUS_OK;
}

void follow_close(struct follow *follow) {
    if (follow->side)
        (void)beat(follow, true);
    end_waits(take_waits(follow), STATUS_SHUTTING_DOWN);
    store_session_close(follow->side);
    pthread_mutex_destroy(&follow->lock);
}
