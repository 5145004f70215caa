#include <stdio.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "server/config_options.h"
#include "store/store_maintenance.h"
#include "wire/json.h"

#define TEXT_BYTES_MAX 65536

static void show_progress(void *user, uint64_t done, uint64_t total) {
    progress_show(user, done, total);
}

static int print_copy(const char *file, const struct store_copy *copy, bool json) {
    struct buffer name;
    if (!json) {
        printf("%s holds %llu events of epoch %s in %llu bytes\n", file,
               (unsigned long long)copy->log_id, copy->epoch, (unsigned long long)copy->bytes);
        return EXIT_CODE_DONE;
    }
    buffer_init(&name, TEXT_BYTES_MAX);
    bool is_text = json_write_string(&name, slice_of(file)) == STATUS_OK;
    printf("{\"file\":%.*s,\"events\":%llu,\"epoch\":\"%s\",\"bytes\":%llu}\n",
           is_text ? (int)name.size : 4, is_text ? name.data : "null",
           (unsigned long long)copy->log_id, copy->epoch, (unsigned long long)copy->bytes);
    buffer_release(&name);
    return EXIT_CODE_DONE;
}

int cli_backup(int argc, char **argv) {
    static struct config config;
    bool json = false;
    bool force = false;
    const struct cli_option verb_options[] = {{"--json", &json, NULL}, {"--force", &force, NULL}};
    struct progress progress;
    struct store_copy copy;
    struct store_message message = {""};
    int code = cli_settings(&argc, argv, verb_options, 2, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 1)
        return cli_usage("backup", "give one file, not %d", argc);
    const struct store_copy_options options = {force, &progress, show_progress};
    progress_begin(&progress, "backup", "pages");
    enum status status =
        store_backup(config_store_url(&config), argv[0], &options, &copy, &message);
    progress_end(&progress);
    if (status == STATUS_INVALID_REQUEST)
        return cli_fail(EXIT_CODE_USAGE, "%s", message.text);
    if (status == STATUS_ALREADY_EXISTS)
        return cli_fail(EXIT_CODE_NO, "%s", message.text);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s",
                        message.text[0] ? message.text : status_message(status));
    return print_copy(argv[0], &copy, json);
}
