/* khala key: operator keys with names and roles, on a running server. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/key_request.h"
#include "cli/remote.h"
#include "wire/json.h"
#include "wire/object_writer.h"

#define TARGET_BYTES_MAX 1024
#define ANSWER_BYTES_MAX (1 << 20)

struct key_options {
    struct remote_options remote;
    const char *name;
    const char *role;
    const char *overlap;
    bool json;
};

enum member { MEMBER_NAME, MEMBER_ROLE, MEMBER_SOURCE, MEMBER_KEY, MEMBER_UNTIL, MEMBER_COUNT };

static bool read_key(struct json_value value, struct slice texts[MEMBER_COUNT],
                     uint64_t *until_ms) {
    struct json_field fields[MEMBER_COUNT] = {
        [MEMBER_NAME] = {.name = SLICE("name")},
        [MEMBER_ROLE] = {.name = SLICE("role")},
        [MEMBER_SOURCE] = {.name = SLICE("source")},
        [MEMBER_KEY] = {.name = SLICE("key")},
        [MEMBER_UNTIL] = {.name = SLICE("previous_until")},
    };
    if (value.kind != JSON_KIND_OBJECT ||
        json_read_members(value, fields, MEMBER_COUNT) != STATUS_OK)
        return false;
    for (unsigned i = 0; i < MEMBER_UNTIL; i++)
        if (!fields[i].present || !json_string_slice(fields[i].value, &texts[i]))
            texts[i] = (struct slice){NULL, 0};
    *until_ms = 0;
    if (fields[MEMBER_UNTIL].present)
        (void)json_u64(fields[MEMBER_UNTIL].value, JSON_INTEGER_MAX, until_ms);
    return texts[MEMBER_NAME].data && texts[MEMBER_ROLE].data;
}

static bool print_list(struct slice answer) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field items = {.name = SLICE("items")};
    struct json_value element;
    struct slice texts[MEMBER_COUNT];
    uint64_t until_ms;
    if (json_read_object(answer, &limits, &items, 1) != STATUS_OK ||
        items.value.kind != JSON_KIND_ARRAY)
        return false;
    struct json_iterator elements = json_iterate(items.value);
    while (json_next_element(&elements, &element)) {
        if (!read_key(element, texts, &until_ms) || !texts[MEMBER_SOURCE].data)
            return false;
        printf("%-24.*s  %-8.*s  %.*s", (int)texts[MEMBER_NAME].size, texts[MEMBER_NAME].data,
               (int)texts[MEMBER_ROLE].size, texts[MEMBER_ROLE].data,
               (int)texts[MEMBER_SOURCE].size, texts[MEMBER_SOURCE].data);
        if (until_ms > 0)
            printf("  the old key is valid until %" PRIu64, until_ms);
        putchar('\n');
    }
    return true;
}

/* The key alone goes to stdout, so that a program can take it. */
static bool print_changed(struct slice answer) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_value value;
    struct slice texts[MEMBER_COUNT];
    uint64_t until_ms;
    if (json_parse(answer, &limits, &value) != STATUS_OK || !read_key(value, texts, &until_ms))
        return false;
    struct slice name = texts[MEMBER_NAME], key = texts[MEMBER_KEY];
    if (!key.data) {
        printf("removed %.*s\n", (int)name.size, name.data);
        return true;
    }
    printf("%.*s\n", (int)key.size, key.data);
    fprintf(stderr,
            "khala: this is the key %.*s with the role %.*s; it is shown only now. Other nodes "
            "take it within 5 seconds.\n",
            (int)name.size, name.data, (int)texts[MEMBER_ROLE].size, texts[MEMBER_ROLE].data);
    if (until_ms > 0)
        fprintf(stderr, "khala: the old key is valid until %" PRIu64 " (ms since 1970)\n",
                until_ms);
    return true;
}

static enum status keep_answer(void *user, unsigned http_status, struct slice piece) {
    struct remote *remote = user;
    (void)http_status;
    return buffer_append_slice(&remote->answer, piece);
}

static int ask(const struct key_options *options, struct blocking_request *request) {
    struct remote remote;
    unsigned http_status = 0;
    int code = remote_open(&remote, &options->remote);
    if (code != EXIT_CODE_DONE)
        return code;
    request->user = &remote;
    request->on_body = keep_answer;
    code = remote_exchange(&remote, request, &http_status);
    struct slice answer = buffer_slice(&remote.answer);
    bool is_list = strcmp(request->method, "GET") == 0;
    if (code == EXIT_CODE_DONE && http_status >= 300)
        code = remote_refused(&remote, http_status);
    else if (code == EXIT_CODE_DONE && options->json)
        printf("%.*s", (int)answer.size, answer.data);
    else if (code == EXIT_CODE_DONE && !(is_list ? print_list(answer) : print_changed(answer)))
        code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not understood");
    remote_close(&remote);
    return code;
}

static int add(const struct key_options *options) {
    char body[OPERATOR_KEY_BODY_BYTES_MAX];
    struct buffer text = buffer_over(body, sizeof(body));
    enum key_role role;
    if (!options->name || !options->role)
        return cli_usage("key", "'add' needs --name and --role");
    const char *problem = operator_key_name_problem(slice_of(options->name));
    if (problem)
        return cli_usage("key", "%s", problem);
    if (!key_role_parse(slice_of(options->role), &role))
        return cli_usage("key", "the role is admin, append, mint, read or metrics");
    struct object_writer object = object_begin(&text);
    object_text(&object, SLICE("name"), slice_of(options->name));
    object_text(&object, SLICE("role"), slice_of(options->role));
    if (object_end(&object) != STATUS_OK)
        return cli_usage("key", "the name is too long");
    return ask(options, &(struct blocking_request){.method = "POST",
                                                   .target = "/internal/v1/keys",
                                                   .content_type = "application/json",
                                                   .body = buffer_slice(&text)});
}

static int change(const struct key_options *options, const char *name, bool rotates) {
    char target[TARGET_BYTES_MAX];
    char body[64] = "";
    uint64_t overlap_s = KEY_OVERLAP_S;
    const char *problem = operator_key_name_problem(slice_of(name));
    if (problem)
        return cli_usage("key", "%s", problem);
    if (options->overlap &&
        (!cli_number(options->overlap, &overlap_s) || overlap_s > KEY_OVERLAP_S_MAX))
        return cli_usage("key", "--overlap is 0 to %d seconds", KEY_OVERLAP_S_MAX);
    snprintf(target, sizeof(target), "/internal/v1/keys/%s%s", name, rotates ? "/rotate" : "");
    if (rotates)
        snprintf(body, sizeof(body), "{\"overlap_seconds\":%" PRIu64 "}", overlap_s);
    return ask(options, &(struct blocking_request){
                            .method = rotates ? "POST" : "DELETE",
                            .target = target,
                            .content_type = rotates ? "application/json" : NULL,
                            .body = rotates ? slice_of(body) : (struct slice){NULL, 0}});
}

int cli_key(int argc, char **argv) {
    struct key_options options = {.json = false};
    const struct cli_option table[] = {{"--url", NULL, &options.remote.url},
                                       {"--key", NULL, &options.remote.key},
                                       {"--data-dir", NULL, &options.remote.data_dir},
                                       {"--ca", NULL, &options.remote.ca_file},
                                       {"--name", NULL, &options.name},
                                       {"--role", NULL, &options.role},
                                       {"--overlap", NULL, &options.overlap},
                                       {"--json", &options.json, NULL}};
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    const char *verb = argc > 0 ? argv[0] : "";
    bool adds = strcmp(verb, "add") == 0;
    bool rotates = strcmp(verb, "rotate") == 0;
    bool removes = strcmp(verb, "rm") == 0 || strcmp(verb, "revoke") == 0;
    if (!adds && (options.name || options.role))
        return cli_usage("key", "--name and --role are for 'add'");
    if (!rotates && options.overlap)
        return cli_usage("key", "--overlap is for 'rotate'");
    if (adds && argc == 1)
        return add(&options);
    if (strcmp(verb, "ls") == 0 && argc == 1)
        return ask(&options,
                   &(struct blocking_request){.method = "GET", .target = "/internal/v1/keys"});
    if ((rotates || removes) && argc == 2)
        return change(&options, argv[1], rotates);
    return argc > 0 ? cli_usage("key", "'%s' does not take these words", verb)
                    : cli_usage("key", "say add, ls, rotate or rm; the keys that sign tokens are "
                                       "those of 'khala keys rotate'");
}
