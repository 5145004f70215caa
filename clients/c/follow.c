/* Follows a topic and prints its frames: follow URL TOKEN TOPIC
 *
 *     cc follow.c $(pkg-config --cflags --libs khala) -o follow */
#include <khala/khala.h>

#include <signal.h>
#include <stdio.h>

static void give_token(void *user, struct khala_token *token) {
    khala_token_give(token, user); /* an application asks its backend for a new one */
}

static enum khala_result print_frame(void *user, const struct khala_frame *frame) {
    (void)user;
    printf("%llu %.*s\n", (unsigned long long)frame->seq, (int)frame->payload.size,
           frame->payload.data);
    fflush(stdout);
    return KHALA_OK;
}

static enum khala_result print_reset(void *user, const struct khala_reset *reset) {
    (void)user;
    printf("the history begins at %llu (%s)\n", (unsigned long long)reset->from_seq, reset->reason);
    return KHALA_OK;
}

static void print_end(void *user, const struct khala_error *error) {
    (void)user;
    if (error)
        fprintf(stderr, "%s: %s\n", error->code, error->message);
}

int main(int argc, char **argv) {
    struct khala *client;
    sigset_t signals;
    int signal;
    if (argc != 4)
        return 2;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    const struct khala_options options = {.url = argv[1], .user = argv[2], .token = give_token};
    const struct khala_follow follow = {
        .topic = argv[3], .frame = print_frame, .reset = print_reset, .ended = print_end};
    if (khala_open(&client, &options) != KHALA_OK ||
        khala_follow(client, &follow, NULL) != KHALA_OK)
        return 1;
    sigwait(&signals, &signal);
    khala_close(client);
    return 0;
}
