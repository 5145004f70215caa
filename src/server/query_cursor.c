#include "server/query_cursor.h"

#include <stdio.h>

#define CURSOR_BYTES_MAX 256

static void answer_invalid(struct exchange *exchange, const char *name, const char *reason) {
    char details[192];
    int size = snprintf(details, sizeof(details), "{\"parameter\":\"%s\",\"reason\":\"%s\"}", name,
                        reason);
    exchange_answer_error(exchange, &(struct exchange_error){.status = STATUS_TALOS_INVALID_CURSOR,
                                                             .details = {details, (size_t)size}});
}

bool query_cursor_read(struct exchange *exchange, const char *name, struct query_cursor *query) {
    struct buffer text;
    const char *reason = "the cursor is too long";
    buffer_init(&text, CURSOR_BYTES_MAX);
    enum status status =
        http1_query_find(exchange->request->query, slice_of(name), &text, &query->given);
    if (status == STATUS_OK && query->given)
        status = event_cursor_decode_legacy(buffer_slice(&text), &query->cursor, &reason);
    buffer_release(&text);
    if (status == STATUS_OK)
        return true;
    if (status == STATUS_INVALID_CURSOR || status == STATUS_PAYLOAD_TOO_LARGE)
        answer_invalid(exchange, name, reason);
    else
        exchange_answer_status(exchange, status);
    return false;
}

enum status query_cursor_write(struct buffer *out, const struct query_cursor *query) {
    char text[EVENT_CURSOR_SIZE_MAX];
    if (!query->given)
        return buffer_append_slice(out, SLICE("null"));
    size_t size = event_cursor_encode(&query->cursor, text);
    return buffer_printf(out, "\"%.*s\"", (int)size, text);
}
