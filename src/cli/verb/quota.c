/* khala quota: the quotas of owners, with what they have used. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "authority/quota.h"
#include "base/limits.h"
#include "cli/remote.h"
#include "wire/json.h"
#include "wire/object_writer.h"

#define TARGET_BYTES_MAX 4096
#define BODY_BYTES_MAX   4096
#define ANSWER_BYTES_MAX (16 << 20)

struct quota_options {
    struct remote_options remote;
    const char *after;
    const char *limit;
    bool usage;
    bool json;
};

enum member { MEMBER_OWNER, MEMBER_QUOTAS, MEMBER_LIMITS, MEMBER_USAGE, MEMBER_COUNT };

static bool number_of(struct json_value object, const char *name, uint64_t *number) {
    struct json_field field = {.name = slice_of(name)};
    return json_read_members(object, &field, 1) == STATUS_OK && field.present &&
           json_u64(field.value, JSON_INTEGER_MAX, number);
}

/* One quota a line, or one owner a line if it is part of a list. */
static bool print_owner(struct json_value owner, bool is_listed) {
    struct json_field fields[MEMBER_COUNT] = {
        [MEMBER_OWNER] = {.name = SLICE("owner")},
        [MEMBER_QUOTAS] = {.name = SLICE("quotas")},
        [MEMBER_LIMITS] = {.name = SLICE("limits")},
        [MEMBER_USAGE] = {.name = SLICE("usage")},
    };
    if (owner.kind != JSON_KIND_OBJECT ||
        json_read_members(owner, fields, MEMBER_COUNT) != STATUS_OK ||
        fields[MEMBER_LIMITS].value.kind != JSON_KIND_OBJECT)
        return false;
    struct slice name = fields[MEMBER_OWNER].value.raw;
    printf(is_listed ? "%.*s" : "%.*s\n", (int)(name.size - 2), name.data + 1);
    for (unsigned i = 0; i < QUOTA_COUNT; i++) {
        const char *quota = quota_name((enum quota)i);
        uint64_t limit, own, used;
        bool is_used = number_of(fields[MEMBER_USAGE].value, quota, &used);
        bool is_own = number_of(fields[MEMBER_QUOTAS].value, quota, &own);
        if (!number_of(fields[MEMBER_LIMITS].value, quota, &limit) ||
            (is_listed && !is_own && !(is_used && used > 0)))
            continue;
        printf(is_listed ? "  %s=" : "  %-19s  ", quota);
        if (is_used)
            printf("%" PRIu64 "/", used);
        printf("%" PRIu64 "%s%s", limit, is_own ? "*" : "", is_listed ? "" : "\n");
    }
    if (is_listed)
        putchar('\n');
    return true;
}

/* Reads the quotas of the owner, or of a page of owners if owner is NULL; with a body sets them. */
static int ask(const struct quota_options *options, const char *owner, struct slice body) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("items")}, {.name = SLICE("next_cursor")}};
    struct json_value value, element;
    struct remote remote;
    struct buffer target;
    unsigned http_status = 0;
    buffer_init(&target, TARGET_BYTES_MAX);
    buffer_append_slice(&target, options->usage ? SLICE("/internal/v1/usage")
                                                : SLICE("/internal/v1/quotas"));
    if (owner) {
        buffer_append_byte(&target, '/');
        remote_encode(&target, owner);
    } else {
        buffer_printf(&target, "?limit=%s", options->limit ? options->limit : "100");
    }
    if (options->after) {
        buffer_append_slice(&target, SLICE("&after="));
        remote_encode(&target, options->after);
    }
    if (buffer_append_byte(&target, '\0') != STATUS_OK) {
        buffer_release(&target);
        return cli_usage("quota", "the name of the owner is too long");
    }
    struct blocking_request request = {.method = body.data ? "PUT" : "GET",
                                       .target = target.data,
                                       .content_type = body.data ? "application/json" : NULL,
                                       .body = body};
    int code = remote_open(&remote, &options->remote);
    if (code == EXIT_CODE_DONE)
        code = remote_exchange(&remote, &request, &http_status);
    struct slice answer = buffer_slice(&remote.answer);
    if (code == EXIT_CODE_DONE && http_status != 200) {
        code = remote_refused(&remote, http_status);
    } else if (code == EXIT_CODE_DONE && options->json) {
        printf("%.*s", (int)answer.size, answer.data);
    } else if (code == EXIT_CODE_DONE) {
        bool is_understood = json_parse(answer, &limits, &value) == STATUS_OK;
        if (is_understood && owner) {
            is_understood = print_owner(value, false);
        } else if (is_understood) {
            is_understood = value.kind == JSON_KIND_OBJECT &&
                            json_read_members(value, fields, 2) == STATUS_OK &&
                            fields[0].value.kind == JSON_KIND_ARRAY;
            struct json_iterator elements = json_iterate(fields[0].value);
            while (is_understood && json_next_element(&elements, &element))
                is_understood = print_owner(element, true);
            if (is_understood && fields[1].value.kind == JSON_KIND_STRING)
                fprintf(stderr, "next_cursor\t%.*s\n", (int)fields[1].value.raw.size,
                        fields[1].value.raw.data);
        }
        if (!is_understood)
            code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not understood");
    }
    remote_close(&remote);
    buffer_release(&target);
    return code;
}

/* Each word is NAME=NUMBER, or NAME=null, which removes the owner's own quota. */
static int set(const struct quota_options *options, const char *owner, int argc, char **argv) {
    struct buffer body;
    buffer_init(&body, BODY_BYTES_MAX);
    struct object_writer object = object_begin(&body);
    int code = EXIT_CODE_DONE;
    for (int i = 0; code == EXIT_CODE_DONE && i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        enum quota quota;
        uint64_t number = 0;
        if (!equals || !quota_parse((struct slice){argv[i], (size_t)(equals - argv[i])}, &quota))
            code = cli_usage("quota", "'%s' is not QUOTA=NUMBER", argv[i]);
        else if (strcmp(equals + 1, "null") == 0)
            object_json(&object, slice_of(quota_name(quota)), SLICE("null"));
        else if (cli_number(equals + 1, &number) && number <= JSON_INTEGER_MAX)
            object_number(&object, slice_of(quota_name(quota)), number);
        else
            code = cli_usage("quota", "'%s' is not a whole number or null", equals + 1);
    }
    if (code == EXIT_CODE_DONE && object_end(&object) != STATUS_OK)
        code = cli_usage("quota", "too many quotas are given at once");
    if (code == EXIT_CODE_DONE)
        code = ask(options, owner, buffer_slice(&body));
    buffer_release(&body);
    return code;
}

int cli_quota(int argc, char **argv) {
    struct quota_options options = {.json = false};
    const struct cli_option table[] = {REMOTE_OPTION_ROWS(options.remote),
                                       {"--after", NULL, &options.after},
                                       {"--limit", NULL, &options.limit},
                                       {"--usage", &options.usage, NULL},
                                       {"--json", &options.json, NULL}};
    uint64_t number;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    const char *verb = argc > 0 ? argv[0] : "";
    bool lists = strcmp(verb, "ls") == 0;
    if (options.limit && !cli_number(options.limit, &number))
        return cli_usage("quota", "--limit '%s' is not a whole number", options.limit);
    if (!lists && (options.after || options.limit || options.usage))
        return cli_usage("quota", "--after, --limit and --usage are for 'ls'");
    if (lists && argc == 1)
        return ask(&options, NULL, (struct slice){NULL, 0});
    if (strcmp(verb, "get") == 0 && argc == 2)
        return ask(&options, argv[1], (struct slice){NULL, 0});
    if (strcmp(verb, "set") == 0 && argc > 2)
        return set(&options, argv[1], argc - 2, argv + 2);
    return argc > 0 ? cli_usage("quota", "'%s' does not take these words", verb)
                    : cli_usage("quota", "say get, set or ls");
}
