/* A verb begins here: its row in cli_commands is found by name, an option is accepted if the row
 * has it and stored where the verb asked for it, and the settings file is read before the verb's
 * own work. Errors are one line of text, or one JSON object with --json; unknown verbs and options
 * get the nearest name. */
#include "cli/cli.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/decimal.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/settings.h"
#include "server/config.h"
#include "server/unknown.h"
#include "wire/json.h"

#define NUMBER_MAX        9007199254740991u
#define HELP_COLUMN       28
#define MESSAGE_BYTES_MAX 4096
#define OPTIONS_MAX       (CONFIG_SETTINGS_MAX + 16)

/* The one cli_main runs; a test that calls a verb itself has none, and gets no check. */
static const struct cli_command *running;

bool cli_option_at(const struct cli_command *command, size_t index, struct cli_option_row *row) {
    struct config_setting setting;
    for (const struct cli_option_row *option = command->options; option && option->name;
         option++, index--) {
        *row = *option;
        if (index == 0)
            return true;
    }
    for (size_t i = 0; command->takes_settings && config_setting_at(i, &setting); i++) {
        if (!setting.flag)
            continue;
        *row = (struct cli_option_row){setting.flag, setting.takes, setting.help};
        if (index-- == 0)
            return true;
    }
    return false;
}

static const struct cli_command *command_find(const char *name) {
    for (const struct cli_command *command = cli_commands; command->name; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}

static int unknown_verb(const char *name) {
    struct nearest nearest = {.written = name};
    for (const struct cli_command *command = cli_commands; command->name; command++)
        nearest_try(&nearest, command->name);
    if (nearest.name)
        return cli_fail(EXIT_CODE_USAGE,
                        "there is no verb '%s'; did you mean '%s'? See 'khala help'", name,
                        nearest.name);
    return cli_fail(EXIT_CODE_USAGE, "there is no verb '%s'; see 'khala help'", name);
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

/* The command line has --json, so programs read the errors. */
static bool errors_are_json;

bool cli_errors_are_json(void) {
    return errors_are_json;
}

__attribute__((format(printf, 2, 0))) static void
print_message(const char *members, const char *format, va_list arguments) {
    char text[MESSAGE_BYTES_MAX];
    struct buffer quoted;
    vsnprintf(text, sizeof(text), format, arguments);
    if (!errors_are_json) {
        fprintf(stderr, "khala: %s\n", text);
        return;
    }
    buffer_init(&quoted, MESSAGE_BYTES_MAX * 6 + 2);
    if (!utf8_valid(slice_of(text)) || json_write_string(&quoted, slice_of(text)) != STATUS_OK)
        quoted.size = 0;
    fprintf(stderr, "{%s:%.*s}\n", members, quoted.size ? (int)quoted.size : 4,
            quoted.size ? quoted.data : "null");
    buffer_release(&quoted);
}

int cli_usage(const char *name, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_message("\"error\":\"usage\",\"message\"", format, arguments);
    va_end(arguments);
    if (!errors_are_json)
        print_usage(stderr, command_find(name));
    return EXIT_CODE_USAGE;
}

int cli_fail(enum exit_code code, const char *format, ...) {
    static const char *const members[] = {[EXIT_CODE_DONE] = "\"error\":\"done\",\"message\"",
                                          [EXIT_CODE_NO] = "\"error\":\"no\",\"message\"",
                                          [EXIT_CODE_USAGE] = "\"error\":\"usage\",\"message\"",
                                          [EXIT_CODE_UNREACHABLE] =
                                              "\"error\":\"unreachable\",\"message\""};
    va_list arguments;
    va_start(arguments, format);
    print_message(members[code], format, arguments);
    va_end(arguments);
    return (int)code;
}

void cli_note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_message("\"notice\"", format, arguments);
    va_end(arguments);
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

static bool is_option(const char *name, const char *text, size_t size) {
    return strlen(name) == size && memcmp(name, text, size) == 0;
}

static const char *config_path;
/* Belongs to all verbs that read settings, so none of them has a row for it. */
static const struct cli_option config_option = {"--config", NULL, &config_path};

static bool verb_has_option(const char *name) {
    struct cli_option_row row;
    for (size_t i = 0; running && cli_option_at(running, i, &row); i++)
        if (strcmp(row.name, name) == 0)
            return true;
    return false;
}

/* The caller's row of an option that the verb has in the table; the two must agree. */
static const struct cli_option *option_find(const char *text, size_t size,
                                            const struct cli_option *options, size_t count) {
    const struct cli_option *option = NULL;
    struct cli_option_row row;
    for (size_t i = 0; i < count && !option; i++)
        if (is_option(options[i].name, text, size))
            option = &options[i];
    if (is_option(config_option.name, text, size))
        option = &config_option;
    if (!running)
        return option;
    for (size_t i = 0; cli_option_at(running, i, &row); i++) {
        if (!is_option(row.name, text, size))
            continue;
        assert(option && (option->flag == NULL) == (row.takes != NULL));
        return option;
    }
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
            char name[NEAREST_BYTES_MAX];
            struct nearest nearest = {.written = name};
            struct cli_option_row row;
            snprintf(name, sizeof(name), "%.*s", (int)size, text);
            for (size_t k = 0; running && cli_option_at(running, k, &row); k++)
                nearest_try(&nearest, row.name);
            if (nearest.name)
                cli_fail(EXIT_CODE_USAGE, "unknown option %s; did you mean %s?", name,
                         nearest.name);
            else
                cli_fail(EXIT_CODE_USAGE, "unknown option %s%s%s%s", name,
                         running ? "; see 'khala help " : "", running ? running->name : "",
                         running ? "'" : "");
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
    struct config_error error;
    if (!verb_has_option(config_option.name) ||
        settings_file_load(config_path, running->takes_settings, &error) == STATUS_OK)
        return true;
    cli_fail(EXIT_CODE_USAGE, "%s", error.text);
    return false;
}

static const char *environment(const char *name) {
    return getenv(name);
}

static int load(struct config *config, const struct config_flag *flags, size_t flag_count) {
    struct config_error error;
    if (config_load(config, settings_file(), environment, flags, flag_count, &error) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "%s", error.text);
    clock_move_wall_ms(config->clock_offset_ms);
    return EXIT_CODE_DONE;
}

int cli_settings_of(const char *data_dir, struct config *config) {
    struct config_flag flags[CONFIG_SETTINGS_MAX];
    size_t flag_count = config_flags(flags);
    for (size_t i = 0; i < flag_count; i++)
        if (strcmp(flags[i].name, "--data-dir") == 0)
            flags[i].value = data_dir;
    return load(config, flags, flag_count);
}

int cli_settings(int *argc, char **argv, const struct cli_option *verb_options,
                 size_t verb_option_count, struct config *config) {
    struct config_flag flags[CONFIG_SETTINGS_MAX];
    struct cli_option options[OPTIONS_MAX];
    size_t flag_count = config_flags(flags);
    size_t option_count = 0;
    assert(verb_option_count + flag_count <= OPTIONS_MAX);
    for (size_t i = 0; i < verb_option_count; i++)
        options[option_count++] = verb_options[i];
    for (size_t i = 0; i < flag_count; i++)
        options[option_count++] = (struct cli_option){flags[i].name, NULL, &flags[i].value};
    if (!cli_options(argc, argv, options, option_count))
        return EXIT_CODE_USAGE;
    return load(config, flags, flag_count);
}

static void print_overview(FILE *out) {
    fputs("Khala: a resumable sync server.\n\nusage: khala VERB …\n\n", out);
    for (const struct cli_command *command = cli_commands; command->name; command++)
        fprintf(out, "  %-11s %s\n", command->name, command->summary);
    fputs("\nkhala help VERB describes a verb. Exit codes:\n", out);
    for (int code = 0; code < EXIT_CODE_COUNT; code++)
        fprintf(out, "  %d  %s\n", code, exit_code_message((enum exit_code)code));
}

int cli_help(int argc, char **argv) {
    if (!cli_options(&argc, argv, NULL, 0))
        return EXIT_CODE_USAGE;
    if (argc == 0) {
        print_overview(stdout);
        return EXIT_CODE_DONE;
    }
    const struct cli_command *command = command_find(argv[0]);
    struct cli_option_row row;
    if (argc > 1)
        return cli_usage("help", "'%s' is one verb too many", argv[1]);
    if (!command)
        return unknown_verb(argv[0]);
    printf("%s\n\n", command->summary);
    print_usage(stdout, command);
    for (size_t i = 0; cli_option_at(command, i, &row); i++) {
        printf("%s", i == 0 ? "\noptions:\n" : "");
        int column = printf("  %s %s", row.name, row.takes ? row.takes : "");
        printf("%*s%s\n", column < HELP_COLUMN ? HELP_COLUMN - column : 2, "", row.help);
    }
    printf("\nexamples:\n");
    for (const char *line = command->example; *line;) {
        int size = (int)strcspn(line, "\n");
        printf("  %.*s\n", size, line);
        line += size + (line[size] == '\n');
    }
    return EXIT_CODE_DONE;
}

int cli_version(int argc, char **argv) {
    bool json = false;
    const struct cli_option options[] = {{"--json", &json, NULL}};
    if (!cli_options(&argc, argv, options, 1))
        return EXIT_CODE_USAGE;
    if (argc != 0)
        return cli_usage("version", "'%s' is not expected", argv[0]);
    printf(json ? "{\"version\":\"%s\"}\n" : "khala %s\n", KHALA_VERSION);
    return EXIT_CODE_DONE;
}

int cli_main(int argc, char **argv) {
    /* A file or socket that gets the number of a missing standard output would be written into.
     * A missing one is replaced by a descriptor that refuses to be used. */
    static const int refusing[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", refusing[fd]) != fd)
            abort();
    if (argc < 2) {
        cli_note("no verb is given");
        print_overview(stderr);
        return EXIT_CODE_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0)
        name = "version";
    running = command_find(name);
    if (!running)
        return unknown_verb(name);
    /* A file size limit is reported like a full disk, instead of ending the process. */
    signal(SIGXFSZ, SIG_IGN);
    bool has_json = verb_has_option("--json");
    bool wants_help = false;
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
        errors_are_json = errors_are_json || (has_json && strcmp(argv[i], "--json") == 0);
        wants_help =
            wants_help || strcmp(argv[i], "--help") == 0 || (i == 2 && strcmp(argv[i], "-h") == 0);
    }
    int code = wants_help ? cli_help(1, (char *[]){(char *)running->name, NULL})
                          : running->run(argc - 2, argv + 2);
    if (fflush(stdout) != 0 || ferror(stdout))
        return cli_fail(EXIT_CODE_UNREACHABLE, "cannot write the answer: %s", strerror(errno));
    return code;
}
