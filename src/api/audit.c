/* GET /api/events: a page of the log after an event cursor, with the events the principal may read.
 *
 * One request reads a bounded number of events, in slices of STORE_TASK_ROWS. A principal that owns
 * few of them gets a short page, even an empty one, with has_more and a cursor after the last event
 * that was read. */
#include <stdlib.h>

#include "api/handlers.h"
#include "authority/event_write.h"
#include "base/limits.h"
#include "delivery/access.h"
#include "http/query_cursor.h"
#include "http/store_read.h"

#define LIMIT_DEFAULT 50

struct log_page {
    struct store_read *read;
    struct viewer *viewer; /* set during a slice */
    bool has_started;
    struct query_cursor after;
    struct query_cursor at; /* the next page starts here */
    uint64_t log_id;        /* the last event read */
    uint64_t count;
    uint64_t events_read;
};

/* A page may end only after its starting cursor, or the client would request it for ever. */
static bool has_advanced(const struct log_page *page) {
    return page->at.given &&
           (!page->after.given || event_cursor_compare(&page->at.cursor, &page->after.cursor) > 0);
}

static enum status page_event(void *user, const struct store_event *event) {
    struct log_page *page = user;
    struct buffer *out = &page->read->out;
    bool may_read;
    struct event_cursor cursor = event_cursor_of(&event->cursor);
    /* A cursor may be in the future. Events that are appended before that time are not after it. */
    page->log_id = event->log_id;
    if (page->after.given && event_cursor_compare(&cursor, &page->after.cursor) <= 0)
        return STATUS_OK;
    enum status status = viewer_check(page->viewer, event->entity_ref, event, &may_read);
    if (status != STATUS_OK)
        return status;
    bool is_full = page->count == page->read->limit || out->size >= AUDIT_PAGE_BYTES;
    if ((may_read && is_full) ||
        (page->events_read++ >= AUDIT_PAGE_READS_MAX && has_advanced(page))) {
        page->read->has_more = true;
        return STATUS_LIMIT_REACHED;
    }
    if (may_read) {
        page->at = (struct query_cursor){.given = true, .cursor = cursor};
        if (page->count++ > 0)
            buffer_append_byte(out, ',');
        return buffer_note(out, event_write_json(out, event));
    }
    /* The cursor moves past an event of another owner by the event's millisecond. The id of that
     * event belongs to its owner. */
    struct uuid first = uuid7_first(cursor.timestamp_ms);
    cursor = event_cursor_of(&first);
    if (!page->at.given || event_cursor_compare(&cursor, &page->at.cursor) > 0)
        page->at = (struct query_cursor){.given = true, .cursor = cursor};
    return STATUS_OK;
}

/* One slice. The walk ends before its limit at the end of the log or of the page. */
static void read_page(struct store_read *read, struct store_session *store) {
    struct log_page *page = read->state;
    struct viewer viewer;
    enum status status = STATUS_OK;
    if (!page->has_started) {
        if (page->after.given)
            status = store_read_find_cursor(read, store, &page->after, &page->log_id);
        page->at = page->after;
        page->has_started = true;
        buffer_append_slice(&read->out, SLICE("{\"items\":["));
    }
    uint64_t until_log_id = page->log_id + STORE_TASK_ROWS;
    viewer_init(&viewer, store, read->exchange->principal, read->exchange->view);
    page->viewer = &viewer;
    if (status == STATUS_OK)
        status = store_walk_log(store, page->log_id, STORE_TASK_ROWS, page, page_event);
    if (status == STATUS_LIMIT_REACHED && read->has_more)
        status = STATUS_OK;
    viewer_release(&viewer);
    page->viewer = NULL;
    read->status = status;
    read->runs_again = !read->has_more && page->log_id >= until_log_id;
    if (read->runs_again)
        return;
    buffer_append_slice(&read->out, SLICE("],\"next_cursor\":"));
    query_cursor_write(&read->out, &page->at);
    buffer_printf(&read->out, ",\"has_more\":%s}\n", read->has_more ? "true" : "false");
}

void handle_audit_list(struct exchange *exchange) {
    struct query_cursor after;
    uint64_t limit = LIMIT_DEFAULT;
    enum status status = query_number(exchange, SLICE("limit"), 1, AUDIT_PAGE_EVENTS_MAX, &limit);
    if (status != STATUS_OK) {
        const char *message =
            status == STATUS_INVALID_REQUEST ? "limit is a whole number from 1 to 200." : NULL;
        exchange_answer_error(exchange,
                              &(struct exchange_error){.status = status, .message = message});
        return;
    }
    if (!query_after_cursor(exchange, &after))
        return;
    struct store_read *read = store_read_new(exchange, ENTITY_AUDIT, read_page);
    if (!read)
        return;
    struct log_page *page = calloc(1, sizeof(*page));
    if (!page) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    page->read = read;
    page->after = after;
    read->state = page;
    read->state_free = free;
    read->limit = limit;
    store_read_post(read);
}
