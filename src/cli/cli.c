#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/decimal.h"
#include "base/log.h"

#define NUMBER_MAX 9007199254740991u

const struct cli_command cli_commands[] = {
    {"serve", "serve [--bind HOST:PORT] [--data-dir DIR] [--log text|json] [--log-level LEVEL]",
     "Run the server.", "khala serve\nkhala serve --bind 127.0.0.1:0 --log json", cli_serve},
    {"append",
     "append --run ID --type TYPE [--payload JSON|-] [--create] [--event-id UUID]\n"
     "append --worker ID | --topic TOPIC | --notification  (with the same options)\n"
     "append --batch FILE|-   (a JSON object a line, as events:batch takes them)\n"
     "append … [--idempotency-key KEY] [--expect-seq N] [--url URL] [--key KEY] "
     "[--data-dir DIR] [--json]",
     "Append events to the server at --url, KHALA_URL or http://127.0.0.1:4100.",
     "khala append --run demo --create --type run.log --payload '{\"line\":\"hello\"}'\n"
     "echo '{\"run_id\":\"demo\",\"event_type\":\"run.log\"}' | khala append --batch -",
     cli_append},
    {"get",
     "get run ID | worker ID | receipt RUN | replay RUN\n"
     "get events --run ID | --worker ID | --topic TOPIC [--after SEQ] [--limit N]\n"
     "get summary run|worker ID\n"
     "get checkpoint run_summary|codex_worker_summary ID\n"
     "get drift\n"
     "get … [--url URL] [--key KEY] [--data-dir DIR] [--json]",
     "Read runs, workers, events and summaries from the server at --url (see append).",
     "khala get events --run demo --after 10\nkhala get summary run demo --json", cli_get},
    {"export",
     "export [--after CURSOR] [--until CURSOR] [--format ndjson|csv] [--url URL] [--key KEY] "
     "[--data-dir DIR]",
     "Write the whole log, or the part between two event cursors, with a manifest at its end.",
     "khala export > events.ndjson\nkhala export --format csv > events.csv", cli_export},
    {"migrate", "migrate [--data-dir DIR]", "Bring the store's schema up to date.",
     "khala migrate --data-dir ./khala-data", cli_migrate},
    {"verify", "verify [--json] [--data-dir DIR]",
     "Check every hash, link, sequence and cursor of the log, also beside a running server.",
     "khala verify\nkhala verify --json", cli_verify},
    {"reproject",
     "reproject (--run ID | --worker ID | --all) [--verify] [--json] [--data-dir DIR]\n"
     "reproject … [--url URL] [--key KEY]",
     "Rebuild documents from the log and write those that differ, through the server where one "
     "runs; with --verify only name them.",
     "khala reproject --all --verify\nkhala reproject --run abc", cli_reproject},
    {"token",
     "token mint [--user ID | --guest SCOPE] [--org ID] [--scopes A,B] [--topics A,B] "
     "[--streams A,B]\n"
     "token mint … [--ttl SECONDS] [--device ID] [--session ID] [--json] [--url URL] [--key KEY] "
     "[--data-dir DIR]\n"
     "token mint … --offline   (signs with the keys of the data folder or the settings)\n"
     "token inspect TOKEN|- [--json] [--data-dir DIR]",
     "Mint a sync token for a client, or look into one and say whether it would be taken.",
     "khala token mint --user u1 --scopes runtime.run_events\n"
     "khala token mint --user u1 --scopes runtime.run_events | khala token inspect -",
     cli_token},
    {"topic", "topic map TOPIC\ntopic unmap STREAM",
     "Translate between topic names and stream ids.",
     "khala topic map run:abc:events\nkhala topic unmap runtime.run.abc.events", cli_topic},
    {"cursor",
     "cursor encode TIMESTAMP_MS UUID\n"
     "cursor decode CURSOR\n"
     "cursor compare CURSOR CURSOR\n"
     "cursor plan --after N [--oldest N --head N --budget N] [--epoch EPOCH --store-epoch EPOCH]\n"
     "cursor migrate FILE [--json]",
     "Work with event cursors and topic cursors.",
     "khala cursor plan --after 2 --oldest 10 --head 25 --budget 200\n"
     "echo '[{\"topic\":\"run:abc:events\",\"after_seq\":7}]' | khala cursor migrate -",
     cli_cursor},
    {"json", "json canonical\njson hash",
     "Write the JSON text on standard input in canonical form, or its payload hash.",
     "echo '{\"b\":2,\"a\":1}' | khala json hash", cli_json},
    {"config", "config [--json] [--check] [--markdown] [settings as for serve]",
     "Show the effective settings and where each comes from.",
     "khala config\nRUNTIME_BIND_ADDR=0.0.0.0:80 khala config --check", cli_config},
    {"version", "version [--json]", "Show the version.", "khala version", cli_version},
    {"help", "help [VERB]", "Show the verbs, or one in full.", "khala help cursor", cli_help},
    {NULL, NULL, NULL, NULL, NULL},
};

static const struct cli_command *command_find(const char *name) {
    for (const struct cli_command *command = cli_commands; command->name; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}

static void print_usage(FILE *out, const struct cli_command *command) {
    const char *prefix = "usage: ";
    for (const char *line = command->usage; *line;) {
        int size = (int)strcspn(line, "\n");
        fprintf(out, "%skhala %.*s\n", prefix, size, line);
        line += size + (line[size] == '\n');
        prefix = "       ";
    }
}

int cli_usage(const char *name) {
    print_usage(stderr, command_find(name));
    return EXIT_CODE_USAGE;
}

int cli_fail(enum exit_code code, const char *format, ...) {
    va_list arguments;
    fputs("khala: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return (int)code;
}

bool cli_number(const char *text, uint64_t *number) {
    return decimal_parse_u64(slice_of(text), number) && *number <= NUMBER_MAX;
}

enum status cli_read(const char *path, struct buffer *out) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!file)
        return STATUS_SYSTEM_ERROR;
    enum status status = STATUS_OK;
    char piece[16384];
    size_t size;
    while (status == STATUS_OK && (size = fread(piece, 1, sizeof(piece), file)) > 0)
        status = buffer_append(out, piece, size);
    if (status == STATUS_OK && ferror(file))
        status = STATUS_SYSTEM_ERROR;
    int error = errno;
    if (file != stdin)
        fclose(file);
    errno = error;
    return status;
}

static const struct cli_option *option_find(const char *text, size_t size,
                                            const struct cli_option *options, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strlen(options[i].name) == size && memcmp(options[i].name, text, size) == 0)
            return &options[i];
    return NULL;
}

bool cli_options(int *argc, char **argv, const struct cli_option *options, size_t option_count) {
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        const char *text = argv[i];
        if (strcmp(text, "--") == 0) {
            for (i++; i < *argc; i++)
                argv[kept++] = argv[i];
            break;
        }
        if (strncmp(text, "--", 2) != 0) {
            argv[kept++] = argv[i];
            continue;
        }
        size_t size = strcspn(text, "=");
        const struct cli_option *option = option_find(text, size, options, option_count);
        if (!option) {
            cli_fail(EXIT_CODE_USAGE, "unknown option %s", text);
            return false;
        }
        if (option->flag && text[size] == '=') {
            cli_fail(EXIT_CODE_USAGE, "%s takes no value", option->name);
            return false;
        }
        if (option->flag) {
            *option->flag = true;
        } else if (text[size] == '=') {
            *option->value = text + size + 1;
        } else if (i + 1 < *argc) {
            *option->value = argv[++i];
        } else {
            cli_fail(EXIT_CODE_USAGE, "%s needs a value", option->name);
            return false;
        }
    }
    *argc = kept;
    return true;
}

static void print_overview(FILE *out) {
    fputs("Khala: a resumable sync server.\n\nusage: khala VERB …\n\n", out);
    for (const struct cli_command *command = cli_commands; command->name; command++)
        fprintf(out, "  %-10s %s\n", command->name, command->summary);
    fputs("\nkhala help VERB shows a verb in full. Exit codes: 0 done, 1 the answer is no, "
          "2 wrong usage, 3 unreachable.\n",
          out);
}

int cli_help(int argc, char **argv) {
    if (argc == 0) {
        print_overview(stdout);
        return EXIT_CODE_DONE;
    }
    const struct cli_command *command = command_find(argv[0]);
    if (argc > 1)
        return cli_usage("help");
    if (!command)
        return cli_fail(EXIT_CODE_USAGE, "there is no verb '%s'; see 'khala help'", argv[0]);
    printf("%s\n\n", command->summary);
    print_usage(stdout, command);
    printf("\nexamples:\n");
    for (const char *line = command->example; *line;) {
        int size = (int)strcspn(line, "\n");
        printf("  %.*s\n", size, line);
        line += size + (line[size] == '\n');
    }
    return EXIT_CODE_DONE;
}

int cli_main(int argc, char **argv) {
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_CODE_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0)
        name = "version";
    const struct cli_command *command = command_find(name);
    if (!command)
        return cli_fail(EXIT_CODE_USAGE, "there is no verb '%s'; see 'khala help'", name);
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0)
            return cli_help(1, (char *[]){(char *)command->name, NULL});
    int code = command->run(argc - 2, argv + 2);
    if (fflush(stdout) != 0 || ferror(stdout))
        return cli_fail(EXIT_CODE_UNREACHABLE, "cannot write the answer: %s", strerror(errno));
    return code;
}
