#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/local_store.h"
#include "cli/progress.h"
#include "cli/remote.h"
#include "server/config.h"
#include "server/config_options.h"

#define TARGET_BYTES_MAX 4096

struct export_options {
    struct remote_options remote;
    const char *after;
    const char *since;
    const char *until;
    const char *format;
    const char *store; /* a folder */
    bool json;
    bool progress; /* show it even if stderr is not a terminal */
};

struct export_run {
    struct remote *remote;
    struct progress progress;
    bool shows_progress;
    uint64_t lines;
};

static enum status export_body(void *user, unsigned http_status, struct slice piece) {
    struct export_run *run = user;
    if (http_status != 200)
        return buffer_append_slice(&run->remote->answer, piece);
    for (const char *at = piece.data;
         (at = memchr(at, '\n', piece.size - (size_t)(at - piece.data))); at++)
        run->lines++;
    if (run->shows_progress)
        progress_count(&run->progress, run->lines);
    return fwrite(piece.data, 1, piece.size, stdout) == piece.size ? STATUS_OK
                                                                   : STATUS_SYSTEM_ERROR;
}

/* Only the given options are sent, so that the server reports errors in them. */
static int export_events(const struct export_options *options) {
    struct remote remote;
    struct export_run run = {.remote = &remote};
    struct buffer target;
    unsigned http_status = 0;
    buffer_init(&target, TARGET_BYTES_MAX);
    buffer_append_slice(&target, SLICE("/api/events/export"));
    remote_add_parameter(&target, "after_cursor", options->after);
    remote_add_parameter(&target, "since", options->since);
    remote_add_parameter(&target, "until_cursor", options->until);
    remote_add_parameter(&target, "format", options->format);
    enum status status = buffer_append_byte(&target, '\0');
    int code = status == STATUS_OK ? remote_open(&remote, &options->remote)
                                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    if (code == EXIT_CODE_DONE) {
        struct blocking_request request = {
            .method = "GET", .target = target.data, .user = &run, .on_body = export_body};
        progress_begin(&run.progress, "export", "lines");
        run.shows_progress = options->progress || run.progress.is_terminal;
        code = remote_exchange(&remote, &request, &http_status);
        progress_end(&run.progress);
        if (code == EXIT_CODE_DONE && http_status != 200)
            code = remote_refused(&remote, http_status);
    }
    if (status == STATUS_OK)
        remote_close(&remote);
    buffer_release(&target);
    return code;
}

int cli_export(int argc, char **argv) {
    struct export_options options = {.after = NULL};
    const struct cli_option table[] = {
        REMOTE_OPTION_ROWS(options.remote),  {"--after", NULL, &options.after},
        {"--since", NULL, &options.since},   {"--until", NULL, &options.until},
        {"--format", NULL, &options.format}, {"--progress", &options.progress, NULL},
        {"--json", &options.json, NULL},     {"--store", NULL, &options.store}};
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    if (argc != 0)
        return cli_usage("export", "'%s' is not expected", argv[0]);
    if (options.store) {
        static struct config config;
        if (options.remote.url || options.remote.key || options.remote.ca_file)
            return cli_usage("export", "--store works without a server: --url, --key and --ca do "
                                       "not belong to it");
        if (options.after || options.since || options.until || options.format)
            return cli_usage("export", "--store moves the whole store: --after, --since, --until "
                                       "and --format do not belong to it");
        int code = cli_settings_of(options.remote.data_dir, &config);
        return code == EXIT_CODE_DONE
                   ? cli_move(config_store_url(&config), options.store, options.json)
                   : code;
    }
    if (options.after && options.since)
        return cli_usage("export", "--after and --since exclude each other");
    if (options.json && options.format && strcmp(options.format, "ndjson") != 0)
        return cli_usage("export", "--json and --format %s exclude each other", options.format);
    return export_events(&options);
}
