#include "cli/cursor_file.h"

#include <errno.h>
#include <stdio.h>

#include "cli/cli.h"
#include "topic/cursor_list.h"
#include "topic/stream_id.h"

struct migration {
    struct cursor_list list;
    struct buffer stream; /* the stream cursor */
    struct buffer line;
    size_t number;
    bool json;
    bool is_no; /* a cursor is refused or stale */
};

static enum status print_plan(struct migration *migration, const struct topic_cursor *cursor,
                              const struct topic_window *window) {
    struct continuity plan = continuity_plan(window, cursor->after_seq, false);
    struct buffer *line = &migration->line;
    migration->is_no = migration->is_no || plan.decision != CONTINUITY_RESUME;
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
        status = buffer_printf(line, "%.*s %llu ", (int)cursor->name.size, cursor->name.data,
                               (unsigned long long)cursor->after_seq);
        if (status == STATUS_OK)
            status = continuity_write_text(line, &plan);
    }
    if (status == STATUS_OK)
        printf("%.*s\n", (int)line->size, line->data);
    return status;
}

static enum status migrate(struct migration *migration, struct cursor_list_item *item) {
    if (item->status != STATUS_OK)
        return item->status;
    buffer_clear(&migration->stream);
    enum status status = topic_cursor_migrate(&item->cursor, &migration->stream);
    if (status != STATUS_OK)
        return status;
    return print_plan(migration, &item->cursor, item->has_window ? &item->window : NULL);
}

static void migrate_text(struct migration *migration, struct slice text) {
    static const struct json_limits limits = {CURSOR_FILE_BYTES_MAX, JSON_DEPTH_MAX};
    struct cursor_list_item item;
    /* A file that is not one JSON text may have one cursor per line. */
    if (cursor_list_begin(&migration->list, text, &limits) != STATUS_OK)
        cursor_list_begin_lines(&migration->list, text, &limits);
    while (cursor_list_next(&migration->list, &item)) {
        enum status status = migrate(migration, &item);
        migration->number++;
        if (status == STATUS_OK)
            continue;
        migration->is_no = true;
        cli_fail(EXIT_CODE_NO, "cursor %zu: %s: %s", migration->number, status_code(status),
                 status_message(status));
    }
}

int cursor_migrate_file(const char *path, bool json) {
    struct migration migration = {.json = json};
    struct buffer text;
    buffer_init(&text, CURSOR_FILE_BYTES_MAX);
    cursor_list_init(&migration.list);
    buffer_init(&migration.stream, STREAM_ID_BYTES_MAX);
    buffer_init(&migration.line, STREAM_ID_BYTES_MAX * 8);
    enum status status = cli_read(path, &text);
    int code = EXIT_CODE_DONE;
    if (status == STATUS_OK) {
        migrate_text(&migration, buffer_slice(&text));
        if (migration.is_no)
            code = EXIT_CODE_NO;
    } else if (status == STATUS_SYSTEM_ERROR) {
        code = cli_fail(EXIT_CODE_UNREACHABLE, "cannot read '%s': %s", path, strerror(errno));
    } else {
        code = cli_fail(EXIT_CODE_NO, "%s: '%s' is larger than %zu bytes", status_code(status),
                        path, CURSOR_FILE_BYTES_MAX);
    }
    buffer_release(&text);
    cursor_list_release(&migration.list);
    buffer_release(&migration.stream);
    buffer_release(&migration.line);
    return code;
}
