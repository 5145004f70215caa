#include <stdio.h>

#include "cli/cli.h"

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
