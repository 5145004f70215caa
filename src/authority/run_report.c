#include "authority/run_report.h"

#include "authority/metadata.h"
#include "base/decimal.h"
#include "base/utf8.h"

#define BIT(member) (1u << (member))

/* ---- the table of members ---- */

enum shape {
    SHAPE_NAME, /* without control characters and outer white space */
    SHAPE_TEXT, /* any text, may be empty */
    SHAPE_CAUSE,
    SHAPE_COUNT,
    SHAPE_AMOUNT,
    SHAPE_TAGS,
    SHAPE_METADATA,
    SHAPE_ERROR,
};

#define A_NAME(bytes) "must be 1 to " bytes " bytes without control characters or outer white space"

static const struct {
    struct slice name;
    enum shape shape;
    size_t bytes_max; /* of a text */
    const char *problem;
} rules[RUN_MEMBER_COUNT] = {
    [RUN_MEMBER_COST] = {SLICE("cost"), SHAPE_AMOUNT, 0,
                         "must be decimal text of at most 18 digits before and 18 behind the "
                         "point, like \"0.0125\""},
    [RUN_MEMBER_ERROR] = {SLICE("error"), SHAPE_ERROR, 0, "must be a text or an object"},
    [RUN_MEMBER_FOR] = {SLICE("for"), SHAPE_CAUSE, 0, "must be approval, input or timer"},
    [RUN_MEMBER_INPUT_TOKENS] = {SLICE("input_tokens"), SHAPE_COUNT, 0,
                                 "must be a whole number of 0 to 9007199254740991"},
    [RUN_MEMBER_KIND] = {SLICE("kind"), SHAPE_NAME, RUN_WORD_BYTES_MAX, A_NAME("64")},
    [RUN_MEMBER_METADATA_PATCH] = {SLICE("metadata_patch"), SHAPE_METADATA, 0, "must be an object"},
    [RUN_MEMBER_MODEL] = {SLICE("model"), SHAPE_NAME, RUN_NAME_BYTES_MAX, A_NAME("256")},
    [RUN_MEMBER_NAME] = {SLICE("name"), SHAPE_NAME, RUN_NAME_BYTES_MAX, A_NAME("256")},
    [RUN_MEMBER_OUTPUT_TOKENS] = {SLICE("output_tokens"), SHAPE_COUNT, 0,
                                  "must be a whole number of 0 to 9007199254740991"},
    [RUN_MEMBER_PARENT_STEP_ID] = {SLICE("parent_step_id"), SHAPE_NAME, RUN_STEP_ID_BYTES_MAX,
                                   A_NAME("128")},
    [RUN_MEMBER_QUESTION] = {SLICE("question"), SHAPE_TEXT, RUN_QUESTION_BYTES_MAX,
                             "must be a text of at most 1024 bytes"},
    [RUN_MEMBER_STATUS] = {SLICE("status"), SHAPE_NAME, RUN_WORD_BYTES_MAX, A_NAME("64")},
    [RUN_MEMBER_STEP_ID] = {SLICE("step_id"), SHAPE_NAME, RUN_STEP_ID_BYTES_MAX, A_NAME("128")},
    [RUN_MEMBER_TAGS] = {SLICE("tags"), SHAPE_TAGS, RUN_TAG_BYTES_MAX,
                         "must be at most 16 different texts, each of 1 to 64 bytes without "
                         "control characters or outer white space"},
    [RUN_MEMBER_TITLE] = {SLICE("title"), SHAPE_NAME, RUN_TITLE_BYTES_MAX, A_NAME("256")},
};

/* ---- the table of types ---- */

static const struct {
    struct slice type;
    unsigned members;
    unsigned required;
    unsigned removable; /* a null says something */
} kinds[RUN_REPORT_KIND_COUNT] = {
    [RUN_REPORT_NONE] = {{"", 0}, 0, 0, 0},
    [RUN_REPORT_UPDATED] = {SLICE("run.updated"),
                            BIT(RUN_MEMBER_METADATA_PATCH) | BIT(RUN_MEMBER_TAGS) |
                                BIT(RUN_MEMBER_TITLE),
                            0, BIT(RUN_MEMBER_TAGS) | BIT(RUN_MEMBER_TITLE)},
    [RUN_REPORT_STEP_STARTED] = {SLICE("run.step_started"),
                                 BIT(RUN_MEMBER_KIND) | BIT(RUN_MEMBER_NAME) |
                                     BIT(RUN_MEMBER_PARENT_STEP_ID) | BIT(RUN_MEMBER_STEP_ID),
                                 BIT(RUN_MEMBER_NAME) | BIT(RUN_MEMBER_STEP_ID), 0},
    [RUN_REPORT_STEP_FINISHED] = {SLICE("run.step_finished"),
                                  BIT(RUN_MEMBER_ERROR) | BIT(RUN_MEMBER_STATUS) |
                                      BIT(RUN_MEMBER_STEP_ID),
                                  BIT(RUN_MEMBER_STEP_ID), 0},
    [RUN_REPORT_WAITING] = {SLICE("run.waiting"), BIT(RUN_MEMBER_FOR) | BIT(RUN_MEMBER_QUESTION),
                            BIT(RUN_MEMBER_FOR), 0},
    [RUN_REPORT_RESUMED] = {SLICE("run.resumed"), 0, 0, 0},
    [RUN_REPORT_USAGE] = {SLICE("run.usage"),
                          BIT(RUN_MEMBER_COST) | BIT(RUN_MEMBER_INPUT_TOKENS) |
                              BIT(RUN_MEMBER_MODEL) | BIT(RUN_MEMBER_OUTPUT_TOKENS),
                          0, 0},
};

/* ---- single values ---- */

static bool is_text(struct json_value value, size_t bytes_max, bool is_name) {
    char memory[RUN_QUESTION_BYTES_MAX];
    struct buffer decoded = buffer_over(memory, bytes_max);
    struct slice text;
    if (value.kind != JSON_KIND_STRING)
        return false;
    if (!json_string_slice(value, &text)) {
        if (json_string_decode(value, &decoded) != STATUS_OK)
            return false;
        text = buffer_slice(&decoded);
    }
    if (text.size > bytes_max)
        return false;
    return !is_name || (text.size > 0 && !utf8_has_control(text) && !utf8_has_outer_space(text));
}

static bool is_cause(struct json_value value) {
    return json_string_is(value, SLICE("approval")) || json_string_is(value, SLICE("input")) ||
           json_string_is(value, SLICE("timer"));
}

static bool is_amount(struct json_value value) {
    struct slice text;
    struct decimal_amount amount;
    return json_string_slice(value, &text) && decimal_parse_amount(text, &amount);
}

/* Equal texts have equal canonical forms. */
static bool are_tags(struct json_value value) {
    struct slice tags[RUN_TAGS_MAX];
    struct json_value tag;
    size_t count = 0;
    if (value.kind != JSON_KIND_ARRAY)
        return false;
    struct json_iterator iterator = json_iterate(value);
    while (json_next_element(&iterator, &tag)) {
        if (count == RUN_TAGS_MAX || !is_text(tag, RUN_TAG_BYTES_MAX, true))
            return false;
        for (size_t i = 0; i < count; i++)
            if (slice_equal(tags[i], tag.raw))
                return false;
        tags[count++] = tag.raw;
    }
    return true;
}

enum status run_member_check(enum run_member member, struct json_value value,
                             struct run_fault *fault) {
    const struct json_limits metadata_limits = {RUN_METADATA_BYTES_MAX, RUN_METADATA_DEPTH_MAX};
    struct json_value parsed;
    uint64_t number;
    bool is_right = false;
    *fault = (struct run_fault){rules[member].name.data, rules[member].problem};
    switch (rules[member].shape) {
    case SHAPE_NAME:
    case SHAPE_TEXT:
        is_right = is_text(value, rules[member].bytes_max, rules[member].shape == SHAPE_NAME);
        break;
    case SHAPE_CAUSE:
        is_right = is_cause(value);
        break;
    case SHAPE_COUNT:
        is_right = json_u64(value, JSON_INTEGER_MAX, &number);
        break;
    case SHAPE_AMOUNT:
        is_right = is_amount(value);
        break;
    case SHAPE_TAGS:
        is_right = are_tags(value);
        break;
    case SHAPE_METADATA:
        is_right = value.kind == JSON_KIND_OBJECT;
        if (is_right && json_parse(value.raw, &metadata_limits, &parsed) != STATUS_OK) {
            fault->problem = "may have at most 16384 bytes and 16 levels";
            return STATUS_PAYLOAD_TOO_LARGE;
        }
        break;
    case SHAPE_ERROR:
        is_right = value.kind == JSON_KIND_STRING || value.kind == JSON_KIND_OBJECT;
        break;
    }
    return is_right ? STATUS_OK : STATUS_INVALID_REQUEST;
}

/* ---- events ---- */

enum status run_report_read(struct slice type, struct slice payload, struct run_report *report,
                            struct run_fault *fault) {
    const struct json_limits limits = {SIZE_MAX, JSON_DEPTH_MAX};
    unsigned kind = RUN_REPORT_NONE;
    if (slice_starts(type, SLICE("run.")))
        for (unsigned i = 1; i < RUN_REPORT_KIND_COUNT; i++)
            if (slice_equal(type, kinds[i].type))
                kind = i;
    report->kind = (enum run_report_kind)kind;
    if (kind == RUN_REPORT_NONE)
        return STATUS_OK;
    for (unsigned i = 0; i < RUN_MEMBER_COUNT; i++)
        report->members[i] = (struct json_field){.name = rules[i].name};
    *fault = (struct run_fault){"payload", "must be an object"};
    if (json_read_object(payload, &limits, report->members, RUN_MEMBER_COUNT) != STATUS_OK)
        return STATUS_INVALID_REQUEST;
    for (unsigned i = 0; i < RUN_MEMBER_COUNT; i++) {
        struct json_field *member = &report->members[i];
        bool is_null = member->present && member->value.kind == JSON_KIND_NULL;
        if (!(kinds[kind].members & BIT(i)) || (is_null && !(kinds[kind].removable & BIT(i))))
            member->present = false;
        if (!member->present && (kinds[kind].required & BIT(i))) {
            *fault = (struct run_fault){rules[i].name.data, "is required"};
            return STATUS_INVALID_REQUEST;
        }
        if (!member->present || is_null)
            continue;
        enum status status = run_member_check((enum run_member)i, member->value, fault);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status run_metadata_patch(struct slice base, struct slice patch, struct buffer *out) {
    size_t begin = out->size;
    enum status status = metadata_patch(base, patch, out);
    size_t bytes = out->size - begin;
    if (status == STATUS_OK && bytes > RUN_METADATA_BYTES_MAX && bytes > base.size) {
        buffer_truncate(out, begin);
        status = STATUS_PAYLOAD_TOO_LARGE;
    }
    return status;
}
