/* bench write: the server's CPU time for one durable append over HTTP, by load.
 *
 * Wall-clock times move with the disk and the neighbours of the machine; CPU time does so much
 * less. Each load runs in turn with the others, for --rounds rounds (3). Payloads have 300 bytes.
 * --only N runs one load, and --events N sets the events of a round (204800, an eighth of them for
 * single appends). */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/uuid7.h"
#include "harness.h"

#define ENTITIES      1000
#define PAYLOAD_BYTES 300
#define REQUEST_BYTES ((size_t)1 << 20)
#define ROUNDS_MAX    64

struct load {
    const char *name;
    unsigned batch; /* events of a request */
    unsigned connections;
    bool of_runs; /* otherwise of one topic */
    bool with_ids;
};

static const struct load loads[] = {
    {"topic, batches of 1024", 1024, 4, false, false},
    {"topic, batches of 1024, event_id", 1024, 4, false, true},
    {"1000 runs, batches of 1024", 1024, 4, true, false},
    {"topic, one event a request", 1, 64, false, false},
    {"1000 runs, one event a request", 1, 64, true, false},
};
#define LOAD_COUNT (sizeof(loads) / sizeof(loads[0]))

struct appends {
    const struct bench_server *server;
    const struct load *load;
    uint64_t left; /* requests */
    uint64_t run;
    struct uuid7_generator *ids;
    struct buffer body;
    struct buffer requests[64]; /* one for each connection */
};

static void check(enum status status) {
    if (status != STATUS_OK)
        bench_fail("out of memory");
}

static void item_write(struct appends *drive) {
    struct buffer *out = &drive->body;
    char pad[PAYLOAD_BYTES - 10];
    memset(pad, 'x', sizeof(pad));
    check(buffer_append_byte(out, '{'));
    if (drive->load->batch > 1 && drive->load->of_runs)
        check(buffer_printf(out, "\"run_id\":\"run-%llu\",",
                            (unsigned long long)(drive->run++ % ENTITIES)));
    else if (drive->load->batch > 1)
        check(buffer_append_slice(out, SLICE("\"topic\":\"bench\",")));
    if (drive->load->with_ids) {
        char text[UUID_TEXT_SIZE];
        struct uuid id = uuid7_next(drive->ids, clock_now().wall_ms);
        uuid_format(&id, text);
        check(buffer_printf(out, "\"event_id\":\"%.*s\",", UUID_TEXT_SIZE, text));
    }
    check(buffer_printf(out, "\"event_type\":\"bench.step\",\"payload\":{\"pad\":\"%.*s\"}}\n",
                        (int)sizeof(pad), pad));
}

static bool next_request(void *user, unsigned connection, struct slice *request) {
    struct appends *drive = user;
    struct buffer *out = &drive->requests[connection];
    char path[64] = "/internal/v1/events:batch";
    if (drive->left == 0)
        return false;
    drive->left--;
    if (drive->load->batch == 1 && drive->load->of_runs)
        snprintf(path, sizeof(path), "/internal/v1/runs/run-%llu/events",
                 (unsigned long long)(drive->run++ % ENTITIES));
    else if (drive->load->batch == 1)
        snprintf(path, sizeof(path), "/internal/v1/topics/bench/events");
    buffer_init(&drive->body, REQUEST_BYTES);
    for (unsigned i = 0; i < drive->load->batch; i++)
        item_write(drive);
    if (out->size_max == 0)
        buffer_init(out, REQUEST_BYTES);
    buffer_clear(out);
    bench_post(out, drive->server, path,
               drive->load->batch == 1 ? "application/json" : "application/x-ndjson",
               buffer_slice(&drive->body));
    buffer_release(&drive->body);
    *request = buffer_slice(out);
    return true;
}

static bool next_creation(void *user, unsigned connection, struct slice *request) {
    struct appends *drive = user;
    struct buffer *out = &drive->requests[connection];
    char body[64];
    if (drive->run == ENTITIES)
        return false;
    if (out->size_max == 0)
        buffer_init(out, REQUEST_BYTES);
    buffer_clear(out);
    snprintf(body, sizeof(body), "{\"run_id\":\"run-%llu\"}", (unsigned long long)drive->run++);
    bench_post(out, drive->server, "/internal/v1/runs", "application/json", slice_of(body));
    *request = buffer_slice(out);
    return true;
}

struct figures {
    double rate[ROUNDS_MAX];
    double cpu_us[ROUNDS_MAX];
};

/* The round that other programs disturbed least. */
static double least(const double *values, unsigned count) {
    double found = values[0];
    for (unsigned i = 1; i < count; i++)
        found = values[i] < found ? values[i] : found;
    return found;
}

int main(int argc, char **argv) {
    static struct bench_server server;
    static struct appends drive;
    static struct figures figures[LOAD_COUNT];
    struct uuid7_generator ids;
    (void)argc;
    unsigned rounds = (unsigned)bench_option(argv, "--rounds", 3);
    uint64_t only = bench_option(argv, "--only", LOAD_COUNT);
    uint64_t batched = bench_option(argv, "--events", 204800);
    if (rounds == 0 || rounds > ROUNDS_MAX || uuid7_generator_init(&ids, NULL) != STATUS_OK)
        bench_fail("--rounds is 1 to %d", ROUNDS_MAX);
    bench_server_start(&server);
    drive.server = &server;
    drive.ids = &ids;
    bench_drive(&server, 16, &drive, next_creation);
    for (unsigned round = 0; round < rounds; round++)
        for (size_t i = 0; i < LOAD_COUNT; i++) {
            if (only < LOAD_COUNT && only != i)
                continue;
            uint64_t events = loads[i].batch > 1 ? batched : batched / 8;
            drive.load = &loads[i];
            drive.left = events / loads[i].batch;
            double before = bench_cpu_seconds(server.pid);
            double seconds = bench_drive(&server, loads[i].connections, &drive, next_request);
            double used = bench_cpu_seconds(server.pid) - before;
            figures[i].rate[round] = (double)events / seconds;
            figures[i].cpu_us[round] = used * 1e6 / (double)events;
        }
    printf("%-34s  CPU us/event  least  events/s\n", "load");
    for (size_t i = 0; i < LOAD_COUNT; i++)
        if (only >= LOAD_COUNT || only == i)
            printf("%-34s  %12.2f  %5.2f  %8.0f\n", loads[i].name,
                   bench_median(figures[i].cpu_us, rounds), least(figures[i].cpu_us, rounds),
                   bench_median(figures[i].rate, rounds));
    bench_server_stop(&server);
    return 0;
}
