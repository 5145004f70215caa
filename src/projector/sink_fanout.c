#include <assert.h>
#include <stdlib.h>

#include "base/list.h"
#include "projector/sink.h"

/* A copy of a commit that a sink failed to take. */
struct kept {
    struct list_node node; /* in branch.kept */
    struct arena arena;
    struct sink_commit commit;
    bool is_new;     /* of the current commit: dropped if that is abandoned */
    bool is_written; /* taken by the sink within the current commit */
};

struct branch {
    struct sink sink;
    struct list kept; /* oldest first */
    struct sink_fanout_stats stats;
};

struct sink_fanout {
    struct sink sink;
    struct branch branches[SINK_FANOUT_SINKS_MAX];
    size_t branch_count;
};

static void kept_free(struct kept *kept) {
    arena_release(&kept->arena);
    free(kept);
}

/* ---- copying a commit --------------------------------------------------------------------- */

static bool copy_text(struct arena *arena, struct slice *text) {
    if (!text->data)
        return true;
    *text = arena_copy(arena, *text);
    return text->data != NULL;
}

static bool copy_update(struct arena *arena, struct sink_update *update) {
    return copy_text(arena, &update->document.key) && copy_text(arena, &update->document.payload) &&
           copy_text(arena, &update->checkpoint.document_id) &&
           copy_text(arena, &update->checkpoint.projection_version) &&
           copy_text(arena, &update->owner.user_id) &&
           copy_text(arena, &update->owner.guest_scope) && copy_text(arena, &update->owner.org_id);
}

static bool copy_rows(struct arena *arena, const void *rows, size_t size, void *copied) {
    void *copy = arena_alloc(arena, size);
    if (copy && size > 0)
        memcpy(copy, rows, size);
    memcpy(copied, &copy, sizeof(copy));
    return copy != NULL;
}

static bool copy_commit(struct kept *kept, const struct sink_commit *commit) {
    struct arena *arena = &kept->arena;
    struct sink_update *updates;
    struct sink_shared_event *shared_events;
    struct store_drift *drifts;
    if (!copy_rows(arena, commit->updates, commit->update_count * sizeof(*updates), &updates) ||
        !copy_rows(arena, commit->shared_events,
                   commit->shared_event_count * sizeof(*shared_events), &shared_events) ||
        !copy_rows(arena, commit->drifts, commit->drift_count * sizeof(*drifts), &drifts))
        return false;
    for (size_t i = 0; i < commit->update_count; i++)
        if (!copy_update(arena, &updates[i]))
            return false;
    for (size_t i = 0; i < commit->drift_count; i++)
        if (!copy_text(arena, &drifts[i].entity_id))
            return false;
    kept->commit = *commit;
    kept->commit.updates = updates;
    kept->commit.shared_events = shared_events;
    kept->commit.drifts = drifts;
    return true;
}

/* ---- keeping commits and retrying them ---------------------------------------------------- */

/* Drops the oldest commit. Later summaries of the same entities replace its summaries. */
static void branch_make_room(struct branch *branch) {
    if (branch->stats.kept < SINK_FANOUT_KEPT_MAX)
        return;
    struct list_node *oldest = list_pop_front(&branch->kept);
    assert(oldest);
    branch->stats.kept--;
    branch->stats.dropped++;
    kept_free(container_of(oldest, struct kept, node));
}

static void branch_keep(struct branch *branch, const struct sink_commit *commit) {
    struct kept *kept = calloc(1, sizeof(*kept));
    if (!kept) {
        branch->stats.dropped++;
        return;
    }
    arena_init(&kept->arena, SINK_FANOUT_KEPT_BYTES_MAX);
    if (!copy_commit(kept, commit)) {
        branch->stats.dropped++;
        kept_free(kept);
        return;
    }
    branch_make_room(branch);
    kept->is_new = true;
    list_push_back(&branch->kept, &kept->node);
    branch->stats.kept++;
}

/* Writes a kept commit as part of the current one, with its time, batch and refs. */
static enum status branch_retry(struct branch *branch, struct kept *kept,
                                const struct sink_commit *now) {
    struct sink_commit commit = kept->commit;
    commit.now_ms = now->now_ms;
    commit.session = now->session;
    commit.arena = now->arena;
    commit.batch = now->batch;
    commit.last_topic_ref = now->last_topic_ref;
    enum status status = branch->sink.write(branch->sink.user, &commit);
    kept->is_written = status == STATUS_OK;
    return status;
}

static void branch_write(struct branch *branch, const struct sink_commit *commit) {
    enum status status = STATUS_OK;
    if (!branch->sink.write)
        return;
    for (struct list_node *node = list_first(&branch->kept); node && status == STATUS_OK;
         node = list_next(&branch->kept, node))
        status = branch_retry(branch, container_of(node, struct kept, node), commit);
    if (status == STATUS_OK)
        status = branch->sink.write(branch->sink.user, commit);
    if (status == STATUS_OK)
        return;
    branch->stats.failures++;
    branch_keep(branch, commit);
}

static void branch_settle(struct branch *branch, bool committed) {
    if (branch->sink.settle)
        branch->sink.settle(branch->sink.user, committed);
    for (struct list_node *node = list_first(&branch->kept), *next; node; node = next) {
        struct kept *kept = container_of(node, struct kept, node);
        next = list_next(&branch->kept, node);
        if (committed ? kept->is_written : kept->is_new) {
            list_remove(node);
            branch->stats.kept--;
            kept_free(kept);
            continue;
        }
        kept->is_new = false;
        kept->is_written = false;
    }
}

static enum status fanout_write(void *user, const struct sink_commit *commit) {
    struct sink_fanout *fanout = user;
    for (size_t i = 0; i < fanout->branch_count; i++)
        branch_write(&fanout->branches[i], commit);
    return STATUS_OK;
}

static void fanout_settle(void *user, bool committed) {
    struct sink_fanout *fanout = user;
    for (size_t i = 0; i < fanout->branch_count; i++)
        branch_settle(&fanout->branches[i], committed);
}

enum status sink_fanout_open(struct sink_fanout **fanout, const struct sink *sinks,
                             size_t sink_count) {
    if (sink_count > SINK_FANOUT_SINKS_MAX)
        return STATUS_LIMIT_REACHED;
    struct sink_fanout *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->sink = (struct sink){"fanout", made, fanout_write, fanout_settle};
    made->branch_count = sink_count;
    for (size_t i = 0; i < sink_count; i++) {
        made->branches[i].sink = sinks[i];
        list_init(&made->branches[i].kept);
    }
    *fanout = made;
    return STATUS_OK;
}

void sink_fanout_close(struct sink_fanout *fanout) {
    if (!fanout)
        return;
    for (size_t i = 0; i < fanout->branch_count; i++)
        for (struct list_node *node; (node = list_pop_front(&fanout->branches[i].kept));)
            kept_free(container_of(node, struct kept, node));
    free(fanout);
}

const struct sink *sink_fanout_sink(const struct sink_fanout *fanout) {
    return &fanout->sink;
}

struct sink_fanout_stats sink_fanout_stats(const struct sink_fanout *fanout, size_t sink_index) {
    assert(sink_index < fanout->branch_count);
    return fanout->branches[sink_index].stats;
}
