#include "cli/cursor_file.h"

#include <errno.h>
#include <stdio.h>

#include "cli/cli.h"
#include "topic/cursor_list.h"
#include "topic/stream_id.h"

/* Cursors of one request. */
#define PLAN_CURSORS    1000
#define PLAN_BYTES_MAX  (4u << 20)
#define PLAN_DEPTH_MAX  8
#define ANSWER_SIZE_MAX (64u << 20)

struct migration {
    struct remote *remote; /* NULL: none is asked */
    struct buffer request; /* the cursors that the server is asked about next */
    size_t request_count;
    int code; /* of the requests */
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

/* ---- by the server ---- */

static void print_value(struct json_value value) {
    struct buffer text;
    buffer_init(&text, STREAM_ID_BYTES_MAX);
    if (value.kind == JSON_KIND_STRING && json_string_decode(value, &text) == STATUS_OK)
        printf("%.*s", (int)text.size, text.data);
    else
        printf("%.*s", (int)value.raw.size, value.raw.data);
    buffer_release(&text);
}

static void print_reasons(struct json_value reasons) {
    struct json_iterator iterator = json_iterate(reasons);
    struct json_value reason;
    for (bool is_first = true; json_next_element(&iterator, &reason); is_first = false) {
        putchar(is_first ? ' ' : ',');
        print_value(reason);
    }
    putchar('\n');
}

static bool print_server_plan(struct migration *migration, struct json_value plan) {
    struct json_field fields[] = {{.name = SLICE("stream_id")},
                                  {.name = SLICE("after_seq")},
                                  {.name = SLICE("decision")},
                                  {.name = SLICE("reason_codes")}};
    if (plan.kind != JSON_KIND_OBJECT || json_read_members(plan, fields, 4) != STATUS_OK ||
        !fields[2].present || !fields[3].present || fields[3].value.kind != JSON_KIND_ARRAY)
        return false;
    migration->is_no = migration->is_no || !json_string_is(fields[2].value, SLICE("resume"));
    if (migration->json) {
        printf("%.*s\n", (int)plan.raw.size, plan.raw.data);
        return true;
    }
    for (size_t i = 0; i < 3; i++) {
        print_value(fields[i].value);
        if (i < 2)
            putchar(' ');
    }
    print_reasons(fields[3].value);
    return true;
}

static int print_server_plans(struct migration *migration) {
    const struct json_limits limits = {ANSWER_SIZE_MAX, PLAN_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("plans")}};
    struct json_value plan;
    bool is_plan = json_read_object(buffer_slice(&migration->remote->answer), &limits, fields, 1) ==
                       STATUS_OK &&
                   fields[0].present && fields[0].value.kind == JSON_KIND_ARRAY;
    if (is_plan) {
        struct json_iterator iterator = json_iterate(fields[0].value);
        while (is_plan && json_next_element(&iterator, &plan))
            is_plan = print_server_plan(migration, plan);
    }
    return is_plan ? EXIT_CODE_DONE
                   : cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not a plan");
}

/* Asks about the cursors that were gathered. */
static enum status ask_server(struct migration *migration) {
    unsigned http_status = 0;
    if (migration->request_count == 0 || migration->code != EXIT_CODE_DONE)
        return STATUS_OK;
    enum status status = buffer_append_slice(&migration->request, SLICE("]}"));
    if (status != STATUS_OK)
        return status;
    int code = remote_ask(migration->remote, "/v1/cursors/plan", buffer_slice(&migration->request),
                          &http_status);
    if (code == EXIT_CODE_DONE)
        code = http_status == 200 ? print_server_plans(migration)
                                  : remote_refused(migration->remote, http_status);
    migration->code = code;
    migration->request_count = 0;
    buffer_clear(&migration->request);
    return STATUS_OK;
}

static enum status add_to_request(struct migration *migration, const struct topic_cursor *cursor) {
    struct buffer *request = &migration->request;
    const char *begin = migration->request_count++ > 0 ? "," : "{\"cursors\":[";
    enum status status = buffer_append_slice(request, slice_of(begin));
    if (status == STATUS_OK)
        status = buffer_printf(
            request, "{\"%s\":", cursor->kind == TOPIC_CURSOR_TOPIC ? "topic" : "stream_id");
    if (status == STATUS_OK)
        status = json_write_string(request, cursor->name);
    if (status == STATUS_OK)
        status =
            buffer_printf(request, ",\"after_seq\":%llu", (unsigned long long)cursor->after_seq);
    if (status == STATUS_OK && topic_epoch_is_known(&cursor->epoch))
        status = buffer_printf(request, ",\"epoch\":\"%s\"", cursor->epoch.text);
    if (status == STATUS_OK)
        status = buffer_append_byte(request, '}');
    if (status == STATUS_OK && migration->request_count == PLAN_CURSORS)
        status = ask_server(migration);
    return status;
}

static enum status migrate(struct migration *migration, struct cursor_list_item *item) {
    if (item->status != STATUS_OK)
        return item->status;
    if (migration->remote)
        return add_to_request(migration, &item->cursor);
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
    while (migration->code == EXIT_CODE_DONE && cursor_list_next(&migration->list, &item)) {
        enum status status = migrate(migration, &item);
        migration->number++;
        if (status == STATUS_OK)
            continue;
        migration->is_no = true;
        cli_fail(EXIT_CODE_NO, "cursor %zu: %s: %s", migration->number, status_code(status),
                 status_message(status));
    }
}

int cursor_migrate_file(const char *path, bool json, const struct remote_options *options) {
    struct migration migration = {.json = json, .code = EXIT_CODE_DONE};
    struct remote remote;
    struct buffer text;
    if (options) {
        migration.code = remote_open(&remote, options);
        migration.remote = &remote;
    }
    buffer_init(&migration.request, PLAN_BYTES_MAX);
    buffer_init(&text, CURSOR_FILE_BYTES_MAX);
    cursor_list_init(&migration.list);
    buffer_init(&migration.stream, STREAM_ID_BYTES_MAX);
    buffer_init(&migration.line, STREAM_ID_BYTES_MAX * 8);
    enum status status = cli_read(path, &text);
    int code = EXIT_CODE_DONE;
    if (status == STATUS_OK) {
        migrate_text(&migration, buffer_slice(&text));
        if (ask_server(&migration) != STATUS_OK)
            code = cli_fail(EXIT_CODE_UNREACHABLE, "out of memory");
        else if (migration.code != EXIT_CODE_DONE)
            code = migration.code;
        else if (migration.is_no)
            code = EXIT_CODE_NO;
    } else if (status == STATUS_SYSTEM_ERROR) {
        code = cli_fail(EXIT_CODE_UNREACHABLE, "cannot read '%s': %s", path, strerror(errno));
    } else {
        code = cli_fail(EXIT_CODE_NO, "%s: '%s' is larger than %zu bytes", status_code(status),
                        path, CURSOR_FILE_BYTES_MAX);
    }
    buffer_release(&text);
    if (migration.remote)
        remote_close(migration.remote);
    buffer_release(&migration.request);
    cursor_list_release(&migration.list);
    buffer_release(&migration.stream);
    buffer_release(&migration.line);
    return code;
}
