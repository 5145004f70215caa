/* The settings file of this process: --config FILE, else the default one if it exists.
 * Thread: main; the file is read once, before a verb begins.
 * Memory: static; texts live as long as the process.
 * Errors: STATUS_INVALID_CONFIG with a message; the caller prints it.
 * Invariant: the environment overrides the file, as it does in server/config.c. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include <stdbool.h>

#include "server/config_file.h"

/* path NULL: the default file. A default file that this user may not read is refused if the verb
 * needs all settings, and ignored otherwise: a client does not need the server's file. */
MUST_CHECK enum status settings_file_load(const char *path, bool needs_all,
                                          struct config_error *error);
/* NULL: no file was read. */
const struct config_file *settings_file(void);
/* The value of a setting or variable in the environment, else in the file; NULL: unset. */
const char *settings_variable(const char *name);

#endif
