#include <stdio.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/settings.h"
#include "server/server.h"

static void print_welcome(const struct server *server) {
    const char *host = server->config.bind.host;
    bool bare = strchr(host, ':') == NULL;
    char url[300];
    snprintf(url, sizeof(url), "http://%s%s%s:%u", bare ? "" : "[", host, bare ? "" : "]",
             (unsigned)server->port);
    printf("Khala %s listens on %s\n\n  curl -fsS %s/healthz/ready\n", KHALA_VERSION, url, url);
    fflush(stdout);
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
    return server_run(&server, print_welcome) == STATUS_OK ? EXIT_CODE_DONE : EXIT_CODE_UNREACHABLE;
}
