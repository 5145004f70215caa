#include "delivery/stale.h"

#include "topic/stream_id.h"
#include "wire/object_writer.h"

static void put_reasons(struct object_writer *object, const struct continuity *continuity) {
    struct buffer list;
    buffer_init(&list, 256);
    enum status status = buffer_append_byte(&list, '[');
    for (size_t i = 0; status == STATUS_OK && i < continuity->reason_count; i++)
        status =
            buffer_printf(&list, "%s\"%s\"", i > 0 ? "," : "", reason_code(continuity->reasons[i]));
    if (status == STATUS_OK)
        status = buffer_append_byte(&list, ']');
    object_json(object, SLICE("reason_codes"), buffer_slice(&list));
    if (status != STATUS_OK)
        object->status = status;
    buffer_release(&list);
}

static void put_name(struct object_writer *object, struct slice topic) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream = buffer_over(text, sizeof(text));
    enum status status = address_stream(topic, &stream);
    object_text(object, SLICE("topic"), topic);
    object_text(object, SLICE("stream_id"), buffer_slice(&stream));
    if (status != STATUS_OK)
        object->status = status;
}

static enum status write_topic(struct buffer *out, const struct stale_topic *stale) {
    const struct continuity *continuity = stale->continuity;
    struct object_writer object = object_begin(out);
    put_name(&object, stale->topic);
    put_reasons(&object, continuity);
    object_text(&object, SLICE("qos_tier"), slice_of(qos_tier_name(stale->policy->qos_tier)));
    object_number(&object, SLICE("resume_after"), continuity->after_seq);
    object_number(&object, SLICE("retention_floor"), continuity->oldest_available_cursor + 1);
    object_number(&object, SLICE("oldest_available_cursor"), continuity->oldest_available_cursor);
    object_number(&object, SLICE("head_watermark"), continuity->head_cursor);
    object_number(&object, SLICE("replay_lag"), continuity->replay_lag);
    object_number(&object, SLICE("replay_budget_events"), continuity->replay_budget_events);
    if (stale->epoch)
        object_text(&object, SLICE("epoch"), slice_of(stale->epoch->text));
    /* The name of the parameter, and of the option of a subscription. */
    if (stale->may_replay_all)
        object_text(&object, SLICE("replay"), SLICE("all"));
    return object_end(&object);
}

static enum status write_snapshot(struct buffer *out, const struct stale_topic *stale) {
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), stale->topic);
    object_text(&object, SLICE("format"), SLICE(SNAPSHOT_FORMAT));
    object_number(&object, SLICE("schema_version"), SNAPSHOT_SCHEMA_VERSION);
    object_number(&object, SLICE("cadence_seconds"), stale->policy->snapshot_cadence_seconds);
    object_text(&object, SLICE("source_table"),
                slice_of(document_row(stale->policy->snapshot_document)->source_table));
    return object_end(&object);
}

static enum status write_topics(struct buffer *out, const struct stale_topic *stale, size_t count) {
    enum status status = buffer_append_slice(out, SLICE(",\"stale_topics\":["));
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        if (i > 0)
            status = buffer_append_byte(out, ',');
        if (status == STATUS_OK)
            status = write_topic(out, &stale[i]);
    }
    return status == STATUS_OK ? buffer_append_byte(out, ']') : status;
}

static enum status write_planned(struct buffer *out, const struct stale_topic *stale) {
    struct buffer snapshot;
    buffer_init(&snapshot, 4096);
    enum status status = write_snapshot(&snapshot, stale);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), stale->topic);
    object_number(&object, SLICE("head_watermark"), stale->continuity->head_cursor);
    object_json(&object, SLICE("snapshot"), buffer_slice(&snapshot));
    enum status ended = object_end(&object);
    buffer_release(&snapshot);
    return status == STATUS_OK ? ended : status;
}

static enum status write_plan(struct buffer *out, const struct stale_topic *stale, size_t count) {
    bool has_one = false;
    enum status status = buffer_append_slice(
        out, SLICE(",\"snapshot_plan\":{\"format\":\"" SNAPSHOT_FORMAT "\",\"topics\":["));
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        if (!policy_has_snapshot(stale[i].policy))
            continue;
        if (has_one)
            status = buffer_append_byte(out, ',');
        has_one = true;
        if (status == STATUS_OK)
            status = write_planned(out, &stale[i]);
    }
    return status == STATUS_OK ? buffer_append_slice(out, SLICE("]}")) : status;
}

/* Each reason once, ordered by rank. */
static struct continuity all_reasons(const struct stale_topic *stale, size_t count) {
    static const enum reason ranked[CONTINUITY_REASONS_MAX] = {
        REASON_EPOCH_MISMATCH,         REASON_EPOCH_REQUIRED,  REASON_CURSOR_AHEAD_OF_HEAD,
        REASON_RETENTION_FLOOR_BREACH, REASON_JOURNAL_DAMAGED, REASON_REPLAY_BUDGET_EXCEEDED};
    struct continuity all = {.reason_count = 0};
    for (size_t rank = 0; rank < CONTINUITY_REASONS_MAX; rank++) {
        bool is_there = false;
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < stale[i].continuity->reason_count; j++)
                is_there |= stale[i].continuity->reasons[j] == ranked[rank];
        if (is_there)
            all.reasons[all.reason_count++] = ranked[rank];
    }
    return all;
}

enum status stale_write_json(struct buffer *out, const struct stale_topic *stale, size_t count) {
    size_t begin = out->size;
    struct continuity all = all_reasons(stale, count);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("code"), slice_of(status_code(STATUS_STALE_CURSOR)));
    object_text(&object, SLICE("message"), slice_of(status_message(STATUS_STALE_CURSOR)));
    object_json(&object, SLICE("full_resync_required"), SLICE("true"));
    put_reasons(&object, &all);
    enum status status = object.status;
    if (status == STATUS_OK)
        status = write_topics(out, stale, count);
    if (status == STATUS_OK)
        status = write_plan(out, stale, count);
    if (status == STATUS_OK)
        status = buffer_append_byte(out, '}');
    if (status != STATUS_OK)
        buffer_truncate(out, begin);
    return status;
}
