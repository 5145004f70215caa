#include <stdio.h>

#include "cli/cli.h"
#include "server/config.h"
#include "server/config_options.h"
#include "store/store_move.h"

int cli_migrate(int argc, char **argv) {
    struct config config;
    struct store_message message = {""};
    bool json = false;
    bool is_undo = false;
    bool is_renewal = false;
    const char *fork_text = NULL;
    uint64_t fork = 0;
    const struct cli_option verb_options[] = {{"--json", &json, NULL},
                                              {"--undo-move", &is_undo, NULL},
                                              {"--new-epoch", &is_renewal, NULL},
                                              {"--fork", NULL, &fork_text}};
    int code = cli_settings(&argc, argv, verb_options, 4, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0)
        return cli_usage("migrate", "'%s' is not expected", argv[0]);
    if (is_undo && is_renewal)
        return cli_usage("migrate", "--undo-move and --new-epoch exclude one another");
    if (fork_text && (!is_renewal || !cli_number(fork_text, &fork)))
        return cli_usage("migrate", "--fork takes a log id, and belongs to --new-epoch");
    const char *url = config_store_url(&config);
    char label[STORE_MESSAGE_MAX];
    store_url_label(url, label, sizeof(label));
    if (is_undo) {
        struct store_move_undone undone;
        enum status status = store_move_undo(url, &undone, &message);
        if (status != STATUS_OK)
            return cli_fail(status == STATUS_NOT_FOUND ? EXIT_CODE_NO : EXIT_CODE_UNREACHABLE, "%s",
                            message.text[0] ? message.text : status_message(status));
        if (json)
            printf("{\"epoch\":\"%s\",\"is_epoch_new\":%s}\n", undone.epoch,
                   undone.is_epoch_new ? "true" : "false");
        else if (undone.is_epoch_new)
            printf("%s can be served again, as it was before its move to %s\n"
                   "its epoch is %s: clients with a cursor of before start over\n",
                   label, undone.target, undone.epoch);
        else
            printf("%s can be served again: its move to %s was not complete\n", label,
                   undone.target);
        return EXIT_CODE_DONE;
    }
    if (is_renewal) {
        char epoch[STORE_EPOCH_SIZE + 1] = "";
        if (store_epoch_renew(url, fork_text ? &fork : NULL, epoch, &message) != STATUS_OK)
            return cli_fail(EXIT_CODE_UNREACHABLE, "%s", message.text);
        if (json)
            printf("{\"epoch\":\"%s\"}\n", epoch);
        else
            printf("the epoch of %s is %s: clients with a cursor of before start over\n", label,
                   epoch);
        return EXIT_CODE_DONE;
    }
    if (store_migrate(url, &message) != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", message.text);
    if (json)
        printf("{\"schema_version\":%d}\n", store_schema_version(url));
    else
        printf("%s is at schema version %d\n", label, store_schema_version(url));
    return EXIT_CODE_DONE;
}
