#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/mint.h"
#include "api/revoke_request.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/remote.h"
#include "cli/settings.h"
#include "server/config.h"
#include "server/config_options.h"
#include "wire/json.h"

struct token_revocation {
    struct remote_options remote;
    const char *session;
    const char *device;
    const char *token_id;
    const char *reason;
    bool json;
};

static enum status put_member(struct buffer *out, const char *name, const char *text,
                              bool is_list) {
    if (!text)
        return STATUS_OK;
    if (!utf8_valid(slice_of(text)))
        return STATUS_INVALID_UTF8;
    enum status status =
        buffer_printf(out, "%s\"%s\":%s", out->size > 1 ? "," : "", name, is_list ? "[" : "");
    if (status == STATUS_OK)
        status = json_write_string(out, slice_of(text));
    return status == STATUS_OK && is_list ? buffer_append_byte(out, ']') : status;
}

static enum status write_revocation(const struct token_revocation *options, struct buffer *out) {
    enum status status = buffer_append_byte(out, '{');
    if (status == STATUS_OK)
        status = put_member(out, "session_ids", options->session, true);
    if (status == STATUS_OK)
        status = put_member(out, "device_ids", options->device, true);
    if (status == STATUS_OK)
        status = put_member(out, "jtis", options->token_id, true);
    if (status == STATUS_OK)
        status = put_member(out, "reason", options->reason, false);
    return status == STATUS_OK ? buffer_append_byte(out, '}') : status;
}

static int print_revoked(struct slice answer, bool json) {
    const struct json_limits limits = {REVOKE_BYTES_MAX, 8};
    struct json_field fields[] = {{.name = SLICE("connections_dropped")},
                                  {.name = SLICE("requests_dropped")}};
    uint64_t connections, requests;
    if (json_read_object(answer, &limits, fields, 2) != STATUS_OK ||
        !json_u64(fields[0].value, UINT64_MAX, &connections) ||
        !json_u64(fields[1].value, UINT64_MAX, &requests))
        return cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer does not say what it did");
    if (json)
        fwrite(answer.data, 1, answer.size, stdout);
    else
        printf("revoked; %llu connections and %llu requests dropped\n",
               (unsigned long long)connections, (unsigned long long)requests);
    return EXIT_CODE_DONE;
}

static int send_revocation(const struct token_revocation *options, struct slice request) {
    struct remote remote;
    unsigned http_status = 0;
    int code = remote_open(&remote, &options->remote);
    if (code == EXIT_CODE_DONE)
        code = remote_ask(&remote, "/internal/v1/sync/sessions/revoke", request, &http_status);
    if (code == EXIT_CODE_DONE)
        code = http_status == 200 ? print_revoked(buffer_slice(&remote.answer), options->json)
                                  : remote_refused(&remote, http_status);
    remote_close(&remote);
    return code;
}

static int token_revoke(const struct token_revocation *options) {
    struct buffer request;
    if (!options->session && !options->device && !options->token_id)
        return cli_usage("token", "revoke needs --session, --device or --jti");
    buffer_init(&request, REVOKE_BYTES_MAX);
    enum status status = write_revocation(options, &request);
    int code = status == STATUS_OK ? send_revocation(options, buffer_slice(&request))
                                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    buffer_release(&request);
    return code;
}

#define ANSWER_BYTES_MAX (16 * MINT_BYTES_MAX)

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

/* ---- the request ---- */

static enum status put_name(struct buffer *out, const char *name) {
    return buffer_printf(out, "%s\"%s\":", out->size > 1 ? "," : "", name);
}

static enum status put_text(struct buffer *out, const char *name, const char *text) {
    if (!text)
        return STATUS_OK;
    if (!utf8_valid(slice_of(text)))
        return STATUS_INVALID_UTF8;
    enum status status = put_name(out, name);
    return status == STATUS_OK ? json_write_string(out, slice_of(text)) : status;
}

/* "a,b" as ["a","b"]. */
static enum status put_list(struct buffer *out, const char *name, const char *text) {
    if (!text)
        return STATUS_OK;
    if (!utf8_valid(slice_of(text)))
        return STATUS_INVALID_UTF8;
    enum status status = put_name(out, name);
    for (char before = '['; status == STATUS_OK && *text; before = ',') {
        size_t size = strcspn(text, ",");
        status = buffer_append_byte(out, before);
        if (status == STATUS_OK)
            status = json_write_string(out, (struct slice){text, size});
        text += size + (text[size] == ',');
    }
    if (status == STATUS_OK && out->data[out->size - 1] == ':')
        status = buffer_append_byte(out, '[');
    return status == STATUS_OK ? buffer_append_byte(out, ']') : status;
}

static enum status write_request(const struct mint_options *options, struct buffer *out) {
    enum status status = buffer_append_byte(out, '{');
    if (status == STATUS_OK)
        status = put_text(out, "user_id", options->user);
    if (status == STATUS_OK)
        status = put_text(out, "guest_scope", options->guest);
    if (status == STATUS_OK)
        status = put_text(out, "org_id", options->org);
    if (status == STATUS_OK)
        status = put_list(out, "scopes", options->scopes);
    if (status == STATUS_OK)
        status = put_list(out, "topics", options->topics);
    if (status == STATUS_OK)
        status = put_list(out, "streams", options->streams);
    if (status == STATUS_OK)
        status = put_text(out, "device_id", options->device);
    if (status == STATUS_OK)
        status = put_text(out, "session_id", options->session);
    if (status == STATUS_OK && options->ttl) {
        status = put_name(out, "ttl_seconds");
        if (status == STATUS_OK)
            status = buffer_append_slice(out, slice_of(options->ttl));
    }
    return status == STATUS_OK ? buffer_append_byte(out, '}') : status;
}

/* ---- mint ---- */

static void print_warnings(struct json_value warnings) {
    struct json_value element;
    struct slice text;
    struct json_iterator iterator = json_iterate(warnings);
    while (json_next_element(&iterator, &element))
        if (json_string_slice(element, &text))
            fprintf(stderr, "khala: %.*s\n", (int)text.size, text.data);
}

static int print_minted(struct slice answer, bool json) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, 8};
    struct json_field fields[] = {{.name = SLICE("token")}, {.name = SLICE("warnings")}};
    struct slice text;
    enum status status = json_read_object(answer, &limits, fields, 2);
    if (status == STATUS_OK && fields[1].present && fields[1].value.kind == JSON_KIND_ARRAY)
        print_warnings(fields[1].value);
    if (json) {
        printf("%.*s", (int)answer.size, answer.data);
        return EXIT_CODE_DONE;
    }
    if (status != STATUS_OK || !fields[0].present || !json_string_slice(fields[0].value, &text))
        return cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer holds no token");
    printf("%.*s\n", (int)text.size, text.data);
    return EXIT_CODE_DONE;
}

static int mint_remote(const struct mint_options *options, struct slice request) {
    struct remote remote;
    unsigned http_status = 0;
    int code = remote_open(&remote, &options->remote);
    if (code == EXIT_CODE_DONE)
        code = remote_ask(&remote, "/api/sync/token", request, &http_status);
    if (code == EXIT_CODE_DONE)
        code = http_status == 200 ? print_minted(buffer_slice(&remote.answer), options->json)
                                  : remote_refused(&remote, http_status);
    remote_close(&remote);
    return code;
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

static int mint_offline(const struct mint_options *options, struct slice request) {
    static struct config config;
    static struct gate gate;
    struct uuid7_generator ids;
    struct clock clock;
    struct buffer out;
    struct mint_reason reason = {""};
    int code = gate_of_settings(options->remote.data_dir, &config, &gate);
    if (code != EXIT_CODE_DONE)
        return code;
    clock_init(&clock);
    buffer_init(&out, ANSWER_BYTES_MAX);
    struct mint_moment moment = {.now_ms = clock_wall_ms(&clock)};
    enum status status = uuid7_generator_init(&ids, NULL);
    if (status == STATUS_OK) {
        moment.token_id = uuid7_next(&ids, moment.now_ms);
        moment.session_id = uuid7_next(&ids, moment.now_ms);
        status = mint(&gate, request, &moment, &out, &reason, NULL);
    }
    code = status == STATUS_OK ? print_minted(buffer_slice(&out), options->json)
                               : cli_fail(EXIT_CODE_NO, "%s: %s", status_code(status),
                                          *reason.text ? reason.text : status_message(status));
    buffer_release(&out);
    gate_release(&gate);
    return code;
}

static int mint_token(const struct mint_options *options) {
    struct buffer request;
    uint64_t ttl_s;
    if (options->ttl && !cli_number(options->ttl, &ttl_s))
        return cli_fail(EXIT_CODE_USAGE, "--ttl '%s' is not a whole number of seconds",
                        options->ttl);
    buffer_init(&request, MINT_BYTES_MAX);
    enum status status = write_request(options, &request);
    int code;
    if (status != STATUS_OK)
        code = cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    else
        code = options->offline ? mint_offline(options, buffer_slice(&request))
                                : mint_remote(options, buffer_slice(&request));
    buffer_release(&request);
    return code;
}

/* Rejects options of the other form, which would be ignored silently. */
static bool has_mints_own(const struct mint_options *options) {
    return options->user || options->guest || options->org || options->scopes || options->topics ||
           options->streams || options->ttl || options->offline;
}

/* mint or revoke, with its name anywhere among the options. */
static int token_server_verb(int argc, char **argv) {
    struct mint_options mint = {.user = NULL};
    struct token_revocation revocation = {.reason = NULL};
    const struct cli_option rows[] = {
        {"--url", NULL, &mint.remote.url},
        {"--key", NULL, &mint.remote.key},
        {"--data-dir", NULL, &mint.remote.data_dir},
        {"--ca", NULL, &mint.remote.ca_file},
        {"--user", NULL, &mint.user},
        {"--guest", NULL, &mint.guest},
        {"--org", NULL, &mint.org},
        {"--scopes", NULL, &mint.scopes},
        {"--topics", NULL, &mint.topics},
        {"--streams", NULL, &mint.streams},
        {"--ttl", NULL, &mint.ttl},
        {"--device", NULL, &mint.device},
        {"--session", NULL, &mint.session},
        {"--jti", NULL, &revocation.token_id},
        {"--reason", NULL, &revocation.reason},
        {"--offline", &mint.offline, NULL},
        {"--json", &mint.json, NULL},
    };
    if (!cli_options(&argc, argv, rows, sizeof(rows) / sizeof(rows[0])))
        return EXIT_CODE_USAGE;
    revocation.remote = mint.remote;
    revocation.session = mint.session;
    revocation.device = mint.device;
    revocation.json = mint.json;
    if (argc == 1 && strcmp(argv[0], "mint") == 0 && !revocation.token_id && !revocation.reason)
        return mint_token(&mint);
    if (argc == 1 && strcmp(argv[0], "revoke") == 0 && !has_mints_own(&mint))
        return token_revoke(&revocation);
    if (argc != 1 || (strcmp(argv[0], "mint") != 0 && strcmp(argv[0], "revoke") != 0))
        return cli_usage("token", "give one of mint, inspect and revoke");
    return cli_usage("token", "%s does not take one of these options", argv[0]);
}

/* ---- inspect ---- */

/* Whether the server would accept a token. */
struct verdict {
    enum status status;
    struct token_refusal refusal; /* its rule has no character that JSON escapes */
};

static void print_inspected(struct slice header, struct slice claims, const struct verdict *verdict,
                            bool json) {
    const char *status = status_code(verdict->status);
    const char *rule = verdict->refusal.rule;
    printf(json ? "{\"header\":%.*s,\"claims\":%.*s,\"status\":\"%s\""
                : "header %.*s\nclaims %.*s\nstatus %s\n",
           (int)header.size, header.data, (int)claims.size, claims.data, status);
    if (rule)
        printf(json ? ",\"rule\":\"%s\"" : "rule %s\n", rule);
    if (json)
        printf("}\n");
}

/* By the keys of these settings. */
static int check_token(struct slice token, const char *data_dir, struct verdict *verdict) {
    static struct config config;
    static struct gate gate;
    const struct principal *principal = NULL;
    struct clock clock;
    int code = gate_of_settings(data_dir, &config, &gate);
    if (code != EXIT_CODE_DONE)
        return code;
    clock_init(&clock);
    verdict->status =
        gate_admit_token(&gate, token, clock_wall_ms(&clock), &principal, &verdict->refusal);
    principal_unref(principal);
    gate_release(&gate);
    return EXIT_CODE_DONE;
}

static int token_inspect_verb(int argc, char **argv) {
    const char *data_dir = NULL;
    bool json = false;
    const struct cli_option rows[] = {{"--json", &json, NULL}, {"--data-dir", NULL, &data_dir}};
    struct buffer token, header, claims;
    struct verdict verdict = {.status = STATUS_OK};
    if (!cli_options(&argc, argv, rows, 2))
        return EXIT_CODE_USAGE;
    if (argc != 1)
        return cli_usage("token", "inspect takes one token, not %d", argc);
    buffer_init(&token, TOKEN_BYTES_MAX + 2);
    buffer_init(&header, TOKEN_BYTES_MAX);
    buffer_init(&claims, TOKEN_BYTES_MAX);
    bool is_stdin = strcmp(argv[0], "-") == 0;
    enum status status =
        is_stdin ? cli_read("-", &token) : buffer_append_slice(&token, slice_of(argv[0]));
    while (token.size > 0 && strchr("\r\n", token.data[token.size - 1]))
        token.size--;
    if (status == STATUS_OK)
        status = token_peek(buffer_slice(&token), &header, &claims);
    int code = status == STATUS_OK
                   ? check_token(buffer_slice(&token), data_dir, &verdict)
                   : cli_fail(EXIT_CODE_NO, "this is not a token of at most %d characters",
                              TOKEN_BYTES_MAX);
    if (code == EXIT_CODE_DONE) {
        print_inspected(buffer_slice(&header), buffer_slice(&claims), &verdict, json);
        code = verdict.status == STATUS_OK ? EXIT_CODE_DONE : EXIT_CODE_NO;
    }
    buffer_release(&token);
    buffer_release(&header);
    buffer_release(&claims);
    return code;
}

int cli_token(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "inspect") == 0)
        return token_inspect_verb(argc - 1, argv + 1);
    return token_server_verb(argc, argv);
}
