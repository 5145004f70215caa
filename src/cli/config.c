#include "server/config.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/settings.h"
#include "server/tls.h"

static const char *environment_none(const char *name) {
    (void)name;
    return NULL;
}

/* The files that a server would not start without. */
static int check_files(const struct config *config) {
    const struct tls_options options = tls_options_of(config);
    struct tls_context *context = NULL;
    struct tls_message message = {""};
    if (!*options.certificate_file)
        return EXIT_CODE_DONE;
    if (tls_context_open(&context, &options, &message) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "%s", message.text);
    tls_context_close(context);
    return EXIT_CODE_DONE;
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
    return check ? check_files(&config) : EXIT_CODE_DONE;
}
