#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "cli/local_store.h"
#include "cli/remote.h"
#include "retention/cycle.h"
#include "server/config.h"
#include "wire/json.h"

#define TEXT_BYTES_MAX (16u << 20)

struct request {
    bool json;
    struct remote_options remote; /* the server that uses the store */
};

/* ---- printing the report, of a server or of a local pass ---- */

static bool print_topic(struct json_value value) {
    struct json_field fields[] = {{.name = SLICE("topic")},
                                  {.name = SLICE("deleted")},
                                  {.name = SLICE("oldest")},
                                  {.name = SLICE("head")}};
    uint64_t deleted, oldest, head;
    struct buffer name;
    buffer_init(&name, TEXT_BYTES_MAX);
    bool done = json_read_members(value, fields, 4) == STATUS_OK && fields[0].present &&
                json_string_decode(fields[0].value, &name) == STATUS_OK &&
                json_u64(fields[1].value, UINT64_MAX, &deleted) &&
                json_u64(fields[2].value, UINT64_MAX, &oldest) &&
                json_u64(fields[3].value, UINT64_MAX, &head);
    if (done && deleted > 0)
        printf("%.*s: %llu pruned, %llu kept\n", (int)name.size, name.data,
               (unsigned long long)deleted, (unsigned long long)(head + 1 - oldest));
    buffer_release(&name);
    return done;
}

static int print_report(const struct request *request, struct slice text) {
    const struct json_limits limits = {text.size, JSON_DEPTH_MAX};
    uint64_t topics, topics_pruned, deleted;
    struct json_value element;
    struct json_field fields[] = {{.name = SLICE("topic_stats")},
                                  {.name = SLICE("topics")},
                                  {.name = SLICE("topics_pruned")},
                                  {.name = SLICE("deleted")}};
    bool done = json_read_object(text, &limits, fields, 4) == STATUS_OK &&
                fields[0].value.kind == JSON_KIND_ARRAY &&
                json_u64(fields[1].value, UINT64_MAX, &topics) &&
                json_u64(fields[2].value, UINT64_MAX, &topics_pruned) &&
                json_u64(fields[3].value, UINT64_MAX, &deleted);
    if (!done)
        return cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not a retention report");
    if (request->json) {
        /* The server sends white space first while a pass takes long. */
        const char *begin = memchr(text.data, '{', text.size);
        fwrite(begin, 1, text.size - (size_t)(begin - text.data), stdout);
        return EXIT_CODE_DONE;
    }
    struct json_iterator stats = json_iterate(fields[0].value);
    while (done && json_next_element(&stats, &element))
        done = print_topic(element);
    printf("%llu frames of %llu topics pruned; %llu topics looked at\n",
           (unsigned long long)deleted, (unsigned long long)topics_pruned,
           (unsigned long long)topics);
    return done ? EXIT_CODE_DONE : EXIT_CODE_UNREACHABLE;
}

/* ---- on a local store that no server uses ---- */

static enum status prune(void *user, struct prune_batch *batch) {
    const struct cli_store *opened = user;
    return store_prune_topics(opened->session, batch->prunes, batch->count);
}

static int run_here(const struct request *request, const struct config *config,
                    struct cli_store *opened) {
    struct clock clock;
    struct buffer text;
    clock_init(&clock);
    buffer_init(&text, TEXT_BYTES_MAX);
    uint64_t begun_ms = clock_mono_ms(&clock);
    const struct cycle_options options = {.session = opened->session,
                                          .policies = &config->policies,
                                          .now_ms = clock_wall_ms(&clock),
                                          .work_max = PRUNE_BATCH_WORK_MAX,
                                          .user = opened,
                                          .prune = prune};
    struct retention_report *report = retention_report_new(true);
    enum status status = report ? retention_cycle(&options, report) : STATUS_OUT_OF_MEMORY;
    clock_tick(&clock);
    if (report)
        report->duration_ms = clock_mono_ms(&clock) - begun_ms;
    int code = EXIT_CODE_DONE;
    if (status != STATUS_OK)
        code = cli_fail(EXIT_CODE_UNREACHABLE, "%s: %s", status_code(status),
                        store_session_error(opened->session));
    else if (retention_report_write(report, &text) != STATUS_OK)
        code = cli_fail(EXIT_CODE_UNREACHABLE, "there is no memory for the report");
    else
        code = print_report(request, buffer_slice(&text));
    retention_report_unref(report);
    buffer_release(&text);
    return code;
}

/* opened: the local store, which a server uses; NULL: --url names the server. */
static int ask_server(const struct request *request, const struct config *config,
                      const struct cli_store *opened) {
    struct remote_options options = request->remote;
    struct remote remote;
    unsigned http_status = 0;
    options.data_dir = config->data_dir;
    int code = remote_open(&remote, &options);
    if (code == EXIT_CODE_DONE)
        code = remote_ask(&remote, "/internal/v1/retention/run", SLICE("{}"), &http_status);
    if (code != EXIT_CODE_DONE && opened)
        (void)cli_fail(EXIT_CODE_UNREACHABLE, "%s", opened->message.text);
    else if (code == EXIT_CODE_DONE && http_status != 200)
        code = remote_refused(&remote, http_status);
    else if (code == EXIT_CODE_DONE)
        code = print_report(request, buffer_slice(&remote.answer));
    remote_close(&remote);
    return code;
}

int cli_retention(int argc, char **argv) {
    static struct config config;
    struct request request = {0};
    struct cli_store opened;
    const struct cli_option verb_options[] = {
        {"--json", &request.json, NULL},
        {"--url", NULL, &request.remote.url},
        {"--key", NULL, &request.remote.key},
        {"--ca", NULL, &request.remote.ca_file},
    };
    int code = cli_settings(&argc, argv, verb_options,
                            sizeof(verb_options) / sizeof(verb_options[0]), &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 1 || strcmp(argv[0], "run-once") != 0)
        return cli_usage("retention", "give run-once and no other word");
    /* With --url the verb works on that server, never on the local data folder. */
    if (request.remote.url)
        return ask_server(&request, &config, NULL);
    code = cli_store_open(&config, STORE_WRITE, &opened);
    if (code == EXIT_CODE_DONE)
        code = run_here(&request, &config, &opened);
    else if (opened.is_in_use)
        code = ask_server(&request, &config, &opened);
    cli_store_close(&opened);
    return code;
}
