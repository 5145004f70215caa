#include "projector/run_summary.h"

#include "authority/entity_state.h"
#include "base/list.h"

#define COMMON(member) offsetof(struct run_summary, common.member)
#define RUN(member)    offsetof(struct run_summary, member)

static const struct summary_field run_fields[] = {
    SUMMARY_FIELD("current_step", SUMMARY_OBJECT, RUN(current_step)),
    SUMMARY_FIELD("document_id", SUMMARY_DOCUMENT_ID, 0),
    SUMMARY_FIELD("error", SUMMARY_OBJECT, RUN(error)),
    SUMMARY_FIELD("event_count", SUMMARY_COUNT, COMMON(event_count)),
    SUMMARY_FIELD("kind", SUMMARY_KIND, 0),
    SUMMARY_FIELD("latest_event_at", SUMMARY_TIME_MS, COMMON(latest_event_at_ms)),
    SUMMARY_FIELD("latest_event_type", SUMMARY_TEXT, COMMON(latest_event_type)),
    SUMMARY_FIELD("latest_seq", SUMMARY_COUNT, COMMON(latest_seq)),
    SUMMARY_FIELD("metadata", SUMMARY_OBJECT, RUN(metadata)),
    SUMMARY_FIELD("open_steps", SUMMARY_COUNT, RUN(open_steps)),
    SUMMARY_FIELD("org_id", SUMMARY_TEXT, COMMON(org_id)),
    SUMMARY_FIELD("other_open_steps", SUMMARY_ARRAY, RUN(other_open_steps)),
    SUMMARY_FIELD("owner_guest_scope", SUMMARY_TEXT, COMMON(owner_guest_scope)),
    SUMMARY_FIELD("owner_user_id", SUMMARY_TEXT, COMMON(owner_user_id)),
    SUMMARY_FIELD("parent_run_id", SUMMARY_TEXT, RUN(parent_run_id)),
    SUMMARY_FIELD("projected_at", SUMMARY_PROJECTED_AT, 0),
    SUMMARY_FIELD("projection_version", SUMMARY_VERSION, 0),
    SUMMARY_FIELD("run_id", SUMMARY_ENTITY_ID, 0),
    SUMMARY_FIELD("runtime_source", SUMMARY_SOURCE, 0),
    /* A run starts when it is created. */
    SUMMARY_FIELD("started_at", SUMMARY_TIME_MS, COMMON(created_at_ms)),
    SUMMARY_FIELD("status", SUMMARY_TEXT, COMMON(status)),
    SUMMARY_FIELD("tags", SUMMARY_ARRAY, RUN(tags)),
    SUMMARY_FIELD("terminal_at", SUMMARY_TIME_MS, COMMON(terminal_at_ms)),
    SUMMARY_FIELD("terminal_reason", SUMMARY_TEXT, COMMON(terminal_reason)),
    SUMMARY_FIELD("terminal_reason_class", SUMMARY_TEXT, COMMON(terminal_reason_class)),
    SUMMARY_FIELD("thread_id", SUMMARY_TEXT, RUN(thread_id)),
    SUMMARY_FIELD("title", SUMMARY_TEXT, RUN(title)),
    /* Only events change a summary. */
    SUMMARY_FIELD("updated_at", SUMMARY_TIME_MS, COMMON(latest_event_at_ms)),
    SUMMARY_FIELD("usage", SUMMARY_OBJECT, RUN(usage)),
    SUMMARY_FIELD("waiting", SUMMARY_OBJECT, RUN(waiting)),
    SUMMARY_FIELD("worker_id", SUMMARY_TEXT, RUN(worker_id)),
};

static const struct outcome {
    struct slice name;
    struct slice status;
    struct slice reason_class;
} outcomes[] = {
    {SLICE("succeeded"), SLICE("\"succeeded\""), SLICE("\"completed\"")},
    {SLICE("failed"), SLICE("\"failed\""), SLICE("\"failed\"")},
    {SLICE("canceled"), SLICE("\"canceled\""), SLICE("\"canceled\"")},
    {SLICE("cancelled"), SLICE("\"canceled\""), SLICE("\"canceled\"")},
};

#define OUTCOME_COUNT (sizeof(outcomes) / sizeof(outcomes[0]))

static enum status fold(struct summary *common, const struct store_event *event,
                        struct arena *arena) {
    struct run_summary *summary = container_of(common, struct run_summary, common);
    bool done = true;
    /* The first event names the owner of the run. Later events of the same type are no-ops that any
     * producer may append, so their payload is ignored. */
    if (common->latest_seq == 0) {
        struct json_field fields[] = {
            {.name = SLICE("owner_user_id")}, {.name = SLICE("owner_guest_scope")},
            {.name = SLICE("org_id")},        {.name = SLICE("parent_run_id")},
            {.name = SLICE("thread_id")},     {.name = SLICE("worker_id")},
            {.name = SLICE("title")},         {.name = SLICE("tags")},
            {.name = SLICE("metadata")},
        };
        common->status = SLICE("\"created\"");
        common->created_at_ms = event->recorded_at_ms;
        summary_payload_fields(event->payload, fields, sizeof(fields) / sizeof(fields[0]));
        done = summary_take_text(&fields[0], arena, &common->owner_user_id) &&
               summary_take_text(&fields[1], arena, &common->owner_guest_scope) &&
               summary_take_text(&fields[2], arena, &common->org_id) &&
               summary_take_text(&fields[3], arena, &summary->parent_run_id) &&
               summary_take_text(&fields[4], arena, &summary->thread_id) &&
               summary_take_text(&fields[5], arena, &summary->worker_id) &&
               summary_take_text(&fields[6], arena, &summary->title) &&
               summary_take_array(&fields[7], arena, &summary->tags) &&
               summary_take_object(&fields[8], arena, &summary->metadata);
    }
    if (slice_equal(event->type, SLICE(RUN_EVENT_STARTED))) {
        if (slice_equal(common->status, SLICE("\"created\"")))
            common->status = SLICE("\"running\"");
    } else if (slice_equal(event->type, SLICE(RUN_EVENT_CANCEL_REQUESTED))) {
        common->status = SLICE("\"canceling\"");
    } else if (slice_equal(event->type, SLICE(RUN_EVENT_FINISHED))) {
        struct json_field fields[] = {{.name = SLICE("status")}, {.name = SLICE("reason")}};
        summary_payload_fields(event->payload, fields, 2);
        size_t i = 0;
        while (i < OUTCOME_COUNT &&
               !(fields[0].present && json_string_is(fields[0].value, outcomes[i].name)))
            i++;
        if (i < OUTCOME_COUNT) {
            common->status = outcomes[i].status;
            common->terminal_reason_class = outcomes[i].reason_class;
            common->terminal_at_ms = event->recorded_at_ms;
            done = summary_take_text(&fields[1], arena, &common->terminal_reason) && done;
        }
    }
    return done ? summary_count(common, event, arena) : STATUS_OUT_OF_MEMORY;
}

const struct summary_layout run_summary_layout = {
    .document = DOCUMENT_RUN_SUMMARY,
    .fields = run_fields,
    .field_count = sizeof(run_fields) / sizeof(run_fields[0]),
    .summary_size = sizeof(struct run_summary),
    .fold = fold,
};
