/* The settings of the server as verbs take them: flags from the table of server/config.c beside
 * the verb's own options, then the environment, then the settings file. Main thread only; owns
 * nothing. Prints the error before it returns another code than EXIT_CODE_DONE. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "cli/cli.h"
#include "server/config.h"

int cli_settings(int *argc, char **argv, const struct cli_option *verb_options,
                 size_t verb_option_count, struct config *config);
/* The same where --data-dir was parsed before; NULL: not given. */
int cli_settings_of(const char *data_dir, struct config *config);

#endif
