/* The server's settings: one table has the environment names, flags, checks, and help texts of
 * `khala config` and the documentation.
 * Thread: main loads them before others start; read-only afterwards.
 * Memory: the struct owns no heap.
 * Errors: STATUS_INVALID_CONFIG for a bad value, with the name of the setting in the message.
 * Invariant: a flag overrides the environment, which overrides the file, which overrides the
 * default. Each setting remembers its source. */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H

#include <stdio.h>

#include "server/config_values.h"

/* A setting given on the command line: "--bind", "127.0.0.1:0". */
struct config_flag {
    const char *name;
    const char *value; /* NULL: not given */
};

/* Reads the file (NULL: none), which outlives config, then the environment, then the flags.
 * environment(name) returns NULL if unset. A bad value in the file is refused also if another
 * source overrides it. */
MUST_CHECK enum status config_load(struct config *config, const struct config_file *file,
                                   const char *(*environment)(const char *),
                                   const struct config_flag *flags, size_t flag_count,
                                   struct config_error *error);
/* Fills in all flags, without values. Returns their number, at most CONFIG_SETTINGS_MAX. */
size_t config_flags(struct config_flag *flags);

/* The description of a setting, for help texts. */
struct config_setting {
    const char *name;
    const char *flag;  /* NULL: environment only */
    const char *takes; /* "HOST:PORT", "text|json", "N" */
    const char *fallback;
    const char *help;
};

/* False: there is no setting with this index. Topic policies are not included. */
bool config_setting_at(size_t index, struct config_setting *setting);
/* The effective settings with their sources, secrets masked, one a line or as JSON. */
void config_print(const struct config *config, FILE *out, bool json);
/* Prints docs/configuration.md. */
void config_print_markdown(FILE *out);

#endif
