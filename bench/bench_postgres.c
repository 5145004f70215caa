/* bench postgres: durable appends over HTTP in batches of 1 024 on PostgreSQL, against a bare libpq
 * loop that inserts the same rows by arrays into a copy of the table, in the same run. Beside them:
 * a plain INSERT of 1 024 rows as text, and the same appends on the embedded store.
 *
 * The events go to 1 000 application topics, so the log is all that is written. Payloads have 256
 * bytes. All sides sync each commit, on the same file system. --events sets the events of a round
 * (default 102400). */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define TOPICS        1000
#define PAYLOAD_BYTES 256
#define BATCH         1024
#define CONNECTIONS   2
#define ROUNDS        3
#define REQUEST_BYTES ((size_t)1 << 20)
#define COLUMNS       13
#define OID_BIGINT    20
#define OID_BYTEA     17
#define OID_TEXT      25
#define OID_UUID      2950

/* ---- the server of PostgreSQL ---- */

struct postgres {
    pid_t pid;
    int input; /* it ends when this is closed */
    char url[128];
};

static void postgres_exec(int input, int output) {
    char path[512];
    ssize_t used = readlink("/proc/self/exe", path, sizeof(path) - 32);
    if (used < 0)
        _exit(127);
    path[used] = '\0';
    for (int up = 0; up < 4; up++)
        *strrchr(path, '/') = '\0';
    strcat(path, "/tests/support/postgres");
    dup2(input, 0);
    dup2(output, 1);
    close(input);
    close(output);
    execl(path, path, "fsync=on", "full_page_writes=on", "shared_buffers=256MB", "max_wal_size=4GB",
          (char *)NULL);
    _exit(127);
}

static void postgres_start(struct postgres *postgres) {
    int input[2], output[2];
    if (pipe(input) != 0 || pipe(output) != 0)
        bench_fail("no pipes");
    /* The servers that start later must not keep it open. */
    if (fcntl(input[1], F_SETFD, FD_CLOEXEC) != 0)
        bench_fail("fcntl");
    postgres->pid = fork();
    if (postgres->pid == 0) {
        close(input[1]);
        close(output[0]);
        postgres_exec(input[0], output[1]);
    }
    close(input[0]);
    close(output[1]);
    postgres->input = input[1];
    ssize_t size = read(output[0], postgres->url, sizeof(postgres->url) - 16);
    if (size < 2)
        bench_fail("PostgreSQL does not start: run scripts/setup test");
    postgres->url[size - 1] = '\0';
    strcat(postgres->url, "/postgres");
}

static void postgres_stop(const struct postgres *postgres) {
    close(postgres->input);
    waitpid(postgres->pid, NULL, 0);
}

/* ---- over HTTP ---- */

struct load {
    const struct bench_server *server;
    uint64_t left; /* remaining requests */
    uint64_t next; /* the next topic */
    struct buffer requests[CONNECTIONS];
};

static void item_write(struct buffer *body, uint64_t topic) {
    char pad[PAYLOAD_BYTES];
    memset(pad, 'x', sizeof(pad));
    if (buffer_printf(body,
                      "{\"topic\":\"topic-%llu\",\"event_type\":\"bench.step\",\"payload\":"
                      "{\"pad\":\"%.*s\"}}\n",
                      (unsigned long long)topic, PAYLOAD_BYTES - 10, pad) != STATUS_OK)
        bench_fail("out of memory");
}

static bool next_append(void *user, unsigned connection, struct slice *request) {
    struct load *load = user;
    struct buffer *out = &load->requests[connection];
    struct buffer body;
    if (load->left == 0)
        return false;
    load->left--;
    if (out->size_max == 0)
        buffer_init(out, REQUEST_BYTES);
    buffer_clear(out);
    buffer_init(&body, REQUEST_BYTES);
    for (unsigned i = 0; i < BATCH; i++)
        item_write(&body, load->next++ % TOPICS);
    bench_post(out, load->server, "/internal/v1/events:batch", "application/x-ndjson",
               buffer_slice(&body));
    buffer_release(&body);
    *request = buffer_slice(out);
    return true;
}

/* Returns events per second. */
static double append(const struct bench_server *server, uint64_t events) {
    static struct load load;
    load.server = server;
    load.left = events / BATCH;
    double seconds = bench_drive(server, CONNECTIONS, &load, next_append);
    return (double)(events / BATCH * BATCH) / seconds;
}

/* ---- with libpq ---- */

static PGconn *connect_to(const struct postgres *postgres) {
    PGconn *connection = PQconnectdb(postgres->url);
    if (PQstatus(connection) != CONNECTION_OK)
        bench_fail("%s", PQerrorMessage(connection));
    return connection;
}

static void check(PGconn *connection, PGresult *result) {
    ExecStatusType answered = PQresultStatus(result);
    if (answered != PGRES_COMMAND_OK && answered != PGRES_TUPLES_OK)
        bench_fail("%s", PQerrorMessage(connection));
    PQclear(result);
}

/* An array of PostgreSQL's binary form. */
static void array_put(struct buffer *array, const void *bytes, uint32_t size) {
    uint32_t length = htonl(bytes ? size : UINT32_MAX);
    if (buffer_append(array, &length, sizeof(length)) != STATUS_OK ||
        (bytes && buffer_append(array, bytes, size) != STATUS_OK))
        bench_fail("out of memory");
}

static void array_begin(struct buffer *array, uint32_t type) {
    const uint32_t header[] = {htonl(1), 0, htonl(type), htonl(BATCH), htonl(1)};
    buffer_clear(array);
    if (buffer_append(array, header, sizeof(header)) != STATUS_OK)
        bench_fail("out of memory");
}

struct bare {
    PGconn *connection;
    uint64_t log_id;
    struct buffer columns[COLUMNS];
    struct buffer text;
    char payload[PAYLOAD_BYTES + 1];
};

/* log_id, entity_ref, seq, cursor, event_id, type, three owners, three hashes, payload. */
static const uint32_t types[COLUMNS] = {OID_BIGINT, OID_BIGINT, OID_BIGINT, OID_UUID, OID_UUID,
                                        OID_TEXT,   OID_TEXT,   OID_TEXT,   OID_TEXT, OID_BYTEA,
                                        OID_BYTEA,  OID_BYTEA,  OID_TEXT};

#define TABLE_COLUMNS                                                                              \
    "(log_id, entity_ref, seq, cursor, event_id, type, owner_user_id, owner_guest_scope, org_id, " \
    "payload_hash, prev_chain_hash, chain_hash, payload, recorded_at, chain_version)"
#define INSERT_ARRAYS                                                                              \
    "INSERT INTO bare.events " TABLE_COLUMNS " SELECT *, 1, 2 FROM unnest($1::bigint[], "          \
    "$2::bigint[], $3::bigint[], $4::uuid[], $5::uuid[], $6::text[], $7::text[], $8::text[], "     \
    "$9::text[], $10::bytea[], $11::bytea[], $12::bytea[], $13::text[])"

static void bare_open(struct bare *bare, const struct postgres *postgres, const char *schema) {
    char sql[256];
    bare->connection = connect_to(postgres);
    snprintf(sql, sizeof(sql),
             "CREATE SCHEMA %s; CREATE TABLE %s.events (LIKE runtime.events INCLUDING ALL)", schema,
             schema);
    check(bare->connection, PQexec(bare->connection, sql));
    if (strcmp(schema, "bare") == 0)
        check(bare->connection, PQprepare(bare->connection, "add", INSERT_ARRAYS, 0, NULL));
    for (size_t i = 0; i < COLUMNS; i++)
        buffer_init(&bare->columns[i], REQUEST_BYTES);
    buffer_init(&bare->text, 4 * REQUEST_BYTES);
    memset(bare->payload, 'x', PAYLOAD_BYTES);
}

static void bare_close(struct bare *bare) {
    for (size_t i = 0; i < COLUMNS; i++)
        buffer_release(&bare->columns[i]);
    buffer_release(&bare->text);
    PQfinish(bare->connection);
}

static void put_row(struct bare *bare) {
    uint64_t id = ++bare->log_id;
    const uint64_t numbers[] = {htobe64(id), htobe64(id % TOPICS + 1), htobe64(id / TOPICS + 1)};
    char hash[32];
    memset(hash, (int)(id & 127), sizeof(hash));
    memcpy(hash, numbers, sizeof(numbers[0]));
    for (size_t i = 0; i < 3; i++)
        array_put(&bare->columns[i], &numbers[i], sizeof(numbers[i]));
    array_put(&bare->columns[3], hash, 16);
    array_put(&bare->columns[4], NULL, 0);
    array_put(&bare->columns[5], "bench.step", 10);
    for (size_t i = 6; i < 9; i++)
        array_put(&bare->columns[i], NULL, 0);
    for (size_t i = 9; i < 12; i++)
        array_put(&bare->columns[i], hash, sizeof(hash));
    array_put(&bare->columns[12], bare->payload, PAYLOAD_BYTES);
}

static double bare_arrays(struct bare *bare, uint64_t events) {
    double begun = bench_seconds();
    for (uint64_t done = 0; done < events; done += BATCH) {
        const char *values[COLUMNS];
        int sizes[COLUMNS], formats[COLUMNS];
        for (size_t i = 0; i < COLUMNS; i++)
            array_begin(&bare->columns[i], types[i]);
        for (unsigned i = 0; i < BATCH; i++)
            put_row(bare);
        for (size_t i = 0; i < COLUMNS; i++) {
            values[i] = bare->columns[i].data;
            sizes[i] = (int)bare->columns[i].size;
            formats[i] = 1;
        }
        check(bare->connection,
              PQexecPrepared(bare->connection, "add", COLUMNS, values, sizes, formats, 1));
    }
    return (double)events / (bench_seconds() - begun);
}

static void text_row(struct bare *bare, bool is_first) {
    uint64_t id = ++bare->log_id;
    unsigned long long number = (unsigned long long)id;
    if (buffer_printf(&bare->text,
                      "%s(%llu,%llu,%llu,'%032llx',NULL,'bench.step',NULL,NULL,NULL,'\\x%064llx',"
                      "'\\x%064llx','\\x%064llx','%s',1,2)",
                      is_first ? "" : ",", number, number % TOPICS + 1, number / TOPICS + 1, number,
                      number, number, number, bare->payload) != STATUS_OK)
        bench_fail("out of memory");
}

static double bare_texts(struct bare *bare, uint64_t events) {
    double begun = bench_seconds();
    for (uint64_t done = 0; done < events; done += BATCH) {
        buffer_clear(&bare->text);
        if (buffer_printf(&bare->text, "INSERT INTO plain.events " TABLE_COLUMNS " VALUES ") !=
            STATUS_OK)
            bench_fail("out of memory");
        for (unsigned i = 0; i < BATCH; i++)
            text_row(bare, i == 0);
        if (buffer_append(&bare->text, "", 1) != STATUS_OK)
            bench_fail("out of memory");
        check(bare->connection, PQexec(bare->connection, bare->text.data));
    }
    return (double)events / (bench_seconds() - begun);
}

/* ---- the figures ---- */

static void compare(const struct postgres *postgres, struct bench_server *shared,
                    struct bench_server *embedded, uint64_t events) {
    static struct bare arrays, texts;
    double rates[4][ROUNDS], medians[4], cpu[ROUNDS];
    bare_open(&arrays, postgres, "bare");
    bare_open(&texts, postgres, "plain");
    /* The topics are made, and the plans. */
    append(shared, 10 * BATCH);
    append(embedded, 10 * BATCH);
    /* Take turns, so that noise on the machine affects all sides. */
    for (int round = 0; round < ROUNDS; round++) {
        double before = bench_cpu_seconds(shared->pid);
        rates[0][round] = append(shared, events);
        cpu[round] = (bench_cpu_seconds(shared->pid) - before) * 1e6 / (double)events;
        rates[1][round] = bare_arrays(&arrays, events);
        rates[2][round] = bare_texts(&texts, events);
        rates[3][round] = append(embedded, events);
    }
    for (int side = 0; side < 4; side++)
        medians[side] = bench_median(rates[side], ROUNDS);
    printf("batches of %d                      events/s  khala on PostgreSQL against it\n", BATCH);
    printf("khala on PostgreSQL               %9.0f  (%.1f us of the server's CPU an event)\n",
           medians[0], bench_median(cpu, ROUNDS));
    printf("bare libpq, arrays                %9.0f  %.2f (target 0.60)\n", medians[1],
           medians[0] / medians[1]);
    printf("bare libpq, INSERT of rows        %9.0f  %.2f\n", medians[2], medians[0] / medians[2]);
    printf("khala on the embedded store       %9.0f  %.2f\n", medians[3], medians[0] / medians[3]);
    bare_close(&arrays);
    bare_close(&texts);
}

int main(int argc, char **argv) {
    static struct bench_server shared, embedded;
    struct postgres postgres;
    (void)argc;
    uint64_t events = bench_option(argv, "--events", 100 * BATCH) / BATCH * BATCH;
    postgres_start(&postgres);
    const struct bench_setting settings[] = {{"DB_URL", postgres.url}, {NULL, NULL}};
    bench_server_start(&embedded);
    shared.settings = settings;
    bench_server_start(&shared);
    compare(&postgres, &shared, &embedded, events);
    bench_server_stop(&shared);
    bench_server_stop(&embedded);
    postgres_stop(&postgres);
    return 0;
}
