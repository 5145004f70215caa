#include "projector/update.h"

/* Writes a document or a frame, by the stamp. */
static enum status write_text(const struct update_source *source, const struct summary_stamp *stamp,
                              struct arena *arena, struct slice *text) {
    struct buffer out;
    buffer_init(&out, SUMMARY_BYTES_MAX);
    enum status status =
        summary_write(fold_layout(source->kind), &source->summary->common, stamp, &out);
    if (status == STATUS_OK)
        *text = arena_copy(arena, buffer_slice(&out));
    buffer_release(&out);
    if (status != STATUS_OK)
        return status;
    return text->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

static enum status write_key(const struct update_source *source, struct arena *arena,
                             struct slice *key) {
    struct buffer out;
    buffer_init(&out, SUMMARY_BYTES_MAX);
    enum status status =
        summary_document_key(source->kind, source->summary->common.entity_id, &out);
    if (status == STATUS_OK)
        *key = arena_copy(arena, buffer_slice(&out));
    buffer_release(&out);
    if (status != STATUS_OK)
        return status;
    return key->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

static enum status build_frame(const struct update_source *source, struct summary_stamp stamp,
                               struct arena *arena, struct sink_update *update) {
    uint64_t last_seq = source->summary->common.latest_seq;
    update->frame = update->document.payload;
    memcpy(update->frame_hash, update->document.payload_hash, SHA256_BYTES);
    if (source->range_first_seq == 0 || source->range_first_seq >= last_seq)
        return STATUS_OK;
    stamp.range_first_seq = source->range_first_seq;
    enum status status = write_text(source, &stamp, arena, &update->frame);
    if (status == STATUS_OK)
        sha256(update->frame.data, update->frame.size, update->frame_hash);
    return status;
}

enum status update_build(const struct update_source *source, struct arena *arena,
                         struct sink_update *update) {
    const struct summary_stamp stamp = {
        .projection_version = source->projection_version,
        .projected_at_ms = source->now_ms,
    };
    *update = (struct sink_update){.log_id = source->log_id, .owner = source->owner};
    struct store_document *document = &update->document;
    struct store_checkpoint *checkpoint = &update->checkpoint;
    document->kind = source->kind;
    document->entity_ref = source->entity_ref;
    document->version = source->version;
    enum status status = write_key(source, arena, &document->key);
    if (status == STATUS_OK)
        status = write_text(source, &stamp, arena, &document->payload);
    if (status == STATUS_OK)
        status = summary_hash(document->payload, checkpoint->summary_hash);
    if (status != STATUS_OK)
        return status;
    sha256(document->payload.data, document->payload.size, document->payload_hash);
    checkpoint->kind = source->kind;
    checkpoint->entity_ref = source->entity_ref;
    checkpoint->document_id = document->key;
    checkpoint->last_runtime_seq = source->summary->common.latest_seq;
    checkpoint->projection_version = source->projection_version;
    checkpoint->last_projected_at_ms = source->now_ms;
    return build_frame(source, stamp, arena, update);
}
