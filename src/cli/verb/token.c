/* khala token: mint writes the request of its options, and sends it to a server or, offline, signs
 * it with the keys that a server with these settings has; revoke asks a server; inspect checks a
 * token with the same keys, and needs no server. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/mint.h"
#include "api/revoke.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/remote.h"
#include "cli/settings.h"
#include "server/config.h"
#include "server/config_options.h"
#include "wire/json.h"
#include "wire/object_writer.h"

#define ANSWER_BYTES_MAX (16 * MINT_BYTES_MAX)

/* ---- mint ---- */

struct mint_options {
    struct remote_options remote;
    const char *user;
    const char *guest;
    const char *org;
    const char *scopes;
    const char *topics;
    const char *streams;
    const char *ttl;
    const char *device;
    const char *session;
    bool offline;
    bool json;
};

/* Texts must be UTF-8, and a text that is not given has no member. */
static void put_text(struct object_writer *object, const char *name, const char *text) {
    if (text && !utf8_valid(slice_of(text)))
        buffer_note(object->out, STATUS_INVALID_UTF8);
    object_text_given(object, slice_of(name), cli_given(text));
}

/* "a,b" as ["a","b"]. */
static void put_list(struct object_writer *object, const char *name, const char *text) {
    struct buffer list;
    if (!text)
        return;
    if (!utf8_valid(slice_of(text)))
        buffer_note(object->out, STATUS_INVALID_UTF8);
    buffer_init(&list, MINT_BYTES_MAX);
    buffer_append_byte(&list, '[');
    while (*text) {
        size_t size = strcspn(text, ",");
        if (list.size > 1)
            buffer_append_byte(&list, ',');
        json_write_string(&list, (struct slice){text, size});
        text += size + (text[size] == ',');
    }
    buffer_append_byte(&list, ']');
    if (buffer_note(object->out, buffer_status(&list)) == STATUS_OK)
        object_json(object, slice_of(name), buffer_slice(&list));
    buffer_release(&list);
}

static int print_minted(struct slice answer, bool json) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, 8};
    struct json_field fields[] = {{.name = SLICE("token")}, {.name = SLICE("warnings")}};
    struct json_value element;
    struct slice text;
    enum status status = json_read_object(answer, &limits, fields, 2);
    if (status == STATUS_OK && fields[1].present && fields[1].value.kind == JSON_KIND_ARRAY) {
        struct json_iterator warnings = json_iterate(fields[1].value);
        while (json_next_element(&warnings, &element))
            if (json_string_slice(element, &text))
                fprintf(stderr, "khala: %.*s\n", (int)text.size, text.data);
    }
    if (json) {
        printf("%.*s", (int)answer.size, answer.data);
        return EXIT_CODE_DONE;
    }
    if (status != STATUS_OK || !fields[0].present || !json_string_slice(fields[0].value, &text))
        return cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer holds no token");
    printf("%.*s\n", (int)text.size, text.data);
    return EXIT_CODE_DONE;
}

static const char *environment(const char *name) {
    return getenv(name);
}

/* The keys that a server with these settings has; it creates no key. */
static int gate_of_settings(const char *data_dir, struct config *config, struct gate *gate) {
    const struct config_flag flag = {"--data-dir", data_dir};
    struct config_error error;
    struct key_message message;
    char path[KEYS_PATH_MAX];
    if (config_load(config, settings_file(), environment, &flag, 1, &error) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "%s", error.text);
    snprintf(path, sizeof(path), "%s/" KEYS_FILE, config->data_dir);
    FILE *file = fopen(path, "rb");
    if (!file && !*config->jwks_file && !*config->token_signing_key)
        return cli_fail(EXIT_CODE_NO, "there is no key in %s: 'khala serve' makes one", path);
    if (file)
        fclose(file);
    const struct gate_options options = config_gate_options(config);
    if (gate_init(gate, &options, &message) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "%s", message.text);
    return EXIT_CODE_DONE;
}

static int mint_token(const struct mint_options *options) {
    struct buffer request, answer;
    uint64_t ttl_s;
    int code;
    if (options->ttl && !cli_number(options->ttl, &ttl_s))
        return cli_fail(EXIT_CODE_USAGE, "--ttl '%s' is not a whole number of seconds",
                        options->ttl);
    buffer_init(&request, MINT_BYTES_MAX);
    buffer_init(&answer, ANSWER_BYTES_MAX);
    struct object_writer object = object_begin(&request);
    put_text(&object, "user_id", options->user);
    put_text(&object, "guest_scope", options->guest);
    put_text(&object, "org_id", options->org);
    put_list(&object, "scopes", options->scopes);
    put_list(&object, "topics", options->topics);
    put_list(&object, "streams", options->streams);
    put_text(&object, "device_id", options->device);
    put_text(&object, "session_id", options->session);
    object_json_given(&object, SLICE("ttl_seconds"), cli_given(options->ttl));
    enum status status = object_end(&object);
    if (status != STATUS_OK) {
        code = cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    } else if (options->offline) {
        static struct config config;
        static struct gate gate;
        struct mint_moment moment = {.now_ms = clock_now().wall_ms};
        struct mint_reason reason = {""};
        struct uuid7_generator ids;
        code = gate_of_settings(options->remote.data_dir, &config, &gate);
        if (code != EXIT_CODE_DONE)
            goto out;
        status = uuid7_generator_init(&ids, NULL);
        if (status == STATUS_OK) {
            moment.token_id = uuid7_next(&ids, moment.now_ms);
            moment.session_id = uuid7_next(&ids, moment.now_ms);
            status = mint(&gate, buffer_slice(&request), &moment, &answer, &reason, NULL);
        }
        code = status == STATUS_OK ? print_minted(buffer_slice(&answer), options->json)
                                   : cli_fail(EXIT_CODE_NO, "%s: %s", status_code(status),
                                              *reason.text ? reason.text : status_message(status));
        gate_release(&gate);
    } else {
        struct remote remote;
        code = remote_query(&remote, &options->remote, "/api/sync/token", buffer_slice(&request));
        if (code == EXIT_CODE_DONE)
            code = print_minted(buffer_slice(&remote.answer), options->json);
        remote_close(&remote);
    }
out:
    buffer_release(&answer);
    buffer_release(&request);
    return code;
}

/* ---- revoke ---- */

struct token_revocation {
    struct remote_options remote;
    const char *session;
    const char *device;
    const char *token_id;
    const char *reason;
    bool json;
};

/* Asks the server to reject a session, a device or a token from now on. */
static int token_revoke(const struct token_revocation *options) {
    const struct json_limits limits = {REVOKE_BYTES_MAX, 8};
    struct json_field fields[] = {{.name = SLICE("connections_dropped")},
                                  {.name = SLICE("requests_dropped")}};
    const struct {
        const char *name;
        const char *id;
    } lists[] = {{"session_ids", options->session},
                 {"device_ids", options->device},
                 {"jtis", options->token_id}};
    uint64_t connections, requests;
    struct remote remote;
    struct buffer body;
    if (!options->session && !options->device && !options->token_id)
        return cli_usage("token", "revoke needs --session, --device or --jti");
    buffer_init(&body, REVOKE_BYTES_MAX);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (!lists[i].id)
            continue;
        buffer_note(&body, utf8_valid(slice_of(lists[i].id)) ? STATUS_OK : STATUS_INVALID_UTF8);
        buffer_printf(&body, "%c\"%s\":[", body.size == 0 ? '{' : ',', lists[i].name);
        json_write_string(&body, slice_of(lists[i].id));
        buffer_append_byte(&body, ']');
    }
    if (options->reason) {
        buffer_note(&body, utf8_valid(slice_of(options->reason)) ? STATUS_OK : STATUS_INVALID_UTF8);
        buffer_append_slice(&body, SLICE(",\"reason\":"));
        json_write_string(&body, slice_of(options->reason));
    }
    enum status status = buffer_append_byte(&body, '}');
    if (status != STATUS_OK) {
        buffer_release(&body);
        return cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    }
    int code = remote_query(&remote, &options->remote, "/internal/v1/sync/sessions/revoke",
                            buffer_slice(&body));
    struct slice answer = buffer_slice(&remote.answer);
    if (code == EXIT_CODE_DONE && (json_read_object(answer, &limits, fields, 2) != STATUS_OK ||
                                   !json_u64(fields[0].value, UINT64_MAX, &connections) ||
                                   !json_u64(fields[1].value, UINT64_MAX, &requests)))
        code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer does not say what it did");
    else if (code == EXIT_CODE_DONE && options->json)
        fwrite(answer.data, 1, answer.size, stdout);
    else if (code == EXIT_CODE_DONE)
        printf("revoked; %llu connections and %llu requests dropped\n",
               (unsigned long long)connections, (unsigned long long)requests);
    remote_close(&remote);
    buffer_release(&body);
    return code;
}

/* mint or revoke, with its name anywhere among the options. */
static int mint_or_revoke(int argc, char **argv) {
    struct mint_options mint = {.user = NULL};
    struct token_revocation revocation = {.reason = NULL};
    const struct cli_option rows[] = {
        REMOTE_OPTION_ROWS(mint.remote),       {"--user", NULL, &mint.user},
        {"--guest", NULL, &mint.guest},        {"--org", NULL, &mint.org},
        {"--scopes", NULL, &mint.scopes},      {"--topics", NULL, &mint.topics},
        {"--streams", NULL, &mint.streams},    {"--ttl", NULL, &mint.ttl},
        {"--device", NULL, &mint.device},      {"--session", NULL, &mint.session},
        {"--jti", NULL, &revocation.token_id}, {"--reason", NULL, &revocation.reason},
        {"--offline", &mint.offline, NULL},    {"--json", &mint.json, NULL},
    };
    if (!cli_options(&argc, argv, rows, sizeof(rows) / sizeof(rows[0])))
        return EXIT_CODE_USAGE;
    bool is_mint = argc == 1 && strcmp(argv[0], "mint") == 0;
    bool is_revoke = argc == 1 && strcmp(argv[0], "revoke") == 0;
    /* Options of the other form would be ignored silently. */
    bool has_mint_options = mint.user || mint.guest || mint.org || mint.scopes || mint.topics ||
                            mint.streams || mint.ttl || mint.offline;
    revocation.remote = mint.remote;
    revocation.session = mint.session;
    revocation.device = mint.device;
    revocation.json = mint.json;
    if (!is_mint && !is_revoke)
        return cli_usage("token", "give one of mint, inspect and revoke");
    if (is_mint ? revocation.token_id || revocation.reason : has_mint_options)
        return cli_usage("token", "%s does not take one of these options", argv[0]);
    return is_mint ? mint_token(&mint) : token_revoke(&revocation);
}

/* ---- inspect ---- */

/* Prints what the token says, and whether the server would accept it by the keys of these settings.
 */
static int inspect(int argc, char **argv) {
    static struct config config;
    static struct gate gate;
    const char *data_dir = NULL;
    bool json = false;
    const struct cli_option rows[] = {{"--json", &json, NULL}, {"--data-dir", NULL, &data_dir}};
    struct buffer token, header, claims;
    if (!cli_options(&argc, argv, rows, 2))
        return EXIT_CODE_USAGE;
    if (argc != 1)
        return cli_usage("token", "inspect takes one token, not %d", argc);
    buffer_init(&token, TOKEN_BYTES_MAX + 2);
    buffer_init(&header, TOKEN_BYTES_MAX);
    buffer_init(&claims, TOKEN_BYTES_MAX);
    enum status status = strcmp(argv[0], "-") == 0 ? cli_read("-", &token)
                                                   : buffer_append_slice(&token, slice_of(argv[0]));
    while (token.size > 0 && strchr("\r\n", token.data[token.size - 1]))
        token.size--;
    if (status == STATUS_OK)
        status = token_peek(buffer_slice(&token), &header, &claims);
    int code = status == STATUS_OK
                   ? gate_of_settings(data_dir, &config, &gate)
                   : cli_fail(EXIT_CODE_NO, "this is not a token of at most %d characters",
                              TOKEN_BYTES_MAX);
    if (code == EXIT_CODE_DONE) {
        const struct principal *principal = NULL;
        struct token_refusal refusal = {.rule =
                                            NULL}; /* a rule has no character that JSON escapes */
        status = gate_admit_token(&gate, buffer_slice(&token), clock_now().wall_ms, &principal,
                                  &refusal);
        principal_unref(principal);
        gate_release(&gate);
        printf(json ? "{\"header\":%.*s,\"claims\":%.*s,\"status\":\"%s\""
                    : "header %.*s\nclaims %.*s\nstatus %s\n",
               (int)header.size, header.data, (int)claims.size, claims.data, status_code(status));
        if (refusal.rule)
            printf(json ? ",\"rule\":\"%s\"" : "rule %s\n", refusal.rule);
        if (json)
            printf("}\n");
        code = status == STATUS_OK ? EXIT_CODE_DONE : EXIT_CODE_NO;
    }
    buffer_release(&token);
    buffer_release(&header);
    buffer_release(&claims);
    return code;
}

int cli_token(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "inspect") == 0)
        return inspect(argc - 1, argv + 1);
    return mint_or_revoke(argc, argv);
}
