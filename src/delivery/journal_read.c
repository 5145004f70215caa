/* The rows are walked before the floor is looked at: were it the other way round, pruning between
 * the two could take the first rows away and nobody would know. */
#include "delivery/journal_read.h"

#include <assert.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "hub/frame_row.h"

#define ARENA_BYTES_MAX (1u << 20)
/* How often a floor may rise under a bootstrap before it is the world that is wrong. */
#define BOOTSTRAPS_MAX 16

struct page {
    struct journal_read *read;
    struct store_session *session;
    struct arena arena;
    struct store_entity entity; /* whose frame was the last */
    uint64_t expected_seq;
    size_t bytes;
    bool is_full;
    bool has_hole;
};

/* Whether the row comes next and is wanted; if not, why not is noted. */
static bool takes(struct page *page, uint64_t seq) {
    const struct journal_read *read = page->read;
    page->has_hole = seq != page->expected_seq;
    page->is_full = read->count == read->frames_max || page->bytes >= JOURNAL_READ_BYTES ||
                    seq >= read->below_seq;
    return !page->has_hole && !page->is_full;
}

static enum status owner_load(struct page *page, uint64_t entity_ref) {
    if (page->entity.ref == entity_ref)
        return STATUS_OK;
    arena_reset(&page->arena);
    page->entity.ref = 0;
    return store_load_entity_ref(page->session, entity_ref, &page->arena, &page->entity);
}

static void keep(struct page *page, struct frame *frame) {
    page->read->frames[page->read->count++] = frame;
    page->bytes += frame->content.payload.size;
    page->expected_seq++;
}

static enum status page_event(void *user, const struct store_event *event) {
    struct page *page = user;
    struct frame *frame;
    if (!takes(page, event->seq))
        return STATUS_LIMIT_REACHED;
    enum status status = owner_load(page, event->entity_ref);
    if (status == STATUS_OK)
        status = frame_of_event(page->read->topic, event, &page->entity.owner, &frame);
    if (status == STATUS_OK)
        keep(page, frame);
    return status;
}

static enum status page_row(void *user, const struct store_journal_row *row,
                            const struct store_event *event) {
    struct page *page = user;
    struct frame *frame;
    if (!takes(page, row->seq))
        return STATUS_LIMIT_REACHED;
    enum status status = owner_load(page, row->entity_ref);
    if (status == STATUS_OK)
        status = frame_of_row(page->read->topic, row, event, &page->entity.owner, &frame);
    if (status == STATUS_OK)
        keep(page, frame);
    return status;
}

static enum status walk(struct page *page, const struct store_topic *topic) {
    struct journal_read *read = page->read;
    uint64_t after_seq = read->next_seq - 1;
    uint64_t limit = read->frames_max;
    enum status status =
        topic->entity_ref > 0
            ? store_walk_entity_events(page->session, topic->entity_ref, after_seq, limit, page,
                                       page_event)
            : store_walk_journal(page->session, topic->ref, after_seq, limit, page, page_row);
    return status == STATUS_LIMIT_REACHED && (page->is_full || page->has_hole) ? STATUS_OK : status;
}

static void note_window(struct journal_read *read, const struct store_topic *topic) {
    read->window = (struct topic_window){topic->oldest_seq, topic->head_seq,
                                         read->policy->replay_budget_events};
}

static enum status load(struct journal_read *read, struct store_session *session,
                        struct arena *arena, struct store_topic *topic) {
    enum status status = store_load_topic(session, read->topic, arena, topic);
    read->exists = status == STATUS_OK;
    if (status == STATUS_OK)
        note_window(read, topic);
    return status;
}

/* Where the page begins; a cursor that cannot go on makes the read stale. */
static void find_place(struct journal_read *read) {
    read->next_seq = read->after_seq + 1;
    if (read->mode == JOURNAL_READ_BOOTSTRAP) {
        read->bootstrap = continuity_bootstrap(read->exists ? &read->window : NULL);
        read->next_seq = read->bootstrap.from_seq;
    } else if (read->exists && read->mode == JOURNAL_READ_RESUME) {
        read->continuity = continuity_plan(&read->window, read->after_seq, false);
        read->is_stale = read->continuity.decision == CONTINUITY_REBOOTSTRAP;
    }
}

static void release_frames(struct journal_read *read) {
    while (read->taken < read->count)
        frame_unref(read->frames[read->taken++]);
    read->taken = read->count = 0;
}

static enum status read_page(struct page *page, const struct store_topic *topic) {
    struct journal_read *read = page->read;
    struct store_topic after;
    enum status status = STATUS_OK;
    bool wants_rows = read->next_seq <= topic->head_seq && read->next_seq < read->below_seq;
    page->expected_seq = read->next_seq;
    if (wants_rows)
        status = walk(page, topic);
    if (status == STATUS_OK) {
        arena_reset(&page->arena);
        status = load(read, page->session, &page->arena, &after);
    }
    if (status != STATUS_OK)
        return status;
    if (read->window.oldest_seq > read->next_seq) {
        read->is_stale = true;
        read->continuity = continuity_plan(&read->window, read->next_seq - 1, false);
        release_frames(read);
        return STATUS_OK;
    }
    return page->has_hole || (wants_rows && read->count == 0) ? STATUS_INTERNAL_ERROR : STATUS_OK;
}

static enum status run_once(struct journal_read *read, struct store_session *session) {
    struct page page = {.read = read, .session = session};
    struct store_topic topic;
    read->is_stale = false;
    arena_init(&page.arena, ARENA_BYTES_MAX);
    enum status status = load(read, session, &page.arena, &topic);
    if (status == STATUS_OK || status == STATUS_NOT_FOUND)
        find_place(read);
    if (status == STATUS_OK && !read->is_stale)
        status = read_page(&page, &topic);
    arena_release(&page.arena);
    return status == STATUS_NOT_FOUND && !read->exists ? STATUS_OK : status;
}

void journal_read_run(struct journal_read *read, struct store_session *session) {
    assert(read->frames_max > 0 && read->frames_max <= JOURNAL_READ_FRAMES_MAX);
    uint64_t begun_ns = clock_now().mono_ns;
    unsigned attempt = 0;
    do
        read->status = run_once(read, session);
    while (read->status == STATUS_OK && read->is_stale && read->mode == JOURNAL_READ_BOOTSTRAP &&
           ++attempt < BOOTSTRAPS_MAX);
    if (read->status == STATUS_OK && read->is_stale && read->mode == JOURNAL_READ_BOOTSTRAP)
        read->status = STATUS_STORE_UNAVAILABLE;
    if (read->status != STATUS_OK)
        release_frames(read);
    metrics_observe(METRIC_SYNC_REPLAY_READ_DURATION_SECONDS, METRIC_PLAIN,
                    clock_now().mono_ns - begun_ns, 1);
    metrics_add(METRIC_SYNC_REPLAY_FRAMES, METRIC_LABELS(read->policy->topic_class), read->count);
}

void journal_read_release(struct journal_read *read) {
    release_frames(read);
}
