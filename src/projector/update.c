#include "projector/update.h"

#include <assert.h>

#include "base/limits.h"
#include "topic/where.h"

void update_scratch_init(struct update_scratch *scratch) {
    buffer_init(&scratch->document, SUMMARY_BYTES_MAX);
    buffer_init(&scratch->text, SUMMARY_BYTES_MAX);
}

void update_scratch_release(struct update_scratch *scratch) {
    buffer_release(&scratch->document);
    buffer_release(&scratch->text);
}

enum status update_cut(struct slice payload, struct slice metadata,
                       const struct update_metadata *stored, struct arena *arena,
                       const struct store_cut **cut) {
    *cut = NULL;
    if (metadata.size < STORE_METADATA_CUT_BYTES)
        return STATUS_OK;
    size_t at = (size_t)(metadata.data - payload.data);
    size_t end = at + metadata.size;
    assert(metadata.data > payload.data && end <= payload.size);
    struct store_cut *made = arena_alloc(arena, sizeof(*made));
    char *text = arena_alloc(arena, payload.size - metadata.size);
    if (!made || !text)
        return STATUS_OUT_OF_MEMORY;
    memcpy(text, payload.data, at);
    memcpy(text + at, payload.data + end, payload.size - end);
    /* Continuation bytes of UTF-8 are no characters. */
    uint64_t characters = 0;
    for (size_t i = 0; i < at; i++)
        characters += ((unsigned char)payload.data[i] & 0xc0) != 0x80;
    bool is_stored = stored && stored->text.data && slice_equal(stored->text, metadata);
    *made = (struct store_cut){
        .text = {text, payload.size - metadata.size},
        .metadata_at = characters,
        .metadata = metadata,
        .is_new = !is_stored,
    };
    /* The metadata is most of such a document, so it is not hashed again. */
    if (is_stored)
        memcpy(made->metadata_hash, stored->hash, SHA256_BYTES);
    else
        sha256(metadata.data, metadata.size, made->metadata_hash);
    *cut = made;
    return STATUS_OK;
}

/* The record of topic/where.h, which says how the fields were before this summary. */
static enum status record_fields(const struct update_source *source, struct buffer *text,
                                 struct arena *arena, struct slice *record) {
    enum where_before before = source->is_first_frame ? WHERE_FIRST : WHERE_UNKNOWN;
    buffer_clear(text);
    enum status status =
        summary_write_fields(fold_layout(source->kind), &source->summary->common, text);
    if (source->fields_were.data)
        before = slice_equal(source->fields_were, buffer_slice(text)) ? WHERE_SAME : WHERE_CHANGED;
    buffer_clear(text);
    if (status == STATUS_OK)
        status = where_record_write(text, before, source->fields_were);
    *record = (struct slice){NULL, 0};
    if (status != STATUS_OK || text->size == 0)
        return status;
    *record = arena_copy(arena, buffer_slice(text));
    return record->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

enum status update_build(const struct update_source *source, struct update_scratch *scratch,
                         struct arena *arena, struct sink_update *update) {
    const struct summary *summary = &source->summary->common;
    const struct summary_stamp stamp = {source->projection_version, source->now_ms};
    struct store_document *document = &update->document;
    struct store_checkpoint *checkpoint = &update->checkpoint;
    *update = (struct sink_update){.log_id = source->log_id, .owner = source->owner};
    if (source->first_seq < summary->latest_seq)
        update->first_seq = source->first_seq;
    buffer_clear(&scratch->text);
    buffer_clear(&scratch->document);
    enum status status = summary_document_key(source->kind, summary->entity_id, &scratch->text);
    if (status == STATUS_OK)
        status = summary_write(fold_layout(source->kind), summary, &stamp, &scratch->document,
                               &scratch->marks);
    if (status != STATUS_OK)
        return status;
    document->kind = source->kind;
    document->entity_ref = source->entity_ref;
    document->version = source->version;
    document->key = arena_copy(arena, buffer_slice(&scratch->text));
    document->payload = arena_copy(arena, buffer_slice(&scratch->document));
    if (!document->key.data || !document->payload.data)
        return STATUS_OUT_OF_MEMORY;
    summary_hash_marked(document->payload, &scratch->marks, document->payload_hash,
                        checkpoint->summary_hash);
    checkpoint->kind = source->kind;
    checkpoint->entity_ref = source->entity_ref;
    checkpoint->document_id = document->key;
    checkpoint->last_runtime_seq = summary->latest_seq;
    checkpoint->projection_version = source->projection_version;
    checkpoint->last_projected_at_ms = source->now_ms;
    /* Texts of the document, which live as long as the update; those of the summary may not. */
    const struct summary_layout *layout = fold_layout(source->kind);
    struct slice members[4];
    const struct slice names[] = {SLICE("status"), SLICE("parent_run_id"), SLICE("title"),
                                  SLICE("tags")};
    for (size_t i = 0; i < 4; i++)
        members[i] = summary_value(layout, &scratch->marks, document->payload, names[i]);
    if (members[0].data) /* without its quotes */
        members[0] = (struct slice){members[0].data + 1, members[0].size - 2};
    document->listed = (struct store_listed){.state = members[0],
                                             .updated_at_ms = summary->latest_event_at_ms,
                                             .parent_run_id = members[1],
                                             .title = members[2],
                                             .tags = members[3]};
    status = store_list_owner(arena, &source->owner, &document->listed.owner);
    if (status != STATUS_OK)
        return status;
    struct slice metadata = {NULL, 0};
    if (scratch->marks.metadata > 0)
        metadata = (struct slice){document->payload.data + scratch->marks.metadata,
                                  summary_metadata(fold_layout(source->kind), summary).size};
    status =
        update_cut(document->payload, metadata, source->stored_metadata, arena, &document->cut);
    if (status != STATUS_OK)
        return status;
    return record_fields(source, &scratch->text, arena, &update->fields_before);
}

static struct checkpoint_decision plain(enum checkpoint_action action) {
    return (struct checkpoint_decision){.action = action};
}

static struct checkpoint_decision drifted(enum checkpoint_action action, enum reason drift) {
    return (struct checkpoint_decision){.action = action, .has_drift = true, .drift = drift};
}

struct checkpoint_decision checkpoint_decide(const struct store_checkpoint *checkpoint,
                                             const struct checkpoint_incoming *incoming) {
    assert(incoming->first_seq >= 1 && incoming->first_seq <= incoming->last_seq);
    uint64_t seen = checkpoint ? checkpoint->last_runtime_seq : 0;
    bool same_version =
        !checkpoint || slice_equal(checkpoint->projection_version, incoming->projection_version);
    if (seen > incoming->last_seq)
        return drifted(CHECKPOINT_REPAIR, REASON_CHECKPOINT_AHEAD);
    if (seen == incoming->last_seq) {
        assert(checkpoint);
        if (!same_version)
            return drifted(CHECKPOINT_WRITE, REASON_PROJECTION_VERSION_CHANGED);
        if (memcmp(checkpoint->summary_hash, incoming->summary_hash, SHA256_BYTES) != 0)
            return drifted(CHECKPOINT_WRITE, REASON_SUMMARY_HASH_MISMATCH);
        return plain(CHECKPOINT_SKIP);
    }
    if (!same_version)
        return drifted(CHECKPOINT_REPAIR, REASON_PROJECTION_VERSION_CHANGED);
    if (incoming->first_seq > seen + 1)
        return drifted(CHECKPOINT_REPAIR, REASON_SEQUENCE_GAP);
    return plain(CHECKPOINT_WRITE);
}
