/* bench snapshot: a snapshot to one client, and to many at once: rows read from the database, time,
 * memory. The target is a ratio: many clients cost at most 1.2 times the reads of one. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sha256.h"
#include "harness.h"

#define DOCUMENTS   100000
#define CLIENTS     100
#define TAIL_BYTES  5
#define BUSY_MS     10000
#define RATIO_MAX   1.2
#define TOPIC_PATH  "/v1/topics/runtime.run_summaries/snapshot"
#define STATUS_PATH "/internal/v1/khala/snapshots"

struct client {
    int fd;
    uint64_t bytes;
    char tail[TAIL_BYTES]; /* the last bytes received: a chunked answer ends with an empty chunk */
    bool is_done;
};

struct figures {
    uint64_t rows;
    uint64_t bytes;
    double seconds;
    uint64_t rss_bytes;
};

/* The SQL function sha256: the server sends no document whose hash is not its payload's. */
static void hash(sqlite3_context *context, int count, sqlite3_value **values) {
    uint8_t sum[SHA256_BYTES];
    (void)count;
    sha256(sqlite3_value_text(values[0]), (size_t)sqlite3_value_bytes(values[0]), sum);
    sqlite3_result_blob(context, sum, sizeof(sum), SQLITE_TRANSIENT);
}

/* Writes to the store directly, with refs that the server does not use. The server appends nothing
 * in this benchmark. */
static void fill(const struct bench_server *server, uint64_t documents) {
    char path[128];
    char text[2048];
    char *problem = NULL;
    sqlite3 *database;
    snprintf(path, sizeof(path), "%s/khala.db", server->folder);
    snprintf(text, sizeof(text),
             "BEGIN IMMEDIATE;"
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %llu) "
             "INSERT INTO entities (ref, kind, id, owner_user_id, status, created_at) "
             "SELECT i + 1000000, 0, 'r' || i, 'u' || (i %% 100), 'running', 1 FROM n;"
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %llu) "
             "INSERT INTO run_documents (entity_ref, doc_key, doc_version, payload_hash, "
             "payload) SELECT i + 1000000, 'runtime/run_summary:r' || i, 1, zeroblob(32), "
             "'{\"run_id\":\"r' || i || '\",\"text\":\"' || hex(randomblob(250)) || '\"}' FROM n;"
             "UPDATE run_documents SET payload_hash = sha256(payload) WHERE entity_ref > "
             "1000000;"
             "UPDATE topics SET head_seq = %llu, oldest_seq = %llu WHERE ref = 1;"
             "COMMIT;",
             (unsigned long long)documents, (unsigned long long)documents,
             (unsigned long long)documents, (unsigned long long)documents + 1);
    if (sqlite3_open(path, &database) != SQLITE_OK ||
        sqlite3_busy_timeout(database, BUSY_MS) != SQLITE_OK ||
        sqlite3_create_function(database, "sha256", 1, SQLITE_UTF8, NULL, hash, NULL, NULL) !=
            SQLITE_OK ||
        sqlite3_exec(database, text, NULL, NULL, &problem) != SQLITE_OK)
        bench_fail("cannot fill the store: %s", problem ? problem : sqlite3_errmsg(database));
    sqlite3_close(database);
}

static int ask(const struct bench_server *server, const char *path) {
    char request[512];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(server->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int size = snprintf(request, sizeof(request),
                        "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", path,
                        server->key);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        send(fd, request, (size_t)size, MSG_NOSIGNAL) != size)
        bench_fail("cannot send the request: %s", strerror(errno));
    return fd;
}

static uint64_t rows_read(const struct bench_server *server) {
    static const char name[] = "\"store_rows_read\":";
    char answer[8192];
    size_t size = 0;
    int fd = ask(server, STATUS_PATH);
    for (;;) {
        ssize_t got = recv(fd, answer + size, sizeof(answer) - 1 - size, 0);
        if (got <= 0)
            bench_fail("the answer lacks the number of rows read");
        size += (size_t)got;
        answer[size] = '\0';
        const char *at = strstr(answer, name);
        if (at && strchr(at, '}')) {
            close(fd);
            return strtoull(at + strlen(name), NULL, 10);
        }
    }
}

/* Reads the available bytes and keeps only the last ones. */
static void receive(struct client *client) {
    static char piece[262144];
    for (;;) {
        ssize_t got = recv(client->fd, piece, sizeof(piece), 0);
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0)
            bench_fail("the server broke an answer off after %llu bytes",
                       (unsigned long long)client->bytes);
        if (client->bytes == 0 && (got < 12 || memcmp(piece, "HTTP/1.1 200", 12) != 0))
            bench_fail("answer: %.*s", (int)got, piece);
        client->bytes += (uint64_t)got;
        size_t size = (size_t)got < TAIL_BYTES ? (size_t)got : TAIL_BYTES;
        memmove(client->tail, client->tail + size, TAIL_BYTES - size);
        memcpy(client->tail + TAIL_BYTES - size, piece + (size_t)got - size, size);
        client->is_done = memcmp(client->tail, "0\r\n\r\n", TAIL_BYTES) == 0;
        if (client->is_done)
            return;
    }
}

static void drive(const struct bench_server *server, unsigned count, struct figures *figures) {
    static struct client clients[CLIENTS];
    struct epoll_event events[CLIENTS];
    int epoll = epoll_create1(0);
    unsigned open = count;
    uint64_t rows_before = rows_read(server);
    double begun = bench_seconds();
    for (unsigned i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        clients[i] = (struct client){.fd = ask(server, TOPIC_PATH)};
        fcntl(clients[i].fd, F_SETFL, O_NONBLOCK);
        epoll_ctl(epoll, EPOLL_CTL_ADD, clients[i].fd, &event);
    }
    while (open > 0) {
        int ready = epoll_wait(epoll, events, CLIENTS, 60000);
        if (ready <= 0 || bench_seconds() - begun > BENCH_SECONDS_MAX)
            bench_fail("no answer in time");
        for (int i = 0; i < ready; i++) {
            struct client *client = &clients[events[i].data.u32];
            receive(client);
            if (!client->is_done)
                continue;
            figures->bytes += client->bytes;
            close(client->fd);
            open--;
        }
    }
    close(epoll);
    figures->seconds = bench_seconds() - begun;
    figures->rows = rows_read(server) - rows_before;
    figures->rss_bytes = bench_server_rss_bytes(server);
}

/* Each side has its own server, so that both build a snapshot. */
static struct figures measure(unsigned clients, uint64_t documents) {
    static struct bench_server server;
    struct figures figures = {0};
    bench_server_start(&server);
    fill(&server, documents);
    drive(&server, clients, &figures);
    bench_server_stop(&server);
    printf("%9llu  %7u  %9llu  %9.1f  %7.2f  %8.1f  %7.1f\n", (unsigned long long)documents,
           clients, (unsigned long long)figures.rows, (double)figures.bytes / 1e6, figures.seconds,
           (double)figures.bytes / 1e6 / figures.seconds, (double)figures.rss_bytes / 1048576);
    fflush(stdout);
    return figures;
}

int main(void) {
    const char *text = getenv("KHALA_BENCH_SNAPSHOT_DOCUMENTS");
    uint64_t documents = text ? strtoull(text, NULL, 10) : DOCUMENTS;
    printf("documents  clients  rows read    MB sent  seconds      MB/s  RSS MiB\n");
    struct figures one = measure(1, documents);
    struct figures many = measure(CLIENTS, documents);
    double ratio = (double)many.rows / (double)one.rows;
    printf("database reads, %d clients at once against one: %.3f (at most %.1f)\n", CLIENTS, ratio,
           RATIO_MAX);
    return ratio <= RATIO_MAX ? 0 : 1;
}
