#include "cli/local_store.h"

#include <stdio.h>

#include "cli/progress.h"
#include "server/config_options.h"
#include "server/shared_keys.h"
#include "store/store_move.h"
#include "wire/json.h"

#define TEXT_BYTES_MAX 65536

int cli_store_open(const struct config *config, enum store_mode mode, struct cli_store *opened) {
    struct store_message message = {""};
    *opened = (struct cli_store){.store = NULL};
    const char *url = config_store_url(config);
    enum status status = store_open(&opened->store, url, false, &message);
    if (status == STATUS_OK && mode == STORE_WRITE) {
        store_close(opened->store);
        opened->store = NULL;
        status = store_open(&opened->store, url, true, &message);
        if (status == STATUS_STORE_UNAVAILABLE) {
            opened->is_in_use = true;
            opened->message = message;
            return EXIT_CODE_UNREACHABLE;
        }
    }
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", message.text);
    status = store_session_open(opened->store, mode, &opened->session);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s: %s", status_code(status),
                        status_message(status));
    return EXIT_CODE_DONE;
}

void cli_store_close(struct cli_store *opened) {
    if (opened->session)
        store_session_close(opened->session);
    if (opened->store)
        store_close(opened->store);
    *opened = (struct cli_store){.store = NULL};
}

int cli_store_ask_server(const struct cli_store *opened, struct remote *remote,
                         const struct remote_options *options, const char *target,
                         struct slice body) {
    unsigned http_status = 0;
    int code = remote_open(remote, options);
    if (code == EXIT_CODE_DONE)
        code = remote_ask(remote, target, body, &http_status);
    if (code != EXIT_CODE_DONE && opened->is_in_use)
        (void)cli_fail(EXIT_CODE_UNREACHABLE, "%s", opened->message.text);
    else if (code == EXIT_CODE_DONE && http_status != 200)
        code = remote_refused(remote, http_status);
    return code;
}

/* ---- a move ---- */

struct move_run {
    struct progress progress;
    char source[STORE_MESSAGE_MAX];
    char target[STORE_MESSAGE_MAX];
};

static void show_progress(void *user, uint64_t done, uint64_t total) {
    struct move_run *run = user;
    progress_show(&run->progress, done, total);
}

/* A store that keeps no keys itself is a folder, and its label is the folder's name. */
static enum status copy_keys(void *user, struct store *source, struct store *target) {
    const struct move_run *run = user;
    return shared_keys_copy(&(struct key_place){source, run->source},
                            &(struct key_place){target, run->target});
}

int cli_move(const char *source_url, const char *target_url, bool json) {
    struct move_run run = {.source = ""};
    const struct store_move_options options = {.source_url = source_url,
                                               .target_url = target_url,
                                               .user = &run,
                                               .on_progress = show_progress,
                                               .copy_keys = copy_keys};
    struct store_message message = {""};
    struct store_moved moved;
    store_url_label(source_url, run.source, sizeof(run.source));
    store_url_label(target_url, run.target, sizeof(run.target));
    progress_begin(&run.progress, "move", "rows");
    enum status status = store_move(&options, &moved, &message);
    progress_end(&run.progress);
    const char *reason = message.text[0] ? message.text : status_message(status);
    if (status == STATUS_ALREADY_EXISTS && !moved.is_begun)
        return cli_fail(EXIT_CODE_NO, "%s", reason);
    if (status == STATUS_INVALID_REQUEST)
        return cli_fail(EXIT_CODE_USAGE, "%s", reason);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s%s", reason,
                        moved.is_begun ? "; the same command continues the move" : "");
    if (!json) {
        printf("%s %s moved to %s: %llu events, epoch %s\n", moved.source,
               moved.was_complete ? "was already" : "is", moved.target,
               (unsigned long long)moved.events, moved.epoch);
        if (!moved.was_complete)
            printf("%s is kept, and is not served again; remove it when it is not needed\n",
                   moved.source);
        return EXIT_CODE_DONE;
    }
    struct buffer text;
    buffer_init(&text, TEXT_BYTES_MAX);
    buffer_append_slice(&text, SLICE("{\"from\":"));
    json_write_string(&text, slice_of(moved.source));
    buffer_append_slice(&text, SLICE(",\"to\":"));
    json_write_string(&text, slice_of(moved.target));
    if (buffer_status(&text) == STATUS_OK)
        printf("%.*s,\"events\":%llu,\"epoch\":\"%s\",\"was_complete\":%s}\n", (int)text.size,
               text.data, (unsigned long long)moved.events, moved.epoch,
               moved.was_complete ? "true" : "false");
    buffer_release(&text);
    return EXIT_CODE_DONE;
}

/* ---- the check of the journals ---- */

static void print_damage(void *user, const struct journal_damage *damage) {
    struct journal_report *report = user;
    struct buffer topic;
    if (!report->json) {
        printf("damaged: %.*s watermark %llu: %s\n", (int)damage->topic.size, damage->topic.data,
               (unsigned long long)damage->seq, damage->message);
        return;
    }
    buffer_init(&topic, TEXT_BYTES_MAX);
    if (json_write_string(&topic, damage->topic) == STATUS_OK)
        printf("%s{\"topic\":%.*s,\"watermark\":%llu,\"message\":\"%s\"}",
               report->result.damages > 1 ? "," : "", (int)topic.size, topic.data,
               (unsigned long long)damage->seq, damage->message);
    buffer_release(&topic);
}

enum status journal_report_run(struct journal_report *report, struct store_session *session) {
    const struct journal_check_options options = {report, print_damage};
    if (report->json)
        printf(",\"journal\":[");
    enum status status = journal_check(session, &options, &report->result);
    if (report->json)
        printf("],\"journal_rows\":%llu", (unsigned long long)report->result.rows);
    else if (report->result.damages == 0 && status == STATUS_OK)
        printf("%llu journal rows of %llu topics: no hole, no stray and no altered row\n",
               (unsigned long long)report->result.rows, (unsigned long long)report->result.topics);
    else if (status == STATUS_OK)
        printf("%s\n", JOURNAL_ADVICE);
    return status;
}
