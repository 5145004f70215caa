/* bench retention: appends while retention prunes a journal of 1 000 000 expiring rows, against the
 * same appends without pruning. It shows events per second and the 99th percentile of append times.
 *
 * There are two loads: one event per request from 64 connections, and batches of 64 from 2. For
 * each load the benchmark fills the journal of runtime.run_summaries over 1 000 runs; the rows
 * expire in the same order. Then both sides take turns, so that noise affects both: some seconds of
 * appends alone, and appends while POST /internal/v1/retention/run prunes the expired rows. This
 * repeats until all rows are pruned. KHALA_BENCH_RETENTION_ROWS sets a smaller number of rows. */
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/blocking_http.h"
#include "harness.h"
#include "wire/json.h"

#define RUNS            1000
#define REQUEST_BYTES   ((size_t)1 << 20)
#define CONNECTIONS_MAX 64
#define SAMPLES_MAX     ((size_t)1 << 22)
/* A turn without pruning is as long as the one with pruning, within these bounds. */
#define ALONE_SECONDS_MIN 2.0
#define ALONE_SECONDS_MAX 10.0
/* The rate of filling is limited. Rows then expire about as fast as they are pruned, and turns stay
 * short. */
#define ROWS_PER_SECOND 10000
#define FILL_SECONDS    0.25

/* The result of a load over all its turns. */
struct figures {
    uint64_t events;
    double seconds;
    float *samples; /* milliseconds of each append */
    size_t sample_count;
};

struct load {
    const struct bench_server *server;
    unsigned batch;         /* events per request */
    uint64_t run;           /* the next run, round robin */
    double until;           /* clock time at which the load ends */
    const atomic_bool *end; /* ends the load when set; may be NULL */
    double sent_at[CONNECTIONS_MAX];
    struct figures *figures;
    struct buffer requests[CONNECTIONS_MAX];
};

static void must(enum status status) {
    if (status != STATUS_OK)
        bench_fail("%s", status_code(status));
}

/* ---- the load ---- */

static void request_write(struct load *load, struct buffer *out) {
    struct buffer body;
    char path[64] = "/internal/v1/events:batch";
    buffer_init(&body, REQUEST_BYTES);
    if (load->batch == 1)
        snprintf(path, sizeof(path), "/internal/v1/runs/run-%llu/events",
                 (unsigned long long)(load->run % RUNS));
    for (unsigned i = 0; i < load->batch; i++, load->run++) {
        must(buffer_append_slice(&body, SLICE("{")));
        if (load->batch > 1)
            must(buffer_printf(&body, "\"run_id\":\"run-%llu\",",
                               (unsigned long long)(load->run % RUNS)));
        must(buffer_printf(&body,
                           "\"event_type\":\"bench.step\",\"payload\":{\"pad\":\"%0240d\"}}\n", 0));
    }
    buffer_clear(out);
    bench_post(out, load->server, path,
               load->batch == 1 ? "application/json" : "application/x-ndjson", buffer_slice(&body));
    buffer_release(&body);
}

static bool next_append(void *user, unsigned connection, struct slice *request) {
    struct load *load = user;
    struct buffer *out = &load->requests[connection];
    double now = bench_seconds();
    struct figures *figures = load->figures;
    if (load->sent_at[connection] > 0 && figures->sample_count < SAMPLES_MAX)
        figures->samples[figures->sample_count++] =
            (float)((now - load->sent_at[connection]) * 1000);
    if (now > load->until || (load->end && atomic_load(load->end)))
        return false;
    if (out->size_max == 0)
        buffer_init(out, REQUEST_BYTES);
    request_write(load, out);
    figures->events += load->batch;
    load->sent_at[connection] = bench_seconds();
    *request = buffer_slice(out);
    return true;
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void append(const struct bench_server *server, unsigned connections, unsigned batch,
                   double seconds, const atomic_bool *end, struct figures *figures) {
    static struct load load;
    load.server = server;
    load.batch = batch;
    load.figures = figures;
    load.end = end;
    load.until = bench_seconds() + seconds;
    memset(load.sent_at, 0, sizeof(load.sent_at));
    if (!figures->samples)
        figures->samples = malloc(SAMPLES_MAX * sizeof(figures->samples[0]));
    if (!figures->samples)
        bench_fail("out of memory");
    figures->seconds += bench_drive(server, connections, &load, next_append);
}

/* ---- the journal ---- */

static uint64_t journal_rows(const struct bench_server *server) {
    char path[128];
    sqlite3 *database;
    sqlite3_stmt *window;
    snprintf(path, sizeof(path), "%s/khala.db", server->folder);
    if (sqlite3_open_v2(path, &database, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(database, "SELECT head_seq - oldest_seq + 1 FROM topics WHERE ref = 1",
                           -1, &window, NULL) != SQLITE_OK ||
        sqlite3_step(window) != SQLITE_ROW)
        bench_fail("cannot read %s", path);
    uint64_t rows = (uint64_t)sqlite3_column_int64(window, 0);
    sqlite3_finalize(window);
    sqlite3_close(database);
    return rows;
}

struct pruning {
    const struct bench_server *server;
    pthread_t thread;
    atomic_bool is_over;
    struct buffer answer;
    uint64_t deleted;
};

static enum status collect_answer(void *user, unsigned http_status, struct slice piece) {
    struct pruning *pruning = user;
    if (http_status != 200)
        bench_fail("retention answered %u: %.*s", http_status, (int)piece.size, piece.data);
    return buffer_append_slice(&pruning->answer, piece);
}

static void *prune_main(void *user) {
    struct pruning *pruning = user;
    struct blocking_http *client;
    char url[64];
    unsigned http_status;
    struct json_field deleted = {.name = SLICE("deleted")};
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", pruning->server->port);
    must(blocking_http_open(&client, url, NULL));
    const struct blocking_request request = {.method = "POST",
                                             .target = "/internal/v1/retention/run",
                                             .key = pruning->server->key,
                                             .content_type = "application/json",
                                             .body = SLICE("{}"),
                                             .user = pruning,
                                             .on_body = collect_answer};
    buffer_init(&pruning->answer, REQUEST_BYTES);
    must(blocking_http_run(client, &request, &http_status));
    const struct json_limits limits = {pruning->answer.size, JSON_DEPTH_MAX};
    must(json_read_object(buffer_slice(&pruning->answer), &limits, &deleted, 1));
    if (!json_u64(deleted.value, UINT64_MAX, &pruning->deleted))
        bench_fail("the answer lacks the number of pruned frames");
    blocking_http_close(client);
    buffer_release(&pruning->answer);
    atomic_store(&pruning->is_over, true);
    return NULL;
}

static uint64_t append_while_pruning(const struct bench_server *server, unsigned connections,
                                     unsigned batch, struct figures *figures) {
    static struct pruning pruning;
    pruning = (struct pruning){.server = server};
    if (pthread_create(&pruning.thread, NULL, prune_main, &pruning) != 0)
        bench_fail("cannot start a thread");
    append(server, connections, batch, BENCH_SECONDS_MAX, &pruning.is_over, figures);
    pthread_join(pruning.thread, NULL);
    return pruning.deleted;
}

/* ---- the figures ---- */

static bool next_run(void *user, unsigned connection, struct slice *request) {
    struct load *load = user;
    struct buffer *out = &load->requests[connection];
    char body[64];
    if (load->run == RUNS)
        return false;
    if (out->size_max == 0)
        buffer_init(out, REQUEST_BYTES);
    buffer_clear(out);
    snprintf(body, sizeof(body), "{\"run_id\":\"run-%llu\"}", (unsigned long long)load->run++);
    bench_post(out, load->server, "/internal/v1/runs", "application/json", slice_of(body));
    *request = buffer_slice(out);
    return true;
}

static double percentile(const struct figures *figures, size_t part) {
    return figures->samples[(figures->sample_count - 1) * part / 100];
}

static void show(const char *name, struct figures *figures) {
    if (figures->sample_count < 100)
        bench_fail("too few appends for percentiles");
    qsort(figures->samples, figures->sample_count, sizeof(figures->samples[0]), by_size);
    printf("%-8s  %8.0f  %7.2f  %7.2f  %8.1f  %7.1f\n", name,
           (double)figures->events / figures->seconds, percentile(figures, 50),
           percentile(figures, 99), percentile(figures, 100), figures->seconds);
}

static void fill(const struct bench_server *server, uint64_t rows) {
    static struct figures ignored;
    double begun = bench_seconds();
    uint64_t before = journal_rows(server), now = before;
    while (now < rows) {
        if (bench_seconds() - begun > BENCH_SECONDS_MAX)
            bench_fail("the journal does not fill");
        ignored.sample_count = 0;
        append(server, 2, RUNS, FILL_SECONDS, NULL, &ignored);
        now = journal_rows(server);
        double ahead = (double)(now - before) / ROWS_PER_SECOND - (bench_seconds() - begun);
        if (ahead > 0)
            usleep((useconds_t)(ahead * 1e6));
    }
}

static void measure(const struct bench_server *server, unsigned connections, unsigned batch,
                    uint64_t rows) {
    static struct figures alone, beside;
    uint64_t deleted = 0;
    unsigned turns = 0;
    fill(server, rows);
    alone.events = beside.events = alone.sample_count = beside.sample_count = 0;
    alone.seconds = beside.seconds = 0;
    double alone_seconds = ALONE_SECONDS_MIN;
    for (double begun = bench_seconds(); deleted < rows; turns++) {
        double before = beside.seconds;
        if (bench_seconds() - begun > BENCH_SECONDS_MAX)
            bench_fail("%llu frames were pruned in time", (unsigned long long)deleted);
        append(server, connections, batch, alone_seconds, NULL, &alone);
        deleted += append_while_pruning(server, connections, batch, &beside);
        alone_seconds = beside.seconds - before;
        if (alone_seconds < ALONE_SECONDS_MIN)
            alone_seconds = ALONE_SECONDS_MIN;
        if (alone_seconds > ALONE_SECONDS_MAX)
            alone_seconds = ALONE_SECONDS_MAX;
    }
    printf("%u connections, %u per request: %llu frames pruned in %u turns, %.0f/s\n", connections,
           batch, (unsigned long long)deleted, turns, (double)deleted / beside.seconds);
    printf("          events/s   p50 ms   p99 ms  worst ms  seconds\n");
    show("alone", &alone);
    show("pruning", &beside);
    printf("pruning/alone: throughput %.2f, p99 %.2f\n",
           (double)beside.events / beside.seconds / ((double)alone.events / alone.seconds),
           percentile(&beside, 99) / percentile(&alone, 99));
    fflush(stdout);
}

int main(void) {
    static struct bench_server server;
    static struct load runs;
    const char *text = getenv("KHALA_BENCH_RETENTION_ROWS");
    uint64_t rows = text ? strtoull(text, NULL, 10) : 1000000;
    char retention_seconds[32];
    snprintf(retention_seconds, sizeof(retention_seconds), "%llu",
             (unsigned long long)(1 + rows / ROWS_PER_SECOND));
    setenv("RUNTIME_KHALA_RETENTION_INTERVAL_MS", "86400000", 1);
    setenv("RUNTIME_KHALA_RUN_SUMMARIES_RETENTION_SECONDS", retention_seconds, 1);
    bench_server_start(&server);
    runs.server = &server;
    bench_drive(&server, 16, &runs, next_run);
    measure(&server, 64, 1, rows);
    measure(&server, 2, 64, rows);
    bench_server_stop(&server);
    return 0;
}
