/* GET /api/events/export: the log between two event cursors as a file, with a manifest at its end.
 *
 *   store pool: page ──▶ hash ──▶ loop: send ──sent──▶ store pool: next page … ──▶ manifest
 *
 * One page is in memory at a time, and the next one is read when it is written. So a slow client
 * costs one page. A page may be empty, if the principal may read none of its events. Events that
 * are appended after the export started are not part of it. Otherwise the export of a log that
 * grows fast would never end. */
#include <stdlib.h>

#include "api/handlers.h"
#include "authority/event_write.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "delivery/access.h"
#include "http/query_cursor.h"
#include "http/store_read.h"

enum export_format { EXPORT_NDJSON, EXPORT_CSV };

struct export_work {
    enum export_format format;
    struct query_cursor after;
    struct query_cursor until;
    bool has_started;
    uint64_t log_id;       /* the last event read */
    uint64_t until_log_id; /* the last event wanted */
    bool has_fork;
    uint64_t fork_log_id;
    struct viewer *viewer;
    uint64_t count;
    uint64_t bytes; /* hashed */
    struct query_cursor first;
    struct query_cursor last;
    struct sha256 hash;
};

static void export_free(void *memory) {
    struct export_work *work = memory;
    sha256_release(&work->hash);
    free(work);
}

static enum status export_event(void *user, const struct store_event *event) {
    struct store_read *read = user;
    struct export_work *work = read->state;
    bool may_read;
    if (event->log_id > work->until_log_id || read->out.size >= EXPORT_PAGE_BYTES)
        return STATUS_LIMIT_REACHED;
    enum status status = viewer_check(work->viewer, event->entity_ref, event, &may_read);
    if (status != STATUS_OK)
        return status;
    work->log_id = event->log_id;
    if (!may_read)
        return STATUS_OK;
    work->last = (struct query_cursor){.given = true, .cursor = event_cursor_of(&event->cursor)};
    if (work->count++ == 0)
        work->first = work->last;
    if (work->format == EXPORT_CSV)
        return buffer_note(&read->out, event_write_csv(&read->out, event));
    buffer_note(&read->out, event_write_json(&read->out, event));
    return buffer_append_byte(&read->out, '\n');
}

static enum status export_begin(struct store_read *read, struct store_session *store) {
    struct export_work *work = read->state;
    struct store_state state;
    enum status status = store_read_state(store, &state);
    if (status != STATUS_OK)
        return status;
    work->until_log_id = state.log_id;
    work->has_fork = state.has_fork;
    work->fork_log_id = state.fork_log_id;
    if (work->after.given)
        status = store_read_find_cursor(read, store, &work->after, &work->log_id);
    if (status == STATUS_OK && work->until.given) {
        uint64_t log_id;
        status = store_find_cursor(store, &work->until.cursor, &log_id);
        if (status == STATUS_OK && log_id < work->until_log_id)
            work->until_log_id = log_id;
    }
    if (work->format == EXPORT_CSV)
        buffer_append_slice(&read->out, SLICE(EVENT_CSV_HEADER));
    work->has_started = true;
    return status;
}

/* The last line: what the file must contain to be whole. */
static void write_manifest(struct export_work *work, struct buffer *out) {
    bool csv = work->format == EXPORT_CSV;
    uint8_t digest[SHA256_BYTES];
    sha256_final(&work->hash, digest);
    buffer_printf(out, "%s{\"format\":\"%s\",\"count\":%llu,\"first_cursor\":",
                  csv ? "#manifest," : "{\"manifest\":", csv ? "csv" : "ndjson",
                  (unsigned long long)work->count);
    query_cursor_write(out, &work->first);
    buffer_append_slice(out, SLICE(",\"last_cursor\":"));
    query_cursor_write(out, &work->last);
    /* A fork point behind the last event says nothing: an import parts from this log there. */
    if (work->has_fork && work->fork_log_id < work->until_log_id)
        buffer_printf(out, ",\"fork_log_id\":%llu", (unsigned long long)work->fork_log_id);
    buffer_printf(out, ",\"bytes\":%llu,\"sha256\":\"", (unsigned long long)work->bytes);
    buffer_append_hex(out, digest, sizeof(digest));
    buffer_append_slice(out, csv ? SLICE("\"}\r\n") : SLICE("\"}}\n"));
}

/* Reads one page. */
static void read_export(struct store_read *read, struct store_session *store) {
    struct export_work *work = read->state;
    struct viewer viewer;
    enum status status = STATUS_OK;
    buffer_clear(&read->out);
    viewer_init(&viewer, store, read->exchange->principal, read->exchange->view);
    work->viewer = &viewer;
    if (!work->has_started)
        status = export_begin(read, store);
    uint64_t before = work->log_id;
    if (status == STATUS_OK && work->log_id < work->until_log_id)
        status = store_walk_log(store, work->log_id, EXPORT_PAGE_EVENTS_MAX, read, export_event);
    if (status == STATUS_LIMIT_REACHED)
        status = STATUS_OK;
    read->has_more = work->log_id < work->until_log_id;
    /* A gap in the log must not become an endless loop here. */
    if (status == STATUS_OK && read->has_more && work->log_id == before)
        status = STATUS_INTERNAL_ERROR;
    sha256_update(&work->hash, read->out.data, read->out.size);
    work->bytes += read->out.size;
    if (status == STATUS_OK && !read->has_more)
        write_manifest(work, &read->out);
    viewer_release(&viewer);
    work->viewer = NULL;
    read->status = status;
}

static enum status query_format(const struct exchange *exchange, enum export_format *format) {
    struct buffer text;
    bool found;
    buffer_init(&text, 16);
    enum status status = http1_query_find(exchange->request->query, SLICE("format"), &text, &found);
    *format = EXPORT_NDJSON;
    if (status == STATUS_OK && found) {
        if (slice_equal(buffer_slice(&text), SLICE("csv")))
            *format = EXPORT_CSV;
        else if (!slice_equal(buffer_slice(&text), SLICE("ndjson")))
            status = STATUS_INVALID_REQUEST;
    }
    buffer_release(&text);
    return status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_INVALID_REQUEST : status;
}

void handle_audit_export(struct exchange *exchange) {
    struct export_work asked = {.has_started = false};
    enum status status = query_format(exchange, &asked.format);
    if (status != STATUS_OK) {
        const char *message = status == STATUS_INVALID_REQUEST ? "format is ndjson or csv." : NULL;
        exchange_answer_error(exchange,
                              &(struct exchange_error){.status = status, .message = message});
        return;
    }
    if (!query_after_cursor(exchange, &asked.after) ||
        !query_cursor_read(exchange, "until_cursor", &asked.until))
        return;
    struct store_read *read = store_read_new(exchange, ENTITY_AUDIT, read_export);
    if (!read)
        return;
    struct export_work *work = malloc(sizeof(*work));
    if (!work) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    *work = asked;
    sha256_init(&work->hash);
    read->state = work;
    read->state_free = export_free;
    store_read_post_pages(read, work->format == EXPORT_CSV
                                    ? SLICE("text/csv; charset=utf-8; header=present")
                                    : SLICE("application/x-ndjson"));
}
