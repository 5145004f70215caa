/* The command line: one table of verbs and their options, from which dispatch, parsing, help,
 * completion and the manual page follow.
 * Thread: main.
 * Memory: texts belong to the command line, the environment or the settings file.
 * Errors: a verb returns an exit code of spec/exit.json after it has printed its own error.
 * Invariant: data goes to standard output, everything else to standard error. Options may stand
 * anywhere; `--` ends them. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "spec/codes.h"

struct config;

/* An option in help and completion. takes names its value and decides the completion: "FILE" and
 * "DIR" complete paths, "text|json" completes one of the words, other names complete nothing. */
struct cli_option_row {
    const char *name;  /* "--json" */
    const char *takes; /* NULL: a flag */
    const char *help;  /* no capital, no full stop */
};

struct cli_command {
    const char *name;
    const char *usage;   /* one line a form, without "khala " */
    const char *summary; /* one sentence */
    const char *example; /* lines to try */
    int (*run)(int argc, char **argv);
    const char *operand;                  /* the first one, as takes above; NULL: none */
    const struct cli_option_row *options; /* ends with a row whose name is NULL; NULL: none */
    bool takes_settings;                  /* its options include the flags of server/config.c */
};

/* Ends with a row whose name is NULL. */
extern const struct cli_command cli_commands[];

/* The options of a verb one after another, its settings' flags last; false after the last. */
bool cli_option_at(const struct cli_command *command, size_t index, struct cli_option_row *row);

/* Where an option of the table goes: a flag (flag set), or one with a value (value set). */
struct cli_option {
    const char *name; /* "--json" */
    bool *flag;
    const char **value;
};

int cli_main(int argc, char **argv);

/* Removes the options from argv and leaves the operands; false after printing the error. Accepts
 * the options of the table only, and each of them but --config needs a row here. Reads the settings
 * file. */
bool cli_options(int *argc, char **argv, const struct cli_option *options, size_t option_count);
/* The same with the flags of the server's settings beside the verb's own options, and loads the
 * settings: flags first, then the environment, then the settings file. Prints its error and returns
 * an exit code; EXIT_CODE_DONE is success. */
int cli_settings(int *argc, char **argv, const struct cli_option *verb_options,
                 size_t verb_option_count, struct config *config);
/* Loads the settings if --data-dir was parsed before; NULL: not given. */
int cli_settings_of(const char *data_dir, struct config *config);
/* Prints "khala: …" on standard error and returns the code. With --json the line is JSON:
 * {"error":"usage|no|unreachable","message":…}. */
int cli_fail(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints the reason and the usage of the verb on standard error and returns EXIT_CODE_USAGE. */
int cli_usage(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints "khala: …", or {"notice":…} with --json, on standard error: not an error. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether errors are JSON, because the command line has --json. */
bool cli_errors_are_json(void);
/* The value of an option; data is NULL if it was not given. */
static inline struct slice cli_given(const char *text) {
    return text ? slice_of(text) : (struct slice){NULL, 0};
}
/* A whole number without sign or leading junk, at most 2^53-1. */
bool cli_number(const char *text, uint64_t *number);
/* Reads a whole file ("-" is standard input) up to the buffer's maximum. STATUS_SYSTEM_ERROR
 * leaves errno set. */
MUST_CHECK enum status cli_read(const char *path, struct buffer *out);

int cli_append(int argc, char **argv);
int cli_backup(int argc, char **argv);
int cli_completion(int argc, char **argv);
int cli_config(int argc, char **argv);
int cli_cursor(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_export(int argc, char **argv);
int cli_import(int argc, char **argv);
int cli_get(int argc, char **argv);
int cli_help(int argc, char **argv);
int cli_json(int argc, char **argv);
int cli_keys(int argc, char **argv);
int cli_man(int argc, char **argv);
int cli_migrate(int argc, char **argv);
int cli_nodes(int argc, char **argv);
int cli_quota(int argc, char **argv);
int cli_key(int argc, char **argv);
int cli_reproject(int argc, char **argv);
int cli_restore(int argc, char **argv);
int cli_retention(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_snapshot(int argc, char **argv);
int cli_tail(int argc, char **argv);
int cli_token(int argc, char **argv);
int cli_topic(int argc, char **argv);
int cli_verify(int argc, char **argv);
int cli_why(int argc, char **argv);
int cli_version(int argc, char **argv);

#endif
