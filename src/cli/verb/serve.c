#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/mint.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/remote.h"
#include "cli/settings.h"
#include "server/config.h"
#include "server/server.h"
#include "server/unknown.h"

#define EXAMPLES_TOPIC   "demo"
#define ANSWER_BYTES_MAX (64u << 10)
#define TARGET_BYTES_MAX 1024

/* Commands to paste that show a new server at work: append an event, follow it, mint a token. Each
 * works by itself, in any folder, and a second time when it is pasted twice. */
struct examples {
    const struct server *server;
    const char *url;          /* the address for readers */
    const char *operator_url; /* the address for backends */
    const char *key;          /* shell text that expands to the operator key */
    const char *trust;        /* options of curl for the certificate; "" for none */
    const char *token;        /* shell text that expands to a token for the topic */
};

/* Whether this server has a key to sign tokens with. */
static bool can_mint(const struct server *server) {
    struct uuid7_generator ids;
    struct mint_reason reason;
    struct buffer answer;
    struct mint_moment moment = {.now_ms = clock_now().wall_ms};
    enum status status = uuid7_generator_init(&ids, NULL);
    if (status != STATUS_OK)
        return false;
    moment.token_id = uuid7_next(&ids, moment.now_ms);
    moment.session_id = uuid7_next(&ids, moment.now_ms);
    buffer_init(&answer, ANSWER_BYTES_MAX);
    status = mint(&server->http.gate, SLICE("{\"topics\":[\"" EXAMPLES_TOPIC "\"]}"), &moment,
                  &answer, &reason, NULL);
    buffer_release(&answer);
    return status == STATUS_OK;
}

static void print_examples(const struct examples *examples) {
    const struct config *config = &examples->server->config;
    bool has_tokens = can_mint(examples->server);
    if (!has_tokens)
        printf("Tokens are made elsewhere: there is no key here to sign them with.\n\n");
    printf("  curl -fsS%s %s/internal/v1/topics/" EXAMPLES_TOPIC
           "/events -H \"Authorization: Bearer %s\" "
           "-d '{\"event_type\":\"said\",\"payload\":{\"text\":\"hello\"}}'\n",
           examples->trust, examples->operator_url, examples->key);
    if (!has_tokens) {
        printf("  curl -fsS%s %s/internal/v1/topics/" EXAMPLES_TOPIC
               "/events -H \"Authorization: Bearer %s\"\n",
               examples->trust, examples->operator_url, examples->key);
        return;
    }
    struct buffer target;
    buffer_init(&target, TARGET_BYTES_MAX);
    buffer_append_slice(&target, SLICE("/v1/topics/" EXAMPLES_TOPIC "/sse"));
    /* The versions of a client that the compatibility gate accepts. */
    if (config->compatibility_enforced) {
        buffer_printf(&target, "?schema_version=%" PRIu64 "&client_build_id=",
                      config->compatibility_min_schema_version);
        remote_encode(&target, config->compatibility_min_client_build_id);
        buffer_append_slice(&target, SLICE("&protocol_version="));
        remote_encode(&target, config->compatibility_protocol_version);
    }
    if (buffer_status(&target) == STATUS_OK)
        printf("  curl -fsSN%s '%s%.*s' -H \"Authorization: Bearer %s\"\n", examples->trust,
               examples->url, (int)target.size, target.data, examples->token);
    buffer_release(&target);
    printf("  curl -fsS%s %s/api/sync/token -H \"Authorization: Bearer %s\" "
           "-d '{\"user_id\":\"ada\",\"scopes\":[\"%s\"]}'\n",
           examples->trust, examples->operator_url, examples->key, scope_name(SCOPE_RUN_EVENTS));
}

/* Appends BEFORE and the absolute path in single quotes for a shell: commands may be pasted in
 * another folder. */
static void write_path(struct buffer *out, const char *before, const char *path) {
    char *whole = realpath(path, NULL);
    buffer_append_slice(out, slice_of(before));
    buffer_append_byte(out, '\'');
    for (const char *c = whole ? whole : path; *c; c++)
        buffer_append_slice(out, *c == '\'' ? SLICE("'\\''") : (struct slice){c, 1});
    buffer_append_byte(out, '\'');
    free(whole);
}

/* The options of a verb, or the exported variables, that name this server. */
static void write_names(struct buffer *out, const struct server *server, const char *data_dir,
                        const char *ca_file) {
    const struct config *config = &server->config;
    if (server->http.operator_key.source != OPERATOR_KEY_GIVEN)
        write_path(out, data_dir, config->data_dir);
    if (*config->tls_cert_file)
        write_path(out, ca_file, config->tls_cert_file);
}

#define COMMAND_BYTES_MAX 32768
#define URL_BYTES_MAX     300

static void write_url(char url[URL_BYTES_MAX], const struct server *server, const char *host,
                      uint16_t port) {
    bool bare = strchr(host, ':') == NULL;
    snprintf(url, URL_BYTES_MAX, "http%s://%s%s%s:%u", server->http.tls ? "s" : "", bare ? "" : "[",
             host, bare ? "" : "]", (unsigned)port);
}

/* Writes the shell texts of the commands, which expand to keys and tokens so that the output
 * contains none, and prints the commands if all of them fit. */
static void print_commands(struct examples *examples) {
    const struct server *server = examples->server;
    const struct operator_key *operator_key = &server->http.operator_key;
    const char *certificate = server->config.tls_cert_file;
    enum { EXPORTS, KEY, TRUST, MINT, COUNT };
    struct buffer texts[COUNT];
    enum status status = STATUS_OK;
    for (size_t i = 0; i < COUNT; i++)
        buffer_init(&texts[i], COMMAND_BYTES_MAX);
    /* The variables by which the other verbs find this server. */
    buffer_printf(&texts[EXPORTS], "export KHALA_URL=%s", examples->url);
    if (server->operator_port > 0)
        buffer_printf(&texts[EXPORTS], " KHALA_OPERATOR_URL=%s", examples->operator_url);
    write_names(&texts[EXPORTS], server, " KHALA_DATA_DIR=", " KHALA_CA_FILE=");
    if (operator_key->source == OPERATOR_KEY_GIVEN) {
        buffer_append_slice(&texts[KEY], SLICE("$KHALA_OPERATOR_KEY"));
    } else {
        write_path(&texts[KEY], "$(cat ", operator_key->path);
        buffer_append_byte(&texts[KEY], ')');
    }
    /* The trust store of this machine may lack the certificate's authority. */
    if (*certificate)
        write_path(&texts[TRUST], " --cacert ", certificate);
    buffer_append_slice(&texts[MINT], SLICE("$("));
    if (strchr(program_invocation_name, '/'))
        write_path(&texts[MINT], "", "/proc/self/exe");
    else
        buffer_append_slice(&texts[MINT], SLICE("khala"));
    buffer_printf(&texts[MINT], " token mint --topics " EXAMPLES_TOPIC " --url %s",
                  examples->operator_url);
    write_names(&texts[MINT], server, " --data-dir ", " --ca ");
    buffer_append_byte(&texts[MINT], ')');
    for (size_t i = 0; i < COUNT && status == STATUS_OK; i++)
        status = buffer_append_byte(&texts[i], '\0');
    if (status == STATUS_OK) {
        printf("The other verbs find this server with:\n\n  %s\n\n", texts[EXPORTS].data);
        examples->key = texts[KEY].data;
        examples->trust = texts[TRUST].data;
        examples->token = texts[MINT].data;
        print_examples(examples);
    }
    for (size_t i = 0; i < COUNT; i++)
        buffer_release(&texts[i]);
}

static void print_welcome(const struct server *server) {
    const struct operator_key *key = &server->http.operator_key;
    const struct config_file_row *row = config_file_find(settings_file(), "KHALA_OPERATOR_KEY");
    char url[URL_BYTES_MAX];
    char operator_url[URL_BYTES_MAX];
    struct examples examples = {.server = server, .url = url, .operator_url = url};
    write_url(url, server, server->config.bind.host, server->port);
    printf("Khala %s listens on %s\n", KHALA_VERSION, url);
    if (server->operator_port > 0) {
        write_url(operator_url, server, server->config.operator_bind.host, server->operator_port);
        printf("Operator routes and /metrics are on %s\n", operator_url);
        examples.operator_url = operator_url;
    }
    char *whole = realpath(key->path, NULL);
    const char *path = whole ? whole : key->path;
    if (key->source == OPERATOR_KEY_GIVEN && row && !getenv("KHALA_OPERATOR_KEY"))
        printf("The operator key is KHALA_OPERATOR_KEY of %s:%u. Export it for these commands:\n",
               settings_file()->path, row->line);
    else if (key->source == OPERATOR_KEY_GIVEN)
        printf("The operator key is KHALA_OPERATOR_KEY.\n");
    /* Shown once, and on a terminal only: stored output must not contain it. */
    else if (key->source == OPERATOR_KEY_GENERATED && isatty(1))
        printf("The operator key is %s, kept in %s\n", key->text, path);
    else
        printf("The operator key is in %s\n", path);
    free(whole);
    print_commands(&examples);
    /* The server also runs when its output is closed. */
    if (fflush(stdout) != 0)
        __fpurge(stdout);
    clearerr(stdout);
}

static void log_unknown(void *user, const char *name, const char *nearest) {
    (void)user;
    log_event(LOG_WARN, "config.unknown_variable", log_str("name", name),
              log_str("nearest", nearest ? nearest : "-"), log_str("effect", "none"));
}

int cli_serve(int argc, char **argv) {
    static struct server server;
    int code = cli_settings(&argc, argv, NULL, 0, &server.config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0)
        return cli_usage("serve", "'%s' is not expected", argv[0]);
    log_configure((enum log_level)server.config.log_level,
                  (enum log_format)server.config.log_format, 2);
    config_unknown_each(environ, NULL, log_unknown);
    if (server_run(&server, print_welcome) == STATUS_OK)
        return EXIT_CODE_DONE;
    /* A log in JSON has the reason already. */
    if (server.config.log_format == LOG_JSON && server.config.log_level <= LOG_ERROR)
        return EXIT_CODE_UNREACHABLE;
    return cli_fail(EXIT_CODE_UNREACHABLE, "%s", server.message);
}
