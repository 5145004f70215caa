#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/examples.h"
#include "cli/settings.h"
#include "server/config_unknown.h"
#include "server/run.h"

#define COMMAND_BYTES_MAX 32768
#define URL_BYTES_MAX     300

/* BEFORE'PATH'AFTER, quoted for a shell. */
static enum status write_quoted(struct buffer *out, const char *before, const char *path,
                                const char *after) {
    enum status status = buffer_printf(out, "%s'", before);
    for (; *path && status == STATUS_OK; path++)
        status = *path == '\'' ? buffer_append_slice(out, SLICE("'\\''"))
                               : buffer_append_byte(out, *path);
    return status == STATUS_OK ? buffer_printf(out, "'%s%c", after, '\0') : status;
}

/* The absolute path of the key's file: the commands may be pasted in another folder. */
static void print_key_file(const struct operator_key *key, struct examples *examples) {
    char *whole = realpath(key->path, NULL);
    const char *path = whole ? whole : key->path;
    struct buffer command;
    buffer_init(&command, COMMAND_BYTES_MAX);
    /* Shown once, and on a terminal only: stored output must not contain it. */
    if (key->source == OPERATOR_KEY_GENERATED && isatty(1))
        printf("The operator key is %s, kept in %s\n", key->text, path);
    else
        printf("The operator key is in %s\n", path);
    if (write_quoted(&command, "$(cat ", path, ")") == STATUS_OK) {
        examples->key = command.data;
        examples_print(examples);
    }
    buffer_release(&command);
    free(whole);
}

static void write_url(char url[URL_BYTES_MAX], const struct server *server, const char *host,
                      uint16_t port) {
    bool bare = strchr(host, ':') == NULL;
    snprintf(url, URL_BYTES_MAX, "http%s://%s%s%s:%u", server->http.tls ? "s" : "", bare ? "" : "[",
             host, bare ? "" : "]", (unsigned)port);
}

static void print_key(const struct operator_key *key, struct examples *examples) {
    if (key->source == OPERATOR_KEY_GIVEN) {
        printf("The operator key is KHALA_OPERATOR_KEY.\n");
        examples->key = "$KHALA_OPERATOR_KEY";
        examples_print(examples);
    } else {
        print_key_file(key, examples);
    }
}

static void print_welcome(const struct server *server) {
    const char *certificate = server->config.tls_cert_file;
    char *whole = *certificate ? realpath(certificate, NULL) : NULL;
    char url[URL_BYTES_MAX];
    char operator_url[URL_BYTES_MAX];
    struct examples examples = {.server = server, .url = url, .operator_url = url, .trust = ""};
    struct buffer trust;
    write_url(url, server, server->config.bind.host, server->port);
    printf("Khala %s listens on %s\n", KHALA_VERSION, url);
    if (server->operator_port > 0) {
        write_url(operator_url, server, server->config.operator_bind.host, server->operator_port);
        printf("Operator routes and /metrics are on %s\n", operator_url);
        examples.operator_url = operator_url;
    }
    /* This machine may not know the certificate's authority. */
    buffer_init(&trust, COMMAND_BYTES_MAX);
    if (whole && write_quoted(&trust, " --cacert ", whole, "") == STATUS_OK)
        examples.trust = trust.data;
    print_key(&server->http.operator_key, &examples);
    buffer_release(&trust);
    free(whole);
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
        return cli_usage("serve");
    log_configure((enum log_level)server.config.log_level,
                  (enum log_format)server.config.log_format, 2);
    config_unknown_each(environ, NULL, log_unknown);
    if (server_run(&server, print_welcome) == STATUS_OK)
        return EXIT_CODE_DONE;
    return cli_fail(EXIT_CODE_UNREACHABLE, "%s", server.message);
}
