#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/remote.h"
#include "topic/position.h"
#include "wire/json.h"

#define TARGET_BYTES_MAX 8192
#define ANSWER_BYTES_MAX (64u << 20)

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
    bool json;
};

#define COLUMNS_MAX 7

/* The lists: their path is their name, and these members of an item are printed for people. */
struct listing {
    const char *name;
    bool has_owners; /* takes --status, --user, --guest and --org */
    bool has_topics; /* takes --class */
    bool has_prefix; /* takes --prefix */
    const char *columns[COLUMNS_MAX];
};

static const struct listing lists[] = {
    {"runs",
     true,
     false,
     false,
     {"run_id", "status", "owner_user_id", "owner_guest_scope", "org_id", "latest_seq"}},
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

static const struct subject *subject_find(int argc, char **argv, int *word_count) {
    for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++) {
        const struct subject *subject = &subjects[i];
        *word_count = subject->words[1] ? 2 : 1;
        if (argc == *word_count + subject->id_count && strcmp(argv[0], subject->words[0]) == 0 &&
            (!subject->words[1] || strcmp(argv[1], subject->words[1]) == 0))
            return subject;
    }
    return NULL;
}

static enum status subject_target(struct buffer *target, const struct subject *subject,
                                  char **ids) {
    enum status status = buffer_printf(target, "/internal/v1/%s", subject->path);
    for (int i = 0; i < subject->id_count && status == STATUS_OK; i++) {
        if (i > 0)
            status = buffer_append_byte(target, '/');
        if (status == STATUS_OK)
            status = remote_encode(target, ids[i]);
    }
    if (status == STATUS_OK)
        status = buffer_append(target, subject->tail, strlen(subject->tail) + 1);
    return status;
}

static enum status add_parameter(struct buffer *target, const char *name, const char *value) {
    if (!value)
        return STATUS_OK;
    bool is_first = !memchr(target->data, '?', target->size);
    enum status status = buffer_printf(target, "%c%s=", is_first ? '?' : '&', name);
    return status == STATUS_OK ? remote_encode(target, value) : status;
}

static enum status events_target(struct buffer *target, const struct get_options *options) {
    const char *kind = options->run ? "runs" : options->worker ? "workers" : "topics";
    const char *id = options->run      ? options->run
                     : options->worker ? options->worker
                                       : options->topic;
    enum status status = buffer_printf(target, "/internal/v1/%s/", kind);
    if (status == STATUS_OK)
        status = remote_encode(target, id);
    if (status == STATUS_OK)
        status = buffer_append_slice(target, SLICE("/events"));
    if (status == STATUS_OK)
        status = add_parameter(target, "after_seq", options->after);
    if (status == STATUS_OK)
        status = add_parameter(target, "since", options->since);
    if (status == STATUS_OK)
        status = add_parameter(target, "limit", options->limit);
    return status == STATUS_OK ? buffer_append_byte(target, '\0') : status;
}

static const struct listing *list_find(int argc, char **argv) {
    for (size_t i = 0; argc == 1 && i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(argv[0], lists[i].name) == 0)
            return &lists[i];
    return NULL;
}

/* NULL: the options suit the list. */
static const char *list_fault(const struct listing *list, const struct get_options *options) {
    bool has_owners = options->status || options->user || options->guest || options->org;
    if (options->run || options->worker || options->topic)
        return "--run, --worker and --topic are for events";
    if (has_owners && !(list && list->has_owners))
        return "--status, --user, --guest and --org are for runs and workers";
    if (options->topic_class && !(list && list->has_topics))
        return "--class is for topics";
    if (options->prefix && !(list && list->has_prefix))
        return "--prefix is for topics, connections and principals";
    if (options->dialect && !(list && strcmp(list->name, "connections") == 0))
        return "--dialect is for connections";
    return NULL;
}

static enum status list_target(struct buffer *target, const struct listing *list,
                               const struct get_options *options) {
    const struct {
        const char *name;
        const char *value;
    } parameters[] = {
        {"status", options->status},
        {"owner_user_id", options->user},
        {"owner_guest_scope", options->guest},
        {"org_id", options->org},
        {"class", options->topic_class},
        {"prefix", options->prefix},
        {"dialect", options->dialect},
        {"after", options->after},
        {"limit", options->limit},
    };
    enum status status = buffer_printf(target, "/internal/v1/%s", list->name);
    for (size_t i = 0; status == STATUS_OK && i < sizeof(parameters) / sizeof(parameters[0]); i++)
        status = add_parameter(target, parameters[i].name, parameters[i].value);
    return status == STATUS_OK ? buffer_append_byte(target, '\0') : status;
}

/* ---- for people --------------------------------------------------------------------------- */

static void print_text(FILE *out, struct json_value value) {
    struct buffer text;
    buffer_init(&text, ANSWER_BYTES_MAX);
    if (value.kind == JSON_KIND_NULL)
        fputc('-', out);
    else if (value.kind == JSON_KIND_STRING && json_string_decode(value, &text) == STATUS_OK)
        fprintf(out, "%.*s", (int)text.size, text.data);
    else
        fprintf(out, "%.*s", (int)value.raw.size, value.raw.data);
    buffer_release(&text);
}

/* These members of an object, in one line. */
static void print_columns(struct json_value object, const char *const columns[COLUMNS_MAX]) {
    struct json_field fields[COLUMNS_MAX];
    size_t count = 0;
    for (; count < COLUMNS_MAX && columns[count]; count++)
        fields[count] = (struct json_field){.name = slice_of(columns[count])};
    if (object.kind != JSON_KIND_OBJECT || json_read_members(object, fields, count) != STATUS_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        print_text(stdout, fields[i].value);
        putchar(i + 1 < count ? '\t' : '\n');
    }
}

static bool has_list(struct json_value object) {
    struct json_iterator members = json_iterate(object);
    struct json_value name, value;
    while (json_next_member(&members, &name, &value))
        if (value.kind == JSON_KIND_ARRAY)
            return true;
    return false;
}

/* One member a line; the lists of answers one element a line. The other members of a list, such as
 * its cursor, go to standard error, so that standard output has elements only. */
static void print_object(struct json_value object, const struct listing *list) {
    static const char *const event_columns[COLUMNS_MAX] = {"seq", "recorded_at", "event_type",
                                                           "payload"};
    FILE *out = has_list(object) ? stderr : stdout;
    struct json_iterator members = json_iterate(object);
    struct json_value name, value, element;
    while (json_next_member(&members, &name, &value)) {
        bool events = json_string_is(name, SLICE("events"));
        if (value.kind == JSON_KIND_OBJECT &&
            (json_string_is(name, SLICE("run")) || json_string_is(name, SLICE("worker")))) {
            print_object(value, list);
        } else if (value.kind == JSON_KIND_ARRAY) {
            struct json_iterator elements = json_iterate(value);
            while (json_next_element(&elements, &element)) {
                if (events || list)
                    print_columns(element, events ? event_columns : list->columns);
                else
                    printf("%.*s\n", (int)element.raw.size, element.raw.data);
            }
        } else {
            print_text(out, name);
            fputc('\t', out);
            print_text(out, value);
            fputc('\n', out);
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

static int get(struct remote *remote, const char *target, bool passes, const struct listing *list) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct get_run run = {remote, passes};
    struct blocking_request request = {
        .method = "GET", .target = target, .user = &run, .on_body = get_body};
    unsigned http_status = 0;
    struct json_value value;
    int code = remote_exchange(remote, &request, &http_status);
    if (code != EXIT_CODE_DONE)
        return code;
    if (http_status != 200)
        return remote_refused(remote, http_status);
    if (passes)
        return EXIT_CODE_DONE;
    if (json_parse(buffer_slice(&remote->answer), &limits, &value) != STATUS_OK ||
        value.kind != JSON_KIND_OBJECT)
        return cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not a JSON object");
    print_object(value, list);
    return EXIT_CODE_DONE;
}

int cli_get(int argc, char **argv) {
    struct get_options options = {.json = false};
    const struct cli_option table[] = {{"--url", NULL, &options.remote.url},
                                       {"--key", NULL, &options.remote.key},
                                       {"--data-dir", NULL, &options.remote.data_dir},
                                       {"--ca", NULL, &options.remote.ca_file},
                                       {"--run", NULL, &options.run},
                                       {"--worker", NULL, &options.worker},
                                       {"--topic", NULL, &options.topic},
                                       {"--after", NULL, &options.after},
                                       {"--since", NULL, &options.since},
                                       {"--limit", NULL, &options.limit},
                                       {"--status", NULL, &options.status},
                                       {"--user", NULL, &options.user},
                                       {"--guest", NULL, &options.guest},
                                       {"--org", NULL, &options.org},
                                       {"--class", NULL, &options.topic_class},
                                       {"--prefix", NULL, &options.prefix},
                                       {"--dialect", NULL, &options.dialect},
                                       {"--json", &options.json, NULL}};
    struct remote remote;
    uint64_t number;
    int word_count = 0;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    const struct listing *list = list_find(argc, argv);
    int targets = !!options.run + !!options.worker + !!options.topic;
    bool events = argc == 1 && strcmp(argv[0], "events") == 0;
    const struct subject *subject = argc > 0 ? subject_find(argc, argv, &word_count) : NULL;
    const char *fault = events ? NULL : list_fault(list, &options);
    struct position position;
    if (options.after && !list && position_read(slice_of(options.after), &position) != STATUS_OK)
        return cli_usage("get", "--after '%s' is not a seq or seq@epoch", options.after);
    if (options.since && (!events || options.after))
        return cli_usage("get", "--since is for events, instead of --after");
    if (options.limit && !cli_number(options.limit, &number))
        return cli_usage("get", "--limit '%s' is not a whole number", options.limit);
    if (events && targets != 1)
        return cli_usage("get", "give one of --run, --worker and --topic");
    if (!events && !subject && !list)
        return argc > 0 ? cli_usage("get", "'%s' does not take these words", argv[0])
                        : cli_usage("get", "say what to get");
    if (fault)
        return cli_usage("get", "%s", fault);
    if (subject && (options.after || options.limit))
        return cli_usage("get", "'%s' does not take one of these options", argv[0]);
    struct buffer target;
    buffer_init(&target, TARGET_BYTES_MAX);
    enum status status = events ? events_target(&target, &options)
                         : list ? list_target(&target, list, &options)
                                : subject_target(&target, subject, argv + word_count);
    int code = status == STATUS_OK ? remote_open(&remote, &options.remote)
                                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    if (code == EXIT_CODE_DONE) {
        bool replay = subject && strcmp(subject->words[0], "replay") == 0;
        code = get(&remote, target.data, options.json || replay, list);
    }
    if (status == STATUS_OK)
        remote_close(&remote);
    buffer_release(&target);
    return code;
}
