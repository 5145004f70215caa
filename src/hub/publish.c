/* Publishes a commit: events go to the topic of their entity and to the log, journal rows to their
 * topics. */
#include "hub/publish.h"

#include <assert.h>

#include "base/clock.h"
#include "hub/frame_row.h"
#include "hub/hub_topic.h"

/* states[i] is the entity of events[i]. */
struct commit {
    const struct store_batch *batch;
    const struct store_entity *states;
    uint64_t now_ns; /* when the commit was durable */
};

/* Consecutive events of one entity are added under one lock. */
static size_t publish_entity(struct hub *hub, const struct commit *commit, size_t begin) {
    const struct store_batch *batch = commit->batch;
    const struct store_event *first = &batch->events[begin];
    size_t end = begin;
    struct slice name;
    while (end < batch->event_count && batch->events[end].entity_ref == first->entity_ref)
        end++;
    struct arena *arena = hub_names(hub);
    arena_reset(arena);
    enum status status = topic_name_of_entity(arena, first->entity_kind, first->entity_id, &name);
    /* hub_open reserved the memory, so that no event is lost for lack of it. */
    assert(status == STATUS_OK);
    (void)status;
    struct hub_topic *topic = hub_topic_lock(hub, name);
    if (!topic)
        return end;
    const struct frame_topic of = {name, hub_projection_version(hub)};
    for (size_t i = begin; i < end; i++) {
        struct frame *frame = NULL;
        if (frame_of_event(&of, &batch->events[i], &commit->states[i].owner, NULL, &frame) ==
            STATUS_OK)
            frame->committed_ns = commit->now_ns;
        else
            frame = NULL;
        hub_topic_add(hub, topic, batch->events[i].seq, frame);
    }
    hub_topic_unlock(hub, topic);
    return end;
}

static struct frame *row_frame(const struct commit *commit, const struct frame_topic *topic,
                               const struct store_journal_row *row) {
    const struct store_batch *batch = commit->batch;
    struct frame *frame = NULL;
    uint64_t first_log_id = batch->event_count > 0 ? batch->events[0].log_id : UINT64_MAX;
    /* The event is of an earlier commit: the frame is read from the store. */
    if (row->log_id < first_log_id || row->log_id - first_log_id >= batch->event_count)
        return NULL;
    size_t index = (size_t)(row->log_id - first_log_id);
    if (frame_of_row(topic, row, &batch->events[index], &commit->states[index].owner, NULL,
                     &frame) != STATUS_OK)
        return NULL;
    frame->committed_ns = commit->now_ns;
    return frame;
}

/* Rows of a topic are in order and end with its new head. Each topic takes one walk over the rows,
 * which needs no memory. */
static void publish_rows(struct hub *hub, const struct commit *commit,
                         const struct store_topic *advanced) {
    const struct store_batch *batch = commit->batch;
    struct hub_topic *topic = hub_topic_lock(hub, advanced->name);
    const struct frame_topic of = {advanced->name, hub_projection_version(hub)};
    bool is_last = false;
    if (!topic)
        return;
    for (size_t i = 0; !is_last && i < batch->journal_count; i++) {
        const struct store_journal_row *row = &batch->journal[i];
        if (row->topic_ref != advanced->ref)
            continue;
        hub_topic_add(hub, topic, row->seq, row_frame(commit, &of, row));
        is_last = row->seq == advanced->head_seq;
    }
    /* A journal that was made again, or that another node wrote: its frames are in the store. */
    if (!is_last) {
        hub_topic_see_epoch(topic, advanced->journal_epoch);
        hub_topic_add(hub, topic, advanced->head_seq, NULL);
    }
    hub_topic_unlock(hub, topic);
}

static void publish_log(struct hub *hub, const struct commit *commit) {
    const struct store_batch *batch = commit->batch;
    struct hub_topic *topic = batch->event_count > 0 ? hub_topic_lock(hub, SLICE(LOG_TOPIC)) : NULL;
    if (!topic)
        return;
    for (size_t i = 0; i < batch->event_count; i++) {
        struct frame *frame = NULL;
        if (frame_of_log(&batch->events[i], &commit->states[i].owner, NULL, &frame) == STATUS_OK)
            frame->committed_ns = commit->now_ns;
        else
            frame = NULL;
        hub_topic_add(hub, topic, batch->events[i].log_id, frame);
    }
    hub_topic_unlock(hub, topic);
}

void hub_publish(struct hub *hub, const struct store_batch *batch,
                 const struct store_entity *states) {
    if (hub_is_empty(hub))
        return;
    const struct commit commit = {batch, states, clock_now().mono_ns};
    for (size_t i = 0; i < batch->event_count;)
        i = publish_entity(hub, &commit, i);
    for (size_t i = 0; i < batch->topic_count; i++)
        if (batch->topics[i].entity_ref == 0)
            publish_rows(hub, &commit, &batch->topics[i]);
    publish_log(hub, &commit);
    hub_wake_listeners(hub);
}

void hub_advance(struct hub *hub, struct slice name, uint64_t head_seq) {
    if (hub_is_empty(hub))
        return;
    struct hub_topic *topic = hub_topic_lock(hub, name.data ? name : SLICE(LOG_TOPIC));
    if (!topic)
        return;
    hub_topic_add(hub, topic, head_seq, NULL);
    hub_topic_unlock(hub, topic);
    hub_wake_listeners(hub);
}
