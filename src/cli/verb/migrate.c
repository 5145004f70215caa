#include <stdio.h>

#include "cli/cli.h"
#include "cli/settings.h"
#include "server/config_options.h"
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
    const char *url = config_store_url(&config);
    char label[STORE_MESSAGE_MAX];
    store_url_label(url, label, sizeof(label));
    if (store_migrate(url, &message) != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", message.text);
    if (json)
        printf("{\"schema_version\":%d}\n", store_schema_version(url));
    else
        printf("%s is at schema version %d\n", label, store_schema_version(url));
    return EXIT_CODE_DONE;
}
