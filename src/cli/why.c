#include <inttypes.h>
#include <stdio.h>
#include <time.h>

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

static void print_text(struct json_value value) {
    struct buffer text;
    buffer_init(&text, TEXT_BYTES_MAX);
    if (value.kind == JSON_KIND_STRING && json_string_decode(value, &text) == STATUS_OK)
        printf("%.*s", (int)text.size, text.data);
    else if (value.kind != JSON_KIND_STRING && value.kind != JSON_KIND_NULL)
        printf("%.*s", (int)value.raw.size, value.raw.data);
    buffer_release(&text);
}

static void print_named(const char *name, struct json_value value) {
    if (value.kind == JSON_KIND_NULL)
        return;
    printf("  %s=", name);
    print_text(value);
}

/* One line a decision: when, what, whose, and the code's own words. */
static bool print_decision(struct json_value decision) {
    struct json_field fields[] = {
        {.name = SLICE("at")},          {.name = SLICE("decision")},
        {.name = SLICE("code")},        {.name = SLICE("message")},
        {.name = SLICE("connection")},  {.name = SLICE("principal")},
        {.name = SLICE("topic")},       {.name = SLICE("dialect")},
        {.name = SLICE("reason_code")}, {.name = SLICE("close_code")},
    };
    uint64_t at_ms = 0;
    size_t count = sizeof(fields) / sizeof(fields[0]);
    if (decision.kind != JSON_KIND_OBJECT ||
        json_read_members(decision, fields, count) != STATUS_OK ||
        !json_u64(fields[0].value, JSON_INTEGER_MAX, &at_ms))
        return false;
    print_time(at_ms);
    printf("  ");
    print_text(fields[1].value);
    printf(" ");
    print_text(fields[2].value);
    print_named("reason", fields[8].value);
    print_named("close_code", fields[9].value);
    print_named("topic", fields[6].value);
    print_named("principal", fields[5].value);
    print_named("connection", fields[4].value);
    print_named("dialect", fields[7].value);
    printf("  ");
    print_text(fields[3].value);
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
        return cli_fail(EXIT_CODE_NO, "no such decision is remembered");
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
    const struct cli_option table[] = {REMOTE_OPTIONS(&options.remote),
                                       {"--connection", NULL, &options.connection},
                                       {"--principal", NULL, &options.principal},
                                       {"--topic", NULL, &options.topic},
                                       {"--json", &options.json, NULL}};
    struct remote remote;
    struct buffer target;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    if (argc != 0)
        return cli_usage("why");
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
