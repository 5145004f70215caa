/* The events that only say what the run does (authority/run_report.h) are folded by one function
 * each. They leave an event of another shape alone. A run that has ended has no open steps and
 * waits for nothing; late reports of usage and of metadata still count. */
#include "projector/run_summary.h"

#include "authority/entity_state.h"
#include "authority/run_report.h"
#include "base/decimal.h"
#include "base/limits.h"
#include "base/list.h"
#include "wire/object_writer.h"

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
    SUMMARY_FIELD("metadata", SUMMARY_METADATA, RUN(metadata)),
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

static bool is_over(const struct run_summary *run) {
    return !summary_is_null(run->common.terminal_reason_class);
}

/* Moves a text that was written into the arena, and releases its buffer. False without memory. */
static bool keep(struct buffer *text, struct arena *arena, struct slice *kept) {
    struct slice copy = {NULL, 0};
    if (buffer_status(text) == STATUS_OK)
        copy = arena_copy(arena, buffer_slice(text));
    buffer_release(text);
    if (copy.data)
        *kept = copy;
    return copy.data != NULL;
}

/* ---- steps -------------------------------------------------------------------------------- */

/* The open steps that are kept, the oldest first. Each is an object of the fold's. */
struct open_steps {
    struct slice steps[RUN_OPEN_STEPS_KEPT_MAX];
    size_t count;
};

static void read_steps(const struct run_summary *run, struct open_steps *open) {
    struct json_iterator others =
        json_iterate((struct json_value){JSON_KIND_ARRAY, run->other_open_steps});
    struct json_value step;
    open->count = 0;
    while (open->count < RUN_OPEN_STEPS_KEPT_MAX - 1 && json_next_element(&others, &step))
        open->steps[open->count++] = step.raw;
    if (!summary_is_null(run->current_step))
        open->steps[open->count++] = run->current_step;
}

/* Removes a step. False: it is not kept. */
static bool remove_step(struct open_steps *open, struct slice step_id) {
    for (size_t i = 0; i < open->count; i++) {
        struct json_field id = {.name = SLICE("step_id")};
        summary_payload_fields(open->steps[i], &id, 1);
        if (!id.present || !slice_equal(id.value.raw, step_id))
            continue;
        open->count--;
        memmove(&open->steps[i], &open->steps[i + 1], (open->count - i) * sizeof(open->steps[0]));
        return true;
    }
    return false;
}

static bool write_steps(struct run_summary *run, const struct open_steps *open,
                        struct arena *arena) {
    struct buffer others;
    run->current_step = open->count > 0 ? open->steps[open->count - 1] : SLICE("null");
    if (open->count <= 1) {
        run->other_open_steps = SLICE("[]");
        return true;
    }
    buffer_init(&others, SUMMARY_BYTES_MAX);
    for (size_t i = 0; i + 1 < open->count; i++) {
        buffer_append_byte(&others, i == 0 ? '[' : ',');
        buffer_append_slice(&others, open->steps[i]);
    }
    buffer_append_byte(&others, ']');
    return keep(&others, arena, &run->other_open_steps);
}

/* A step that is open and starts again is the newest, and counts once. */
static bool fold_step_started(struct run_summary *run, const struct run_report *report,
                              uint64_t now_ms, struct arena *arena) {
    struct slice step_id = report->members[RUN_MEMBER_STEP_ID].value.raw;
    struct open_steps open;
    struct buffer text;
    if (is_over(run))
        return true;
    read_steps(run, &open);
    if (!remove_step(&open, step_id))
        run->open_steps++;
    if (open.count == RUN_OPEN_STEPS_KEPT_MAX) {
        open.count--;
        memmove(&open.steps[0], &open.steps[1], open.count * sizeof(open.steps[0]));
    }
    buffer_init(&text, SUMMARY_BYTES_MAX);
    struct object_writer step = object_begin(&text);
    object_json(&step, SLICE("name"), report->members[RUN_MEMBER_NAME].value.raw);
    object_number(&step, SLICE("started_at"), now_ms);
    object_json(&step, SLICE("step_id"), step_id);
    object_close(&step);
    return keep(&text, arena, &open.steps[open.count++]) && write_steps(run, &open, arena);
}

/* A step that is not kept is taken for one that was forgotten, while there are any. */
static bool fold_step_finished(struct run_summary *run, const struct run_report *report,
                               struct arena *arena) {
    struct open_steps open;
    read_steps(run, &open);
    bool was_kept = remove_step(&open, report->members[RUN_MEMBER_STEP_ID].value.raw);
    if (was_kept || run->open_steps > open.count)
        run->open_steps--;
    return !was_kept || write_steps(run, &open, arena);
}

/* ---- other reports ------------------------------------------------------------------------ */

static bool take_member(const struct json_field *member, struct slice absent, struct arena *arena,
                        struct slice *text) {
    if (!member->present)
        return true;
    struct slice copy = absent;
    if (member->value.kind != JSON_KIND_NULL)
        copy = arena_copy(arena, member->value.raw);
    if (copy.data)
        *text = copy;
    return copy.data != NULL;
}

/* The authority refuses a patch that makes the metadata too large. An event of another log that has
 * one is free. */
static bool fold_updated(struct run_summary *run, const struct run_report *report,
                         struct arena *arena) {
    const struct json_field *patch = &report->members[RUN_MEMBER_METADATA_PATCH];
    if (patch->present) {
        struct slice base = {NULL, 0};
        struct buffer merged;
        if (!summary_is_null(run->metadata))
            base = run->metadata;
        buffer_init(&merged, SUMMARY_BYTES_MAX);
        enum status status = run_metadata_patch(base, patch->value.raw, &merged);
        if (status != STATUS_OK) {
            buffer_release(&merged);
            return status != STATUS_OUT_OF_MEMORY;
        }
        if (!keep(&merged, arena, &run->metadata))
            return false;
    }
    return take_member(&report->members[RUN_MEMBER_TITLE], SLICE("null"), arena, &run->title) &&
           take_member(&report->members[RUN_MEMBER_TAGS], SLICE("[]"), arena, &run->tags);
}

static bool fold_waiting(struct run_summary *run, const struct run_report *report, uint64_t now_ms,
                         struct arena *arena) {
    const struct json_field *question = &report->members[RUN_MEMBER_QUESTION];
    struct buffer text;
    if (is_over(run))
        return true;
    buffer_init(&text, SUMMARY_BYTES_MAX);
    struct object_writer waiting = object_begin(&text);
    object_json(&waiting, SLICE("for"), report->members[RUN_MEMBER_FOR].value.raw);
    object_json(&waiting, SLICE("question"),
                question->present ? question->value.raw : SLICE("null"));
    object_number(&waiting, SLICE("since"), now_ms);
    object_close(&waiting);
    return keep(&text, arena, &run->waiting);
}

static uint64_t add_tokens(const struct json_field *sum, const struct json_field *more) {
    uint64_t a = 0, b = 0;
    if (sum->present)
        (void)json_u64(sum->value, JSON_INTEGER_MAX, &a);
    if (more->present)
        (void)json_u64(more->value, JSON_INTEGER_MAX, &b);
    return a + b < JSON_INTEGER_MAX ? a + b : JSON_INTEGER_MAX;
}

static bool read_cost(const struct json_field *field, struct decimal_amount *amount) {
    struct slice text;
    return field->present && json_string_slice(field->value, &text) &&
           decimal_parse_amount(text, amount);
}

static bool fold_usage(struct run_summary *run, const struct run_report *report,
                       struct arena *arena) {
    struct json_field sum[] = {{.name = SLICE("cost")},
                               {.name = SLICE("input_tokens")},
                               {.name = SLICE("model")},
                               {.name = SLICE("output_tokens")}};
    const struct json_field *model = &report->members[RUN_MEMBER_MODEL];
    struct decimal_amount cost = {0}, more = {0};
    char digits[DECIMAL_AMOUNT_SIZE_MAX];
    struct slice cost_text = {NULL, 0};
    struct buffer text;
    summary_payload_fields(run->usage, sum, sizeof(sum) / sizeof(sum[0]));
    bool has_cost = read_cost(&sum[0], &cost);
    if (read_cost(&report->members[RUN_MEMBER_COST], &more) || has_cost) {
        const char *end = decimal_write_amount(digits, decimal_add(cost, more));
        cost_text = (struct slice){digits, (size_t)(end - digits)};
    }
    if (!model->present)
        model = &sum[2];
    buffer_init(&text, SUMMARY_BYTES_MAX);
    struct object_writer usage = object_begin(&text);
    object_text(&usage, SLICE("cost"), cost_text);
    object_number(&usage, SLICE("input_tokens"),
                  add_tokens(&sum[1], &report->members[RUN_MEMBER_INPUT_TOKENS]));
    object_json(&usage, SLICE("model"), model->present ? model->value.raw : SLICE("null"));
    object_number(&usage, SLICE("output_tokens"),
                  add_tokens(&sum[3], &report->members[RUN_MEMBER_OUTPUT_TOKENS]));
    object_close(&usage);
    return keep(&text, arena, &run->usage);
}

static bool fold_report(struct run_summary *run, const struct store_event *event,
                        struct arena *arena) {
    struct run_report report;
    struct run_fault fault;
    if (run_report_read(event->type, event->payload, &report, &fault) != STATUS_OK)
        return true;
    switch (report.kind) {
    case RUN_REPORT_UPDATED:
        return fold_updated(run, &report, arena);
    case RUN_REPORT_STEP_STARTED:
        return fold_step_started(run, &report, event->recorded_at_ms, arena);
    case RUN_REPORT_STEP_FINISHED:
        return fold_step_finished(run, &report, arena);
    case RUN_REPORT_WAITING:
        return fold_waiting(run, &report, event->recorded_at_ms, arena);
    case RUN_REPORT_RESUMED:
        run->waiting = SLICE("null");
        return true;
    case RUN_REPORT_USAGE:
        return fold_usage(run, &report, arena);
    case RUN_REPORT_NONE:
    case RUN_REPORT_KIND_COUNT:
        break;
    }
    return true;
}

/* ---- the life of the run ------------------------------------------------------------------- */

/* Cuts a text between two characters. */
static void write_cut(struct object_writer *object, struct slice name,
                      const struct json_field *field, size_t bytes_max) {
    struct buffer decoded;
    struct slice text = {NULL, 0};
    buffer_init(&decoded, SUMMARY_BYTES_MAX);
    if (field->present && field->value.kind == JSON_KIND_STRING &&
        buffer_note(object->out, json_string_decode(field->value, &decoded)) == STATUS_OK) {
        text = decoded.data ? buffer_slice(&decoded) : SLICE("");
        if (text.size > bytes_max) {
            text.size = bytes_max;
            while (text.size > 0 && ((unsigned char)text.data[text.size] & 0xc0) == 0x80)
                text.size--;
        }
    }
    object_text(object, name, text);
    buffer_release(&decoded);
}

/* A text is a message. Any other shape says nothing. */
static bool fold_error(struct run_summary *run, const struct json_field *error,
                       struct arena *arena) {
    struct json_field fields[] = {{.name = SLICE("code")}, {.name = SLICE("message")}};
    struct buffer text;
    if (error->present && error->value.kind == JSON_KIND_STRING)
        fields[1] = *error;
    else if (error->present && error->value.kind == JSON_KIND_OBJECT)
        summary_payload_fields(error->value.raw, fields, 2);
    else
        return true;
    buffer_init(&text, SUMMARY_BYTES_MAX);
    struct object_writer object = object_begin(&text);
    write_cut(&object, SLICE("code"), &fields[0], RUN_ERROR_CODE_BYTES_MAX);
    write_cut(&object, SLICE("message"), &fields[1], RUN_ERROR_MESSAGE_BYTES_MAX);
    object_close(&object);
    return keep(&text, arena, &run->error);
}

static bool fold_finished(struct run_summary *run, const struct store_event *event,
                          struct arena *arena) {
    struct json_field fields[] = {
        {.name = SLICE("status")}, {.name = SLICE("reason")}, {.name = SLICE("error")}};
    struct summary *common = &run->common;
    summary_payload_fields(event->payload, fields, sizeof(fields) / sizeof(fields[0]));
    size_t i = 0;
    while (i < OUTCOME_COUNT &&
           !(fields[0].present && json_string_is(fields[0].value, outcomes[i].name)))
        i++;
    if (i == OUTCOME_COUNT)
        return true;
    common->status = outcomes[i].status;
    common->terminal_reason_class = outcomes[i].reason_class;
    common->terminal_at_ms = event->recorded_at_ms;
    run->current_step = run->waiting = SLICE("null");
    run->other_open_steps = SLICE("[]");
    run->open_steps = 0;
    return summary_take_text(&fields[1], arena, &common->terminal_reason) &&
           (!slice_equal(common->status, SLICE("\"failed\"")) ||
            fold_error(run, &fields[2], arena));
}

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
        done = fold_finished(summary, event, arena) && done;
    } else {
        done = fold_report(summary, event, arena) && done;
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
