#include <stdio.h>

#include "cli/cli.h"
#include "cli/local_store.h"
#include "cli/progress.h"
#include "projector/verify.h"
#include "server/config.h"
#include "wire/json.h"

#define TEXT_BYTES_MAX 65536

struct document_report {
    bool json;
    bool has_more;
};

static void print_document(void *user, struct slice document_key, const char *message) {
    struct document_report *report = user;
    struct buffer key;
    if (!report->json) {
        printf("damaged: %.*s %s\n", (int)document_key.size, document_key.data, message);
        return;
    }
    buffer_init(&key, TEXT_BYTES_MAX);
    if (json_write_string(&key, document_key) == STATUS_OK)
        printf("%s{\"document_id\":%.*s,\"message\":\"%s\"}", report->has_more ? "," : "",
               (int)key.size, key.data, message);
    report->has_more = true;
    buffer_release(&key);
}

/* The documents, after the journals. */
static int check_documents(const struct cli_store *opened, bool json) {
    struct document_report report = {.json = json};
    const struct document_check_options options = {&report, print_document};
    struct document_check_result result;
    if (json)
        printf(",\"documents\":[");
    enum status status = document_check(opened->session, &options, &result);
    if (json)
        printf("]");
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_NO, "the documents cannot be read: %s",
                        store_session_error(opened->session));
    if (!json && result.damages == 0)
        printf("%llu documents: each has its hash and agrees with its checkpoint\n",
               (unsigned long long)result.documents);
    else if (!json)
        printf("no event is lost: a running server repairs a document when it is next read or "
               "written; 'khala reproject --all' repairs all of them now\n");
    return result.damages == 0 ? EXIT_CODE_DONE : EXIT_CODE_NO;
}

/* The log, and, if it is whole, the journals and the documents that follow from it. */
static int report(enum status status, const struct cli_store *opened,
                  const struct verify_result *result, bool json) {
    const struct verify_break *broken = &result->broken;
    if (status == STATUS_INTERNAL_ERROR)
        return cli_fail(EXIT_CODE_NO, "the store is damaged: %s",
                        store_session_error(opened->session));
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s: %s", status_code(status),
                        store_session_error(opened->session));
    if (json) {
        struct buffer entity;
        buffer_init(&entity, TEXT_BYTES_MAX);
        if (broken->entity[0] == '\0')
            buffer_append_slice(&entity, SLICE("null"));
        else if (json_write_string(&entity, slice_of(broken->entity)) != STATUS_OK)
            buffer_clear(&entity);
        printf("{\"events\":%llu,\"entities\":%llu,\"broken\":", (unsigned long long)result->events,
               (unsigned long long)result->entities);
        if (result->is_broken)
            printf("{\"entity\":%.*s,\"seq\":%llu,\"log_id\":%llu,\"message\":\"%s\"}",
                   entity.size ? (int)entity.size : 4, entity.size ? entity.data : "null",
                   (unsigned long long)broken->seq, (unsigned long long)broken->log_id,
                   broken->message);
        else
            printf("null");
        buffer_release(&entity);
    } else if (!result->is_broken) {
        printf("%llu events of %llu entities: every hash, link, sequence and cursor holds\n",
               (unsigned long long)result->events, (unsigned long long)result->entities);
    } else if (broken->entity[0] == '\0') {
        printf("broken: log id %llu: %s\n", (unsigned long long)broken->log_id, broken->message);
    } else {
        printf("broken: %s seq %llu (log id %llu): %s\n", broken->entity,
               (unsigned long long)broken->seq, (unsigned long long)broken->log_id,
               broken->message);
    }
    int code = EXIT_CODE_NO;
    if (!result->is_broken) {
        struct journal_report journal = {.json = json};
        code = EXIT_CODE_DONE;
        if (journal_report_run(&journal, opened->session) != STATUS_OK)
            code = cli_fail(EXIT_CODE_NO, "the journal cannot be read: %s; %s",
                            store_session_error(opened->session), JOURNAL_ADVICE);
        else if (journal.result.damages > 0)
            code = EXIT_CODE_NO;
        int documents = check_documents(opened, json);
        code = code == EXIT_CODE_DONE ? documents : code;
    }
    if (json)
        printf(",\"ok\":%s}\n", code == EXIT_CODE_DONE ? "true" : "false");
    return code;
}

int cli_verify(int argc, char **argv) {
    static struct config config;
    bool json = false;
    const struct cli_option verb_options[] = {{"--json", &json, NULL}};
    int code = cli_settings(&argc, argv, verb_options, 1, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0)
        return cli_usage("verify", "'%s' is not expected", argv[0]);
    struct cli_store opened;
    code = cli_store_open(&config, STORE_READ, &opened);
    if (code == EXIT_CODE_DONE) {
        struct progress progress;
        struct verify_result result;
        const struct verify_options options = {&progress, progress_report};
        progress_begin(&progress, "verify", "steps");
        enum status status = verify(opened.session, &options, &result);
        progress_end(&progress);
        code = report(status, &opened, &result, json);
    }
    cli_store_close(&opened);
    return code;
}
