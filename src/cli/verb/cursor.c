#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/cursor_file.h"
#include "cli/settings.h"
#include "topic/continuity.h"
#include "topic/event_cursor.h"
#include "topic/position.h"

static int cursor_encode(int argc, char **argv, bool json) {
    struct event_cursor cursor;
    char text[EVENT_CURSOR_SIZE_MAX];
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

/* The rule of the server, with the same setting. */
static bool decode(const char *text, bool takes_legacy, struct event_cursor *cursor) {
    const char *reason = "";
    if (event_cursor_read(slice_of(text), takes_legacy, cursor, &reason) == STATUS_OK)
        return true;
    cli_fail(EXIT_CODE_NO, "%s: %s", status_code(STATUS_INVALID_CURSOR), reason);
    return false;
}

static int cursor_decode(int argc, char **argv, bool json) {
    struct event_cursor cursor;
    struct config config;
    char uuid[UUID_TEXT_SIZE + 1] = {0};
    if (argc != 1)
        return cli_usage("cursor", "decode takes one cursor, not %d", argc);
    if (cli_settings_of(NULL, &config) != EXIT_CODE_DONE)
        return EXIT_CODE_USAGE;
    if (!decode(argv[0], config.legacy_cursors, &cursor))
        return EXIT_CODE_NO;
    uuid_format(&cursor.uuid, uuid);
    printf(json ? "{\"timestamp_ms\":%llu,\"uuid\":\"%s\"}\n" : "%llu %s\n",
           (unsigned long long)cursor.timestamp_ms, uuid);
    return EXIT_CODE_DONE;
}

static int cursor_compare(int argc, char **argv, bool json) {
    struct event_cursor a;
    struct event_cursor b;
    struct config config;
    if (argc != 2)
        return cli_usage("cursor", "compare takes two cursors, not %d", argc);
    if (cli_settings_of(NULL, &config) != EXIT_CODE_DONE)
        return EXIT_CODE_USAGE;
    if (!decode(argv[0], config.legacy_cursors, &a) || !decode(argv[1], config.legacy_cursors, &b))
        return EXIT_CODE_NO;
    int order = event_cursor_compare(&a, &b);
    printf(json ? "{\"order\":%d}\n" : "%d\n", order < 0 ? -1 : order > 0 ? 1 : 0);
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
        {"--after", NULL, &words.after},        {"--oldest", NULL, &words.oldest},
        {"--head", NULL, &words.head},          {"--budget", NULL, &words.budget},
        {"--epoch", NULL, &words.epoch},        {"--store-epoch", NULL, &words.store_epoch},
        {"--fork", NULL, &words.fork},          {"--url", NULL, &remote.url},
        {"--ca", NULL, &remote.ca_file},        {"--key", NULL, &remote.key},
        {"--data-dir", NULL, &remote.data_dir}, {"--json", &json, NULL},
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
    if (strcmp(name, "encode") == 0)
        return cursor_encode(argc, argv, json);
    if (strcmp(name, "decode") == 0)
        return cursor_decode(argc, argv, json);
    if (strcmp(name, "compare") == 0)
        return cursor_compare(argc, argv, json);
    if (strcmp(name, "migrate") == 0 && argc == 1)
        return cursor_migrate_file(argv[0], json, remote.url ? &remote : NULL);
    return cli_usage("cursor", "'%s' is not a form of cursor with these words", name);
}
