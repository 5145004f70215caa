#include "projector/reproject.h"

#include <stdio.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/open_store.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "wire/json.h"

#define TEXT_BYTES_MAX 65536

struct request {
    const char *run;
    const char *worker;
    bool all;
    bool verify;
    bool json;
};

struct report {
    struct progress progress;
    const struct request *request;
    uint64_t drift_count;
};

static void show_progress(void *user, uint64_t done, uint64_t total) {
    struct report *report = user;
    progress_show(&report->progress, done, total);
}

/* Drifts are printed as they are found: there may be more than would fit in memory. */
static void show_drift(void *user, const struct reproject_drift *drift) {
    struct report *report = user;
    struct slice key = drift->document_key;
    progress_end(&report->progress);
    if (!report->request->json) {
        printf("drift: %.*s: %s: %s (log at %llu, checkpoint at %llu)\n", (int)key.size, key.data,
               reason_code(drift->reason), drift->what, (unsigned long long)drift->expected_seq,
               (unsigned long long)drift->actual_seq);
        return;
    }
    struct buffer text;
    buffer_init(&text, TEXT_BYTES_MAX);
    if (json_write_string(&text, key) == STATUS_OK)
        printf("%s{\"document_key\":%.*s,\"reason\":\"%s\",\"message\":\"%s\","
               "\"expected_seq\":%llu,\"actual_seq\":%llu}",
               report->drift_count++ ? "," : "", (int)text.size, text.data,
               reason_code(drift->reason), drift->what, (unsigned long long)drift->expected_seq,
               (unsigned long long)drift->actual_seq);
    buffer_release(&text);
}

static void print_result(const struct request *request, enum status status,
                         const struct reproject_result *result) {
    if (request->json)
        printf("],\"ok\":%s,\"documents\":%llu,\"events\":%llu,\"drifted\":%llu,"
               "\"repaired\":%llu}\n",
               status == STATUS_OK && result->drifted == result->repaired ? "true" : "false",
               (unsigned long long)result->entities, (unsigned long long)result->events,
               (unsigned long long)result->drifted, (unsigned long long)result->repaired);
    else if (status == STATUS_OK)
        printf("%llu documents rebuilt from %llu events: %llu differed, %llu written\n",
               (unsigned long long)result->entities, (unsigned long long)result->events,
               (unsigned long long)result->drifted, (unsigned long long)result->repaired);
}

static int conclude(const struct request *request, const struct cli_store *opened,
                    enum status status, const struct reproject_result *result) {
    if (status == STATUS_OK)
        return result->drifted == result->repaired ? EXIT_CODE_DONE : EXIT_CODE_NO;
    if (status == STATUS_NOT_FOUND)
        return cli_fail(EXIT_CODE_NO, "there is no %s '%s'", request->run ? "run" : "worker",
                        request->run ? request->run : request->worker);
    if (status == STATUS_INTERNAL_ERROR)
        return cli_fail(EXIT_CODE_NO, "the log is damaged; 'khala verify' names the place");
    return cli_fail(EXIT_CODE_UNREACHABLE, "%s: %s", status_code(status),
                    store_session_error(opened->session));
}

/* Absent: all of them. */
static struct slice entity_id(const struct request *request) {
    if (request->all)
        return (struct slice){NULL, 0};
    return slice_of(request->run ? request->run : request->worker);
}

static int run(const struct request *request, const struct config *config) {
    struct cli_store opened;
    int code = cli_store_open(config, request->verify ? STORE_READ : STORE_WRITE, &opened);
    if (code == EXIT_CODE_DONE) {
        struct clock clock;
        struct report report = {.request = request};
        struct reproject_result result;
        clock_init(&clock);
        const struct reproject_options options = {
            .kind = request->run ? ENTITY_RUN : ENTITY_WORKER,
            .id = entity_id(request),
            .apply = !request->verify,
            .now_ms = clock_wall_ms(&clock),
            .user = &report,
            .on_drift = show_drift,
            .on_progress = show_progress,
        };
        if (request->json)
            printf("{\"mode\":\"%s\",\"drifts\":[", request->verify ? "verify" : "apply");
        progress_begin(&report.progress, "reproject", "events");
        enum status status = reproject(opened.session, &options, &result);
        progress_end(&report.progress);
        print_result(request, status, &result);
        code = conclude(request, &opened, status, &result);
    }
    cli_store_close(&opened);
    return code;
}

int cli_reproject(int argc, char **argv) {
    static struct config config;
    struct request request = {0};
    const struct cli_option own[] = {
        {"--run", NULL, &request.run},   {"--worker", NULL, &request.worker},
        {"--all", &request.all, NULL},   {"--verify", &request.verify, NULL},
        {"--json", &request.json, NULL},
    };
    int code = cli_settings(&argc, argv, own, sizeof(own) / sizeof(own[0]), &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0 || (request.run != NULL) + (request.worker != NULL) + request.all != 1)
        return cli_usage("reproject");
    return run(&request, &config);
}
