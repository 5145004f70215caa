/* bench ingest: durable appends over HTTP on loopback, against a bare loop that writes the same
 * rows directly into SQLite in the same run.
 *
 * Both write a row of the log and its position for each event; the run's document, its checkpoint
 * and its journal row for each summary; and the topic's counter for each commit. Several events of
 * a run in one commit make one summary, so the bare loop writes as many summaries per event as the
 * server did. Both use WAL and synchronous=FULL on the same file system. Payloads have 256 bytes,
 * over 1000 runs. KHALA_BENCH_MEMORY_EVENTS=10000000 sets the length of the memory run (default
 * 1000000). --ids measures only batches with and without event ids of the client. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/uuid7.h"
#include "harness.h"

#define RUNS          1000
#define PAYLOAD_BYTES 256
#define REQUEST_BYTES ((size_t)1 << 20)
#define SUMMARY_BYTES 700
#define ROUNDS        3

static double median(const double values[ROUNDS]) {
    return bench_median(values, ROUNDS);
}

/* ---- over HTTP ----------------------------------------------------------------------------- */

struct load {
    const struct bench_server *server;
    unsigned batch; /* events per request */
    uint64_t left;  /* remaining requests */
    uint64_t run;   /* the next run, round robin, or a fixed one */
    bool one_run;
    struct uuid7_generator *ids;  /* NULL: the server mints the event ids */
    struct buffer requests[1024]; /* one for each connection */
};

static void payload_write(struct buffer *out) {
    char pad[PAYLOAD_BYTES];
    memset(pad, 'x', sizeof(pad));
    /* {"pad":"…"} is PAYLOAD_BYTES long in all. */
    if (buffer_printf(out, "{\"pad\":\"%.*s\"}", PAYLOAD_BYTES - 10, pad) != STATUS_OK)
        bench_fail("out of memory");
}

/* As a client library mints it, with the time of its clock. */
static void event_id_write(struct load *load, struct buffer *out) {
    char text[UUID_TEXT_SIZE];
    struct uuid id = uuid7_next(load->ids, clock_now().wall_ms);
    uuid_format(&id, text);
    if (buffer_printf(out, ",\"event_id\":\"%.*s\"", UUID_TEXT_SIZE, text) != STATUS_OK)
        bench_fail("no memory");
}

static void body_write(struct load *load, struct buffer *body) {
    for (unsigned i = 0; i < load->batch; i++) {
        if (load->batch > 1 &&
            buffer_printf(body,
                          "{\"run_id\":\"run-%llu\",\"event_type\":\"bench.step\",\"payload\":",
                          (unsigned long long)(load->run % RUNS)) != STATUS_OK)
            bench_fail("out of memory");
        if (load->batch == 1 &&
            buffer_printf(body, "{\"event_type\":\"bench.step\",\"payload\":") != STATUS_OK)
            bench_fail("out of memory");
        payload_write(body);
        if (load->ids)
            event_id_write(load, body);
        if (buffer_append(body, "}\n", 2) != STATUS_OK)
            bench_fail("out of memory");
        load->run += !load->one_run;
    }
}

static bool next_append(void *user, unsigned connection, struct slice *request) {
    struct load *load = user;
    struct buffer *out = &load->requests[connection];
    struct buffer body;
    char path[64] = "/internal/v1/events:batch";
    if (load->left == 0)
        return false;
    load->left--;
    if (load->batch == 1)
        snprintf(path, sizeof(path), "/internal/v1/runs/run-%llu/events",
                 (unsigned long long)(load->run % RUNS));
    if (out->size_max == 0)
        buffer_init(out, REQUEST_BYTES);
    buffer_clear(out);
    buffer_init(&body, REQUEST_BYTES);
    body_write(load, &body);
    bench_post(out, load->server, path,
               load->batch == 1 ? "application/json" : "application/x-ndjson", buffer_slice(&body));
    buffer_release(&body);
    *request = buffer_slice(out);
    return true;
}

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

/* Returns events per second. */
static double append(const struct bench_server *server, unsigned connections, unsigned batch,
                     uint64_t events, bool one_run, struct uuid7_generator *ids) {
    static struct load load;
    load.server = server;
    load.batch = batch;
    load.left = events / batch;
    load.one_run = one_run;
    load.run = 0;
    load.ids = ids;
    double seconds = bench_drive(server, connections, &load, next_append);
    return (double)(events / batch * batch) / seconds;
}

/* ---- directly into SQLite ------------------------------------------------------------------ */

enum { EVENT, POSITION, DOCUMENT, CHECKPOINT, JOURNAL, TOPIC, STATEMENT_COUNT };

/* Positions collect in a small table and move to the large one in bulk, as in the store. */
#define POSITIONS_MAX 16384

static const char *const statements[STATEMENT_COUNT] = {
    "INSERT INTO events (log_id, entity_ref, seq, cursor, type, payload_hash, prev_chain_hash, "
    "chain_hash, payload) VALUES (?1, ?2, ?3, ?4, 'bench.step', ?5, ?5, ?5, ?6)",
    "INSERT INTO event_positions_recent VALUES (?1, ?2, ?3, 1)",
    "INSERT INTO run_documents VALUES (?1, ?2, ?3, ?4, ?5, NULL, NULL) ON CONFLICT (entity_ref) DO "
    "UPDATE "
    "SET doc_version = ?3, payload_hash = ?4, payload = ?5",
    "INSERT INTO checkpoints VALUES (?1, 'run_summary', ?2, ?3, 'khala_summary_v1', ?4, ?3) ON "
    "CONFLICT (entity_ref) DO UPDATE SET last_runtime_seq = ?3, summary_hash = ?4",
    "INSERT INTO journal (topic_ref, seq, log_id, entity_ref, doc_version, published_at, "
    "payload_hash, payload) VALUES (1, ?1, ?1, ?2, ?3, ?1, ?4, ?5)",
    "UPDATE topics SET head_seq = ?1 WHERE ref = 1",
};

struct bare {
    sqlite3 *database;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    uint64_t log_id;
    double summaries; /* fraction of summaries that is due but not written yet */
    char payload[PAYLOAD_BYTES];
    char summary[SUMMARY_BYTES];
    size_t summary_bytes;
};

static void sql(struct bare *bare, const char *text) {
    if (sqlite3_exec(bare->database, text, NULL, NULL, NULL) != SQLITE_OK)
        bench_fail("%s: %s", text, sqlite3_errmsg(bare->database));
}

static int copy_definition(void *user, int count, char **columns, char **names) {
    (void)count;
    (void)names;
    sql(user, columns[0]);
    return 0;
}

/* Copies the server's tables and indexes, so that both do the same work per row. */
static void bare_open(struct bare *bare, const struct bench_server *server) {
    char path[128];
    sqlite3 *origin;
    snprintf(path, sizeof(path), "%s/khala.db", server->folder);
    if (sqlite3_open_v2(path, &origin, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        bench_fail("cannot open %s", path);
    snprintf(path, sizeof(path), "%s/bare.db", server->folder);
    if (sqlite3_open(path, &bare->database) != SQLITE_OK)
        bench_fail("cannot open %s", path);
    sql(bare, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000");
    if (sqlite3_exec(
            origin,
            "SELECT sql FROM sqlite_master WHERE type IN ('table','index') AND sql NOT NULL "
            "AND name NOT LIKE 'sqlite_%' ORDER BY type DESC",
            copy_definition, bare, NULL) != SQLITE_OK)
        bench_fail("cannot read the schema: %s", sqlite3_errmsg(origin));
    /* A summary as long as the server's own. */
    sqlite3_stmt *summary;
    sqlite3_prepare_v2(origin, "SELECT payload FROM sync_run_summaries LIMIT 1", -1, &summary,
                       NULL);
    if (sqlite3_step(summary) != SQLITE_ROW)
        bench_fail("the server made no summary");
    bare->summary_bytes = (size_t)sqlite3_column_bytes(summary, 0);
    if (bare->summary_bytes > SUMMARY_BYTES)
        bare->summary_bytes = SUMMARY_BYTES;
    memcpy(bare->summary, sqlite3_column_text(summary, 0), bare->summary_bytes);
    sqlite3_finalize(summary);
    sqlite3_close(origin);
    memset(bare->payload, 'x', sizeof(bare->payload));
    sql(bare, "INSERT INTO topics (ref, topic, stream_id, oldest_seq, head_seq) VALUES "
              "(1, 't', 's', 1, 0)");
    for (int i = 0; i < STATEMENT_COUNT; i++)
        if (sqlite3_prepare_v2(bare->database, statements[i], -1, &bare->statements[i], NULL) !=
            SQLITE_OK)
            bench_fail("%s: %s", statements[i], sqlite3_errmsg(bare->database));
}

static void step(struct bare *bare, int which) {
    if (sqlite3_step(bare->statements[which]) != SQLITE_DONE)
        bench_fail("bare loop: %s", sqlite3_errmsg(bare->database));
    sqlite3_reset(bare->statements[which]);
}

static void bare_summary(struct bare *bare, sqlite3_int64 entity, sqlite3_int64 seq,
                         const char hash[32]) {
    sqlite3_stmt **s = bare->statements;
    char key[64];
    int key_bytes = snprintf(key, sizeof(key), "runtime/run_summary:run-%lld", (long long)entity);
    sqlite3_bind_int64(s[DOCUMENT], 1, entity);
    sqlite3_bind_text(s[DOCUMENT], 2, key, key_bytes, SQLITE_STATIC);
    sqlite3_bind_int64(s[DOCUMENT], 3, seq);
    sqlite3_bind_blob(s[DOCUMENT], 4, hash, 32, SQLITE_STATIC);
    sqlite3_bind_text(s[DOCUMENT], 5, bare->summary, (int)bare->summary_bytes, SQLITE_STATIC);
    step(bare, DOCUMENT);
    sqlite3_bind_int64(s[CHECKPOINT], 1, entity);
    sqlite3_bind_text(s[CHECKPOINT], 2, key, key_bytes, SQLITE_STATIC);
    sqlite3_bind_int64(s[CHECKPOINT], 3, seq);
    sqlite3_bind_blob(s[CHECKPOINT], 4, hash, 32, SQLITE_STATIC);
    step(bare, CHECKPOINT);
    sqlite3_bind_int64(s[JOURNAL], 1, (sqlite3_int64)bare->log_id);
    sqlite3_bind_int64(s[JOURNAL], 2, entity);
    sqlite3_bind_int64(s[JOURNAL], 3, seq);
    sqlite3_bind_blob(s[JOURNAL], 4, hash, 32, SQLITE_STATIC);
    sqlite3_bind_text(s[JOURNAL], 5, bare->summary, (int)bare->summary_bytes, SQLITE_STATIC);
    step(bare, JOURNAL);
}

static void bare_event(struct bare *bare, double summaries_per_event) {
    sqlite3_stmt **s = bare->statements;
    sqlite3_int64 id = (sqlite3_int64)++bare->log_id;
    sqlite3_int64 entity = id % RUNS + 1;
    sqlite3_int64 seq = id / RUNS + 1;
    char hash[32];
    memset(hash, (int)(id & 127), sizeof(hash));
    sqlite3_bind_int64(s[EVENT], 1, id);
    sqlite3_bind_int64(s[EVENT], 2, entity);
    sqlite3_bind_int64(s[EVENT], 3, seq);
    sqlite3_bind_blob(s[EVENT], 4, hash, 16, SQLITE_STATIC);
    sqlite3_bind_blob(s[EVENT], 5, hash, 32, SQLITE_STATIC);
    sqlite3_bind_text(s[EVENT], 6, bare->payload, PAYLOAD_BYTES, SQLITE_STATIC);
    step(bare, EVENT);
    sqlite3_bind_int64(s[POSITION], 1, entity);
    sqlite3_bind_int64(s[POSITION], 2, seq);
    sqlite3_bind_int64(s[POSITION], 3, id);
    step(bare, POSITION);
    bare->summaries += summaries_per_event;
    if (bare->summaries >= 1) {
        bare->summaries -= 1;
        bare_summary(bare, entity, seq, hash);
    }
}

static double bare_append(struct bare *bare, unsigned batch, uint64_t events,
                          double summaries_per_event) {
    double begun = bench_seconds();
    for (uint64_t done = 0; done < events; done += batch) {
        sql(bare, "BEGIN IMMEDIATE");
        for (unsigned i = 0; i < batch; i++)
            bare_event(bare, summaries_per_event);
        if (bare->log_id % POSITIONS_MAX < batch)
            sql(bare, "INSERT INTO event_positions SELECT * FROM event_positions_recent; "
                      "DELETE FROM event_positions_recent");
        sqlite3_bind_int64(bare->statements[TOPIC], 1, (sqlite3_int64)bare->log_id);
        step(bare, TOPIC);
        sql(bare, "COMMIT");
    }
    return (double)events / (bench_seconds() - begun);
}

static void bare_close(struct bare *bare) {
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(bare->statements[i]);
    sqlite3_close(bare->database);
}

/* ---- the figures --------------------------------------------------------------------------- */

static void runs_create(const struct bench_server *server) {
    static struct load load;
    load.server = server;
    bench_drive(server, 16, &load, next_run);
}

/* The number of summaries that the server has written. */
static uint64_t summaries_written(const struct bench_server *server) {
    char path[128];
    sqlite3 *database;
    sqlite3_stmt *head;
    snprintf(path, sizeof(path), "%s/khala.db", server->folder);
    if (sqlite3_open_v2(path, &database, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(database, "SELECT head_seq FROM topics WHERE ref = 1", -1, &head,
                           NULL) != SQLITE_OK ||
        sqlite3_step(head) != SQLITE_ROW)
        bench_fail("cannot read %s", path);
    uint64_t written = (uint64_t)sqlite3_column_int64(head, 0);
    sqlite3_finalize(head);
    sqlite3_close(database);
    return written;
}

static void batches(const struct bench_server *server) {
    static const struct {
        unsigned batch;
        unsigned connections;
        uint64_t events;      /* per round */
        uint64_t bare_events; /* per round; fewer, because single commits are slow */
    } rows[] = {{1, 64, 20000, 3000}, {64, 2, 64000, 64000}, {1024, 2, 204800, 204800}};
    static struct bare bare;
    bare_open(&bare, server);
    printf("batch  connections  khala events/s  bare events/s  khala/bare  summaries/event\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double khala[ROUNDS], straight[ROUNDS], share = 1;
        /* Take turns, so that noise on the machine affects both sides. */
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t before = summaries_written(server);
            khala[round] =
                append(server, rows[i].connections, rows[i].batch, rows[i].events, false, NULL);
            share = (double)(summaries_written(server) - before) / (double)rows[i].events;
            straight[round] = bare_append(&bare, rows[i].batch, rows[i].bare_events, share);
        }
        printf("%5u  %11u  %14.0f  %13.0f  %10.2f  %15.2f\n", rows[i].batch, rows[i].connections,
               median(khala), median(straight), median(khala) / median(straight), share);
        fflush(stdout);
    }
    bare_close(&bare);
}

static void group_commit(const struct bench_server *server) {
    double one[ROUNDS], many[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        one[round] = append(server, 1, 1, 2000, false, NULL);
        many[round] = append(server, 64, 1, 20000, false, NULL);
    }
    printf("one append per request: 1 connection %.0f/s, 64 connections %.0f/s, ratio %.1f\n",
           median(one), median(many), median(many) / median(one));
}

/* Ten times ten thousand events. Each tenth has three parts, and the median part counts. */
static double tenth(const struct bench_server *server) {
    double rates[ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        rates[round] = append(server, 1, 100, 3400, true, NULL);
    return median(rates);
}

static void long_run(const struct bench_server *server) {
    double first = tenth(server);
    append(server, 1, 100, 80000, true, NULL);
    double last = tenth(server);
    printf("100000 events in one run: last tenth takes %.2f times the time of the first\n",
           first / last);
}

/* The same batches with and without event ids of the client, in turns. */
static void supplied_ids(const struct bench_server *server) {
    static const unsigned sizes[] = {64, 1024};
    struct uuid7_generator generator;
    if (uuid7_generator_init(&generator, NULL) != STATUS_OK)
        bench_fail("no random bytes");
    printf("batch  event_id  events/s  server CPU us/event\n");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        double rates[2][ROUNDS], cpu_us[2][ROUNDS];
        uint64_t events = sizes[i] == 64 ? 64000 : 204800;
        for (int round = 0; round < 2 * ROUNDS; round++) {
            bool is_supplied = round % 2 == 1;
            double before = bench_cpu_seconds(server->pid);
            rates[is_supplied][round / 2] =
                append(server, 2, sizes[i], events, false, is_supplied ? &generator : NULL);
            cpu_us[is_supplied][round / 2] =
                (bench_cpu_seconds(server->pid) - before) * 1e6 / (double)events;
        }
        for (int supplied = 0; supplied < 2; supplied++)
            printf("%5u  %8s  %8.0f  %19.1f\n", sizes[i], supplied ? "supplied" : "minted",
                   median(rates[supplied]), median(cpu_us[supplied]));
        fflush(stdout);
    }
}

static void memory(const struct bench_server *server) {
    const char *text = getenv("KHALA_BENCH_MEMORY_EVENTS");
    uint64_t events = text ? strtoull(text, NULL, 10) : 1000000;
    uint64_t step_events = events / 10 / 1024 * 1024;
    for (int tenth = 1; tenth <= 10; tenth++) {
        append(server, 4, 1024, step_events, false, NULL);
        if (tenth == 1 || tenth == 5 || tenth == 10)
            printf("resident memory after %llu more events: %.1f MiB\n",
                   (unsigned long long)step_events * (unsigned)tenth,
                   (double)bench_server_rss_bytes(server) / 1048576);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    static struct bench_server server;
    (void)argc;
    bench_server_start(&server);
    runs_create(&server);
    if (bench_option(argv, "--ids", 0)) {
        supplied_ids(&server);
        bench_server_stop(&server);
        return 0;
    }
    append(&server, 1, 64, 6400, false, NULL);
    batches(&server);
    supplied_ids(&server);
    group_commit(&server);
    long_run(&server);
    memory(&server);
    bench_server_stop(&server);
    return 0;
}
