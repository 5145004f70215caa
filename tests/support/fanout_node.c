/* fanout_node DRIVER URL CHANNEL: a node without a store. It announces what it reads and prints the
 * hints it gets.
 *   announce EPOCH LOG_ID       announces one commit
 *   storm EPOCH COUNT           announces log ids 1 to COUNT, then prints "stormed MILLISECONDS"
 *   status                      prints one line of JSON
 * Output: "hint EPOCH LOG_ID", and "lost" if hints may have been lost. Ends with its input. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/fanout.h"

static void on_hint(void *user, const struct hint *hint) {
    (void)user;
    if (hint)
        printf("hint %s %" PRIu64 "\n", hint->epoch, hint->log_id);
    else
        printf("lost\n");
    fflush(stdout);
}

static void storm(struct fanout *fanout, const char *epoch, uint64_t count) {
    uint64_t begun_ns = clock_now().mono_ns;
    for (uint64_t log_id = 1; log_id <= count; log_id++)
        fanout_announce(fanout, epoch, log_id);
    printf("stormed %" PRIu64 "\n", (clock_now().mono_ns - begun_ns) / CLOCK_NS_PER_MS);
}

static void print_status(struct fanout *fanout) {
    struct fanout_status status = fanout_status(fanout);
    printf("{\"state\":\"%s\",\"lag\":%" PRIu64 ",\"sent\":%" PRIu64 ",\"received\":%" PRIu64
           ",\"ignored\":%" PRIu64 ",\"connects\":%" PRIu64 ",\"failures\":%" PRIu64
           ",\"error\":\"",
           fanout_state_name(status.state), status.lag, status.sent, status.received,
           status.ignored, status.connects, status.failures);
    for (const char *c = status.error; *c; c++)
        if (*c != '"' && *c != '\\')
            putchar(*c);
    printf("\"}\n");
}

int main(int argc, char **argv) {
    struct fanout *fanout = NULL;
    char line[256];
    char epoch[64];
    uint64_t number;
    struct fanout_options options = {.kind = FANOUT_KIND_COUNT, .on_hint = on_hint};
    signal(SIGPIPE, SIG_IGN);
    for (unsigned i = 0; argc == 4 && i < FANOUT_KIND_COUNT; i++)
        if (strcmp(fanout_kind_name((enum fanout_kind)i), argv[1]) == 0)
            options.kind = (enum fanout_kind)i;
    if (options.kind == FANOUT_KIND_COUNT)
        return 2;
    options.url = argv[2];
    options.channel = argv[3];
    const char *wrong = fanout_check_url(options.kind, options.url);
    if (wrong || fanout_open(&fanout, &options) != STATUS_OK) {
        fprintf(stderr, "the URL %s\n", wrong ? wrong : "cannot be used");
        return 2;
    }
    while (fgets(line, sizeof(line), stdin)) {
        if (sscanf(line, "announce %63s %" SCNu64, epoch, &number) == 2)
            fanout_announce(fanout, epoch, number);
        else if (sscanf(line, "storm %63s %" SCNu64, epoch, &number) == 2)
            storm(fanout, epoch, number);
        else
            print_status(fanout);
        fflush(stdout);
    }
    fanout_close(fanout);
    return 0;
}
