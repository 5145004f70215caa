/* The rows are walked before the floor is read. In the other order, pruning between the two could
 * remove the first rows unnoticed. */
#include "delivery/journal_read.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/metrics.h"
#include "delivery/access.h"
#include "delivery/repair.h"
#include "delivery/replay_budget.h"
#include "hub/frame.h"
#include "store/enforced_window.h"
#include "store/log_position.h"
#include "store/topic_epoch.h"
#include "store/topic_fork.h"
#include "store/topic_since.h"

/* Repairs on behalf of one read. */
#define MENDS_MAX 64
/* Fewer unknown frames in a row are read themselves. */
#define LEARN_ROWS_MIN 64
/* No budget, with room for additions. */
#define LOG_REPLAY_BUDGET_EVENTS (UINT64_MAX / 2)

struct journal_page {
    struct journal_read *read;
    struct store_session *session;
    struct arena arena;
    struct owners owners;
    struct frame_room room;
    struct store_state state; /* where the read has an epoch */
    struct store_topic topic;
    bool is_log;
    struct owner_map *owner_map; /* NULL: the topic is not shared */
    uint64_t learned_seq;        /* the owners of rows up to here were read */
    uint64_t learned_count;
    uint64_t expected_seq;
    size_t bytes;
    bool is_full;
    bool has_hole;
};

static struct frame_topic topic_of(const struct journal_page *page) {
    return (struct frame_topic){page->topic.name, page->read->projection_version};
}

/* Whether the row is the next one and wanted; otherwise notes why not. */
static bool takes(struct journal_page *page, uint64_t seq) {
    const struct journal_read *read = page->read;
    /* A row beyond the head is newer than the page, or a stray. */
    page->is_full = read->count == read->frames_max || page->bytes >= JOURNAL_READ_BYTES ||
                    seq >= read->below_seq || seq > page->topic.head_seq;
    page->has_hole = !page->is_full && seq != page->expected_seq;
    return !page->has_hole && !page->is_full;
}

static struct owner_map_journal journal_of(const struct journal_page *page) {
    return (struct owner_map_journal){page->topic.ref, page->topic.journal_epoch};
}

static void keep(struct journal_page *page, struct frame *frame) {
    if (page->owner_map) {
        const struct owner_map_journal journal = journal_of(page);
        owner_map_note(page->owner_map, &journal, page->expected_seq, &frame->content.owner);
    }
    page->read->frames[page->read->count++] = frame;
    page->bytes += frame->content.payload.size;
    page->expected_seq++;
}

static enum status page_event(void *user, const struct store_event *event) {
    struct journal_page *page = user;
    const struct frame_topic topic = topic_of(page);
    const struct owner *owner;
    struct frame *frame;
    if (!takes(page, event->seq))
        return STATUS_LIMIT_REACHED;
    enum status status = owners_find(&page->owners, event->entity_ref, &owner);
    if (status == STATUS_OK)
        status = frame_of_event(&topic, event, owner, &page->room, &frame);
    if (status == STATUS_OK)
        keep(page, frame);
    return status;
}

static enum status page_log(void *user, const struct store_event *event) {
    struct journal_page *page = user;
    const struct owner *owner;
    struct frame *frame;
    if (!takes(page, event->log_id))
        return STATUS_LIMIT_REACHED;
    enum status status = owners_find(&page->owners, event->entity_ref, &owner);
    if (status == STATUS_OK)
        status = frame_of_log(event, owner, &page->room, &frame);
    if (status == STATUS_OK)
        keep(page, frame);
    return status;
}

static enum status page_row(void *user, const struct store_journal_row *row,
                            const struct store_event *event) {
    struct journal_page *page = user;
    const struct frame_topic topic = topic_of(page);
    const struct owner *owner;
    struct frame *frame;
    if (!takes(page, row->seq))
        return STATUS_LIMIT_REACHED;
    /* Once for all readers: they share the frame. */
    page->has_hole = !store_row_is_whole(row, event);
    if (page->has_hole)
        return STATUS_LIMIT_REACHED;
    enum status status = owners_find(&page->owners, row->entity_ref, &owner);
    if (status == STATUS_OK)
        status = frame_of_row(&topic, row, event, owner, &page->room, &frame);
    if (status == STATUS_OK)
        keep(page, frame);
    return status;
}

static enum status walk_rows(struct journal_page *page, uint64_t limit) {
    const struct store_topic *topic = &page->topic;
    uint64_t after_seq = page->expected_seq - 1;
    if (page->is_log)
        return store_walk_log(page->session, after_seq, limit, page, page_log);
    if (topic->entity_ref > 0)
        return store_walk_entity_frames(page->session, topic->entity_ref, after_seq, limit, page,
                                        page_event);
    return store_walk_journal(page->session, topic->ref, after_seq, limit, page, page_row);
}

static enum status walk_all(struct journal_page *page, uint64_t limit) {
    enum status status = walk_rows(page, limit);
    return status == STATUS_LIMIT_REACHED && (page->is_full || page->has_hole) ? STATUS_OK : status;
}

static enum status learn_row(void *user, uint64_t seq, const struct owner *owner) {
    const struct journal_page *page = user;
    const struct owner_map_journal journal = journal_of(page);
    if (seq > page->learned_seq)
        return STATUS_LIMIT_REACHED;
    owner_map_note(page->owner_map, &journal, seq, owner);
    return STATUS_OK;
}

/* Reads the owners of these frames, at a fraction of the cost of the frames. A row that is missing
 * or damaged stays unknown, so the read of frames meets it. */
static enum status learn(struct journal_page *page, struct owner_map_run run) {
    uint64_t left = STORE_TASK_ROWS - page->learned_count;
    uint64_t limit = run.count < left ? run.count : left;
    page->learned_seq = run.seq + limit - 1;
    page->learned_count += limit;
    enum status status =
        store_walk_owners(page->session, page->topic.ref, run.seq - 1, limit, page, learn_row);
    return status == STATUS_LIMIT_REACHED || status == STATUS_INTERNAL_ERROR ? STATUS_OK : status;
}

/* Few frames are read faster themselves. */
static bool is_worth_learning(const struct journal_page *page, struct owner_map_run run) {
    return run.unknown >= LEARN_ROWS_MIN && run.seq > page->learned_seq;
}

/* Passes over frames that are known to be of others. A read that has learned enough owners ends its
 * page early, so that other principals have a turn. */
static enum status walk_own(struct journal_page *page) {
    struct journal_read *read = page->read;
    const struct owner_map_journal journal = journal_of(page);
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    const struct owner_map_keys own = {keys, principal_keys(read->principal, keys)};
    uint64_t head_end = page->topic.head_seq + 1;
    uint64_t end_seq = read->below_seq < head_end ? read->below_seq : head_end;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && read->count < read->frames_max && !page->is_full &&
           !page->has_hole && page->expected_seq < end_seq) {
        struct owner_map_run run =
            owner_map_next(page->owner_map, &journal, own, page->expected_seq, end_seq);
        size_t room = read->frames_max - read->count;
        uint64_t limit = run.count < room ? run.count : room;
        read->is_sparse |= run.seq > page->expected_seq;
        page->expected_seq = run.seq;
        if (is_worth_learning(page, run)) {
            if (page->learned_count >= STORE_TASK_ROWS)
                return STATUS_OK;
            status = learn(page, run);
            continue;
        }
        if (limit > 0)
            status = walk_all(page, limit);
        page->has_hole |= !page->is_full && page->expected_seq < run.seq + limit;
    }
    return status;
}

static bool is_filtered(const struct journal_read *read) {
    return read->principal && read->view == GRANT_VIEW_OWN && !read->principal->read_all;
}

static enum status walk(struct journal_page *page) {
    const struct journal_read *read = page->read;
    if (page->owner_map && read->may_skip && is_filtered(read))
        return walk_own(page);
    return walk_all(page, read->frames_max);
}

static enum status load_log(struct journal_page *page) {
    struct store_state state = {0};
    enum status status = store_read_state(page->session, &state);
    page->topic = (struct store_topic){.oldest_seq = 1, .head_seq = state.log_id};
    page->read->head_cursor = state.cursor;
    return status;
}

void journal_rows_init(struct journal_rows *rows) {
    *rows = (struct journal_rows){0};
    arena_init(&rows->arena, JOURNAL_READ_ARENA_BYTES_MAX);
}

void journal_rows_release(struct journal_rows *rows) {
    arena_release(&rows->arena);
}

/* The topic before the state, as in a read without shared rows. */
static enum status load_rows(struct journal_page *page) {
    struct journal_rows *rows = page->read->rows;
    arena_reset(&rows->arena);
    rows->topic = (struct slice){NULL, 0};
    enum status status =
        topic_address_find(page->session, page->read->topic, &rows->arena, &rows->address);
    if (status == STATUS_OK)
        status = store_read_state(page->session, &rows->state);
    if (status == STATUS_OK)
        rows->topic = page->read->topic;
    return status;
}

static enum status find_address(struct journal_page *page, struct topic_address *address) {
    const struct journal_read *read = page->read;
    const struct journal_rows *rows = read->rows;
    if (!rows)
        return topic_address_find(page->session, read->topic, &page->arena, address);
    bool is_known = rows->topic.data && slice_equal(rows->topic, read->topic);
    enum status status = is_known ? STATUS_OK : load_rows(page);
    *address = rows->address;
    return status;
}

static enum status read_state(const struct journal_page *page, struct store_state *state) {
    const struct journal_rows *rows = page->read->rows;
    if (!rows || !rows->topic.data)
        return store_read_state(page->session, state);
    *state = rows->state;
    return STATUS_OK;
}

/* The owner first: a run of another takes the same reads as one that does not exist. */
static enum status find_owner(struct journal_page *page) {
    struct journal_read *read = page->read;
    struct grant grant;
    if (!grant_view_is_pending(read->view) || !read->principal)
        return STATUS_OK;
    enum status status =
        entitlement_load(page->session, read->principal, read->topic, &page->arena, &grant);
    if (status != STATUS_OK || grant.status != STATUS_OK)
        return status == STATUS_OK ? grant.status : status;
    read->view = grant.view;
    return grant_view_is_pending(grant.view) ? STATUS_NOT_FOUND : STATUS_OK;
}

static enum status load_topic(struct journal_page *page) {
    struct journal_read *read = page->read;
    struct topic_address address;
    enum status status = find_owner(page);
    if (status == STATUS_OK)
        status = find_address(page, &address);
    if (status != STATUS_OK || !address.exists)
        return status == STATUS_OK ? STATUS_NOT_FOUND : status;
    page->topic = address.row;
    enum topic_kind kind = topic_kind_of(page->topic.name, NULL);
    page->owner_map = topic_row(kind)->ownership == TOPIC_SHARED ? read->owner_map : NULL;
    if (slice_equal(page->topic.name, read->topic))
        return STATUS_OK;
    assert(page->topic.name.size <= sizeof(read->found_text));
    memcpy(read->found_text, page->topic.name.data, page->topic.name.size);
    read->found = (struct slice){read->found_text, page->topic.name.size};
    return STATUS_OK;
}

static enum status load(struct journal_page *page) {
    struct journal_read *read = page->read;
    arena_reset(&page->arena);
    enum status status = page->is_log ? load_log(page) : load_topic(page);
    read->exists = status == STATUS_OK;
    if (status != STATUS_OK)
        return status;
    if (read->replay_all && !page->is_log && page->topic.entity_ref == 0)
        return STATUS_REPLAY_ALL_UNAVAILABLE;
    if (page->is_log || read->replay_all)
        read->window = (struct topic_window){1, page->topic.head_seq, LOG_REPLAY_BUDGET_EVENTS};
    else
        read->window = enforced_window(&page->topic, read->policy);
    return STATUS_OK;
}

static bool has_budget(const struct journal_page *page) {
    const struct journal_read *read = page->read;
    return read->exists && read->principal && !page->is_log && !read->replay_all;
}

static struct replay_reader reader_of(const struct journal_page *page) {
    const struct journal_read *read = page->read;
    return (struct replay_reader){.policy = read->policy,
                                  .principal = read->principal,
                                  .view = read->view,
                                  .now_ms = clock_now().wall_ms,
                                  .rows_max = REPLAY_COUNT_ROWS_MAX,
                                  .owner_map = page->owner_map};
}

static enum status judge_budget(struct journal_page *page) {
    struct journal_read *read = page->read;
    const struct replay_reader reader = reader_of(page);
    return has_budget(page) ? replay_budget_judge(page->session, &page->topic, &reader,
                                                  &read->continuity, &read->progress)
                            : STATUS_OK;
}

static enum status begin_bootstrap(struct journal_page *page) {
    struct journal_read *read = page->read;
    const struct replay_reader reader = reader_of(page);
    enum status status = STATUS_OK;
    read->bootstrap = continuity_bootstrap(read->exists ? &read->window : NULL);
    if (has_budget(page))
        status = replay_budget_bootstrap(page->session, &page->topic, &reader, &read->bootstrap,
                                         &read->progress);
    read->next_seq = read->bootstrap.from_seq;
    return status;
}

static enum status find_epoch(struct journal_page *page) {
    struct journal_read *read = page->read;
    if (read->mode == JOURNAL_READ_CONTINUE && !read->is_unfounded)
        return STATUS_OK;
    enum status status = read_state(page, &page->state);
    read->epoch = topic_epoch_of(&page->state, read->exists && !page->is_log ? &page->topic : NULL);
    read->has_fork = page->state.has_fork;
    return status;
}

/* A position that was found here, by a time or by an event, is of this history. */
static enum status find_fork(const struct journal_page *page, const struct position *position,
                             struct topic_fork *fork) {
    const struct journal_read *read = page->read;
    *fork = (struct topic_fork){.is_set = false};
    if (read->mode != JOURNAL_READ_RESUME)
        return STATUS_OK;
    if (page->is_log) {
        *fork = (struct topic_fork){page->state.has_fork, page->state.fork_log_id};
        return STATUS_OK;
    }
    return topic_fork_find(page->session, &page->state, read->exists ? &page->topic : NULL,
                           position, fork);
}

/* The last event before a time. An event may have been committed since the head was read. */
static enum status find_time_in_log(struct journal_page *page, uint64_t *after_seq) {
    const struct uuid first = uuid7_first(page->read->since_ms);
    const struct event_cursor cursor = event_cursor_of(&first);
    enum status status = store_find_cursor(page->session, &cursor, after_seq);
    if (status == STATUS_OK && *after_seq > page->topic.head_seq)
        *after_seq = page->topic.head_seq;
    return status;
}

static enum status find_event_cursor(struct journal_page *page, uint64_t *after_seq,
                                     struct lineage *lineage) {
    const struct journal_read *read = page->read;
    struct store_state state;
    bool is_lost = false;
    enum status status = store_read_state(page->session, &state);
    if (status == STATUS_OK)
        status = log_position_find(page->session, &state.id_mark, &read->event_cursor, after_seq,
                                   &is_lost);
    lineage->is_ahead = event_cursor_is_ahead(&read->event_cursor, &read->head_cursor);
    lineage->epoch_differs = is_lost && !lineage->is_ahead;
    return status;
}

/* The sequence of the position that was asked for. lineage: whether it is of another history. */
static enum status find_asked(struct journal_page *page, uint64_t *after_seq,
                              struct lineage *lineage) {
    const struct journal_read *read = page->read;
    *after_seq = read->after_seq;
    lineage->is_ahead = read->is_unfounded && read->exists;
    if (read->mode == JOURNAL_READ_RESUME_CURSOR)
        return find_event_cursor(page, after_seq, lineage);
    if (read->mode != JOURNAL_READ_RESUME_TIME || !read->exists)
        return STATUS_OK;
    return page->is_log ? find_time_in_log(page, after_seq)
                        : topic_since_find(page->session, &page->topic, read->since_ms, after_seq);
}

/* Finds the start of the page; a cursor that cannot continue makes the read stale. */
static enum status find_place(struct journal_page *page) {
    struct journal_read *read = page->read;
    const struct topic_window *window = read->exists ? &read->window : NULL;
    uint64_t after_seq;
    struct lineage found = {0};
    enum status status = find_asked(page, &after_seq, &found);
    if (status != STATUS_OK)
        return status;
    read->next_seq = after_seq + 1;
    if (read->mode == JOURNAL_READ_BOOTSTRAP) {
        status = begin_bootstrap(page);
    } else if (read->mode != JOURNAL_READ_CONTINUE) {
        const struct position position = {after_seq, read->given_epoch};
        struct topic_fork fork;
        status = find_fork(page, &position, &fork);
        if (status != STATUS_OK)
            return status;
        struct lineage lineage = lineage_of(window, &position, &read->epoch, &fork);
        lineage.is_ahead |= found.is_ahead;
        lineage.epoch_differs |= found.epoch_differs;
        lineage.is_damaged = window && after_seq < page->topic.damaged_seq;
        read->continuity = continuity_judge(window, after_seq, lineage);
        status = judge_budget(page);
        read->is_stale = read->continuity.decision == CONTINUITY_REBOOTSTRAP;
    }
    return status;
}

/* A client that has nothing yet may ask for everything: where that is not possible, it gets a
 * bootstrap. */
static enum status bootstrap_from_0(struct journal_page *page) {
    struct journal_read *read = page->read;
    if (read->mode != JOURNAL_READ_RESUME || read->after_seq > 0 || !read->is_stale ||
        read->progress.has_more)
        return STATUS_OK;
    read->mode = JOURNAL_READ_BOOTSTRAP;
    read->is_stale = false;
    return begin_bootstrap(page);
}

static void release_frames(struct journal_read *read) {
    while (read->taken < read->count)
        frame_unref(read->frames[read->taken++]);
    read->taken = read->count = 0;
    read->is_sparse = false;
}

/* The floor is above the position: by retention, by damage, or because the journal was made again.
 */
static enum status fall_behind(struct journal_page *page) {
    struct journal_read *read = page->read;
    struct store_state state = {0};
    uint64_t after_seq = read->next_seq - 1;
    struct lineage lineage = {.is_damaged = after_seq < page->topic.damaged_seq};
    enum status status = store_read_state(page->session, &state);
    const struct topic_epoch epoch = topic_epoch_of(&state, page->is_log ? NULL : &page->topic);
    if (read->mode == JOURNAL_READ_CONTINUE && topic_epoch_is_known(&read->given_epoch))
        lineage.epoch_differs = !topic_epoch_continues(&read->given_epoch, &epoch);
    read->is_stale = true;
    read->epoch = epoch;
    read->continuity = continuity_judge(&read->window, after_seq, lineage);
    release_frames(read);
    return status;
}

/* A topic that is served from the log cannot be mended. */
static bool is_journal(const struct journal_page *page) {
    return !page->is_log && page->read->exists && page->topic.entity_ref == 0;
}

static enum status read_page(struct journal_page *page) {
    struct journal_read *read = page->read;
    enum status walked = STATUS_OK;
    bool wants_rows = read->next_seq <= page->topic.head_seq && read->next_seq < read->below_seq;
    page->expected_seq = read->next_seq;
    if (wants_rows)
        walked = walk(page);
    if (walked != STATUS_OK && !(walked == STATUS_INTERNAL_ERROR && is_journal(page)))
        return walked;
    enum status status = load(page);
    if (status != STATUS_OK)
        return status;
    /* The log has every event. A bootstrap that is under way goes on, although the start of a new
     * one rises with each event. */
    bool may_fall_behind = !topic_begins_in_log(page->topic.name);
    if (may_fall_behind && read->window.oldest_seq > read->next_seq)
        return fall_behind(page);
    bool is_whole = walked == STATUS_OK && !page->has_hole &&
                    (!wants_rows || page->expected_seq > read->next_seq);
    read->through_seq = page->expected_seq - 1;
    if (is_whole)
        return STATUS_OK;
    read->is_damaged = is_journal(page);
    read->damaged_seq = page->expected_seq;
    return STATUS_INTERNAL_ERROR;
}

static enum status run_once(struct journal_read *read, struct store_session *session) {
    struct journal_page page = {
        .read = read, .session = session, .is_log = topic_is_log(read->topic)};
    read->is_stale = read->is_damaged = read->is_sparse = read->progress.has_more = false;
    arena_init(&page.arena, JOURNAL_READ_ARENA_BYTES_MAX);
    owners_init(&page.owners, session);
    enum status status = load(&page);
    if (status == STATUS_NOT_FOUND)
        status = STATUS_OK;
    if (status == STATUS_OK)
        status = find_epoch(&page);
    if (status == STATUS_OK)
        status = find_place(&page);
    if (status == STATUS_OK)
        status = bootstrap_from_0(&page);
    if (status == STATUS_OK && read->exists && !read->is_stale && !read->progress.has_more &&
        read->frames_max > 0)
        status = read_page(&page);
    arena_release(&page.arena);
    owners_release(&page.owners);
    frame_room_release(&page.room);
    return status;
}

/* Repairs damage before reporting it. A repair puts the next rows right, or raises the floor; each
 * may show more damage behind it. Damage is never an error of the server. */
static enum status run_mended(struct journal_read *read, struct store_session *session) {
    enum status status = run_once(read, session);
    for (int i = 0; i < MENDS_MAX && read->is_damaged && read->writer; i++) {
        const struct store_damage damage = {.kind = DOCUMENT_NONE,
                                            .topic = read->found.data ? read->found : read->topic,
                                            .seq = read->damaged_seq};
        release_frames(read);
        enum status mended = mend(read->writer, &damage);
        /* Another read may have had it repaired. */
        if (mended != STATUS_OK && mended != STATUS_NOT_FOUND)
            return mended;
        status = run_once(read, session);
        if (mended == STATUS_NOT_FOUND && read->is_damaged && read->damaged_seq == damage.seq)
            break;
    }
    return read->is_damaged && read->writer ? STATUS_STORE_UNAVAILABLE : status;
}

static void free_room(struct journal_read *read) {
    free(read->frames);
    read->frames = NULL;
}

/* Reads of the position alone, which every new subscriber has, need no room. */
static bool make_room(struct journal_read *read) {
    if (!read->frames && read->frames_max > 0)
        read->frames = malloc(read->frames_max * sizeof(struct frame *));
    return read->frames || read->frames_max == 0;
}

/* Here and not on the loop, so that the reads that wait for this thread find the frames. */
static void keep_frames(struct journal_read *read) {
    const struct replay_page page = {read->frames, read->count};
    if (read->mode != JOURNAL_READ_CONTINUE || !read->watch || read->count == 0 || read->is_sparse)
        return;
    hub_learn_head(read->watch, read->window.head_seq);
    read->is_kept = hub_refill(read->watch, &page, read->edition, read->place);
}

bool journal_read_run(struct journal_read *read, struct store_session *session) {
    assert(read->frames_max <= JOURNAL_READ_FRAMES_MAX);
    /* Frames are compared with the floor that is read after them. */
    assert(!read->rows || read->frames_max == 0);
    assert(read->mode != JOURNAL_READ_RESUME_CURSOR || topic_is_log(read->topic));
    uint64_t begun_ns = clock_now().mono_ns;
    unsigned attempt = 0;
    /* Subscribers that replay together ask for the same frames before any of them has been read. */
    read->is_in_memory = read->mode == JOURNAL_READ_CONTINUE && read->watch &&
                         hub_holds(read->watch, read->after_seq + 1);
    if (read->is_in_memory)
        return false;
    if (!make_room(read)) {
        read->status = STATUS_OUT_OF_MEMORY;
        return false;
    }
    do
        read->status = run_mended(read, session);
    while (read->status == STATUS_OK && read->is_stale && read->mode == JOURNAL_READ_BOOTSTRAP &&
           ++attempt < JOURNAL_BOOTSTRAPS_MAX);
    if (read->status == STATUS_OK && read->progress.has_more)
        return true;
    if (read->status == STATUS_OK && read->is_stale && read->mode == JOURNAL_READ_BOOTSTRAP)
        read->status = STATUS_STORE_UNAVAILABLE;
    if (read->status != STATUS_OK)
        release_frames(read);
    if (read->count == 0)
        free_room(read);
    keep_frames(read);
    metrics_observe(METRIC_SYNC_REPLAY_READ_DURATION_SECONDS, METRIC_PLAIN,
                    clock_now().mono_ns - begun_ns, 1);
    metrics_add(METRIC_SYNC_REPLAY_FRAMES, METRIC_LABELS(read->policy->topic_class), read->count);
    return false;
}

void journal_read_release(struct journal_read *read) {
    release_frames(read);
    free_room(read);
    principal_unref(read->principal);
    read->principal = NULL;
}
