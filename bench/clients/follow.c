/* libkhala: follows the topic and does nothing with its frames. measure.mjs describes the settings
 * and the answer. */
#include <khala/khala.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <uv.h>

struct follower {
    const char *token;
    uint64_t frames;
    uint64_t last;
    uv_sem_t done;
};

static double seconds_of(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void on_token(void *user, struct khala_token *token) {
    const struct follower *follower = user;
    khala_token_give(token, follower->token);
}

static enum khala_result on_frame(void *user, const struct khala_frame *frame) {
    struct follower *follower = user;
    if (frame->seq != follower->last + 1) {
        fprintf(stderr, "%" PRIu64 " after %" PRIu64 "\n", frame->seq, follower->last);
        exit(1);
    }
    follower->last = frame->seq;
    if (follower->last == follower->frames)
        uv_sem_post(&follower->done);
    return KHALA_OK;
}

static void on_ended(void *user, const struct khala_error *error) {
    (void)user;
    if (!error)
        return;
    fprintf(stderr, "%s: %s\n", error->code, error->message);
    exit(1);
}

int main(void) {
    const char *url = getenv("BENCH_URL");
    const char *topic = getenv("BENCH_TOPIC");
    const char *frames = getenv("BENCH_FRAMES");
    struct follower follower = {.token = getenv("BENCH_TOKEN")};
    struct khala *client;
    if (!url || !topic || !frames || !follower.token || uv_sem_init(&follower.done, 0) != 0)
        return 2;
    follower.frames = strtoull(frames, NULL, 10);
    const struct khala_options options = {.url = url, .user = &follower, .token = on_token};
    const struct khala_follow follow = {
        .topic = topic, .user = &follower, .frame = on_frame, .ended = on_ended};
    double begun = seconds_of(CLOCK_MONOTONIC);
    double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    if (khala_open(&client, &options) != KHALA_OK ||
        khala_follow(client, &follow, NULL) != KHALA_OK)
        return 1;
    uv_sem_wait(&follower.done);
    khala_close(client);
    printf("{\"frames\":%" PRIu64 ",\"seconds\":%.6f,\"cpu_seconds\":%.6f}\n", follower.last,
           seconds_of(CLOCK_MONOTONIC) - begun, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    uv_sem_destroy(&follower.done);
    return 0;
}
