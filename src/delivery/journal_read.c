/* A run loads the topic, finds the position, judges whether it can continue, and then walks rows.
 * The rows are walked before the floor is read: in the other order, pruning between the two could
 * remove the first rows unnoticed. On a shared topic it passes over frames that are known to be of
 * others, and learns the owners of the rest. A missing or altered row has the journal repaired by
 * the writer and the run begins again. A position that takes long to judge is found in several
 * slices. */
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
#include "store/topic_history.h"

/* Repairs on behalf of one read. */
#define REPAIRS_MAX 64
/* Fewer unknown frames in a row are read themselves, which is faster. */
#define LEARN_ROWS_MIN 64
/* No budget, with room for additions. */
#define LOG_REPLAY_BUDGET_EVENTS (UINT64_MAX / 2)

/* One run. */
struct journal_run {
    struct journal_read *read;
    struct store_session *session;
    struct arena arena;
    struct owners owners;
    struct frame_room room;
    struct store_state state; /* if the read has an epoch */
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

static void set_state(struct journal_read *read, enum journal_read_state state) {
    /* Which state may follow which, one row for each state. */
    static const unsigned allowed[JOURNAL_STATE_COUNT] = {
        [JOURNAL_NEW] = 1u << JOURNAL_RUNNING | 1u << JOURNAL_IN_MEMORY | 1u << JOURNAL_FAILED,
        [JOURNAL_RUNNING] = 1u << JOURNAL_PLACING | 1u << JOURNAL_DAMAGED | 1u << JOURNAL_STALE |
                            1u << JOURNAL_DONE | 1u << JOURNAL_FAILED,
        [JOURNAL_PLACING] = 1u << JOURNAL_RUNNING,
        [JOURNAL_DAMAGED] = 1u << JOURNAL_RUNNING | 1u << JOURNAL_FAILED,
        /* As a bootstrap. */
        [JOURNAL_STALE] = 1u << JOURNAL_RUNNING | 1u << JOURNAL_FAILED,
    };
    assert(state < JOURNAL_STATE_COUNT && allowed[read->state] & 1u << state);
    read->state = state;
}

/* ---- rows ---- */

static struct frame_topic topic_of(const struct journal_run *run) {
    return (struct frame_topic){run->topic.name, run->read->asked.projection_version};
}

static struct owner_map_journal journal_of(const struct journal_run *run) {
    return (struct owner_map_journal){run->topic.ref, run->topic.journal_epoch};
}

/* Whether the row is the next one and wanted; otherwise notes why not. */
static bool takes(struct journal_run *run, uint64_t seq) {
    const struct journal_read *read = run->read;
    /* A row beyond the head is newer than the page, or a stray. */
    run->is_full = read->count == read->asked.frames_max || run->bytes >= JOURNAL_READ_BYTES ||
                   seq >= read->asked.below_seq || seq > run->topic.head_seq;
    run->has_hole = !run->is_full && seq != run->expected_seq;
    return !run->has_hole && !run->is_full;
}

/* Takes over the frame that was made with that status. */
static enum status keep(struct journal_run *run, enum status status, struct frame *frame) {
    if (status != STATUS_OK)
        return status;
    if (run->owner_map) {
        const struct owner_map_journal journal = journal_of(run);
        owner_map_note(run->owner_map, &journal, run->expected_seq, &frame->content.owner);
    }
    run->read->frames[run->read->count++] = frame;
    run->bytes += frame->content.payload.size;
    run->expected_seq++;
    return STATUS_OK;
}

static enum status take_event(void *user, const struct store_event *event) {
    struct journal_run *run = user;
    const struct frame_topic topic = topic_of(run);
    const struct owner *owner;
    struct frame *frame = NULL;
    if (!takes(run, event->seq))
        return STATUS_LIMIT_REACHED;
    enum status status = owners_find(&run->owners, event->entity_ref, &owner);
    if (status == STATUS_OK)
        status = frame_of_event(&topic, event, owner, &run->room, &frame);
    return keep(run, status, frame);
}

static enum status take_log(void *user, const struct store_event *event) {
    struct journal_run *run = user;
    const struct owner *owner;
    struct frame *frame = NULL;
    if (!takes(run, event->log_id))
        return STATUS_LIMIT_REACHED;
    enum status status = owners_find(&run->owners, event->entity_ref, &owner);
    if (status == STATUS_OK)
        status = frame_of_log(event, owner, &run->room, &frame);
    return keep(run, status, frame);
}

static enum status take_row(void *user, const struct store_journal_row *row,
                            const struct store_event *event) {
    struct journal_run *run = user;
    const struct frame_topic topic = topic_of(run);
    const struct owner *owner;
    struct frame *frame = NULL;
    if (!takes(run, row->seq))
        return STATUS_LIMIT_REACHED;
    /* Once for all readers: they share the frame. */
    run->has_hole = !store_row_is_whole(row, event);
    if (run->has_hole)
        return STATUS_LIMIT_REACHED;
    enum status status = owners_find(&run->owners, row->entity_ref, &owner);
    if (status == STATUS_OK)
        status = frame_of_row(&topic, row, event, owner, &run->room, &frame);
    return keep(run, status, frame);
}

static enum status walk_all(struct journal_run *run, uint64_t limit) {
    const struct store_topic *topic = &run->topic;
    uint64_t after_seq = run->expected_seq - 1;
    enum status status;
    if (run->is_log)
        status = store_walk_log(run->session, after_seq, limit, run, take_log);
    else if (topic->entity_ref > 0)
        status = store_walk_entity_frames(run->session, topic->entity_ref, after_seq, limit, run,
                                          take_event);
    else
        status = store_walk_journal(run->session, topic->ref, after_seq, limit, run, take_row);
    return status == STATUS_LIMIT_REACHED && (run->is_full || run->has_hole) ? STATUS_OK : status;
}

static enum status learn_row(void *user, uint64_t seq, const struct owner *owner) {
    const struct journal_run *run = user;
    const struct owner_map_journal journal = journal_of(run);
    if (seq > run->learned_seq)
        return STATUS_LIMIT_REACHED;
    owner_map_note(run->owner_map, &journal, seq, owner);
    return STATUS_OK;
}

/* Passes over frames that are known to be of others. A read that has learned enough owners ends its
 * page early, so that other principals have a turn. */
static enum status walk_own(struct journal_run *run) {
    struct journal_read *read = run->read;
    const struct owner_map_journal journal = journal_of(run);
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    const struct owner_map_keys own = {keys, principal_keys(read->asked.principal, keys)};
    uint64_t head_end = run->topic.head_seq + 1;
    uint64_t end_seq = read->asked.below_seq < head_end ? read->asked.below_seq : head_end;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && read->count < read->asked.frames_max && !run->is_full &&
           !run->has_hole && run->expected_seq < end_seq) {
        struct owner_map_run known =
            owner_map_next(run->owner_map, &journal, own, run->expected_seq, end_seq);
        read->is_sparse |= known.seq > run->expected_seq;
        run->expected_seq = known.seq;
        if (known.unknown >= LEARN_ROWS_MIN && known.seq > run->learned_seq) {
            /* Reads the owners of these frames, at a fraction of the cost of the frames. A row that
             * is missing or damaged stays unknown, so the read of frames meets it. */
            uint64_t left = STORE_TASK_ROWS - run->learned_count;
            uint64_t limit = known.count < left ? known.count : left;
            if (limit == 0)
                return STATUS_OK;
            run->learned_seq = known.seq + limit - 1;
            run->learned_count += limit;
            status = store_walk_owners(run->session, run->topic.ref, known.seq - 1, limit, run,
                                       learn_row);
            if (status == STATUS_LIMIT_REACHED || status == STATUS_INTERNAL_ERROR)
                status = STATUS_OK;
            continue;
        }
        size_t room = read->asked.frames_max - read->count;
        uint64_t limit = known.count < room ? known.count : room;
        if (limit > 0)
            status = walk_all(run, limit);
        run->has_hole |= !run->is_full && run->expected_seq < known.seq + limit;
    }
    return status;
}

/* ---- the topic ---- */

void journal_rows_init(struct journal_rows *rows) {
    *rows = (struct journal_rows){0};
    arena_init(&rows->arena, JOURNAL_READ_ARENA_BYTES_MAX);
}

void journal_rows_release(struct journal_rows *rows) {
    arena_release(&rows->arena);
}

/* Shared rows: the topic is read before the state, as in a read by itself. */
static enum status find_address(struct journal_run *run, struct topic_address *address) {
    const struct slice topic = run->read->asked.topic;
    struct journal_rows *rows = run->read->rows;
    if (!rows)
        return topic_address_find(run->session, topic, &run->arena, address);
    enum status status = STATUS_OK;
    if (!rows->topic.data || !slice_equal(rows->topic, topic)) {
        arena_reset(&rows->arena);
        rows->topic = (struct slice){NULL, 0};
        status = topic_address_find(run->session, topic, &rows->arena, &rows->address);
        if (status == STATUS_OK)
            status = store_read_state(run->session, &rows->state);
        if (status == STATUS_OK)
            rows->topic = topic;
    }
    *address = rows->address;
    return status;
}

static enum status load_topic(struct journal_run *run) {
    struct journal_read *read = run->read;
    struct topic_address address;
    struct grant grant;
    enum status status = STATUS_OK;
    /* The owner first: a run of another takes the same reads as one that does not exist. */
    if (grant_view_is_pending(read->view) && read->asked.principal) {
        status = entitlement_load(run->session, read->asked.principal, read->asked.topic,
                                  &run->arena, &grant);
        if (status != STATUS_OK || grant.status != STATUS_OK)
            return status == STATUS_OK ? grant.status : status;
        read->view = grant.view;
        if (grant_view_is_pending(grant.view))
            return STATUS_NOT_FOUND;
    }
    status = find_address(run, &address);
    if (status != STATUS_OK || !address.exists)
        return status == STATUS_OK ? STATUS_NOT_FOUND : status;
    run->topic = address.row;
    enum topic_kind kind = topic_kind_of(run->topic.name, NULL);
    run->owner_map = topic_row(kind)->ownership == TOPIC_SHARED ? read->asked.owner_map : NULL;
    if (slice_equal(run->topic.name, read->asked.topic))
        return STATUS_OK;
    assert(run->topic.name.size <= sizeof(read->found_text));
    memcpy(read->found_text, run->topic.name.data, run->topic.name.size);
    read->found = (struct slice){read->found_text, run->topic.name.size};
    if (read->asked.policies)
        read->asked.policy = policy_of(read->asked.policies, read->found);
    return STATUS_OK;
}

/* The topic and its window. STATUS_NOT_FOUND: it does not exist. */
static enum status load(struct journal_run *run) {
    struct journal_read *read = run->read;
    enum status status;
    arena_reset(&run->arena);
    if (run->is_log) {
        struct store_state state = {0};
        status = store_read_state(run->session, &state);
        run->topic = (struct store_topic){.oldest_seq = 1, .head_seq = state.log_id};
        read->head_cursor = state.cursor;
    } else {
        status = load_topic(run);
    }
    read->exists = status == STATUS_OK;
    if (status != STATUS_OK)
        return status;
    if (read->asked.replay_all && !run->is_log && run->topic.entity_ref == 0)
        return STATUS_REPLAY_ALL_UNAVAILABLE;
    if (run->is_log || read->asked.replay_all)
        read->window = (struct topic_window){1, run->topic.head_seq, LOG_REPLAY_BUDGET_EVENTS};
    else
        read->window = enforced_window(&run->topic, read->asked.policy);
    return STATUS_OK;
}

/* ---- the position ---- */

static bool has_budget(const struct journal_run *run) {
    const struct journal_read *read = run->read;
    return read->exists && read->asked.principal && !run->is_log && !read->asked.replay_all;
}

static struct replay_reader reader_of(const struct journal_run *run) {
    const struct journal_read *read = run->read;
    return (struct replay_reader){.policy = read->asked.policy,
                                  .principal = read->asked.principal,
                                  .view = read->view,
                                  .now_ms = clock_now().wall_ms,
                                  .rows_max = REPLAY_COUNT_ROWS_MAX,
                                  .owner_map = run->owner_map};
}

static enum status begin_bootstrap(struct journal_run *run) {
    struct journal_read *read = run->read;
    const struct replay_reader reader = reader_of(run);
    enum status status = STATUS_OK;
    read->bootstrap = continuity_bootstrap(read->exists ? &read->window : NULL);
    if (has_budget(run))
        status = replay_budget_bootstrap(run->session, &run->topic, &reader, &read->bootstrap,
                                         &read->progress);
    read->next_seq = read->bootstrap.from_seq;
    return status;
}

/* The sequence of the position that was asked for. lineage: whether it is of another history. */
static enum status find_asked(struct journal_run *run, uint64_t *after_seq,
                              struct lineage *lineage) {
    const struct journal_read *read = run->read;
    *after_seq = read->asked.after_seq;
    lineage->is_ahead = read->asked.is_unfounded && read->exists;
    if (read->mode == JOURNAL_READ_RESUME_CURSOR) {
        struct store_state state;
        bool is_lost = false;
        enum status status = store_read_state(run->session, &state);
        if (status == STATUS_OK)
            status = log_position_find(run->session, &state.id_mark, &read->asked.event_cursor,
                                       after_seq, &is_lost);
        lineage->is_ahead = event_cursor_is_ahead(&read->asked.event_cursor, &read->head_cursor);
        lineage->epoch_differs = is_lost && !lineage->is_ahead;
        return status;
    }
    if (read->mode != JOURNAL_READ_RESUME_TIME || !read->exists)
        return STATUS_OK;
    if (!run->is_log)
        return topic_since_find(run->session, &run->topic, read->asked.since_ms, after_seq);
    /* The last event before a time. An event may have been committed since the head was read. */
    const struct uuid first = uuid7_first(read->asked.since_ms);
    const struct event_cursor cursor = event_cursor_of(&first);
    enum status status = store_find_cursor(run->session, &cursor, after_seq);
    if (status == STATUS_OK && *after_seq > run->topic.head_seq)
        *after_seq = run->topic.head_seq;
    return status;
}

/* Finds the start of the page. A cursor that cannot continue makes the read stale. */
static enum status find_place(struct journal_run *run) {
    struct journal_read *read = run->read;
    const struct topic_window *window = read->exists ? &read->window : NULL;
    uint64_t after_seq;
    struct lineage found = {0};
    enum status status = find_asked(run, &after_seq, &found);
    if (status != STATUS_OK)
        return status;
    read->next_seq = after_seq + 1;
    if (read->mode == JOURNAL_READ_BOOTSTRAP)
        return begin_bootstrap(run);
    if (read->mode == JOURNAL_READ_CONTINUE)
        return STATUS_OK;
    const struct position position = {after_seq, read->asked.given_epoch};
    struct topic_fork fork = {.is_set = false};
    /* Whether the position is before the place where the histories of the log part. A position that
     * was found here, by a time or by an event, is of this history. */
    if (read->mode == JOURNAL_READ_RESUME && run->is_log)
        fork = (struct topic_fork){run->state.has_fork, run->state.fork_log_id};
    else if (read->mode == JOURNAL_READ_RESUME)
        status = topic_fork_find(run->session, &run->state, read->exists ? &run->topic : NULL,
                                 &position, &fork);
    if (status != STATUS_OK)
        return status;
    struct lineage lineage = lineage_of(window, &position, &read->epoch, &fork);
    lineage.is_ahead |= found.is_ahead;
    lineage.epoch_differs |= found.epoch_differs;
    lineage.is_damaged = window && after_seq < run->topic.damaged_seq;
    read->continuity = continuity_judge(window, after_seq, lineage);
    if (has_budget(run)) {
        const struct replay_reader reader = reader_of(run);
        status = replay_budget_judge(run->session, &run->topic, &reader, &read->continuity,
                                     &read->progress);
    }
    if (read->continuity.decision != CONTINUITY_REBOOTSTRAP || read->progress.has_more ||
        status != STATUS_OK)
        return status;
    /* A client that has nothing yet may ask for everything: if that is not possible, it gets a
     * bootstrap. */
    if (read->mode == JOURNAL_READ_RESUME && read->asked.after_seq == 0) {
        read->mode = JOURNAL_READ_BOOTSTRAP;
        return begin_bootstrap(run);
    }
    set_state(read, JOURNAL_STALE);
    return STATUS_OK;
}

/* ---- the page ---- */

static void release_frames(struct journal_read *read) {
    while (read->taken < read->count)
        frame_unref(read->frames[read->taken++]);
    read->taken = read->count = 0;
    read->is_sparse = false;
}

/* The floor is above the position: by retention, by damage, or because the journal was rebuilt. */
static enum status fall_behind(struct journal_run *run) {
    struct journal_read *read = run->read;
    struct store_state state = {0};
    uint64_t after_seq = read->next_seq - 1;
    struct lineage lineage = {.is_damaged = after_seq < run->topic.damaged_seq};
    enum status status = store_read_state(run->session, &state);
    const struct topic_epoch epoch = topic_epoch_of(&state, run->is_log ? NULL : &run->topic);
    if (read->mode == JOURNAL_READ_CONTINUE && topic_epoch_is_known(&read->asked.given_epoch))
        lineage.epoch_differs = !topic_epoch_continues(&read->asked.given_epoch, &epoch);
    read->epoch = epoch;
    read->continuity = continuity_judge(&read->window, after_seq, lineage);
    release_frames(read);
    set_state(read, JOURNAL_STALE);
    return status;
}

static enum status read_page(struct journal_run *run) {
    struct journal_read *read = run->read;
    const struct principal *principal = read->asked.principal;
    enum status walked = STATUS_OK;
    bool wants_rows =
        read->next_seq <= run->topic.head_seq && read->next_seq < read->asked.below_seq;
    bool is_filtered = principal && read->view == GRANT_VIEW_OWN && !principal->read_all;
    run->expected_seq = read->next_seq;
    if (wants_rows && run->owner_map && read->asked.may_skip && is_filtered)
        walked = walk_own(run);
    else if (wants_rows)
        walked = walk_all(run, read->asked.frames_max);
    /* A topic that is served from the log cannot be repaired. */
    bool is_journal = !run->is_log && read->exists && run->topic.entity_ref == 0;
    if (walked != STATUS_OK && !(walked == STATUS_INTERNAL_ERROR && is_journal))
        return walked;
    enum status status = load(run);
    if (status != STATUS_OK)
        return status;
    /* The log has every event. A bootstrap that is under way continues, although the start of a new
     * one rises with each event. */
    if (!topic_begins_in_log(run->topic.name) && read->window.oldest_seq > read->next_seq)
        return fall_behind(run);
    read->through_seq = run->expected_seq - 1;
    if (walked == STATUS_OK && !run->has_hole &&
        (!wants_rows || run->expected_seq > read->next_seq))
        return STATUS_OK;
    read->damaged_seq = run->expected_seq;
    if (is_journal)
        set_state(read, JOURNAL_DAMAGED);
    return STATUS_INTERNAL_ERROR;
}

/* ---- running ---- */

/* Leaves the read running if it came to its end. */
static enum status run_once(struct journal_read *read, struct store_session *session) {
    struct journal_run run = {
        .read = read, .session = session, .is_log = topic_is_log(read->asked.topic)};
    const struct journal_rows *rows = read->rows;
    set_state(read, JOURNAL_RUNNING);
    read->is_sparse = read->progress.has_more = false;
    arena_init(&run.arena, JOURNAL_READ_ARENA_BYTES_MAX);
    owners_init(&run.owners, session);
    enum status status = load(&run);
    if (status == STATUS_NOT_FOUND)
        status = STATUS_OK;
    bool needs_epoch = read->mode != JOURNAL_READ_CONTINUE || read->asked.is_unfounded;
    if (status == STATUS_OK && needs_epoch) {
        if (rows && rows->topic.data)
            run.state = rows->state;
        else
            status = store_read_state(session, &run.state);
        read->epoch = topic_epoch_of(&run.state, read->exists && !run.is_log ? &run.topic : NULL);
        read->has_fork = run.state.has_fork;
    }
    if (status == STATUS_OK)
        status = find_place(&run);
    if (status == STATUS_OK && read->progress.has_more)
        set_state(read, JOURNAL_PLACING);
    else if (status == STATUS_OK && read->exists && read->state == JOURNAL_RUNNING &&
             read->asked.frames_max > 0)
        status = read_page(&run);
    arena_release(&run.arena);
    owners_release(&run.owners);
    frame_room_release(&run.room);
    return status;
}

/* Repairs damage before reporting it. A repair puts the next rows right, or raises the floor; each
 * may show more damage behind it. Damage is never an error of the server. */
static enum status run_repaired(struct journal_read *read, struct store_session *session) {
    struct writer *writer = read->asked.writer;
    enum status status = run_once(read, session);
    for (int i = 0; i < REPAIRS_MAX && read->state == JOURNAL_DAMAGED && writer; i++) {
        const struct store_damage damage = {.kind = DOCUMENT_NONE,
                                            .topic =
                                                read->found.data ? read->found : read->asked.topic,
                                            .seq = read->damaged_seq};
        release_frames(read);
        enum status repaired = repair(writer, &damage);
        /* Another read may have had it repaired. */
        if (repaired != STATUS_OK && repaired != STATUS_NOT_FOUND)
            return repaired;
        status = run_once(read, session);
        if (repaired == STATUS_NOT_FOUND && read->state == JOURNAL_DAMAGED &&
            read->damaged_seq == damage.seq)
            break;
    }
    return read->state == JOURNAL_DAMAGED && writer ? STATUS_STORE_UNAVAILABLE : status;
}

static void free_room(struct journal_read *read) {
    free(read->frames);
    read->frames = NULL;
}

bool journal_read_run(struct journal_read *read, struct store_session *session) {
    const struct journal_request *asked = &read->asked;
    assert(asked->frames_max <= JOURNAL_READ_FRAMES_MAX);
    /* Frames are compared with the floor that is read after them. */
    assert(!read->rows || asked->frames_max == 0);
    assert(asked->mode != JOURNAL_READ_RESUME_CURSOR || topic_is_log(asked->topic));
    uint64_t begun_ns = clock_now().mono_ns;
    if (read->state == JOURNAL_NEW) {
        read->mode = asked->mode;
        read->view = asked->view;
        read->status = STATUS_OK;
        /* Subscribers that replay together ask for the same frames before any of them has been
         * read. */
        if (read->mode == JOURNAL_READ_CONTINUE && asked->watch &&
            (hub_holds(asked->watch, asked->after_seq + 1) ||
             (asked->folds && hub_holds_folded(asked->watch, asked->after_seq + 1)))) {
            set_state(read, JOURNAL_IN_MEMORY);
            return false;
        }
        /* Reads of the position alone, which every new subscriber has, need no room. */
        if (asked->frames_max > 0)
            read->frames = malloc(asked->frames_max * sizeof(struct frame *));
        if (asked->frames_max > 0 && !read->frames) {
            read->status = STATUS_OUT_OF_MEMORY;
            set_state(read, JOURNAL_FAILED);
            return false;
        }
    }
    unsigned attempt = 0;
    do
        read->status = run_repaired(read, session);
    while (read->status == STATUS_OK && read->state == JOURNAL_STALE &&
           read->mode == JOURNAL_READ_BOOTSTRAP && ++attempt < JOURNAL_BOOTSTRAPS_MAX);
    if (read->status == STATUS_OK && read->state == JOURNAL_PLACING)
        return true;
    if (read->status == STATUS_OK && read->state == JOURNAL_STALE &&
        read->mode == JOURNAL_READ_BOOTSTRAP)
        read->status = STATUS_STORE_UNAVAILABLE;
    if (read->status != STATUS_OK) {
        release_frames(read);
        set_state(read, JOURNAL_FAILED);
    } else if (read->state == JOURNAL_RUNNING) {
        set_state(read, JOURNAL_DONE);
    }
    if (read->count == 0)
        free_room(read);
    /* Here and not on the loop, so that the reads that wait for this thread find the frames. */
    if (read->mode == JOURNAL_READ_CONTINUE && asked->watch && read->count > 0 &&
        !read->is_sparse) {
        const struct replay_page page = {read->frames, read->count};
        hub_learn_head(asked->watch, read->window.head_seq);
        read->is_kept = hub_refill(asked->watch, &page, asked->edition, asked->place);
    }
    metrics_observe(METRIC_SYNC_REPLAY_READ_DURATION_SECONDS, METRIC_PLAIN,
                    clock_now().mono_ns - begun_ns, 1);
    metrics_add(METRIC_SYNC_REPLAY_FRAMES, METRIC_LABELS(asked->policy->topic_class), read->count);
    return false;
}

void journal_read_release(struct journal_read *read) {
    release_frames(read);
    free_room(read);
    principal_unref(read->asked.principal);
    read->asked.principal = NULL;
}
