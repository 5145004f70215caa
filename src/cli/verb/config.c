#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "auth/keys.h"
#include "cli/cli.h"
#include "net/tls.h"
#include "server/config.h"
#include "server/config_options.h"
#include "server/topics.h"
#include "server/unknown.h"

static const char *environment_none(const char *name) {
    (void)name;
    return NULL;
}

static void report_unknown(void *user, const char *name, const char *nearest) {
    (void)user;
    if (nearest)
        cli_fail(EXIT_CODE_USAGE, "%s is no setting and has no effect; did you mean %s?", name,
                 nearest);
    else
        cli_fail(EXIT_CODE_USAGE, "%s is no setting and has no effect", name);
}

int cli_config(int argc, char **argv) {
    bool json = false;
    bool check = false;
    bool markdown = false;
    const struct cli_option options[] = {
        {"--json", &json, NULL}, {"--check", &check, NULL}, {"--markdown", &markdown, NULL}};
    struct config config;
    struct config_error error;
    int code = cli_settings(&argc, argv, options, 3, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0)
        return cli_usage("config", "'%s' is not expected", argv[0]);
    if (markdown) {
        /* The page shows defaults, independent of this machine's environment. */
        if (config_load(&config, NULL, environment_none, NULL, 0, &error) != STATUS_OK)
            return cli_fail(EXIT_CODE_USAGE, "%s", error.text);
        config_print_markdown(stdout);
        puts("\n## The command line\n\n| environment | meaning |\n|---|---|");
        for (const struct config_variable *row = config_verb_variables; row->name; row++)
            printf("| `%s` | %s |\n", row->name, row->help);
    } else {
        config_unknown_each(environ, NULL, report_unknown);
        if (!check)
            config_print(&config, stdout, json);
    }
    if (!check)
        return EXIT_CODE_DONE;
    /* The files that a server needs to start. The keys of the data folder are not among them: the
     * server creates those itself. */
    const struct tls_options tls = config_tls_options(&config);
    const struct keys_options key_options = {config.jwks_file, config.token_signing_key,
                                             config.data_dir, config.token_fallback_signing_keys};
    struct tls_context *context = NULL;
    struct tls_message tls_message = {""};
    struct keys *keys = NULL;
    struct key_message key_message = {""};
    if (*tls.certificate_file && tls_context_open(&context, &tls, &tls_message) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "%s", tls_message.text);
    tls_context_close(context);
    struct topics topics;
    struct topics_message topics_message = {""};
    if (topics_open(&topics, &config.policies, config.topics_file, &topics_message) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "KHALA_TOPICS_FILE: %s", topics_message.text);
    topics_close(&topics);
    if (*config.jwks_file && keys_open(&keys, &key_options, &key_message) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "RUNTIME_SYNC_JWKS_FILE: %s", key_message.text);
    if (keys)
        keys_close(keys);
    return EXIT_CODE_DONE;
}
