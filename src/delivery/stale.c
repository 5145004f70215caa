#include "delivery/stale.h"

#include "topic/stream_id.h"
#include "wire/object_writer.h"

static void put_reasons(struct object_writer *object, const struct continuity *continuity) {
    object_json(object, SLICE("reason_codes"), SLICE("["));
    for (size_t i = 0; i < continuity->reason_count; i++)
        buffer_printf(object->out, "%s\"%s\"", i > 0 ? "," : "",
                      reason_code(continuity->reasons[i]));
    buffer_append_byte(object->out, ']');
}

static void write_topic(struct buffer *out, const struct stale_topic *stale) {
    const struct continuity *continuity = stale->continuity;
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream = buffer_over(text, sizeof(text));
    struct object_writer object = object_begin(out);
    buffer_note(out, address_stream(stale->topic, &stream));
    object_text(&object, SLICE("topic"), stale->topic);
    object_text(&object, SLICE("stream_id"), buffer_slice(&stream));
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
    object_close(&object);
}

/* One topic of the snapshot plan. */
static void write_planned(struct buffer *out, const struct stale_topic *stale) {
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), stale->topic);
    object_number(&object, SLICE("head_watermark"), stale->continuity->head_cursor);
    object_json(&object, SLICE("snapshot"), SLICE(""));
    struct object_writer snapshot = object_begin(out);
    object_text(&snapshot, SLICE("topic"), stale->topic);
    object_text(&snapshot, SLICE("format"), SLICE(SNAPSHOT_FORMAT));
    object_number(&snapshot, SLICE("schema_version"), SNAPSHOT_SCHEMA_VERSION);
    object_number(&snapshot, SLICE("cadence_seconds"), stale->policy->snapshot_cadence_seconds);
    object_text(&snapshot, SLICE("source_table"),
                slice_of(document_row(stale->policy->snapshot_document)->source_table));
    object_close(&snapshot);
    object_close(&object);
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
    buffer_append_slice(out, SLICE(",\"stale_topics\":["));
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buffer_append_byte(out, ',');
        write_topic(out, &stale[i]);
    }
    buffer_append_slice(
        out, SLICE("],\"snapshot_plan\":{\"format\":\"" SNAPSHOT_FORMAT "\",\"topics\":["));
    for (size_t i = 0, planned = 0; i < count; i++) {
        if (!policy_has_snapshot(stale[i].policy))
            continue;
        if (planned++ > 0)
            buffer_append_byte(out, ',');
        write_planned(out, &stale[i]);
    }
    buffer_append_slice(out, SLICE("]}}"));
    return buffer_end(out, begin);
}
