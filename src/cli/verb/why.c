#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/visible.h"
#include "cli/cli.h"
#include "cli/remote.h"
#include "wire/json.h"

#define TARGET_BYTES_MAX 16384
#define ANSWER_BYTES_MAX (64u << 20)
#define TEXT_BYTES_MAX   4096

struct why_options {
    struct remote_options remote;
    const char *connection;
    const char *principal;
    const char *topic;
    bool json;
};

/* Escaped as in the log: the denied client chose the text, and it may hold terminal commands. */
static void print_value(struct json_value value) {
    struct buffer memory;
    buffer_init(&memory, TEXT_BYTES_MAX);
    struct slice text = value.raw;
    if (value.kind == JSON_KIND_STRING)
        text = json_string_decode(value, &memory) == STATUS_OK ? buffer_slice(&memory) : SLICE("?");
    const char *quote = visible_is_word(text) ? "" : "\"";
    printf("%s", quote);
    while (text.size > 0) {
        struct visible next = visible_next(text, VISIBLE_TEXT);
        printf("%.*s", (int)next.size, next.bytes);
        text = slice_from(text, next.consumed);
    }
    printf("%s", quote);
    buffer_release(&memory);
}

/* The server's message, unchanged. */
static void print_sentence(struct json_value value) {
    struct slice text;
    if (json_string_slice(value, &text) && text.size > 0)
        printf("  %.*s", (int)text.size, text.data);
}

/* One line per decision: time, decision, code, the members that it has, the code's message and its
 * advice. */
static bool print_decision(struct json_value decision) {
    enum { AT, DECISION, CODE, MESSAGE, ADVICE, NAMED };
    static const struct {
        const char *member;
        const char *label;
    } named[] = {
        {"reason_code", "reason"},
        {"rule", "rule"},
        {"surface", "surface"},
        {"origin", "origin"},
        {"close_code", "close_code"},
        {"topic", "topic"},
        {"principal", "principal"},
        {"connection", "connection"},
        {"peer", "peer"},
        {"dialect", "dialect"},
        {"client_build_id", "client_build_id"},
        {"protocol_version", "protocol_version"},
        {"schema_version", "schema_version"},
    };
    enum { NAMED_COUNT = sizeof(named) / sizeof(named[0]) };
    struct json_field fields[NAMED + NAMED_COUNT] = {
        [AT] = {.name = SLICE("at")},         [DECISION] = {.name = SLICE("decision")},
        [CODE] = {.name = SLICE("code")},     [MESSAGE] = {.name = SLICE("message")},
        [ADVICE] = {.name = SLICE("advice")},
    };
    for (size_t i = 0; i < NAMED_COUNT; i++)
        fields[NAMED + i].name = slice_of(named[i].member);
    uint64_t at_ms = 0;
    if (decision.kind != JSON_KIND_OBJECT ||
        json_read_members(decision, fields, NAMED + NAMED_COUNT) != STATUS_OK ||
        !json_u64(fields[AT].value, JSON_INTEGER_MAX, &at_ms))
        return false;
    char time[32] = "";
    time_t seconds = (time_t)(at_ms / 1000);
    struct tm parts;
    if (gmtime_r(&seconds, &parts) && strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &parts) > 0)
        printf("%s.%03uZ", time, (unsigned)(at_ms % 1000));
    print_sentence(fields[DECISION].value);
    printf(" ");
    print_value(fields[CODE].value);
    for (size_t i = 0; i < NAMED_COUNT; i++) {
        if (fields[NAMED + i].value.kind == JSON_KIND_NULL)
            continue;
        printf("  %s=", named[i].label);
        print_value(fields[NAMED + i].value);
    }
    print_sentence(fields[MESSAGE].value);
    print_sentence(fields[ADVICE].value);
    printf("\n");
    return true;
}

int cli_why(int argc, char **argv) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct why_options options = {.json = false};
    const struct cli_option table[] = {REMOTE_OPTION_ROWS(options.remote),
                                       {"--connection", NULL, &options.connection},
                                       {"--principal", NULL, &options.principal},
                                       {"--topic", NULL, &options.topic},
                                       {"--json", &options.json, NULL}};
    struct json_field list = {.name = SLICE("decisions")};
    struct json_value value, element;
    struct remote remote;
    struct buffer target;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    if (argc != 0)
        return cli_usage("why", "'%s' is not expected", argv[0]);
    buffer_init(&target, TARGET_BYTES_MAX);
    buffer_append_slice(&target, SLICE("/internal/v1/khala/why"));
    remote_add_parameter(&target, "connection", options.connection);
    remote_add_parameter(&target, "principal", options.principal);
    remote_add_parameter(&target, "topic", options.topic);
    enum status status = buffer_append_byte(&target, '\0');
    if (status != STATUS_OK) {
        buffer_release(&target);
        return cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    }
    int code = remote_query(&remote, &options.remote, target.data, (struct slice){NULL, 0});
    if (code != EXIT_CODE_DONE)
        goto out;
    struct slice answer = buffer_slice(&remote.answer);
    size_t count = 0;
    if (json_parse(answer, &limits, &value) != STATUS_OK || value.kind != JSON_KIND_OBJECT ||
        json_read_members(value, &list, 1) != STATUS_OK || list.value.kind != JSON_KIND_ARRAY) {
        code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not a list of decisions");
        goto out;
    }
    struct json_iterator elements = json_iterate(list.value);
    for (; code == EXIT_CODE_DONE && json_next_element(&elements, &element); count++)
        if (!options.json && !print_decision(element))
            code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not understood");
    if (options.json)
        printf("%.*s", (int)answer.size, answer.data);
    if (count == 0)
        code = options.json ? EXIT_CODE_NO : cli_fail(EXIT_CODE_NO, "no such decision is recorded");
out:
    remote_close(&remote);
    buffer_release(&target);
    return code;
}
