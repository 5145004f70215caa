#include <stdio.h>

#include "cli/cli.h"
#include "cli/settings.h"
#include "store/store.h"

int cli_migrate(int argc, char **argv) {
    struct config config;
    struct store_message message = {""};
    int code = cli_settings(&argc, argv, NULL, 0, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0)
        return cli_usage("migrate");
    if (store_migrate_sqlite(config.data_dir, &message) != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", message.text);
    printf("%s is at schema version %d\n", config.data_dir, STORE_SCHEMA_VERSION);
    return EXIT_CODE_DONE;
}
