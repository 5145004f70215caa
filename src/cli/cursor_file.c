#include "cli/cursor_file.h"

#include <errno.h>
#include <stdio.h>

#include "cli/cli.h"
#include "topic/continuity.h"
#include "topic/stream_id.h"
#include "topic/topic_cursor.h"
#include "wire/json.h"

static const struct json_limits limits = {CURSOR_FILE_BYTES_MAX, JSON_DEPTH_MAX};

struct migration {
    struct buffer name;   /* the cursor's name, decoded */
    struct buffer stream; /* what it became */
    struct buffer line;
    size_t number;
    bool json;
    bool refused;
};

static enum status read_window(struct json_value value, struct topic_window *window) {
    struct json_field fields[] = {{.name = SLICE("oldest_seq")},
                                  {.name = SLICE("head_seq")},
                                  {.name = SLICE("replay_budget_events")}};
    uint64_t *numbers[] = {&window->oldest_seq, &window->head_seq, &window->replay_budget_events};
    enum status status = json_read_members(value, fields, 3);
    for (size_t i = 0; status == STATUS_OK && i < 3; i++)
        if (!fields[i].present || !json_u64(fields[i].value, JSON_INTEGER_MAX, numbers[i]))
            status = STATUS_INVALID_CURSOR;
    return status;
}

static enum status print_plan(struct migration *migration, const struct topic_cursor *cursor,
                              const struct topic_window *window) {
    struct continuity plan = continuity_plan(window, cursor->after_seq, false);
    struct buffer *line = &migration->line;
    buffer_clear(line);
    enum status status = STATUS_OK;
    if (migration->json) {
        status = buffer_printf(line, "{\"stream_id\":");
        if (status == STATUS_OK)
            status = json_write_string(line, cursor->name);
        size_t opening = line->size;
        if (status == STATUS_OK)
            status = continuity_write_json(line, &plan);
        if (status == STATUS_OK)
            line->data[opening] = ','; /* the plan's members go on in this object */
    } else {
        bool resumes = plan.decision == CONTINUITY_RESUME;
        status = buffer_printf(line, "%.*s %llu %s", (int)cursor->name.size, cursor->name.data,
                               (unsigned long long)cursor->after_seq,
                               resumes ? "resume" : "rebootstrap");
        for (size_t i = 0; status == STATUS_OK && i < plan.reason_count; i++)
            status = buffer_printf(line, "%c%s", i ? ',' : ' ', reason_code(plan.reasons[i]));
    }
    if (status == STATUS_OK)
        printf("%.*s\n", (int)line->size, line->data);
    return status;
}

/* Nothing that would break the line it is printed on, in valid UTF-8: no C0, DEL or C1. */
static bool fits_on_a_line(struct slice name) {
    for (size_t i = 0; i < name.size; i++) {
        unsigned char byte = (unsigned char)name.data[i];
        if (byte < 0x20 || byte == 0x7f || (byte == 0xc2 && (unsigned char)name.data[i + 1] < 0xa0))
            return false;
    }
    return true;
}

static enum status check_name(const struct topic_cursor *cursor) {
    if (cursor->kind == TOPIC_CURSOR_TOPIC)
        return topic_name_check(cursor->name);
    bool usable = cursor->name.size > 0 && fits_on_a_line(cursor->name);
    return usable ? STATUS_OK : STATUS_INVALID_CURSOR;
}

static enum status migrate(struct migration *migration, struct topic_cursor *cursor,
                           const struct topic_window *window) {
    cursor->name = buffer_slice(&migration->name);
    enum status status = check_name(cursor);
    buffer_clear(&migration->stream);
    if (status == STATUS_OK)
        status = topic_cursor_migrate(cursor, &migration->stream);
    return status == STATUS_OK ? print_plan(migration, cursor, window) : status;
}

static enum status migrate_value(struct migration *migration, struct json_value value) {
    struct json_field fields[] = {{.name = SLICE("topic")},
                                  {.name = SLICE("stream_id")},
                                  {.name = SLICE("after_seq")},
                                  {.name = SLICE("watermark")},
                                  {.name = SLICE("window")}};
    struct topic_cursor cursor = {0};
    struct topic_window window;
    enum status status = json_read_members(value, fields, 5);
    if (status != STATUS_OK)
        return status;
    if (fields[0].present == fields[1].present || fields[2].present == fields[3].present)
        return STATUS_INVALID_CURSOR;
    bool by_topic = fields[0].present;
    cursor.kind = by_topic ? TOPIC_CURSOR_TOPIC : TOPIC_CURSOR_STREAM;
    if (!json_u64(fields[fields[2].present ? 2 : 3].value, JSON_INTEGER_MAX, &cursor.after_seq))
        return STATUS_INVALID_CURSOR;
    buffer_clear(&migration->name);
    status = json_string_decode(fields[by_topic ? 0 : 1].value, &migration->name);
    if (status == STATUS_OK && fields[4].present)
        status = read_window(fields[4].value, &window);
    return status == STATUS_OK ? migrate(migration, &cursor, fields[4].present ? &window : NULL)
                               : status;
}

static void migrate_row(struct migration *migration, enum status status) {
    migration->number++;
    if (status == STATUS_OK)
        return;
    migration->refused = true;
    cli_fail(EXIT_CODE_NO, "cursor %zu: %s: %s", migration->number, status_code(status),
             status_message(status));
}

static void migrate_members(struct migration *migration, struct json_value object) {
    struct json_iterator iterator = json_iterate(object);
    struct json_value name;
    struct json_value value;
    while (json_next_member(&iterator, &name, &value)) {
        struct topic_cursor cursor = {.kind = TOPIC_CURSOR_TOPIC};
        enum status status = STATUS_INVALID_CURSOR;
        buffer_clear(&migration->name);
        if (json_u64(value, JSON_INTEGER_MAX, &cursor.after_seq))
            status = json_string_decode(name, &migration->name);
        if (status == STATUS_OK)
            status = migrate(migration, &cursor, NULL);
        migrate_row(migration, status);
    }
}

/* A single object is one cursor when it names a topic or stream, else a map of topics. */
static bool is_cursor(struct json_value object) {
    struct json_field fields[] = {{.name = SLICE("topic")}, {.name = SLICE("stream_id")}};
    return json_read_members(object, fields, 2) == STATUS_OK &&
           ((fields[0].present && fields[0].value.kind == JSON_KIND_STRING) ||
            (fields[1].present && fields[1].value.kind == JSON_KIND_STRING));
}

static bool is_blank(struct slice line) {
    size_t blanks = 0;
    while (blanks < line.size && memchr(" \t\r", line.data[blanks], 3))
        blanks++;
    return blanks == line.size;
}

static void migrate_lines(struct migration *migration, struct slice text) {
    while (text.size > 0) {
        const char *newline = memchr(text.data, '\n', text.size);
        size_t size = newline ? (size_t)(newline - text.data) : text.size;
        struct slice line = {text.data, size};
        struct json_value value;
        text = slice_from(text, newline ? size + 1 : size);
        if (is_blank(line))
            continue;
        enum status status = json_parse(line, &limits, &value);
        migrate_row(migration, status == STATUS_OK ? migrate_value(migration, value) : status);
    }
}

static void migrate_text(struct migration *migration, struct slice text) {
    struct json_value whole;
    if (json_parse(text, &limits, &whole) != STATUS_OK) {
        migrate_lines(migration, text);
    } else if (whole.kind == JSON_KIND_ARRAY) {
        struct json_iterator iterator = json_iterate(whole);
        struct json_value value;
        while (json_next_element(&iterator, &value))
            migrate_row(migration, migrate_value(migration, value));
    } else if (whole.kind == JSON_KIND_OBJECT && !is_cursor(whole)) {
        migrate_members(migration, whole);
    } else {
        migrate_row(migration, migrate_value(migration, whole));
    }
}

int cursor_migrate_file(const char *path, bool json) {
    struct migration migration = {.json = json};
    struct buffer text;
    buffer_init(&text, CURSOR_FILE_BYTES_MAX);
    buffer_init(&migration.name, STREAM_ID_BYTES_MAX);
    buffer_init(&migration.stream, STREAM_ID_BYTES_MAX);
    buffer_init(&migration.line, STREAM_ID_BYTES_MAX * 8);
    enum status status = cli_read(path, &text);
    int code = EXIT_CODE_DONE;
    if (status == STATUS_OK) {
        migrate_text(&migration, buffer_slice(&text));
        if (migration.refused)
            code = EXIT_CODE_NO;
    } else if (status == STATUS_SYSTEM_ERROR) {
        code = cli_fail(EXIT_CODE_UNREACHABLE, "cannot read '%s': %s", path, strerror(errno));
    } else {
        code = cli_fail(EXIT_CODE_NO, "%s: '%s' is larger than %zu bytes", status_code(status),
                        path, CURSOR_FILE_BYTES_MAX);
    }
    buffer_release(&text);
    buffer_release(&migration.name);
    buffer_release(&migration.stream);
    buffer_release(&migration.line);
    return code;
}
