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

static enum status add_filter(struct buffer *target, char *mark, const char *name,
                              const char *value) {
    if (!value)
        return STATUS_OK;
    enum status status = buffer_printf(target, "%c%s=", *mark, name);
    *mark = '&';
    return status == STATUS_OK ? remote_encode(target, value) : status;
}

static enum status make_target(struct buffer *target, const struct why_options *options) {
    char mark = '?';
    enum status status = buffer_append_slice(target, SLICE("/internal/v1/khala/why"));
    if (status == STATUS_OK)
        status = add_filter(target, &mark, "connection", options->connection);
    if (status == STATUS_OK)
        status = add_filter(target, &mark, "principal", options->principal);
    if (status == STATUS_OK)
        status = add_filter(target, &mark, "topic", options->topic);
    return status == STATUS_OK ? buffer_append_byte(target, '\0') : status;
}

/* ---- for people --------------------------------------------------------------------------- */

static void print_time(uint64_t at_ms) {
    char text[32];
    time_t seconds = (time_t)(at_ms / 1000);
    struct tm parts;
    if (!gmtime_r(&seconds, &parts) ||
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts) == 0)
        return;
    printf("%s.%03uZ", text, (unsigned)(at_ms % 1000));
}

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

static void print_named(const char *name, struct json_value value) {
    if (value.kind == JSON_KIND_NULL)
        return;
    printf("  %s=", name);
    print_value(value);
}

/* The server's message, unchanged. */
static void print_sentence(struct json_value value) {
    struct slice text;
    if (json_string_slice(value, &text) && text.size > 0)
        printf("  %.*s", (int)text.size, text.data);
}

/* One line per decision: time, decision, principal, the code's message and its advice. */
static bool print_decision(struct json_value decision) {
    enum {
        AT,
        DECISION,
        CODE,
        MESSAGE,
        ADVICE,
        REASON,
        RULE,
        SURFACE,
        ORIGIN,
        CLOSE,
        TOPIC,
        PRINCIPAL,
        PEER,
        NAME,
        DIALECT,
        BUILD,
        PROTOCOL,
        SCHEMA,
    };
    struct json_field fields[] = {
        [AT] = {.name = SLICE("at")},
        [DECISION] = {.name = SLICE("decision")},
        [CODE] = {.name = SLICE("code")},
        [MESSAGE] = {.name = SLICE("message")},
        [ADVICE] = {.name = SLICE("advice")},
        [REASON] = {.name = SLICE("reason_code")},
        [RULE] = {.name = SLICE("rule")},
        [SURFACE] = {.name = SLICE("surface")},
        [ORIGIN] = {.name = SLICE("origin")},
        [CLOSE] = {.name = SLICE("close_code")},
        [TOPIC] = {.name = SLICE("topic")},
        [PRINCIPAL] = {.name = SLICE("principal")},
        [PEER] = {.name = SLICE("peer")},
        [NAME] = {.name = SLICE("connection")},
        [DIALECT] = {.name = SLICE("dialect")},
        [BUILD] = {.name = SLICE("client_build_id")},
        [PROTOCOL] = {.name = SLICE("protocol_version")},
        [SCHEMA] = {.name = SLICE("schema_version")},
    };
    uint64_t at_ms = 0;
    size_t count = sizeof(fields) / sizeof(fields[0]);
    if (decision.kind != JSON_KIND_OBJECT ||
        json_read_members(decision, fields, count) != STATUS_OK ||
        !json_u64(fields[AT].value, JSON_INTEGER_MAX, &at_ms))
        return false;
    print_time(at_ms);
    print_sentence(fields[DECISION].value);
    printf(" ");
    print_value(fields[CODE].value);
    print_named("reason", fields[REASON].value);
    print_named("rule", fields[RULE].value);
    print_named("surface", fields[SURFACE].value);
    print_named("origin", fields[ORIGIN].value);
    print_named("close_code", fields[CLOSE].value);
    print_named("topic", fields[TOPIC].value);
    print_named("principal", fields[PRINCIPAL].value);
    print_named("connection", fields[NAME].value);
    print_named("peer", fields[PEER].value);
    print_named("dialect", fields[DIALECT].value);
    print_named("client_build_id", fields[BUILD].value);
    print_named("protocol_version", fields[PROTOCOL].value);
    print_named("schema_version", fields[SCHEMA].value);
    print_sentence(fields[MESSAGE].value);
    print_sentence(fields[ADVICE].value);
    printf("\n");
    return true;
}

static int print_decisions(struct slice answer, bool json) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field list = {.name = SLICE("decisions")};
    struct json_value value;
    struct json_value element;
    size_t count = 0;
    if (json_parse(answer, &limits, &value) != STATUS_OK || value.kind != JSON_KIND_OBJECT ||
        json_read_members(value, &list, 1) != STATUS_OK || list.value.kind != JSON_KIND_ARRAY)
        return cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not a list of decisions");
    struct json_iterator elements = json_iterate(list.value);
    for (; json_next_element(&elements, &element); count++)
        if (!json && !print_decision(element))
            return cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not understood");
    if (json)
        printf("%.*s", (int)answer.size, answer.data);
    if (count == 0 && !json)
        return cli_fail(EXIT_CODE_NO, "no such decision is recorded");
    return count > 0 ? EXIT_CODE_DONE : EXIT_CODE_NO;
}

static int ask(struct remote *remote, const char *target, bool json) {
    unsigned http_status = 0;
    int code = remote_ask(remote, target, (struct slice){NULL, 0}, &http_status);
    if (code != EXIT_CODE_DONE)
        return code;
    if (http_status != 200)
        return remote_refused(remote, http_status);
    return print_decisions(buffer_slice(&remote->answer), json);
}

int cli_why(int argc, char **argv) {
    struct why_options options = {.json = false};
    const struct cli_option table[] = {{"--url", NULL, &options.remote.url},
                                       {"--key", NULL, &options.remote.key},
                                       {"--data-dir", NULL, &options.remote.data_dir},
                                       {"--ca", NULL, &options.remote.ca_file},
                                       {"--connection", NULL, &options.connection},
                                       {"--principal", NULL, &options.principal},
                                       {"--topic", NULL, &options.topic},
                                       {"--json", &options.json, NULL}};
    struct remote remote;
    struct buffer target;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    if (argc != 0)
        return cli_usage("why", "'%s' is not expected", argv[0]);
    buffer_init(&target, TARGET_BYTES_MAX);
    enum status status = make_target(&target, &options);
    int code = status == STATUS_OK ? remote_open(&remote, &options.remote)
                                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    if (code == EXIT_CODE_DONE)
        code = ask(&remote, target.data, options.json);
    if (status == STATUS_OK)
        remote_close(&remote);
    buffer_release(&target);
    return code;
}
