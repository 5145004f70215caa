/* khala cursor: encode, decode and compare event cursors; plan one topic cursor from numbers; plan
 * the topic cursors of a file. A file is one JSON text or one cursor a line. Each of its cursors is
 * compared with the window beside it, or gathered into requests of at most PLAN_CURSORS that a
 * server answers from its store. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/remote.h"
#include "server/config.h"
#include "topic/continuity.h"
#include "topic/cursor_list.h"
#include "topic/event_cursor.h"
#include "topic/position.h"
#include "topic/stream_id.h"

/* Cursors of one request. */
#define PLAN_CURSORS          1000
#define PLAN_BYTES_MAX        (4u << 20)
#define PLAN_DEPTH_MAX        8
#define ANSWER_SIZE_MAX       (64u << 20)
#define CURSOR_FILE_BYTES_MAX ((size_t)64 << 20)

struct migration {
    struct remote *remote; /* NULL: none is asked */
    struct buffer request; /* the cursors that the server is asked about next */
    size_t request_count;
    int code; /* the exit code of the requests */
    struct cursor_list list;
    struct buffer stream; /* the stream cursor */
    struct buffer line;
    bool json;
    bool is_no; /* a cursor is refused or stale */
};

/* Prints the plans of the server for the cursors that were gathered. */
static enum status ask_server(struct migration *migration) {
    const struct json_limits limits = {ANSWER_SIZE_MAX, PLAN_DEPTH_MAX};
    struct json_field plans = {.name = SLICE("plans")};
    struct json_value plan, reason;
    unsigned http_status = 0;
    if (migration->request_count == 0 || migration->code != EXIT_CODE_DONE)
        return STATUS_OK;
    enum status status = buffer_append_slice(&migration->request, SLICE("]}"));
    if (status != STATUS_OK)
        return status;
    migration->code = remote_ask(migration->remote, "/v1/cursors/plan",
                                 buffer_slice(&migration->request), &http_status);
    migration->request_count = 0;
    buffer_clear(&migration->request);
    if (migration->code == EXIT_CODE_DONE && http_status != 200)
        migration->code = remote_refused(migration->remote, http_status);
    if (migration->code != EXIT_CODE_DONE)
        return STATUS_OK;
    bool is_plan = json_read_object(buffer_slice(&migration->remote->answer), &limits, &plans, 1) ==
                       STATUS_OK &&
                   plans.present && plans.value.kind == JSON_KIND_ARRAY;
    struct json_iterator iterator = json_iterate(plans.value);
    while (is_plan && json_next_element(&iterator, &plan)) {
        struct json_field fields[] = {{.name = SLICE("stream_id")},
                                      {.name = SLICE("after_seq")},
                                      {.name = SLICE("decision")},
                                      {.name = SLICE("reason_codes")}};
        is_plan = plan.kind == JSON_KIND_OBJECT &&
                  json_read_members(plan, fields, 4) == STATUS_OK && fields[2].present &&
                  fields[3].present && fields[3].value.kind == JSON_KIND_ARRAY;
        if (!is_plan)
            break;
        migration->is_no = migration->is_no || !json_string_is(fields[2].value, SLICE("resume"));
        if (migration->json) {
            printf("%.*s\n", (int)plan.raw.size, plan.raw.data);
            continue;
        }
        for (size_t i = 0; i < 3; i++) {
            printf("%s", i > 0 ? " " : "");
            remote_print_text(stdout, fields[i].value);
        }
        struct json_iterator reasons = json_iterate(fields[3].value);
        for (char before = ' '; json_next_element(&reasons, &reason); before = ',') {
            putchar(before);
            remote_print_text(stdout, reason);
        }
        putchar('\n');
    }
    if (!is_plan)
        migration->code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not a plan");
    return STATUS_OK;
}

/* The server plans a cursor with others. A full request is sent at once. */
static enum status plan_by_server(struct migration *migration, const struct topic_cursor *cursor) {
    struct buffer *request = &migration->request;
    buffer_append_slice(request,
                        migration->request_count++ > 0 ? SLICE(",") : SLICE("{\"cursors\":["));
    buffer_printf(request, "{\"%s\":", cursor->kind == TOPIC_CURSOR_TOPIC ? "topic" : "stream_id");
    json_write_string(request, cursor->name);
    buffer_printf(request, ",\"after_seq\":%llu", (unsigned long long)cursor->after_seq);
    if (topic_epoch_is_known(&cursor->epoch))
        buffer_printf(request, ",\"epoch\":\"%s\"", cursor->epoch.text);
    enum status status = buffer_append_byte(request, '}');
    return status == STATUS_OK && migration->request_count == PLAN_CURSORS ? ask_server(migration)
                                                                           : status;
}

/* A cursor is planned with the window beside it in the file, and printed. */
static enum status plan_by_window(struct migration *migration, struct cursor_list_item *item) {
    struct topic_cursor *cursor = &item->cursor;
    struct buffer *line = &migration->line;
    buffer_clear(&migration->stream);
    enum status status = topic_cursor_migrate(cursor, &migration->stream);
    if (status != STATUS_OK)
        return status;
    const struct continuity plan =
        continuity_plan(item->has_window ? &item->window : NULL, cursor->after_seq, false);
    migration->is_no = migration->is_no || plan.decision != CONTINUITY_RESUME;
    buffer_clear(line);
    if (migration->json) {
        buffer_append_slice(line, SLICE("{\"stream_id\":"));
        json_write_string(line, cursor->name);
        size_t opening = line->size;
        status = continuity_write_json(line, &plan);
        if (status == STATUS_OK)
            line->data[opening] = ','; /* the plan's members go on in this object */
    } else {
        buffer_printf(line, "%.*s %llu ", (int)cursor->name.size, cursor->name.data,
                      (unsigned long long)cursor->after_seq);
        status = continuity_write_text(line, &plan);
    }
    if (status == STATUS_OK)
        printf("%.*s\n", (int)line->size, line->data);
    return status;
}

/* Plans the cursors of a file: against the windows in it, or, with options, against the store of a
 * server. A bad cursor is reported by its number; the others go on. */
static int migrate_file(const char *path, bool json, const struct remote_options *options) {
    const struct json_limits limits = {CURSOR_FILE_BYTES_MAX, JSON_DEPTH_MAX};
    struct migration migration = {.json = json, .code = EXIT_CODE_DONE};
    struct cursor_list_item item;
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
        /* A file that is not one JSON text may have one cursor per line. */
        if (cursor_list_begin(&migration.list, buffer_slice(&text), &limits) != STATUS_OK)
            cursor_list_begin_lines(&migration.list, buffer_slice(&text), &limits);
        for (size_t number = 1;
             migration.code == EXIT_CODE_DONE && cursor_list_next(&migration.list, &item);
             number++) {
            enum status planned = item.status != STATUS_OK ? item.status
                                  : migration.remote ? plan_by_server(&migration, &item.cursor)
                                                     : plan_by_window(&migration, &item);
            if (planned == STATUS_OK)
                continue;
            migration.is_no = true;
            cli_fail(EXIT_CODE_NO, "cursor %zu: %s: %s", number, status_code(planned),
                     status_message(planned));
        }
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

/* The rule of the server, with the same setting. */
static bool decode(const char *text, bool takes_legacy, struct event_cursor *cursor) {
    const char *reason = "";
    if (event_cursor_read(slice_of(text), takes_legacy, cursor, &reason) == STATUS_OK)
        return true;
    cli_fail(EXIT_CODE_NO, "%s: %s", status_code(STATUS_INVALID_CURSOR), reason);
    return false;
}

/* encode, decode and compare. */
static int event_cursors(const char *form, int argc, char **argv, bool json) {
    struct event_cursor cursor, other;
    struct config config;
    char text[EVENT_CURSOR_SIZE_MAX];
    char uuid[UUID_TEXT_SIZE + 1] = {0};
    if (strcmp(form, "encode") == 0) {
        if (argc != 2)
            return cli_usage("cursor", "encode takes a time and a UUID");
        if (!cli_number(argv[0], &cursor.timestamp_ms))
            return cli_fail(EXIT_CODE_NO, "'%s' is not a timestamp of 0 to 2^53-1", argv[0]);
        if (uuid7_parse(slice_of(argv[1]), &cursor.uuid) != STATUS_OK)
            return cli_fail(EXIT_CODE_NO, "'%s' is not a lower-case UUIDv7", argv[1]);
        size_t size = event_cursor_encode(&cursor, text);
        printf(json ? "{\"cursor\":\"%.*s\"}\n" : "%.*s\n", (int)size, text);
        return EXIT_CODE_DONE;
    }
    bool is_decode = strcmp(form, "decode") == 0;
    if (is_decode && argc != 1)
        return cli_usage("cursor", "decode takes one cursor, not %d", argc);
    if (!is_decode && argc != 2)
        return cli_usage("cursor", "compare takes two cursors, not %d", argc);
    if (cli_settings_of(NULL, &config) != EXIT_CODE_DONE)
        return EXIT_CODE_USAGE;
    if (!decode(argv[0], config.legacy_cursors, &cursor) ||
        (!is_decode && !decode(argv[1], config.legacy_cursors, &other)))
        return EXIT_CODE_NO;
    if (is_decode) {
        uuid_format(&cursor.uuid, uuid);
        printf(json ? "{\"timestamp_ms\":%llu,\"uuid\":\"%s\"}\n" : "%llu %s\n",
               (unsigned long long)cursor.timestamp_ms, uuid);
    } else {
        int order = event_cursor_compare(&cursor, &other);
        printf(json ? "{\"order\":%d}\n" : "%d\n", (order > 0) - (order < 0));
    }
    return EXIT_CODE_DONE;
}

struct plan_words {
    const char *after;
    const char *oldest;
    const char *head;
    const char *budget;
    const char *epoch;
    const char *store_epoch;
    const char *fork;
};

static int cursor_plan(int argc, const struct plan_words *words, bool json) {
    struct topic_window window;
    struct position after = {.seq = 0};
    struct topic_epoch store_epoch = {{0}};
    bool windowed = words->oldest && words->head && words->budget;
    if (argc != 0 || !words->after)
        return cli_usage("cursor", "plan takes options only, and needs --after");
    if (!windowed && (words->oldest || words->head || words->budget))
        return cli_usage("cursor", "--oldest, --head and --budget go together");
    if (position_read(slice_of(words->after), &after) != STATUS_OK)
        return cli_usage("cursor", "--after '%s' is not a seq or seq@epoch", words->after);
    if (words->epoch && (topic_epoch_is_known(&after.epoch) ||
                         topic_epoch_read(slice_of(words->epoch), &after.epoch) != STATUS_OK))
        return cli_usage("cursor", "--epoch '%s' is no epoch, or a second one", words->epoch);
    if (topic_epoch_is_known(&after.epoch) != !!words->store_epoch ||
        (words->store_epoch &&
         topic_epoch_read(slice_of(words->store_epoch), &store_epoch) != STATUS_OK))
        return cli_usage("cursor", "an epoch of the client and --store-epoch go together");
    if ((windowed && (!cli_number(words->oldest, &window.oldest_seq) ||
                      !cli_number(words->head, &window.head_seq) ||
                      !cli_number(words->budget, &window.replay_budget_events))))
        return cli_fail(EXIT_CODE_USAGE, "cursor plan takes whole numbers of 0 to 2^53-1");
    struct topic_fork fork = {.is_set = words->fork != NULL};
    if (fork.is_set && !cli_number(words->fork, &fork.seq))
        return cli_fail(EXIT_CODE_USAGE, "--fork takes a whole number of 0 to 2^53-1");
    struct lineage lineage = lineage_of(NULL, &after, &store_epoch, &fork);
    lineage.epoch_differs =
        words->store_epoch && !topic_epoch_continues(&after.epoch, &store_epoch);
    struct continuity plan = continuity_judge(windowed ? &window : NULL, after.seq, lineage);
    struct buffer out;
    buffer_init(&out, 1024);
    int code = plan.decision == CONTINUITY_RESUME ? EXIT_CODE_DONE : EXIT_CODE_NO;
    enum status status =
        json ? continuity_write_json(&out, &plan) : continuity_write_text(&out, &plan);
    if (status == STATUS_OK)
        printf("%.*s\n", (int)out.size, out.data);
    else
        code = cli_fail(EXIT_CODE_UNREACHABLE, "out of memory");
    buffer_release(&out);
    return code;
}

int cli_cursor(int argc, char **argv) {
    struct plan_words words = {0};
    struct remote_options remote = {.is_client = true};
    bool json = false;
    const struct cli_option options[] = {
        {"--after", NULL, &words.after}, {"--oldest", NULL, &words.oldest},
        {"--head", NULL, &words.head},   {"--budget", NULL, &words.budget},
        {"--epoch", NULL, &words.epoch}, {"--store-epoch", NULL, &words.store_epoch},
        {"--fork", NULL, &words.fork},   {"--json", &json, NULL},
        REMOTE_OPTION_ROWS(remote),
    };
    if (!cli_options(&argc, argv, options, sizeof(options) / sizeof(options[0])))
        return EXIT_CODE_USAGE;
    if (argc == 0)
        return cli_usage("cursor", "give one of encode, decode, compare, plan and migrate");
    const char *name = argv[0];
    argc--;
    argv++;
    if ((remote.url || remote.ca_file || remote.key || remote.data_dir) &&
        strcmp(name, "migrate") != 0)
        return cli_usage("cursor", "only migrate asks a server");
    if (strcmp(name, "plan") == 0)
        return cursor_plan(argc, &words, json);
    if (words.after || words.oldest || words.head || words.budget || words.epoch ||
        words.store_epoch || words.fork)
        return cli_usage("cursor", "%s takes no option of plan", name);
    if (strcmp(name, "encode") == 0 || strcmp(name, "decode") == 0 || strcmp(name, "compare") == 0)
        return event_cursors(name, argc, argv, json);
    if (strcmp(name, "migrate") == 0 && argc == 1)
        return migrate_file(argv[0], json, remote.url ? &remote : NULL);
    return cli_usage("cursor", "'%s' is not a form of cursor with these words", name);
}
