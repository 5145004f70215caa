#include "projector/worker_summary.h"

#include "authority/entity_state.h"
#include "authority/metadata.h"
#include "base/limits.h"
#include "base/list.h"

#define COMMON(member) offsetof(struct worker_summary, common.member)
#define WORKER(member) offsetof(struct worker_summary, member)

static const struct summary_field worker_fields[] = {
    SUMMARY_FIELD("adapter", SUMMARY_TEXT, WORKER(adapter)),
    SUMMARY_FIELD("codex_home_ref", SUMMARY_TEXT, WORKER(codex_home_ref)),
    SUMMARY_FIELD("created_at", SUMMARY_TIME_MS, COMMON(created_at_ms)),
    SUMMARY_FIELD("document_id", SUMMARY_DOCUMENT_ID, 0),
    SUMMARY_FIELD("event_count", SUMMARY_COUNT, COMMON(event_count)),
    SUMMARY_FIELD("kind", SUMMARY_KIND, 0),
    SUMMARY_FIELD("last_heartbeat_at", SUMMARY_TIME_MS, WORKER(last_heartbeat_at_ms)),
    SUMMARY_FIELD("latest_event_at", SUMMARY_TIME_MS, COMMON(latest_event_at_ms)),
    SUMMARY_FIELD("latest_event_type", SUMMARY_TEXT, COMMON(latest_event_type)),
    SUMMARY_FIELD("latest_seq", SUMMARY_COUNT, COMMON(latest_seq)),
    SUMMARY_FIELD("metadata", SUMMARY_METADATA, WORKER(metadata)),
    SUMMARY_FIELD("org_id", SUMMARY_TEXT, COMMON(org_id)),
    SUMMARY_FIELD("owner_guest_scope", SUMMARY_TEXT, COMMON(owner_guest_scope)),
    SUMMARY_FIELD("owner_user_id", SUMMARY_TEXT, COMMON(owner_user_id)),
    SUMMARY_FIELD("projected_at", SUMMARY_PROJECTED_AT, 0),
    SUMMARY_FIELD("projection_version", SUMMARY_VERSION, 0),
    SUMMARY_FIELD("runtime_source", SUMMARY_SOURCE, 0),
    SUMMARY_FIELD("started_at", SUMMARY_TIME_MS, WORKER(started_at_ms)),
    SUMMARY_FIELD("status", SUMMARY_TEXT, COMMON(status)),
    SUMMARY_FIELD("stopped_at", SUMMARY_TIME_MS, WORKER(stopped_at_ms)),
    SUMMARY_FIELD("terminal_at", SUMMARY_TIME_MS, COMMON(terminal_at_ms)),
    SUMMARY_FIELD("terminal_reason", SUMMARY_TEXT, COMMON(terminal_reason)),
    SUMMARY_FIELD("terminal_reason_class", SUMMARY_TEXT, COMMON(terminal_reason_class)),
    /* Only events change a summary. */
    SUMMARY_FIELD("updated_at", SUMMARY_TIME_MS, COMMON(latest_event_at_ms)),
    SUMMARY_FIELD("worker_id", SUMMARY_ENTITY_ID, 0),
    SUMMARY_FIELD("workspace_ref", SUMMARY_TEXT, WORKER(workspace_ref)),
};

/* An absent member leaves the text unchanged. */
static bool update_text(const struct json_field *field, struct arena *arena, struct slice *text) {
    return !field->present || summary_take_text(field, arena, text);
}

static void fold_life(struct worker_summary *summary, uint64_t now_ms) {
    bool is_stopped = slice_equal(summary->common.status, SLICE("\"stopped\""));
    bool is_failed = slice_equal(summary->common.status, SLICE("\"failed\""));
    if (!is_stopped && !is_failed) {
        summary->stopped_at_ms = 0;
        summary->common.terminal_at_ms = 0;
        summary->common.terminal_reason_class = SLICE("null");
        summary->common.terminal_reason = SLICE("null");
        return;
    }
    summary->stopped_at_ms = now_ms;
    summary->common.terminal_at_ms = now_ms;
    summary->common.terminal_reason_class = is_stopped ? SLICE("\"stopped\"") : SLICE("\"failed\"");
}

/* The authority bounds the merged metadata. A patch that still cannot be merged is ignored in every
 * fold, because the log alone must determine the summary. */
static bool fold_patch(struct worker_summary *summary, struct slice patch, struct arena *arena) {
    struct slice base = {NULL, 0};
    if (!summary_is_null(summary->metadata))
        base = summary->metadata;
    struct buffer merged;
    struct slice copy = summary->metadata;
    buffer_init(&merged, SUMMARY_BYTES_MAX);
    enum status status = metadata_merge(base, patch, &merged);
    if (status == STATUS_OK)
        copy = arena_copy(arena, buffer_slice(&merged));
    buffer_release(&merged);
    if (!copy.data || status == STATUS_OUT_OF_MEMORY)
        return false;
    summary->metadata = copy;
    return true;
}

static enum status fold(struct summary *common, const struct store_event *event,
                        struct arena *arena) {
    struct worker_summary *summary = container_of(common, struct worker_summary, common);
    uint64_t now_ms = event->recorded_at_ms;
    bool done = true;
    if (common->latest_seq == 0)
        common->created_at_ms = now_ms;
    if (slice_equal(event->type, SLICE(WORKER_EVENT_REGISTERED))) {
        struct json_field fields[] = {
            {.name = SLICE("status")},
            {.name = SLICE("owner_user_id")},
            {.name = SLICE("owner_guest_scope")},
            {.name = SLICE("org_id")},
            {.name = SLICE("workspace_ref")},
            {.name = SLICE("codex_home_ref")},
            {.name = SLICE("adapter")},
            {.name = SLICE("metadata")},
        };
        summary_payload_fields(event->payload, fields, sizeof(fields) / sizeof(fields[0]));
        common->status = SLICE("\"starting\"");
        summary->started_at_ms = now_ms;
        summary->last_heartbeat_at_ms = 0;
        done = update_text(&fields[0], arena, &common->status) &&
               update_text(&fields[1], arena, &common->owner_user_id) &&
               update_text(&fields[2], arena, &common->owner_guest_scope) &&
               update_text(&fields[3], arena, &common->org_id) &&
               update_text(&fields[4], arena, &summary->workspace_ref) &&
               update_text(&fields[5], arena, &summary->codex_home_ref) &&
               update_text(&fields[6], arena, &summary->adapter) &&
               (!fields[7].present || summary_take_object(&fields[7], arena, &summary->metadata));
        fold_life(summary, now_ms);
    } else if (slice_equal(event->type, SLICE(WORKER_EVENT_HEARTBEAT))) {
        struct json_field patch = {.name = SLICE("metadata_patch")};
        summary->last_heartbeat_at_ms = now_ms;
        summary_payload_fields(event->payload, &patch, 1);
        done = !patch.present || patch.value.kind != JSON_KIND_OBJECT ||
               fold_patch(summary, patch.value.raw, arena);
    } else if (slice_equal(event->type, SLICE(WORKER_EVENT_STATUS_CHANGED))) {
        struct json_field fields[] = {{.name = SLICE("status")}, {.name = SLICE("reason")}};
        summary_payload_fields(event->payload, fields, 2);
        done = update_text(&fields[0], arena, &common->status) &&
               summary_take_text(&fields[1], arena, &common->terminal_reason);
        if (done)
            fold_life(summary, now_ms);
    }
    return done ? summary_count(common, event, arena) : STATUS_OUT_OF_MEMORY;
}

const struct summary_layout worker_summary_layout = {
    .document = DOCUMENT_WORKER_SUMMARY,
    .fields = worker_fields,
    .field_count = sizeof(worker_fields) / sizeof(worker_fields[0]),
    .summary_size = sizeof(struct worker_summary),
    .fold = fold,
};
