#include "tenants.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "receivers.h"

#define TOPIC         "runtime.run_summaries"
#define ROUNDS        9
#define ROUND_SECONDS 0.4
#define TARGET        1.5

#define REPLAY_TENANTS 1000
#define REPLAY_FRAMES  100 /* of each tenant */
#define REPLAYS        51

struct side {
    struct bench_server server;
    struct receivers active;
    struct receivers idle;
    int fd;
    struct buffer append;
    struct buffer answer;
    uint64_t published;
};

static void post(struct side *side, const char *path, struct slice body) {
    struct buffer request;
    buffer_init(&request, 4096);
    bench_post(&request, &side->server, path, "application/json", body);
    bench_ask(side->fd, buffer_slice(&request), &side->answer);
    buffer_release(&request);
}

/* A token of that tenant, on the heap. */
static char *mint(struct side *side, const char *name, unsigned number) {
    char body[160];
    int size = snprintf(body, sizeof(body),
                        "{\"user_id\":\"%s%u\",\"scopes\":[\"runtime.run_events\"],"
                        "\"ttl_seconds\":900}",
                        name, number);
    post(side, "/api/sync/token", (struct slice){body, (size_t)size});
    const char *found = memmem(side->answer.data, side->answer.size, "\"token\":\"", 9);
    const char *end = found ? strchr(found + 9, '"') : NULL;
    char *token = end ? strndup(found + 9, (size_t)(end - found - 9)) : NULL;
    if (!token)
        bench_fail("no token in %.*s", (int)side->answer.size, side->answer.data);
    return token;
}

static struct receiver_options options_of(const struct side *side, unsigned count,
                                          char *const *tokens) {
    return (struct receiver_options){.dialect = RECEIVER_PHOENIX,
                                     .port = side->server.port,
                                     .count = count,
                                     .process_count = 1,
                                     .tokens = tokens,
                                     .topic = TOPIC,
                                     .after_seq = side->published};
}

static void side_open(struct side *side, unsigned tenants) {
    static const struct bench_setting settings[] = {
        {"KHALA_IO_LOOPS", "1"}, {"KHALA_HEARTBEAT_MS", "3600000"}, {NULL, NULL}};
    char **tokens = calloc(tenants + 1, sizeof(char *));
    if (!tokens)
        bench_fail("out of memory");
    side->server.settings = settings;
    bench_server_start(&side->server);
    side->fd = bench_connect(side->server.port);
    buffer_init(&side->append, 4096);
    buffer_init(&side->answer, 65536);
    post(side, "/internal/v1/runs", SLICE("{\"run_id\":\"r\",\"owner_user_id\":\"active0\"}"));
    side->published = 1;
    bench_post(&side->append, &side->server, "/internal/v1/runs/r/events", "application/json",
               SLICE("{\"event_type\":\"run.log\",\"payload\":{}}"));
    char *active = mint(side, "active", 0);
    struct receiver_options one = options_of(side, 1, &active);
    receivers_start(&side->active, &one);
    for (unsigned i = 0; i < tenants; i++)
        tokens[i] = mint(side, "tenant", i);
    uint64_t before = bench_server_anonymous_bytes(&side->server);
    if (tenants > 0) {
        struct receiver_options all = options_of(side, tenants, tokens);
        receivers_start(&side->idle, &all);
        printf("%u tenants subscribed: %llu bytes of the server's memory each\n", tenants,
               (unsigned long long)(bench_server_anonymous_bytes(&side->server) - before) /
                   tenants);
    }
    for (unsigned i = 0; i < tenants; i++)
        free(tokens[i]);
    free(tokens);
    free(active);
}

static void side_close(struct side *side, unsigned tenants) {
    receivers_stop(&side->active);
    if (tenants > 0)
        receivers_stop(&side->idle);
    close(side->fd);
    buffer_release(&side->append);
    buffer_release(&side->answer);
    bench_server_stop(&side->server);
}

/* Seconds of CPU for one event, from its request to its delivery. */
static double side_round(struct side *side) {
    double cpu = bench_cpu_seconds(side->server.pid), begun = bench_seconds();
    uint64_t first = side->published;
    while (bench_seconds() - begun < ROUND_SECONDS) {
        receivers_expect(&side->active, side->published++);
        bench_ask(side->fd, buffer_slice(&side->append), &side->answer);
        receivers_wait(&side->active);
    }
    return (bench_cpu_seconds(side->server.pid) - cpu) / (double)(side->published - first);
}

void tenants_measure(unsigned tenants) {
    static struct side alone, crowded;
    double alone_us[ROUNDS], crowded_us[ROUNDS], ratios[ROUNDS];
    side_open(&alone, 0);
    side_open(&crowded, tenants);
    for (int round = 0; round < ROUNDS; round++) {
        alone_us[round] = side_round(&alone) * 1e6;
        crowded_us[round] = side_round(&crowded) * 1e6;
        ratios[round] = crowded_us[round] / alone_us[round];
    }
    printf("one active tenant of %s: %.0f us of CPU per event alone, %.0f us with %u idle tenants, "
           "ratio %.2f, target at most %.2f\n",
           TOPIC, bench_median(alone_us, ROUNDS), bench_median(crowded_us, ROUNDS), tenants,
           bench_median(ratios, ROUNDS), TARGET);
    side_close(&crowded, tenants);
    side_close(&alone, 0);
}

/* ---- replay ---------------------------------------------------------------------------------- */

/* Each tenant has one run, and each batch one event of every run. */
static void replay_fill(struct side *side) {
    struct buffer body, request;
    buffer_init(&body, 1 << 20);
    buffer_init(&request, 1 << 20);
    for (unsigned i = 0; i < REPLAY_TENANTS; i++) {
        char run[96];
        int size = snprintf(run, sizeof(run),
                            "{\"run_id\":\"run-%u\",\"owner_user_id\":\"tenant%u\"}", i, i);
        post(side, "/internal/v1/runs", (struct slice){run, (size_t)size});
        if (buffer_printf(&body, "{\"run_id\":\"run-%u\",\"event_type\":\"run.log\"}\n", i) !=
            STATUS_OK)
            bench_fail("out of memory");
    }
    bench_post(&request, &side->server, "/internal/v1/events:batch", "application/x-ndjson",
               buffer_slice(&body));
    for (unsigned i = 1; i < REPLAY_FRAMES; i++)
        bench_ask(side->fd, buffer_slice(&request), &side->answer);
    buffer_release(&request);
    buffer_release(&body);
}

/* Seconds of CPU for all frames of that tenant. */
static double replay_one(struct side *side, unsigned tenant) {
    struct receivers receivers;
    char *token = mint(side, "tenant", tenant);
    struct receiver_options options = options_of(side, 1, &token);
    /* Frames of others count too: the messages cover them. */
    options.expected = (REPLAY_FRAMES - 1) * REPLAY_TENANTS + tenant + 1;
    double cpu = bench_cpu_seconds(side->server.pid);
    receivers_start(&receivers, &options);
    receivers_wait(&receivers);
    cpu = bench_cpu_seconds(side->server.pid) - cpu;
    receivers_stop(&receivers);
    free(token);
    return cpu;
}

void tenants_replay(void) {
    static const struct bench_setting settings[] = {
        {"KHALA_IO_LOOPS", "1"}, {"KHALA_HEARTBEAT_MS", "3600000"}, {NULL, NULL}};
    static struct side side;
    double times[REPLAYS - 1];
    side.server.settings = settings;
    bench_server_start(&side.server);
    side.fd = bench_connect(side.server.port);
    buffer_init(&side.answer, 1 << 20);
    replay_fill(&side);
    double first = replay_one(&side, 0);
    for (unsigned i = 1; i < REPLAYS; i++)
        times[i - 1] = replay_one(&side, i) * 1e3;
    double others = bench_median(times, REPLAYS - 1);
    printf("replay of %d frames of one tenant among %d: %.1f ms of CPU for the first tenant, %.2f "
           "ms for a later one, ratio %.3f\n",
           REPLAY_FRAMES, REPLAY_TENANTS * REPLAY_FRAMES, first * 1e3, others,
           others / (first * 1e3));
    close(side.fd);
    buffer_release(&side.answer);
    bench_server_stop(&side.server);
}
