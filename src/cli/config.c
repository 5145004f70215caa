#include "server/config.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/settings.h"

static const char *environment_none(const char *name) {
    (void)name;
    return NULL;
}

int cli_config(int argc, char **argv) {
    bool json = false;
    bool check = false;
    bool markdown = false;
    const struct cli_option options[] = {
        {"--json", &json, NULL}, {"--check", &check, NULL}, {"--markdown", &markdown, NULL}};
    struct config config;
    struct config_error error;
    int code = cli_settings(&argc, argv, options, 3, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0)
        return cli_usage("config");
    if (markdown) {
        /* The page shows defaults, whatever this machine's environment says. */
        if (config_load(&config, environment_none, NULL, 0, &error) != STATUS_OK)
            return cli_fail(EXIT_CODE_USAGE, "%s", error.text);
        config_print_markdown(stdout);
    } else if (!check) {
        config_print(&config, stdout, json);
    }
    return EXIT_CODE_DONE;
}
