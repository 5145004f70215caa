#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "cli/local_store.h"
#include "cli/remote.h"
#include "retention/cycle.h"
#include "server/config.h"
#include "server/topics.h"
#include "wire/json.h"

#define TEXT_BYTES_MAX (16u << 20)

/* Prints the report of a server or of a local pass. */
static int print_report(struct slice text, bool json) {
    const struct json_limits limits = {text.size, JSON_DEPTH_MAX};
    uint64_t topics, topics_pruned, deleted;
    struct json_value element;
    struct json_field fields[] = {{.name = SLICE("topic_stats")},
                                  {.name = SLICE("topics")},
                                  {.name = SLICE("topics_pruned")},
                                  {.name = SLICE("deleted")}};
    if (json_read_object(text, &limits, fields, 4) != STATUS_OK ||
        fields[0].value.kind != JSON_KIND_ARRAY ||
        !json_u64(fields[1].value, UINT64_MAX, &topics) ||
        !json_u64(fields[2].value, UINT64_MAX, &topics_pruned) ||
        !json_u64(fields[3].value, UINT64_MAX, &deleted))
        return cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not a retention report");
    if (json) {
        /* The server sends white space first while a pass takes long. */
        const char *begin = memchr(text.data, '{', text.size);
        fwrite(begin, 1, text.size - (size_t)(begin - text.data), stdout);
        return EXIT_CODE_DONE;
    }
    bool done = true;
    struct json_iterator stats = json_iterate(fields[0].value);
    while (done && json_next_element(&stats, &element)) {
        struct json_field members[] = {{.name = SLICE("topic")},
                                       {.name = SLICE("deleted")},
                                       {.name = SLICE("oldest")},
                                       {.name = SLICE("head")}};
        uint64_t pruned, oldest, head;
        struct buffer name;
        buffer_init(&name, TEXT_BYTES_MAX);
        done = json_read_members(element, members, 4) == STATUS_OK && members[0].present &&
               json_string_decode(members[0].value, &name) == STATUS_OK &&
               json_u64(members[1].value, UINT64_MAX, &pruned) &&
               json_u64(members[2].value, UINT64_MAX, &oldest) &&
               json_u64(members[3].value, UINT64_MAX, &head);
        if (done && pruned > 0)
            printf("%.*s: %llu pruned, %llu kept\n", (int)name.size, name.data,
                   (unsigned long long)pruned, (unsigned long long)(head + 1 - oldest));
        buffer_release(&name);
    }
    printf("%llu frames of %llu topics pruned; %llu topics looked at\n",
           (unsigned long long)deleted, (unsigned long long)topics_pruned,
           (unsigned long long)topics);
    return done ? EXIT_CODE_DONE : EXIT_CODE_UNREACHABLE;
}

static enum status prune(void *user, struct prune_batch *batch) {
    const struct cli_store *opened = user;
    return store_prune_topics(opened->session, batch->prunes, batch->count);
}

/* A pass over a local store that no server uses. */
static int run_here(struct config *config, struct cli_store *opened, bool json) {
    struct topics topics;
    struct topics_message message = {""};
    struct clock clock;
    struct buffer text;
    if (topics_open(&topics, &config->policies, config->topics_file, &message) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "KHALA_TOPICS_FILE: %s", message.text);
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
        code = print_report(buffer_slice(&text), json);
    retention_report_unref(report);
    topics_close(&topics);
    buffer_release(&text);
    return code;
}

int cli_retention(int argc, char **argv) {
    static struct config config;
    struct remote_options options = {.data_dir = config.data_dir};
    struct cli_store opened = {.store = NULL};
    struct remote remote;
    bool json = false;
    const struct cli_option verb_options[] = {{"--json", &json, NULL},
                                              {"--url", NULL, &options.url},
                                              {"--key", NULL, &options.key},
                                              {"--ca", NULL, &options.ca_file}};
    int code = cli_settings(&argc, argv, verb_options,
                            sizeof(verb_options) / sizeof(verb_options[0]), &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 1 || strcmp(argv[0], "run-once") != 0)
        return cli_usage("retention", "give run-once and no other word");
    /* With --url the verb works on that server, never on the local data folder. */
    if (!options.url)
        code = cli_store_open(&config, STORE_WRITE, &opened);
    if (!options.url && code == EXIT_CODE_DONE) {
        code = run_here(&config, &opened, json);
    } else if (options.url || opened.is_in_use) {
        code = cli_store_ask_server(&opened, &remote, &options, "/internal/v1/retention/run",
                                    SLICE("{}"));
        if (code == EXIT_CODE_DONE)
            code = print_report(buffer_slice(&remote.answer), json);
        remote_close(&remote);
    }
    cli_store_close(&opened);
    return code;
}
