/* khala get: one request, whose path and printing follow from two tables. A list names the members
 * that are printed of its elements; a subject names its path. Events have a path by the option that
 * is given. An answer for people is printed member by member; with --json, and for a replay, it is
 * passed on as it arrives. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/remote.h"
#include "topic/position.h"
#include "wire/json.h"

#define TARGET_BYTES_MAX 8192
#define ANSWER_BYTES_MAX (64u << 20)

#define WHERE_MAX        16
#define WHERE_NAME_BYTES 64
/* A watched list is asked for again at most so often, and looked at after this time at the latest.
 */
#define WATCH_PAUSE_MS 500
#define WATCH_WAIT_MS  "10000"

struct get_options {
    struct remote_options remote;
    const char *run;
    const char *worker;
    const char *topic;
    const char *after;
    const char *since;
    const char *limit;
    const char *status;
    const char *user;
    const char *guest;
    const char *org;
    const char *topic_class;
    const char *prefix;
    const char *dialect;
    const char *sort;
    const char *where[WHERE_MAX]; /* NAME=VALUE each */
    size_t where_count;
    bool watch;
    bool json;
};

#define COLUMNS_MAX 7

/* The lists: their path is their name, and these members of an item are printed for people. */
struct listing {
    const char *name;
    bool has_owners; /* accepts --status, --user, --guest, --org, --where, --sort and --watch */
    bool has_topics; /* accepts --class */
    bool has_prefix; /* accepts --prefix */
    const char *columns[COLUMNS_MAX];
};

static const struct listing lists[] = {
    {"runs",
     true,
     false,
     false,
     {"run_id", "status", "owner_user_id", "owner_guest_scope", "org_id", "latest_seq", "title"}},
    {"workers",
     true,
     false,
     false,
     {"worker_id", "status", "liveness", "owner_user_id", "owner_guest_scope", "org_id",
      "latest_seq"}},
    {"topics", false, true, true, {"topic", "stream_id", "topic_class", "qos_tier", "window"}},
    {"connections",
     false,
     false,
     true,
     {"id", "principal", "dialect", "remote_address", "topics", "lag", "since"}},
    {"principals", false, false, true, {"principal", "connections", "subscriptions"}},
};

/* The resources: the words that name one, the number of ids that follow, and its path. */
struct subject {
    const char *words[2];
    int id_count;
    const char *path; /* each %s is an id */
    const char *tail;
};

static const struct subject subjects[] = {
    {{"run", NULL}, 1, "runs/", ""},
    {{"worker", NULL}, 1, "workers/", ""},
    {{"receipt", NULL}, 1, "runs/", "/receipt"},
    {{"replay", NULL}, 1, "runs/", "/replay"},
    {{"summary", "run"}, 1, "projectors/run-summary/", ""},
    {{"summary", "worker"}, 1, "projectors/worker-summary/", ""},
    {{"checkpoint", NULL}, 2, "projectors/checkpoints/", ""},
    {{"drift", NULL}, 0, "projectors/drift", ""},
};

/* The words of the command line: events, a list or a subject, and the ids of a subject. */
struct words {
    bool is_events;
    const struct listing *list;
    const struct subject *subject;
    char **ids;
};

static struct words words_read(int argc, char **argv) {
    struct words words = {.is_events = argc == 1 && strcmp(argv[0], "events") == 0};
    for (size_t i = 0; argc == 1 && i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(argv[0], lists[i].name) == 0)
            words.list = &lists[i];
    for (size_t i = 0; argc > 0 && i < sizeof(subjects) / sizeof(subjects[0]); i++) {
        const struct subject *subject = &subjects[i];
        int word_count = subject->words[1] ? 2 : 1;
        if (argc != word_count + subject->id_count || strcmp(argv[0], subject->words[0]) != 0 ||
            (subject->words[1] && strcmp(argv[1], subject->words[1]) != 0))
            continue;
        words.subject = subject;
        words.ids = argv + word_count;
    }
    return words;
}

static void write_target(struct buffer *target, const struct words *words,
                         const struct get_options *options) {
    buffer_append_slice(target, SLICE("/internal/v1/"));
    if (words->is_events) {
        buffer_append_slice(target, options->run      ? SLICE("runs/")
                                    : options->worker ? SLICE("workers/")
                                                      : SLICE("topics/"));
        remote_encode(target, options->run      ? options->run
                              : options->worker ? options->worker
                                                : options->topic);
        buffer_append_slice(target, SLICE("/events"));
        remote_add_parameter(target, "after_seq", options->after);
        remote_add_parameter(target, "since", options->since);
        remote_add_parameter(target, "limit", options->limit);
    } else if (words->list) {
        buffer_append_slice(target, slice_of(words->list->name));
        remote_add_parameter(target, "status", options->status);
        remote_add_parameter(target, "owner_user_id", options->user);
        remote_add_parameter(target, "owner_guest_scope", options->guest);
        remote_add_parameter(target, "org_id", options->org);
        remote_add_parameter(target, "class", options->topic_class);
        remote_add_parameter(target, "prefix", options->prefix);
        remote_add_parameter(target, "dialect", options->dialect);
        for (size_t i = 0; i < options->where_count; i++) {
            char name[WHERE_NAME_BYTES];
            const char *value = strchr(options->where[i], '=') + 1;
            snprintf(name, sizeof(name), "%.*s", (int)(value - options->where[i] - 1),
                     options->where[i]);
            remote_add_parameter(target, name, value);
        }
        remote_add_parameter(target, "sort", options->sort);
        remote_add_parameter(target, "after", options->after);
        remote_add_parameter(target, "limit", options->limit);
    } else {
        buffer_append_slice(target, slice_of(words->subject->path));
        for (int i = 0; i < words->subject->id_count; i++) {
            buffer_append_slice(target, i > 0 ? SLICE("/") : SLICE(""));
            remote_encode(target, words->ids[i]);
        }
        buffer_append_slice(target, slice_of(words->subject->tail));
    }
    buffer_append_byte(target, '\0');
}

/* ---- for people --------------------------------------------------------------------------- */

static void print_cell(FILE *out, struct json_value value, char separator) {
    if (value.kind == JSON_KIND_NULL)
        fputc('-', out);
    else
        remote_print_text(out, value);
    fputc(separator, out);
}

/* One element of a list in a line: these members, or the whole element if there are none. */
static void print_element(struct json_value element, const char *const *columns) {
    struct json_field fields[COLUMNS_MAX];
    size_t count = 0;
    for (; columns && count < COLUMNS_MAX && columns[count]; count++)
        fields[count] = (struct json_field){.name = slice_of(columns[count])};
    if (!columns)
        printf("%.*s\n", (int)element.raw.size, element.raw.data);
    else if (element.kind == JSON_KIND_OBJECT &&
             json_read_members(element, fields, count) == STATUS_OK)
        for (size_t i = 0; i < count; i++)
            print_cell(stdout, fields[i].value, i + 1 < count ? '\t' : '\n');
}

/* One member of a run or worker a line. */
static void print_entity(struct json_value entity) {
    struct json_iterator members = json_iterate(entity);
    struct json_value name, value;
    while (json_next_member(&members, &name, &value)) {
        print_cell(stdout, name, '\t');
        print_cell(stdout, value, '\n');
    }
}

/* One member a line; the lists of answers one element a line. The other members of a list, such as
 * its cursor, go to standard error, so that standard output has elements only. */
static void print_object(struct json_value object, const struct listing *list) {
    static const char *const event_columns[COLUMNS_MAX] = {"seq", "recorded_at", "event_type",
                                                           "payload"};
    struct json_value name, value, element;
    struct json_iterator members = json_iterate(object);
    FILE *out = stdout;
    while (json_next_member(&members, &name, &value))
        if (value.kind == JSON_KIND_ARRAY)
            out = stderr;
    members = json_iterate(object);
    while (json_next_member(&members, &name, &value)) {
        if (value.kind == JSON_KIND_OBJECT &&
            (json_string_is(name, SLICE("run")) || json_string_is(name, SLICE("worker")))) {
            print_entity(value);
        } else if (value.kind == JSON_KIND_ARRAY) {
            const char *const *columns = json_string_is(name, SLICE("events")) ? event_columns
                                         : list                                ? list->columns
                                                                               : NULL;
            struct json_iterator elements = json_iterate(value);
            while (json_next_element(&elements, &element))
                print_element(element, columns);
        } else {
            print_cell(out, name, '\t');
            print_cell(out, value, '\n');
        }
    }
}

/* With --json an answer is printed as it arrives; a replay always is. */
struct get_run {
    struct remote *remote;
    bool passes;
};

static enum status get_body(void *user, unsigned http_status, struct slice piece) {
    struct get_run *run = user;
    if (http_status != 200 || !run->passes)
        return buffer_append_slice(&run->remote->answer, piece);
    return fwrite(piece.data, 1, piece.size, stdout) == piece.size ? STATUS_OK
                                                                   : STATUS_SYSTEM_ERROR;
}

static int get(const struct get_options *options, const struct words *words) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    bool is_replay = words->subject && strcmp(words->subject->words[0], "replay") == 0;
    struct remote remote = {.client = NULL};
    struct get_run run = {&remote, options->json || is_replay};
    struct buffer target;
    struct json_value value;
    unsigned http_status = 0;
    buffer_init(&target, TARGET_BYTES_MAX);
    write_target(&target, words, options);
    enum status status = buffer_status(&target);
    int code = status == STATUS_OK ? remote_open(&remote, &options->remote)
                                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    if (code == EXIT_CODE_DONE) {
        struct blocking_request request = {
            .method = "GET", .target = target.data, .user = &run, .on_body = get_body};
        code = remote_exchange(&remote, &request, &http_status);
    }
    if (code == EXIT_CODE_DONE && http_status != 200) {
        code = remote_refused(&remote, http_status);
    } else if (code == EXIT_CODE_DONE && !run.passes) {
        if (json_parse(buffer_slice(&remote.answer), &limits, &value) == STATUS_OK &&
            value.kind == JSON_KIND_OBJECT)
            print_object(value, words->list);
        else
            code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not a JSON object");
    }
    if (status == STATUS_OK)
        remote_close(&remote);
    buffer_release(&target);
    return code;
}

/* ---- watching ---- */

static int ask(struct remote *remote, const char *target, unsigned *http_status) {
    int code = remote_ask(remote, target, (struct slice){NULL, 0}, http_status);
    return code == EXIT_CODE_DONE && *http_status != 200 && *http_status != 410
               ? remote_refused(remote, *http_status)
               : code;
}

/* The summaries of the list's entities: every change of a row makes a frame there. */
static void write_poll(struct buffer *target, const struct listing *list, struct slice cursor) {
    buffer_clear(target);
    buffer_printf(target, "/internal/v1/khala/topics/runtime.%s/messages?limit=1",
                  strcmp(list->name, "runs") == 0 ? "run_summaries" : "codex_worker_summaries");
    if (cursor.size > 0)
        buffer_printf(target, "&wait_ms=" WATCH_WAIT_MS "&after_seq=%.*s", (int)cursor.size,
                      cursor.data);
    else
        buffer_append_slice(target, SLICE("&from=head"));
    buffer_append_byte(target, '\0');
}

/* The position of an empty poll: a number, or a string with the epoch. */
static bool read_position(struct slice answer, struct buffer *cursor) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field field = {.name = SLICE("next_cursor")};
    struct slice text;
    buffer_clear(cursor);
    if (json_read_object(answer, &limits, &field, 1) != STATUS_OK || !field.present)
        return false;
    text = field.value.raw;
    return (field.value.kind == JSON_KIND_NUMBER || json_string_slice(field.value, &text)) &&
           buffer_append_slice(cursor, text) == STATUS_OK;
}

static void print_list(const struct get_options *options, const struct words *words,
                       struct slice answer, bool is_first) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_value value;
    if (options->json)
        fwrite(answer.data, 1, answer.size, stdout);
    else if (json_parse(answer, &limits, &value) == STATUS_OK && value.kind == JSON_KIND_OBJECT) {
        if (!is_first)
            putchar('\n');
        print_object(value, words->list);
    }
    fflush(stdout);
}

/* Prints the list, and again whenever it has changed, until a signal ends the process. The position
 * is taken before the list, so that no change behind the list is missed. */
static int watch(const struct get_options *options, const struct words *words) {
    const struct timespec pause = {.tv_nsec = WATCH_PAUSE_MS * 1000000L};
    struct remote remote = {.client = NULL};
    struct buffer list, poll, cursor, shown;
    unsigned http_status = 0;
    buffer_init(&list, TARGET_BYTES_MAX);
    buffer_init(&poll, TARGET_BYTES_MAX);
    buffer_init(&cursor, TARGET_BYTES_MAX);
    buffer_init(&shown, ANSWER_BYTES_MAX);
    write_target(&list, words, options);
    int code = buffer_status(&list) == STATUS_OK
                   ? remote_open(&remote, &options->remote)
                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(buffer_status(&list)));
    while (code == EXIT_CODE_DONE) {
        write_poll(&poll, words->list, SLICE(""));
        code = ask(&remote, poll.data, &http_status);
        if (code != EXIT_CODE_DONE)
            break;
        if (!read_position(buffer_slice(&remote.answer), &cursor)) {
            code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer has no position");
            break;
        }
        code = ask(&remote, list.data, &http_status);
        if (code != EXIT_CODE_DONE)
            break;
        if (!slice_equal(buffer_slice(&remote.answer), buffer_slice(&shown))) {
            print_list(options, words, buffer_slice(&remote.answer), shown.size == 0);
            buffer_clear(&shown);
            buffer_append_slice(&shown, buffer_slice(&remote.answer));
        }
        /* The server refuses polls that follow each other faster. */
        (void)nanosleep(&pause, NULL);
        write_poll(&poll, words->list, buffer_slice(&cursor));
        code = ask(&remote, poll.data, &http_status);
        (void)nanosleep(&pause, NULL);
    }
    remote_close(&remote);
    buffer_release(&shown);
    buffer_release(&cursor);
    buffer_release(&poll);
    buffer_release(&list);
    return code;
}

/* --where may be given several times, and cli_options keeps the last value alone. */
static int read_where(int argc, char **argv, struct get_options *options) {
    static const char name[] = "--where";
    for (int i = 0; i < argc; i++) {
        bool is_joined = strncmp(argv[i], "--where=", sizeof(name)) == 0;
        if (!is_joined && (strcmp(argv[i], name) != 0 || i + 1 == argc))
            continue;
        const char *given = is_joined ? argv[i] + sizeof(name) : argv[++i];
        const char *equals = strchr(given, '=');
        if (!equals || equals == given || equals - given >= WHERE_NAME_BYTES)
            return cli_usage("get", "--where '%s' is not NAME=VALUE", given);
        if (options->where_count == WHERE_MAX)
            return cli_usage("get", "--where is given more than %d times", WHERE_MAX);
        options->where[options->where_count++] = given;
    }
    return EXIT_CODE_DONE;
}

int cli_get(int argc, char **argv) {
    struct get_options options = {.json = false};
    const char *last_where = NULL;
    const struct cli_option table[] = {
        REMOTE_OPTION_ROWS(options.remote),  {"--run", NULL, &options.run},
        {"--worker", NULL, &options.worker}, {"--topic", NULL, &options.topic},
        {"--after", NULL, &options.after},   {"--since", NULL, &options.since},
        {"--limit", NULL, &options.limit},   {"--status", NULL, &options.status},
        {"--user", NULL, &options.user},     {"--guest", NULL, &options.guest},
        {"--org", NULL, &options.org},       {"--class", NULL, &options.topic_class},
        {"--prefix", NULL, &options.prefix}, {"--dialect", NULL, &options.dialect},
        {"--where", NULL, &last_where},      {"--sort", NULL, &options.sort},
        {"--watch", &options.watch, NULL},   {"--json", &options.json, NULL}};
    uint64_t number;
    struct position position;
    if (read_where(argc, argv, &options) != EXIT_CODE_DONE ||
        !cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    const struct words words = words_read(argc, argv);
    int targets = !!options.run + !!options.worker + !!options.topic;
    const struct listing *list = words.list;
    bool has_owners = options.status || options.user || options.guest || options.org ||
                      options.where_count > 0 || options.sort || options.watch;
    bool has_connections = list && strcmp(list->name, "connections") == 0;
    if (options.after && !list && position_read(slice_of(options.after), &position) != STATUS_OK)
        return cli_usage("get", "--after '%s' is not a seq or seq@epoch", options.after);
    if (options.since && (!words.is_events || options.after))
        return cli_usage("get", "--since is for events, instead of --after");
    if (options.limit && !cli_number(options.limit, &number))
        return cli_usage("get", "--limit '%s' is not a whole number", options.limit);
    if (words.is_events && targets != 1)
        return cli_usage("get", "give one of --run, --worker and --topic");
    if (!words.is_events && !words.subject && !list)
        return argc > 0 ? cli_usage("get", "'%s' does not take these words", argv[0])
                        : cli_usage("get", "say what to get");
    if (words.is_events)
        return get(&options, &words);
    if (targets > 0)
        return cli_usage("get", "--run, --worker and --topic are for events");
    if (has_owners && !(list && list->has_owners))
        return cli_usage(
            "get", "--status, --user, --guest, --org, --where, --sort and --watch are for runs "
                   "and workers");
    if (options.topic_class && !(list && list->has_topics))
        return cli_usage("get", "--class is for topics");
    if (options.prefix && !(list && list->has_prefix))
        return cli_usage("get", "--prefix is for topics, connections and principals");
    if (options.dialect && !has_connections)
        return cli_usage("get", "--dialect is for connections");
    if (words.subject && (options.after || options.limit))
        return cli_usage("get", "'%s' does not take one of these options", argv[0]);
    return options.watch ? watch(&options, &words) : get(&options, &words);
}
