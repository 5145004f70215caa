#include <stdio.h>

#include "cli/cli.h"
#include "cli/settings.h"
#include "store/store.h"

int cli_migrate(int argc, char **argv) {
    struct config config;
    struct store_message message = {""};
    bool json = false;
    const struct cli_option verb_options[] = {{"--json", &json, NULL}};
    int code = cli_settings(&argc, argv, verb_options, 1, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0)
        return cli_usage("migrate", "'%s' is not expected", argv[0]);
    if (store_migrate(config.data_dir, &message) != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", message.text);
    if (json)
        printf("{\"schema_version\":%d}\n", STORE_SCHEMA_VERSION);
    else
        printf("%s is at schema version %d\n", config.data_dir, STORE_SCHEMA_VERSION);
    return EXIT_CODE_DONE;
}
