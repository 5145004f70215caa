/* Appends of bare rows to a table of PostgreSQL, by its own protocol: one prepared INSERT of arrays
 * per request. With event ids, the table has a unique index on them. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer.h"

#define OID_TEXT 25
#define OID_UUID 2950

static const char tables[] = "CREATE TABLE plain (id bigserial PRIMARY KEY, payload text NOT NULL);"
                             "CREATE TABLE ids (id bigserial PRIMARY KEY, event_id uuid NOT NULL "
                             "UNIQUE, payload text NOT NULL)";
static const char insert_plain[] = "INSERT INTO plain (payload) SELECT unnest($1::text[])";
static const char insert_ids[] = "INSERT INTO ids (event_id, payload) SELECT * FROM "
                                 "unnest($1::uuid[], $2::text[]) ON CONFLICT DO NOTHING";

static void put_int(struct buffer *out, size_t number) {
    uint32_t bytes = htonl((uint32_t)number);
    peer_put(out, &bytes, sizeof(bytes));
}

static void put_short(struct buffer *out, unsigned number) {
    uint16_t bytes = htons((uint16_t)number);
    peer_put(out, &bytes, sizeof(bytes));
}

/* Begins a message; message_end writes its size. A zero type is that of the first message. */
static size_t message_begin(struct buffer *out, char type) {
    if (type)
        peer_put(out, &type, 1);
    put_int(out, 0);
    return out->size - sizeof(uint32_t);
}

static void message_end(struct buffer *out, size_t at) {
    uint32_t bytes = htonl((uint32_t)(out->size - at));
    memcpy(out->data + at, &bytes, sizeof(bytes));
}

/* Reads complete messages from *offset on. Returns true after "ready for query". */
static bool messages_read(struct slice answer, size_t *offset, uint64_t *rows) {
    while (answer.size - *offset >= 5) {
        uint32_t size;
        const char *message = answer.data + *offset;
        memcpy(&size, message + 1, sizeof(size));
        size = ntohl(size) + 1;
        if (answer.size - *offset < size)
            return false;
        *offset += size;
        if (*message == 'E')
            bench_fail("PostgreSQL: %.*s", (int)size - 5, message + 5);
        if (*message == 'C' && memcmp(message + 5, "INSERT 0 ", 9) == 0)
            *rows += strtoull(message + 14, NULL, 10);
        if (*message == 'Z')
            return true;
    }
    return false;
}

static void send_wait(int fd, struct buffer *out) {
    char piece[4096];
    struct buffer answer;
    size_t offset = 0;
    uint64_t rows = 0;
    buffer_init(&answer, 65536);
    if (send(fd, out->data, out->size, MSG_NOSIGNAL) != (ssize_t)out->size)
        bench_fail("PostgreSQL takes no request");
    while (!messages_read(buffer_slice(&answer), &offset, &rows)) {
        ssize_t got = recv(fd, piece, sizeof(piece), 0);
        if (got <= 0)
            bench_fail("PostgreSQL closed a connection");
        peer_put(&answer, piece, (size_t)got);
    }
    buffer_clear(out);
    buffer_release(&answer);
}

static void prepare(struct buffer *out, const char *name, const char *statement) {
    size_t at = message_begin(out, 'P');
    peer_put(out, name, strlen(name) + 1);
    peer_put(out, statement, strlen(statement) + 1);
    put_short(out, 0);
    message_end(out, at);
}

static void greet(unsigned connection, int fd) {
    static const char user[] = "user\0khala\0database\0postgres\0";
    struct buffer out;
    (void)connection;
    buffer_init(&out, 4096);
    size_t at = message_begin(&out, 0);
    put_int(&out, 3 << 16);
    peer_put(&out, user, sizeof(user));
    message_end(&out, at);
    send_wait(fd, &out);
    prepare(&out, "plain", insert_plain);
    prepare(&out, "ids", insert_ids);
    message_end(&out, message_begin(&out, 'S'));
    send_wait(fd, &out);
    buffer_release(&out);
}

static void start(struct peer_server *server, enum ingest_shape shape) {
    char command[512];
    (void)shape;
    bench_postgres_start(&server->service);
    server->pid = server->service.pid;
    server->port = (uint16_t)strtoul(strrchr(server->service.url, ':') + 1, NULL, 10);
    snprintf(command, sizeof(command), "psql -XqAt -d %s/postgres -c '%s'", server->service.url,
             tables);
    if (system(command) != 0)
        bench_fail("cannot make the tables");
}

static void array_begin(struct buffer *out, unsigned type, unsigned count) {
    put_int(out, 1); /* dimensions */
    put_int(out, 0); /* no NULL */
    put_int(out, type);
    put_int(out, count);
    put_int(out, 1); /* the first index */
}

static void put_ids(struct ingest *ingest, struct buffer *out, unsigned events) {
    size_t at = message_begin(out, 0);
    array_begin(out, OID_UUID, events);
    for (unsigned i = 0; i < events; i++) {
        struct uuid id = ingest_id(ingest);
        put_int(out, sizeof(id.bytes));
        peer_put(out, id.bytes, sizeof(id.bytes));
    }
    uint32_t bytes = htonl((uint32_t)(out->size - at - sizeof(bytes)));
    memcpy(out->data + at, &bytes, sizeof(bytes));
}

static void request(struct ingest *ingest, unsigned connection) {
    struct ingest_conn *conn = &ingest->conns[connection];
    struct buffer *out = &conn->request;
    char event[PEER_EVENT_BYTES];
    bool has_ids = ingest->shape == INGEST_IDS;
    const char *name = has_ids ? "ids" : "plain";
    size_t at = message_begin(out, 'B');
    peer_put(out, "", 1);
    peer_put(out, name, strlen(name) + 1);
    put_short(out, 1);
    put_short(out, 1); /* all in binary */
    put_short(out, has_ids ? 2 : 1);
    if (has_ids)
        put_ids(ingest, out, conn->events);
    put_int(out, 5 * sizeof(uint32_t) + conn->events * (sizeof(uint32_t) + PEER_EVENT_BYTES));
    array_begin(out, OID_TEXT, conn->events);
    for (unsigned i = 0; i < conn->events; i++) {
        peer_event(event, conn->first + i);
        put_int(out, PEER_EVENT_BYTES);
        peer_put(out, event, sizeof(event));
    }
    put_short(out, 0);
    message_end(out, at);
    at = message_begin(out, 'E');
    peer_put(out, "", 1);
    put_int(out, 0);
    message_end(out, at);
    message_end(out, message_begin(out, 'S'));
}

/* The server acknowledges a request as a whole, and names no positions. */
static bool answer(struct ingest *ingest, unsigned connection, struct slice answer) {
    struct ingest_conn *conn = &ingest->conns[connection];
    uint64_t rows = 0;
    bool is_ready = messages_read(answer, &conn->scanned, &rows);
    for (uint64_t i = 0; i < rows; i++)
        ingest_ack(ingest, connection, conn->positions[0] + 1);
    if (is_ready && conn->acked != conn->events)
        bench_fail("PostgreSQL took %u of %u events", conn->acked, conn->events);
    return is_ready;
}

static uint64_t stored(const struct peer_server *server) {
    char command[512], line[256];
    snprintf(command, sizeof(command),
             "psql -XqAt -d %s/postgres -c 'SELECT (SELECT count(*) FROM plain) + (SELECT count(*) "
             "FROM ids)'",
             server->service.url);
    peer_line(command, line);
    return strtoull(line, NULL, 10);
}

static void stop(struct peer_server *server) {
    bench_service_stop(&server->service);
}

const struct peer_ingest ingest_postgres = {
    .shapes = 1U << INGEST_PLAIN | 1U << INGEST_IDS,
    .start = start,
    .greet = greet,
    .request = request,
    .answer = answer,
    .stored = stored,
    .stop = stop,
};
