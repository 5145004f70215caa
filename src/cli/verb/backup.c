#include <stdio.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "projector/verify.h"
#include "server/config.h"
#include "server/config_options.h"
#include "store/store_maintenance.h"
#include "wire/json.h"
#include "wire/object_writer.h"

#define TEXT_BYTES_MAX 65536

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
    const struct store_copy_options options = {force, &progress, progress_report};
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
    if (!json) {
        printf("%s holds %llu events of epoch %s in %llu bytes\n", argv[0],
               (unsigned long long)copy.log_id, copy.epoch, (unsigned long long)copy.bytes);
        return EXIT_CODE_DONE;
    }
    struct buffer name;
    buffer_init(&name, TEXT_BYTES_MAX);
    bool is_text = json_write_string(&name, slice_of(argv[0])) == STATUS_OK;
    printf("{\"file\":%.*s,\"events\":%llu,\"epoch\":\"%s\",\"bytes\":%llu}\n",
           is_text ? (int)name.size : 4, is_text ? name.data : "null",
           (unsigned long long)copy.log_id, copy.epoch, (unsigned long long)copy.bytes);
    buffer_release(&name);
    return EXIT_CODE_DONE;
}

#define STRETCH_COUNT  64
#define STRETCH_EVENTS 256

/* The pages may be intact although the events in them are damaged. */
static int check_chains(struct store_restore *restore, const char *file) {
    const struct verify_sample sample = {STRETCH_COUNT, STRETCH_EVENTS, (uint64_t)time(NULL)};
    struct store_session *session = NULL;
    struct verify_result result = {.is_broken = false};
    enum status status = store_session_open(store_restore_copy(restore), STORE_READ, &session);
    if (status == STATUS_OK)
        status = verify_sample(session, &sample, &result);
    if (session)
        store_session_close(session);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s cannot be restored: %s", file,
                        status_message(status));
    if (result.is_broken)
        return cli_fail(EXIT_CODE_NO, "%s cannot be restored: log id %llu (%s seq %llu): %s", file,
                        (unsigned long long)result.broken.log_id, result.broken.entity,
                        (unsigned long long)result.broken.seq, result.broken.message);
    return EXIT_CODE_DONE;
}

int cli_restore(int argc, char **argv) {
    static struct config config;
    bool json = false;
    const struct cli_option verb_options[] = {{"--json", &json, NULL}};
    struct progress progress;
    struct store_message message = {""};
    struct store_restore *restore = NULL;
    struct store_restored restored;
    int code = cli_settings(&argc, argv, verb_options, 1, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 1)
        return cli_usage("restore", "give one file, not %d", argc);
    const struct store_copy_options options = {false, &progress, progress_report};
    progress_begin(&progress, "restore", "pages");
    enum status status =
        store_restore_begin(config_store_url(&config), argv[0], &options, &restore, &message);
    progress_end(&progress);
    if (status == STATUS_INTERNAL_ERROR || status == STATUS_INVALID_CONFIG)
        return cli_fail(EXIT_CODE_NO, "%s", message.text);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s",
                        message.text[0] ? message.text : status_message(status));
    code = check_chains(restore, argv[0]);
    if (code != EXIT_CODE_DONE)
        goto out;
    message = (struct store_message){""};
    status = store_restore_apply(restore, &restored, &message);
    if (status != STATUS_OK) {
        code = cli_fail(EXIT_CODE_UNREACHABLE, "%s",
                        message.text[0] ? message.text : status_message(status));
        goto out;
    }
    unsigned long long events = restored.copy.log_id;
    if (json) {
        struct buffer text;
        buffer_init(&text, TEXT_BYTES_MAX);
        struct object_writer object = object_begin(&text);
        object_text(&object, SLICE("data_dir"), slice_of(config.data_dir));
        object_text(&object, SLICE("kept"), cli_given(*restored.kept ? restored.kept : NULL));
        object_number(&object, SLICE("events"), events);
        object_text(&object, SLICE("epoch"), slice_of(restored.copy.epoch));
        object_text(&object, SLICE("epoch_before"), slice_of(restored.epoch_before));
        if (object_end(&object) == STATUS_OK)
            printf("%.*s\n", (int)text.size, text.data);
        buffer_release(&text);
    } else {
        printf("%s holds %llu events now\n", config.data_dir, events);
        printf("its epoch is %s (the copy's was %s): clients with a cursor of before start over\n",
               restored.copy.epoch, restored.epoch_before);
        if (*restored.kept)
            printf("the store that was there is kept as %s; remove it when it is not needed\n",
                   restored.kept);
    }
out:
    store_restore_end(restore);
    return code;
}
