#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/local_store.h"
#include "cli/progress.h"
#include "cli/remote.h"
#include "server/config.h"
#include "server/config_options.h"
#include "wire/json_items.h"

#define BLOCK_BYTES 65536
#define ANSWER_MAX  65536

struct import_options {
    struct remote_options remote;
    const char *from; /* a folder */
    bool json;
    bool progress; /* show it even if stderr is not a terminal */
};

struct import_run {
    struct remote *remote;
    int fd;
    uint64_t bytes_total;
    uint64_t bytes_sent;
    char block[BLOCK_BYTES];
    struct json_items answers;
    struct progress progress;
    bool shows_progress;
    bool is_writing;
    bool is_done;
    bool is_refused; /* an error came after the answer had begun */
};

/* First bytes are sent, then the server writes events. */
static void begin_progress(struct import_run *run, const char *label, const char *unit) {
    progress_end(&run->progress);
    progress_begin(&run->progress, label, unit);
}

static void show(struct import_run *run, uint64_t done, uint64_t total) {
    if (run->shows_progress)
        progress_show(&run->progress, done, total);
}

static enum status import_next(void *user, struct slice *piece, bool *is_last) {
    struct import_run *run = user;
    ssize_t size = read(run->fd, run->block, sizeof(run->block));
    if (size < 0)
        return errno == EINTR ? STATUS_OK : STATUS_SYSTEM_ERROR;
    *is_last = size == 0;
    *piece = (struct slice){run->block, (size_t)size};
    run->bytes_sent += (uint64_t)size;
    show(run, run->bytes_sent, run->bytes_total);
    return STATUS_OK;
}

/* A line of the answer is the progress of the import, its result, or an error. */
static enum status import_answer(void *user, unsigned http_status, struct slice piece) {
    struct import_run *run = user;
    struct buffer *kept = &run->remote->answer;
    struct json_item item;
    if (http_status != 200)
        return buffer_append_slice(kept, piece);
    while ((item = json_items_next(&run->answers, &piece)).kind != JSON_ITEM_MORE) {
        struct json_field fields[] = {
            {.name = SLICE("progress")}, {.name = SLICE("events")}, {.name = SLICE("error")}};
        struct json_field numbers[] = {{.name = SLICE("done")}, {.name = SLICE("total")}};
        uint64_t done = 0;
        uint64_t total = 0;
        if (item.kind != JSON_ITEM_VALUE || item.value.kind != JSON_KIND_OBJECT ||
            json_read_members(item.value, fields, 3) != STATUS_OK)
            return STATUS_SYSTEM_ERROR;
        if (!fields[0].present || fields[0].value.kind != JSON_KIND_OBJECT) {
            run->is_done = fields[1].present;
            run->is_refused = fields[2].present;
            buffer_clear(kept);
            buffer_append_slice(kept, item.value.raw);
            if (buffer_append_byte(kept, '\n') != STATUS_OK)
                return buffer_status(kept);
        } else if (json_read_members(fields[0].value, numbers, 2) == STATUS_OK &&
                   numbers[0].present && numbers[1].present &&
                   json_u64(numbers[0].value, JSON_INTEGER_MAX, &done) &&
                   json_u64(numbers[1].value, JSON_INTEGER_MAX, &total)) {
            if (!run->is_writing)
                begin_progress(run, "import", "events");
            run->is_writing = true;
            show(run, done, total);
        }
    }
    return STATUS_OK;
}

static int import_file(struct remote *remote, const char *file,
                       const struct import_options *options) {
    static struct import_run run;
    const struct json_limits limits = {ANSWER_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {
        {.name = SLICE("events")}, {.name = SLICE("imported")}, {.name = SLICE("already_stored")}};
    uint64_t numbers[3] = {0};
    struct stat found;
    unsigned http_status = 0;
    run = (struct import_run){.remote = remote, .fd = open(file, O_RDONLY | O_CLOEXEC)};
    if (run.fd < 0 || fstat(run.fd, &found) != 0)
        return cli_fail(EXIT_CODE_UNREACHABLE, "cannot read '%s': %s", file, strerror(errno));
    run.bytes_total = (uint64_t)found.st_size;
    begin_progress(&run, "import: send", "bytes");
    run.shows_progress = options->progress || run.progress.is_terminal;
    json_items_init(&run.answers, JSON_ITEMS_LINES, &limits);
    struct blocking_request request = {.method = "POST",
                                       .target = "/api/events/import",
                                       .content_type = "application/x-ndjson",
                                       .next = import_next,
                                       .user = &run,
                                       .on_body = import_answer};
    int code = remote_exchange(remote, &request, &http_status);
    progress_end(&run.progress);
    if (code == EXIT_CODE_DONE && http_status != 200)
        code = remote_refused(remote, http_status);
    else if (code == EXIT_CODE_DONE && run.is_refused)
        code = remote_refused(remote, 503);
    else if (code == EXIT_CODE_DONE && !run.is_done)
        code = cli_fail(EXIT_CODE_UNREACHABLE, "the import was interrupted; repeat it to continue");
    struct slice answer = buffer_slice(&remote->answer);
    if (code == EXIT_CODE_DONE && options->json) {
        fwrite(answer.data, 1, answer.size, stdout);
    } else if (code == EXIT_CODE_DONE &&
               json_read_object(answer, &limits, fields, 3) == STATUS_OK) {
        for (size_t i = 0; i < 3; i++)
            if (fields[i].present)
                (void)json_u64(fields[i].value, JSON_INTEGER_MAX, &numbers[i]);
        printf("%llu events: %llu imported, %llu were there\n", (unsigned long long)numbers[0],
               (unsigned long long)numbers[1], (unsigned long long)numbers[2]);
    }
    json_items_release(&run.answers);
    close(run.fd);
    return code;
}

int cli_import(int argc, char **argv) {
    struct import_options options = {.json = false};
    const struct cli_option table[] = {REMOTE_OPTION_ROWS(options.remote),
                                       {"--progress", &options.progress, NULL},
                                       {"--json", &options.json, NULL},
                                       {"--from", NULL, &options.from}};
    struct remote remote;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    if (options.from && argc != 0)
        return cli_usage("import", "FILE and --from exclude each other");
    if (options.from) {
        static struct config config;
        if (options.remote.url || options.remote.key || options.remote.ca_file)
            return cli_usage("import", "--from works without a server: --url, --key and --ca do "
                                       "not belong to it");
        int code = cli_settings_of(options.remote.data_dir, &config);
        return code == EXIT_CODE_DONE
                   ? cli_move(options.from, config_store_url(&config), options.json)
                   : code;
    }
    if (argc != 1)
        return cli_usage("import", argc == 0 ? "FILE is missing" : "one FILE is expected");
    int code = remote_open(&remote, &options.remote);
    if (code == EXIT_CODE_DONE)
        code = import_file(&remote, argv[0], &options);
    remote_close(&remote);
    return code;
}
