#include "http/query_cursor.h"

#include <stdio.h>

#include "http/store_read.h"
#include "wire/json.h"

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
    buffer_init(&text, QUERY_CURSOR_BYTES_MAX);
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

bool header_cursor_read(struct exchange *exchange, const char *name, struct slice text,
                        struct query_cursor *query) {
    const char *reason = "";
    query->given = true;
    if (event_cursor_decode_legacy(text, &query->cursor, &reason) == STATUS_OK)
        return true;
    answer_invalid(exchange, name, reason);
    return false;
}

enum status query_cursor_write(struct buffer *out, const struct query_cursor *query) {
    char text[EVENT_CURSOR_SIZE_MAX];
    if (!query->given)
        return buffer_append_slice(out, SLICE("null"));
    size_t size = event_cursor_encode(&query->cursor, text);
    return buffer_printf(out, "\"%.*s\"", (int)size, text);
}

enum status query_last_event_id(const struct exchange *exchange, struct buffer *memory,
                                struct slice *id) {
    bool found = false;
    *id = SLICE("");
    if (http1_header_find(exchange->request, SLICE("last-event-id"), id) && id->size > 0)
        return STATUS_OK;
    enum status status =
        http1_query_find(exchange->request->query, SLICE("lastEventId"), memory, &found);
    if (status == STATUS_OK && found && memory->size > 0)
        *id = buffer_slice(memory);
    return status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_INVALID_CURSOR : status;
}

enum status query_from_head(const struct exchange *exchange, bool *from_head) {
    struct buffer text;
    bool given = false;
    buffer_init(&text, QUERY_CURSOR_BYTES_MAX);
    enum status status = http1_query_find(exchange->request->query, SLICE("from"), &text, &given);
    *from_head = status == STATUS_OK && given;
    if (*from_head && !slice_equal(buffer_slice(&text), SLICE("head")))
        status = STATUS_INVALID_CURSOR;
    buffer_release(&text);
    return status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_INVALID_CURSOR : status;
}

enum status query_topic_cursor(const struct exchange *exchange,
                               struct subscription_options *options) {
    uint64_t absent = UINT64_MAX;
    options->after_seq = absent;
    enum status status =
        query_number(exchange, SLICE("after_seq"), 0, JSON_INTEGER_MAX, &options->after_seq);
    options->has_cursor = options->after_seq != absent;
    if (status == STATUS_OK)
        status = query_epoch(exchange, &options->epoch_differs);
    if (status == STATUS_OK)
        status = query_from_head(exchange, &options->from_head);
    if (status == STATUS_OK && options->from_head && options->has_cursor)
        status = STATUS_INVALID_CURSOR;
    return status == STATUS_INVALID_REQUEST ? STATUS_INVALID_CURSOR : status;
}
