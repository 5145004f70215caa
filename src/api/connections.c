/* GET /internal/v1/connections and /principals: the connections that are open now, and the
 * principals that have them.
 *
 *   this loop: post ──▶ every loop: rows of its own connections ──▶ this loop: merge, answer
 *
 * No loop waits for another. Each loop gives at most one row more than the page holds: the first
 * rows of all loops together are among the first rows of each. */
#include <assert.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "base/limits.h"
#include "delivery/session/session.h"
#include "delivery/session/subscriber.h"
#include "http/conn_walk.h"
#include "http/store_read.h"
#include "net/transport.h"
#include "wire/object_writer.h"

#define LIMIT_DEFAULT 100

/* A connection, or the connections of a principal. */
struct row {
    uint64_t number;
    uint64_t since_ms;
    uint64_t lag;
    uint64_t topics; /* subscriptions */
    uint64_t connections;
    enum label_dialect dialect;
    size_t name_size; /* 0: no principal */
    size_t peer_size;
    char name[PRINCIPAL_NAME_BYTES_MAX];
    char peer[TRANSPORT_PEER_BYTES_MAX];
    char request_id[REQUEST_ID_BYTES_MAX + 1];
};

/* The rows of one loop, in order. Only that loop writes them. */
struct loop_rows {
    struct row *rows; /* limit + 1 */
    struct row **order;
    size_t count;
};

struct census {
    struct exchange_call call;
    struct conn_walk walk;
    struct buffer after_text;
    struct slice after; /* a principal */
    struct buffer prefix_text;
    struct slice prefix;        /* the beginning of a principal; data NULL: any, or none */
    enum label_dialect dialect; /* LABEL_DIALECT_COUNT: any */
    uint64_t after_number;
    uint64_t limit;
    size_t loop_count;
    void (*write)(struct census *census, struct row **rows, size_t count, struct buffer *out);
    struct loop_rows loops[HTTP_LOOPS_MAX];
};

static void census_free(void *memory) {
    struct census *census = memory;
    for (size_t i = 0; i < census->loop_count; i++) {
        free(census->loops[i].rows);
        free(census->loops[i].order);
    }
    buffer_release(&census->after_text);
    buffer_release(&census->prefix_text);
    free(census);
}

/* ---- on each loop ---- */

static struct slice row_name(const struct row *row) {
    return (struct slice){row->name, row->name_size};
}

static void set_name(struct row *row, const struct conn *conn) {
    const struct exchange *exchange = conn->exchange;
    const struct principal *principal = NULL;
    if (conn->session)
        principal = conn->session->principal;
    else if (exchange)
        principal = exchange->principal;
    row->name_size = principal ? principal_name(principal, row->name) : 0;
}

static void add_subscriptions(struct row *row, const struct conn *conn) {
    const struct session *session = conn->session;
    for (const struct subscriber *one = session ? session_first(session) : NULL; one;
         one = subscriber_next(one)) {
        if (!subscriber_is_started(one))
            continue;
        row->topics++;
        row->lag += subscription_lag(&one->subscription);
    }
}

/* Whether the row passes the filters. */
static bool is_asked(const struct census *census, const struct row *row) {
    return slice_starts(row_name(row), census->prefix) &&
           (census->dialect == LABEL_DIALECT_COUNT || census->dialect == row->dialect);
}

static bool visit_connection(struct conn_walk *walk, struct conn *conn) {
    struct census *census = container_of(walk, struct census, walk);
    struct loop_rows *rows = &census->loops[conn_io(conn)->index];
    if (conn->number <= census->after_number || conn->state == CONN_CLOSED)
        return true;
    if (rows->count > census->limit)
        return false;
    struct row *row = &rows->rows[rows->count];
    *row =
        (struct row){.number = conn->number,
                     .since_ms = conn->since_ms,
                     .dialect = conn->session ? conn->session->dialect->label : LABEL_DIALECT_HTTP};
    set_name(row, conn);
    if (!is_asked(census, row))
        return true;
    add_subscriptions(row, conn);
    struct slice peer = transport_peer(&conn->transport, row->peer);
    assert(peer.size <= sizeof(row->peer));
    memmove(row->peer, peer.data, peer.size);
    row->peer_size = peer.size;
    struct slice id = {NULL, 0};
    char name[SESSION_NAME_BYTES_MAX];
    if (conn->session)
        id = session_name(conn->session, name);
    else if (conn->exchange)
        id = exchange_request_id(conn->exchange);
    if (id.data)
        memcpy(row->request_id, id.data, id.size);
    rows->order[rows->count++] = row;
    return true;
}

static int compare_slices(struct slice a, struct slice b) {
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : a.size < b.size ? -1 : a.size > b.size;
}

static bool visit_principal(struct conn_walk *walk, struct conn *conn) {
    struct census *census = container_of(walk, struct census, walk);
    struct loop_rows *rows = &census->loops[conn_io(conn)->index];
    size_t rows_max = (size_t)census->limit + 1;
    struct row seen = {.connections = 1};
    set_name(&seen, conn);
    if (seen.name_size == 0 || conn->state == CONN_CLOSED || !is_asked(census, &seen) ||
        (census->after.data && compare_slices(row_name(&seen), census->after) <= 0))
        return true;
    add_subscriptions(&seen, conn);
    /* The index of the name among the rows, or where it belongs. */
    size_t at = 0;
    for (size_t high = rows->count; at < high;) {
        size_t middle = at + (high - at) / 2;
        if (compare_slices(row_name(rows->order[middle]), row_name(&seen)) < 0)
            at = middle + 1;
        else
            high = middle;
    }
    if (at < rows->count && slice_equal(row_name(rows->order[at]), row_name(&seen))) {
        rows->order[at]->connections++;
        rows->order[at]->topics += seen.topics;
    } else if (at < rows_max) {
        /* Only the first rows are kept. A name that is dropped is never among them again. */
        struct row *row =
            rows->count < rows_max ? &rows->rows[rows->count++] : rows->order[rows_max - 1];
        memmove(&rows->order[at + 1], &rows->order[at],
                (rows->count - 1 - at) * sizeof(struct row *));
        rows->order[at] = row;
        *row = seen;
    }
    return true;
}

/* ---- the answer ---- */

static int compare_rows(const void *a, const void *b) {
    const struct row *first = *(struct row *const *)a;
    const struct row *second = *(struct row *const *)b;
    if (first->number != second->number)
        return first->number < second->number ? -1 : 1;
    return compare_slices(row_name(first), row_name(second));
}

static void write_end(struct buffer *out, struct slice cursor, bool has_more) {
    buffer_append_slice(out, SLICE("],\"next_cursor\":"));
    if (has_more)
        json_write_string(out, cursor);
    else
        buffer_append_slice(out, SLICE("null"));
    buffer_printf(out, ",\"has_more\":%s}\n", has_more ? "true" : "false");
}

static void write_connections(struct census *census, struct row **rows, size_t count,
                              struct buffer *out) {
    char cursor[24];
    size_t shown = count < census->limit ? count : (size_t)census->limit;
    for (size_t i = 0; i < shown; i++) {
        const struct row *row = rows[i];
        if (i > 0)
            buffer_append_byte(out, ',');
        struct object_writer object = object_begin(out);
        object_number(&object, SLICE("id"), row->number);
        object_text(&object, SLICE("request_id"),
                    row->request_id[0] ? slice_of(row->request_id) : (struct slice){NULL, 0});
        object_text(&object, SLICE("principal"),
                    row->name_size > 0 ? row_name(row) : (struct slice){NULL, 0});
        object_text(&object, SLICE("dialect"), slice_of(label_dialect_name(row->dialect)));
        object_text(&object, SLICE("remote_address"), (struct slice){row->peer, row->peer_size});
        object_number(&object, SLICE("topics"), row->topics);
        object_number(&object, SLICE("lag"), row->lag);
        object_number(&object, SLICE("since"), row->since_ms);
        object_close(&object);
    }
    snprintf(cursor, sizeof(cursor), "%llu",
             (unsigned long long)(shown > 0 ? rows[shown - 1]->number : 0));
    write_end(out, slice_of(cursor), count > shown);
}

/* Rows of one name, from several loops, are neighbours. */
static void write_principals(struct census *census, struct row **rows, size_t count,
                             struct buffer *out) {
    struct slice last = {NULL, 0};
    size_t shown = 0;
    size_t i = 0;
    while (i < count && shown < census->limit) {
        struct row sum = *rows[i++];
        for (; i < count && slice_equal(row_name(rows[i]), row_name(&sum)); i++) {
            sum.connections += rows[i]->connections;
            sum.topics += rows[i]->topics;
        }
        if (shown++ > 0)
            buffer_append_byte(out, ',');
        struct object_writer object = object_begin(out);
        object_text(&object, SLICE("principal"), row_name(&sum));
        object_number(&object, SLICE("connections"), sum.connections);
        object_number(&object, SLICE("subscriptions"), sum.topics);
        object_close(&object);
        last = row_name(rows[i - 1]);
    }
    write_end(out, last, i < count);
}

static void answer(struct exchange_call *call) {
    struct census *census = container_of(call, struct census, call);
    struct buffer out;
    size_t count = 0;
    for (size_t i = 0; i < census->loop_count; i++)
        count += census->loops[i].count;
    struct row **rows = malloc((count + 1) * sizeof(struct row *));
    buffer_init(&out, CENSUS_ANSWER_BYTES_MAX);
    buffer_append_slice(&out, SLICE("{\"items\":["));
    if (rows) {
        size_t filled = 0;
        for (size_t i = 0; i < census->loop_count; i++)
            for (size_t j = 0; j < census->loops[i].count; j++)
                rows[filled++] = census->loops[i].order[j];
        qsort(rows, count, sizeof(struct row *), compare_rows);
        census->write(census, rows, count, &out);
    }
    exchange_answer_text(call->exchange, rows ? call->call.status : STATUS_OUT_OF_MEMORY, &out);
    buffer_release(&out);
    free(rows);
}

/* ---- the request ---- */

static void walk_done(struct conn_walk *walk) {
    call_return_post(&container_of(walk, struct census, walk)->call.call);
}

static struct census *census_new(struct exchange *exchange) {
    struct census *census = calloc(1, sizeof(*census));
    if (!census) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return NULL;
    }
    census->call = (struct exchange_call){.exchange = exchange, .answer = answer};
    census->walk.http = exchange->http;
    census->walk.done = walk_done;
    census->limit = LIMIT_DEFAULT;
    census->dialect = LABEL_DIALECT_COUNT;
    buffer_init(&census->after_text, QUERY_TEXT_BYTES_MAX);
    buffer_init(&census->prefix_text, QUERY_TEXT_BYTES_MAX);
    census->loop_count = exchange->http->loop_count;
    exchange->work = census;
    exchange->work_free = census_free;
    return census;
}

static void begin(struct census *census, enum status status, const char *message) {
    struct exchange *exchange = census->call.exchange;
    if (status == STATUS_OK)
        status = query_number(exchange, SLICE("limit"), 1, LIST_PAGE_ITEMS_MAX, &census->limit);
    if (status == STATUS_OK)
        status = query_text(exchange, SLICE("prefix"), &census->prefix_text, &census->prefix);
    for (size_t i = 0; status == STATUS_OK && i < census->loop_count; i++) {
        struct loop_rows *rows = &census->loops[i];
        rows->rows = malloc(((size_t)census->limit + 1) * sizeof(*rows->rows));
        rows->order = malloc(((size_t)census->limit + 1) * sizeof(struct row *));
        if (!rows->rows || !rows->order)
            status = STATUS_OUT_OF_MEMORY;
    }
    if (status != STATUS_OK) {
        exchange_answer_error(
            exchange,
            &(struct exchange_error){.status = status,
                                     .message = status == STATUS_INVALID_REQUEST ? message : NULL});
        return;
    }
    exchange_call_begin(&census->call);
    conn_walk_post(&census->walk);
}

void handle_connections(struct exchange *exchange) {
    struct census *census = census_new(exchange);
    if (!census)
        return;
    census->walk.visit = visit_connection;
    census->write = write_connections;
    struct buffer memory;
    struct slice name = {NULL, 0};
    int dialect = 0;
    buffer_init(&memory, QUERY_TEXT_BYTES_MAX);
    enum status status =
        query_number(exchange, SLICE("after"), 0, JSON_INTEGER_MAX, &census->after_number);
    if (status == STATUS_OK)
        status = query_text(exchange, SLICE("dialect"), &memory, &name);
    while (status == STATUS_OK && name.data && dialect < LABEL_DIALECT_COUNT &&
           !slice_equal(name, slice_of(label_dialect_name((enum label_dialect)dialect))))
        dialect++;
    if (status == STATUS_OK && name.data) {
        census->dialect = (enum label_dialect)dialect;
        status = dialect < LABEL_DIALECT_COUNT ? STATUS_OK : STATUS_INVALID_REQUEST;
    }
    buffer_release(&memory);
    begin(
        census, status,
        "after is the id of a connection, limit a whole number from 1 to 1000, dialect one of the "
        "server's.");
}

void handle_principals(struct exchange *exchange) {
    struct census *census = census_new(exchange);
    if (!census)
        return;
    census->walk.visit = visit_principal;
    census->write = write_principals;
    enum status status = query_text(exchange, SLICE("after"), &census->after_text, &census->after);
    begin(census, status, "limit is a whole number from 1 to 1000.");
}
