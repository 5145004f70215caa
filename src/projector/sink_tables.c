#include "base/map.h"
#include "projector/sink.h"
#include "topic/stream_id.h"
#include "topic/topic_name.h"

/* A copy of the batch that grows, so that a failure leaves the batch of the commit unchanged. */
struct tables {
    const struct sink_commit *commit;
    struct store_batch batch;
    struct store_document *documents;
    struct store_checkpoint *checkpoints;
    struct store_journal_row *journal;
    struct store_drift *drifts;
    struct store_topic *topics;
    struct map topics_by_name; /* topics with journal rows */
    uint64_t last_topic_ref;
};

/* Copies an array and adds room for more rows. */
static void *grown(struct arena *arena, const void *rows, size_t count, size_t more, size_t size) {
    void *copy = arena_alloc(arena, (count + more) * size);
    if (copy && count > 0)
        memcpy(copy, rows, count * size);
    return copy;
}

/* Adds the next frame of a topic. Counters are loaded in each commit, because pruning may have
 * moved the floor of the topic. */
static enum status add_frame(struct tables *tables, struct slice name,
                             const struct store_journal_row *frame) {
    struct arena *arena = tables->commit->arena;
    struct store_topic *topic = map_find(&tables->topics_by_name, name);
    if (!topic) {
        topic = &tables->topics[tables->batch.topic_count];
        enum status status = store_load_topic(tables->commit->session, name, arena, topic);
        if (status == STATUS_NOT_FOUND) {
            /* A store has its built-in topics from the start. A new one would use their seqs again.
             */
            if (topic_row(topic_kind_of(name, NULL))->ownership == TOPIC_SHARED)
                return STATUS_INTERNAL_ERROR;
            *topic = (struct store_topic){
                .ref = ++tables->last_topic_ref, .name = arena_copy(arena, name), .oldest_seq = 1};
            status = topic->name.data ? topic_stream(arena, name, &topic->stream_id)
                                      : STATUS_OUT_OF_MEMORY;
        }
        /* No seq can follow a head that was changed by hand. */
        if (status == STATUS_OK && topic->head_seq >= STORE_SEQ_MAX)
            status = STATUS_INTERNAL_ERROR;
        if (status == STATUS_OK)
            status = map_insert(&tables->topics_by_name, topic->name, topic);
        if (status != STATUS_OK)
            return status;
        tables->batch.topic_count++;
    }
    struct store_journal_row *row = &tables->journal[tables->batch.journal_count++];
    *row = *frame;
    row->topic_ref = topic->ref;
    row->seq = ++topic->head_seq;
    row->published_at_ms = tables->commit->now_ms;
    return STATUS_OK;
}

/* Adds a frame to the topic of one owner's documents, if the kind has such a topic and the document
 * such an owner. */
static enum status add_owner_frame(struct tables *tables, enum topic_kind kind, struct slice id,
                                   const struct store_journal_row *frame) {
    struct slice name;
    if (kind == TOPIC_NONE || !id.data)
        return STATUS_OK;
    enum status status = topic_name_make(tables->commit->arena, kind, id, &name);
    return status == STATUS_OK ? add_frame(tables, name, frame) : status;
}

static enum status add_update(struct tables *tables, const struct sink_update *update) {
    struct store_batch *batch = &tables->batch;
    const struct document_row *row = document_row(update->document.kind);
    tables->checkpoints[batch->checkpoint_count++] = update->checkpoint;
    if (update->is_checkpoint_only)
        return STATUS_OK;
    tables->documents[batch->document_count++] = update->document;
    struct store_journal_row frame = {
        .log_id = update->log_id,
        .entity_ref = update->document.entity_ref,
        .first_seq = update->first_seq,
        .document_version = update->document.version,
        .payload = update->document.payload,
        .fields_before = update->fields_before,
        .cut = update->document.cut,
    };
    memcpy(frame.payload_hash, update->document.payload_hash, SHA256_BYTES);
    enum status status = add_frame(tables, topic_name(row->topic), &frame);
    if (status != STATUS_OK)
        return status;
    return update->owner.user_id.data
               ? add_owner_frame(tables, row->user_topic, update->owner.user_id, &frame)
               : add_owner_frame(tables, row->guest_topic, update->owner.guest_scope, &frame);
}

static enum status tables_write(void *user, const struct sink_commit *commit) {
    const struct store_batch *before = commit->batch;
    struct tables tables = {.commit = commit, .batch = *before};
    struct store_batch *batch = &tables.batch;
    struct arena *arena = commit->arena;
    size_t updates = commit->update_count;
    enum status status = STATUS_OK;
    (void)user;
    tables.last_topic_ref = *commit->last_topic_ref;
    tables.documents = grown(arena, before->documents, before->document_count, updates,
                             sizeof(struct store_document));
    tables.checkpoints = grown(arena, before->checkpoints, before->checkpoint_count, updates,
                               sizeof(struct store_checkpoint));
    tables.journal =
        grown(arena, before->journal, before->journal_count,
              2 * updates + commit->shared_event_count, sizeof(struct store_journal_row));
    tables.drifts = grown(arena, before->drifts, before->drift_count, commit->drift_count,
                          sizeof(struct store_drift));
    tables.topics = grown(arena, before->topics, before->topic_count, TOPIC_KIND_COUNT + updates,
                          sizeof(struct store_topic));
    map_init(&tables.topics_by_name, MAP_COUNT_MAX);
    if (!tables.documents || !tables.checkpoints || !tables.journal || !tables.drifts ||
        !tables.topics)
        status = STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; i < before->topic_count && status == STATUS_OK; i++) {
        struct store_topic *topic = &tables.topics[i];
        if (topic->entity_ref == 0)
            status = map_insert(&tables.topics_by_name, topic->name, topic);
    }
    for (size_t i = 0; i < commit->update_count && status == STATUS_OK; i++)
        status = add_update(&tables, &commit->updates[i]);
    for (size_t i = 0; i < commit->shared_event_count && status == STATUS_OK; i++) {
        const struct sink_shared_event *event = &commit->shared_events[i];
        struct store_journal_row frame = {.log_id = event->log_id, .entity_ref = event->entity_ref};
        memcpy(frame.payload_hash, event->payload_hash, SHA256_BYTES);
        status = add_frame(&tables, topic_name(event->topic), &frame);
    }
    if (status == STATUS_OK) {
        for (size_t i = 0; i < commit->drift_count; i++)
            tables.drifts[batch->drift_count++] = commit->drifts[i];
        batch->documents = tables.documents;
        batch->checkpoints = tables.checkpoints;
        batch->journal = tables.journal;
        batch->drifts = tables.drifts;
        batch->topics = tables.topics;
        *commit->batch = *batch;
        *commit->last_topic_ref = tables.last_topic_ref;
    }
    map_release(&tables.topics_by_name);
    return status;
}

const struct sink sink_noop = {.name = "noop"};
const struct sink sink_tables = {.name = "tables", .write = tables_write};
