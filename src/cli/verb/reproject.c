/* khala reproject: compares or repairs documents, or rebuilds all journals. With --url a server
 * does the work; otherwise the local store is opened, and if a server uses it, that server is
 * asked. Both ways print the same report: drifts as they are found, because there may be more than
 * would fit in memory, then the sums. */
#include <stdio.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/local_store.h"
#include "cli/progress.h"
#include "cli/remote.h"
#include "projector/reproject.h"
#include "server/config.h"
#include "server/topics.h"
#include "wire/json.h"
#include "wire/object_writer.h"

#define TEXT_BYTES_MAX   65536
#define OPTION_NAME_SIZE 32

struct request {
    const char *ids[DOCUMENT_KIND_COUNT]; /* the id of one entity; all are NULL with --all */
    enum document_kind kind;              /* the document of that entity */
    bool all;
    bool verify;
    bool journal;
    bool json;
    struct remote_options remote; /* the server that uses the store */
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

struct drift_line {
    struct slice key;
    struct slice reason;
    struct slice message;
    uint64_t expected_seq;
    uint64_t actual_seq;
};

static void print_drift(struct report *report, const struct drift_line *drift) {
    if (!report->request->json) {
        printf("drift: %.*s: %.*s: %.*s (log at %llu, checkpoint at %llu)\n", (int)drift->key.size,
               drift->key.data, (int)drift->reason.size, drift->reason.data,
               (int)drift->message.size, drift->message.data,
               (unsigned long long)drift->expected_seq, (unsigned long long)drift->actual_seq);
        return;
    }
    struct buffer text;
    buffer_init(&text, TEXT_BYTES_MAX);
    if (json_write_string(&text, drift->key) == STATUS_OK)
        printf("%s{\"document_key\":%.*s,\"reason\":\"%.*s\",\"message\":\"%.*s\","
               "\"expected_seq\":%llu,\"actual_seq\":%llu}",
               report->drift_count++ ? "," : "", (int)text.size, text.data, (int)drift->reason.size,
               drift->reason.data, (int)drift->message.size, drift->message.data,
               (unsigned long long)drift->expected_seq, (unsigned long long)drift->actual_seq);
    buffer_release(&text);
}

/* Drifts are printed as they are found: there may be more than would fit in memory. */
static void show_drift(void *user, const struct reproject_drift *drift) {
    struct report *report = user;
    progress_end(&report->progress);
    print_drift(report, &(struct drift_line){.key = drift->document_key,
                                             .reason = slice_of(reason_code(drift->reason)),
                                             .message = slice_of(drift->message),
                                             .expected_seq = drift->expected_seq,
                                             .actual_seq = drift->actual_seq});
}

static void print_begin(const struct request *request) {
    if (request->json)
        printf("{\"mode\":\"%s\",\"drifts\":[", request->verify ? "verify" : "apply");
}

static void print_result(const struct request *request, bool is_ok,
                         const struct reproject_result *result) {
    if (request->json)
        printf(",\"ok\":%s,\"documents\":%llu,\"events\":%llu,\"drifted\":%llu,"
               "\"repaired\":%llu}\n",
               is_ok && result->drifted == result->repaired ? "true" : "false",
               (unsigned long long)result->entities, (unsigned long long)result->events,
               (unsigned long long)result->drifted, (unsigned long long)result->repaired);
    else if (is_ok)
        printf("%llu documents rebuilt from %llu events: %llu differed, %llu written\n",
               (unsigned long long)result->entities, (unsigned long long)result->events,
               (unsigned long long)result->drifted, (unsigned long long)result->repaired);
    if (!request->json && is_ok && request->journal)
        printf("the journals of all shared topics were made again, in a new epoch\n");
}

/* Absent: all of them. */
static struct slice entity_id(const struct request *request) {
    if (request->all)
        return (struct slice){NULL, 0};
    return slice_of(request->ids[request->kind]);
}

static int apply(const struct request *request, const struct cli_store *opened,
                 const struct config *config) {
    struct clock clock;
    struct report report = {.request = request};
    struct journal_report journal = {.json = request->json};
    struct reproject_result result;
    clock_init(&clock);
    const struct reproject_options options = {
        .kind = document_row(request->kind)->entity,
        .id = entity_id(request),
        .apply = !request->verify,
        .now_ms = clock_wall_ms(&clock),
        .projection_version = slice_of(config->projection_version),
        .user = &report,
        .on_drift = show_drift,
        .on_progress = show_progress,
    };
    print_begin(request);
    progress_begin(&report.progress, "reproject", "events");
    enum status status = reproject(opened->session, &options, &result);
    progress_end(&report.progress);
    if (request->json)
        printf("]");
    /* With --verify the journals are checked, with --journal they are rebuilt. */
    if (status == STATUS_OK && request->verify && request->all)
        status = journal_report_run(&journal, opened->session);
    else if (status == STATUS_OK && request->journal)
        status = store_rebuild_journal(
            opened->session,
            policy_of(&config->policies, topic_name(TOPIC_CODEX_WORKER_EVENTS))
                ->replay_budget_events,
            clock_wall_ms(&clock));
    bool is_damaged = status == STATUS_OK && journal.result.damages > 0;
    print_result(request, status == STATUS_OK && !is_damaged, &result);
    if (status == STATUS_NOT_FOUND)
        return cli_fail(EXIT_CODE_NO, "there is no %s '%s'",
                        entity_kind_name(document_row(request->kind)->entity),
                        request->ids[request->kind]);
    if (status == STATUS_INTERNAL_ERROR)
        return cli_fail(EXIT_CODE_NO, "the log is damaged; 'khala verify' names the place");
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s: %s", status_code(status),
                        store_session_error(opened->session));
    return is_damaged || result.drifted != result.repaired ? EXIT_CODE_NO : EXIT_CODE_DONE;
}

/* ---- on a running server ----------------------------------------------------------- */

static int print_answer(const struct request *request, struct slice answer) {
    const struct json_limits limits = {answer.size, JSON_DEPTH_MAX};
    struct report report = {.request = request};
    struct reproject_result result;
    struct json_value element;
    struct json_field fields[] = {{.name = SLICE("rewritten")},
                                  {.name = SLICE("entities")},
                                  {.name = SLICE("events")},
                                  {.name = SLICE("drifted")},
                                  {.name = SLICE("repaired")}};
    if (json_read_object(answer, &limits, fields, 5) != STATUS_OK ||
        fields[0].value.kind != JSON_KIND_ARRAY ||
        !json_u64(fields[1].value, UINT64_MAX, &result.entities) ||
        !json_u64(fields[2].value, UINT64_MAX, &result.events) ||
        !json_u64(fields[3].value, UINT64_MAX, &result.drifted) ||
        !json_u64(fields[4].value, UINT64_MAX, &result.repaired))
        return cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not a reprojection's");
    print_begin(request);
    bool done = true;
    struct json_iterator rewritten = json_iterate(fields[0].value);
    while (done && json_next_element(&rewritten, &element)) {
        struct json_field members[] = {{.name = SLICE("document_id")},
                                       {.name = SLICE("reason")},
                                       {.name = SLICE("message")},
                                       {.name = SLICE("expected_seq")},
                                       {.name = SLICE("actual_seq")}};
        struct drift_line drift;
        struct buffer key;
        buffer_init(&key, TEXT_BYTES_MAX);
        done = json_read_members(element, members, 5) == STATUS_OK && members[0].present &&
               json_string_decode(members[0].value, &key) == STATUS_OK &&
               json_string_slice(members[1].value, &drift.reason) &&
               json_string_slice(members[2].value, &drift.message) &&
               json_u64(members[3].value, UINT64_MAX, &drift.expected_seq) &&
               json_u64(members[4].value, UINT64_MAX, &drift.actual_seq);
        drift.key = buffer_slice(&key);
        if (done)
            print_drift(&report, &drift);
        buffer_release(&key);
    }
    if (request->json)
        printf("]");
    print_result(request, done, &result);
    return done && result.drifted == result.repaired ? EXIT_CODE_DONE : EXIT_CODE_NO;
}

/* The server's writer does the work, between appends. */
static int ask_server(const struct request *request, const struct cli_store *opened) {
    struct slice id = entity_id(request);
    struct remote remote;
    struct buffer body;
    buffer_init(&body, TEXT_BYTES_MAX);
    if (request->all) {
        buffer_append_slice(&body, request->journal ? SLICE("{\"all\":true,\"journal\":true}")
                                                    : SLICE("{\"all\":true}"));
    } else {
        struct object_writer object = object_begin(&body);
        object_text(&object, slice_of(entity_row(document_row(request->kind)->entity)->id_member),
                    id);
        buffer_note(&body, utf8_valid(id) ? STATUS_OK : STATUS_INVALID_UTF8);
        object_close(&object);
    }
    enum status status = buffer_status(&body);
    if (status != STATUS_OK) {
        buffer_release(&body);
        return cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    }
    int code = cli_store_ask_server(opened, &remote, &request->remote,
                                    "/internal/v1/projectors/reproject", buffer_slice(&body));
    if (code == EXIT_CODE_DONE)
        code = print_answer(request, buffer_slice(&remote.answer));
    remote_close(&remote);
    buffer_release(&body);
    return code;
}

int cli_reproject(int argc, char **argv) {
    static struct config config;
    struct request request = {0};
    struct cli_option verb_options[7 + DOCUMENT_KIND_COUNT] = {
        {"--all", &request.all, NULL},         {"--verify", &request.verify, NULL},
        {"--json", &request.json, NULL},       {"--url", NULL, &request.remote.url},
        {"--key", NULL, &request.remote.key},  {"--ca", NULL, &request.remote.ca_file},
        {"--journal", &request.journal, NULL},
    };
    char names[DOCUMENT_KIND_COUNT][OPTION_NAME_SIZE];
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT; i++) {
        const struct document_row *row = document_row((enum document_kind)i);
        snprintf(names[i], sizeof(names[i]), "--%s", entity_kind_name(row->entity));
        verb_options[7 + i] = (struct cli_option){names[i], NULL, &request.ids[i]};
    }
    int code = cli_settings(&argc, argv, verb_options, 7 + DOCUMENT_KIND_COUNT, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    size_t scope_count = request.all;
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT; i++) {
        if (!request.ids[i])
            continue;
        request.kind = (enum document_kind)i;
        scope_count++;
    }
    if (argc != 0)
        return cli_usage("reproject", "'%s' is not expected", argv[0]);
    if (scope_count != 1)
        return cli_usage("reproject", "give one of --run, --worker and --all");
    if (request.journal && (!request.all || request.verify))
        return cli_usage("reproject", "--journal goes with --all, without --verify");
    /* With --url the verb works on that server, never on the local data folder. */
    if (request.remote.url && request.verify)
        return cli_fail(EXIT_CODE_USAGE, "--verify reads the store itself: name it with "
                                         "--data-dir, not a server with --url");
    request.remote.data_dir = config.data_dir;
    struct cli_store opened = {.store = NULL};
    if (request.remote.url)
        return ask_server(&request, &opened);
    struct topics topics;
    struct topics_message message = {""};
    if (topics_open(&topics, &config.policies, config.topics_file, &message) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "KHALA_TOPICS_FILE: %s", message.text);
    code = cli_store_open(&config, request.verify ? STORE_READ : STORE_WRITE, &opened);
    if (code == EXIT_CODE_DONE)
        code = apply(&request, &opened, &config);
    else if (opened.is_in_use)
        code = ask_server(&request, &opened);
    cli_store_close(&opened);
    topics_close(&topics);
    return code;
}
