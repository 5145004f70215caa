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

/* ---- printing ---- */

enum member { MEMBER_OWNER, MEMBER_QUOTAS, MEMBER_LIMITS, MEMBER_USAGE, MEMBER_COUNT };

static bool number_of(struct json_value object, const char *name, uint64_t *number) {
    struct json_field field = {.name = slice_of(name)};
    return json_read_members(object, &field, 1) == STATUS_OK && field.present &&
           json_u64(field.value, JSON_INTEGER_MAX, number);
}

/* One quota a line, or one owner a line where it is part of a list. */
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

static int print_answer(struct slice answer, bool is_list, bool json) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("items")}, {.name = SLICE("next_cursor")}};
    struct json_value value, element;
    if (json) {
        printf("%.*s", (int)answer.size, answer.data);
        return EXIT_CODE_DONE;
    }
    bool is_understood = json_parse(answer, &limits, &value) == STATUS_OK;
    if (is_understood && !is_list)
        is_understood = print_owner(value, false);
    if (is_understood && is_list) {
        is_understood = json_read_object(answer, &limits, fields,
                                         sizeof(fields) / sizeof(fields[0])) == STATUS_OK &&
                        fields[0].value.kind == JSON_KIND_ARRAY;
        struct json_iterator elements = json_iterate(fields[0].value);
        while (is_understood && json_next_element(&elements, &element))
            is_understood = print_owner(element, true);
        if (is_understood && fields[1].value.kind == JSON_KIND_STRING)
            fprintf(stderr, "next_cursor\t%.*s\n", (int)fields[1].value.raw.size,
                    fields[1].value.raw.data);
    }
    return is_understood ? EXIT_CODE_DONE
                         : cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not understood");
}

/* ---- the requests ---- */

/* NAME=NUMBER, or NAME=null, which removes the owner's own quota. */
static int read_settings(int argc, char **argv, struct buffer *body) {
    struct object_writer object = object_begin(body);
    for (int i = 0; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        enum quota quota;
        uint64_t number = 0;
        if (!equals || !quota_parse((struct slice){argv[i], (size_t)(equals - argv[i])}, &quota))
            return cli_usage("quota", "'%s' is not QUOTA=NUMBER", argv[i]);
        bool removes = strcmp(equals + 1, "null") == 0;
        if (!removes && (!cli_number(equals + 1, &number) || number > JSON_INTEGER_MAX))
            return cli_usage("quota", "'%s' is not a whole number or null", equals + 1);
        if (removes)
            object_json(&object, slice_of(quota_name(quota)), SLICE("null"));
        else
            object_number(&object, slice_of(quota_name(quota)), number);
    }
    return object_end(&object) == STATUS_OK
               ? EXIT_CODE_DONE
               : cli_usage("quota", "too many quotas are given at once");
}

static enum status write_target(struct buffer *target, const struct quota_options *options,
                                const char *owner) {
    enum status status = buffer_append_slice(target, options->usage ? SLICE("/internal/v1/usage")
                                                                    : SLICE("/internal/v1/quotas"));
    if (status == STATUS_OK && owner)
        status = buffer_append_byte(target, '/');
    if (status == STATUS_OK && owner)
        status = remote_encode(target, owner);
    if (status == STATUS_OK && !owner)
        status = buffer_printf(target, "?limit=%s", options->limit ? options->limit : "100");
    if (status == STATUS_OK && options->after)
        status = buffer_append_slice(target, SLICE("&after="));
    if (status == STATUS_OK && options->after)
        status = remote_encode(target, options->after);
    return status == STATUS_OK ? buffer_append_byte(target, '\0') : status;
}

static enum status keep_answer(void *user, unsigned http_status, struct slice piece) {
    struct remote *remote = user;
    (void)http_status;
    return buffer_append_slice(&remote->answer, piece);
}

static int ask(const struct quota_options *options, const char *owner, struct slice body) {
    struct remote remote;
    struct buffer target;
    unsigned http_status = 0;
    buffer_init(&target, TARGET_BYTES_MAX);
    int code = write_target(&target, options, owner) == STATUS_OK
                   ? remote_open(&remote, &options->remote)
                   : cli_usage("quota", "the name of the owner is too long");
    if (code == EXIT_CODE_DONE) {
        struct blocking_request request = {
            .method = body.data ? "PUT" : "GET",
            .target = target.data,
            .content_type = body.data ? "application/json" : NULL,
            .body = body,
            .user = &remote,
            .on_body = keep_answer,
        };
        code = remote_exchange(&remote, &request, &http_status);
        if (code == EXIT_CODE_DONE)
            code = http_status == 200
                       ? print_answer(buffer_slice(&remote.answer), !owner, options->json)
                       : remote_refused(&remote, http_status);
        remote_close(&remote);
    }
    buffer_release(&target);
    return code;
}

static int set(const struct quota_options *options, int argc, char **argv) {
    struct buffer body;
    buffer_init(&body, BODY_BYTES_MAX);
    int code = read_settings(argc - 1, argv + 1, &body);
    if (code == EXIT_CODE_DONE)
        code = ask(options, argv[0], buffer_slice(&body));
    buffer_release(&body);
    return code;
}

int cli_quota(int argc, char **argv) {
    struct quota_options options = {.json = false};
    const struct cli_option table[] = {{"--url", NULL, &options.remote.url},
                                       {"--key", NULL, &options.remote.key},
                                       {"--data-dir", NULL, &options.remote.data_dir},
                                       {"--ca", NULL, &options.remote.ca_file},
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
        return set(&options, argc - 1, argv + 1);
    return argc > 0 ? cli_usage("quota", "'%s' does not take these words", verb)
                    : cli_usage("quota", "say get, set or ls");
}
