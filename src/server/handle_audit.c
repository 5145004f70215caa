/* GET /api/events: a page of the whole log behind an event cursor. */
#include <stdlib.h>

#include "authority/event_json.h"
#include "server/handlers.h"
#include "server/query_cursor.h"
#include "server/store_read.h"

#define LIMIT_DEFAULT 50
#define LIMIT_MAX     200
/* A page ends behind the event that fills it, whatever the limit allows. */
#define PAGE_BYTES (1u << 20)

struct log_page {
    struct store_read *read;
    struct query_cursor at; /* the last item's, or the one asked for */
    uint64_t count;
};

static enum status page_event(void *user, const struct store_event *event) {
    struct log_page *page = user;
    struct buffer *out = &page->read->out;
    struct event_cursor cursor = event_cursor_of(&event->cursor);
    /* A position in the future: what is appended before that time comes is not behind it. */
    if (page->at.given && event_cursor_compare(&cursor, &page->at.cursor) <= 0)
        return STATUS_OK;
    if (page->count == page->read->limit || out->size >= PAGE_BYTES) {
        page->read->has_more = true;
        return STATUS_LIMIT_REACHED;
    }
    enum status status = page->count > 0 ? buffer_append_byte(out, ',') : STATUS_OK;
    if (status == STATUS_OK)
        status = event_write_json(out, event);
    page->count++;
    page->at = (struct query_cursor){true, cursor};
    return status;
}

static void read_page(struct store_read *read, struct store_session *session) {
    const struct query_cursor *after = read->more;
    struct log_page page = {read, *after, 0};
    uint64_t log_id = 0;
    enum status status = STATUS_OK;
    if (after->given)
        status = store_find_cursor(session, &after->cursor, &log_id);
    if (status == STATUS_OK)
        status = buffer_append_slice(&read->out, SLICE("{\"items\":["));
    if (status == STATUS_OK)
        status = store_walk_log(session, log_id, read->limit + 1, &page, page_event);
    if (status == STATUS_LIMIT_REACHED && read->has_more)
        status = STATUS_OK;
    if (status == STATUS_OK)
        status = buffer_append_slice(&read->out, SLICE("],\"next_cursor\":"));
    if (status == STATUS_OK)
        status = query_cursor_write(&read->out, &page.at);
    if (status == STATUS_OK)
        status =
            buffer_printf(&read->out, ",\"has_more\":%s}\n", read->has_more ? "true" : "false");
    read->status = status;
}

void handle_audit_list(struct exchange *exchange) {
    struct query_cursor after;
    uint64_t limit = LIMIT_DEFAULT;
    enum status status = query_number(exchange, SLICE("limit"), 1, LIMIT_MAX, &limit);
    if (status != STATUS_OK) {
        const char *message =
            status == STATUS_INVALID_REQUEST ? "limit is a whole number from 1 to 200." : NULL;
        exchange_answer_error(exchange,
                              &(struct exchange_error){.status = status, .message = message});
        return;
    }
    if (!query_cursor_read(exchange, "after_cursor", &after))
        return;
    struct store_read *read = store_read_new(exchange, ENTITY_AUDIT, read_page);
    if (!read)
        return;
    read->limit = limit;
    read->more = malloc(sizeof(after));
    read->more_free = free;
    if (!read->more) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    memcpy(read->more, &after, sizeof(after));
    store_read_post(read);
}
