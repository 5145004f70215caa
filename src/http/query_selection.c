#include "http/query_selection.h"

#include "base/limits.h"
#include "http/store_read.h"
#include "wire/http1_syntax.h"

/* STATUS_UNKNOWN_PARAMETER: the field is in unknown, which points into text. */
static enum status read_selection(const struct exchange *exchange, struct buffer *text,
                                  struct selection **selection, struct slice *unknown) {
    struct where where;
    uint64_t conflate_ms = 0;
    bool has_where = false;
    enum status status =
        http1_query_find(exchange->request->query, SLICE("where"), text, &has_where);
    if (status == STATUS_OK && has_where)
        status = where_read(buffer_slice(text), &where, unknown);
    if (status == STATUS_OK)
        status = query_number(exchange, SLICE("conflate_ms"), 0, CONFLATE_MS_MAX, &conflate_ms);
    if (status == STATUS_OK)
        status = selection_make(selection, has_where ? &where : NULL, conflate_ms);
    return status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_INVALID_REQUEST : status;
}

bool query_selection(struct exchange *exchange, struct selection **selection) {
    struct slice unknown = {NULL, 0};
    struct buffer text, details;
    const char *message = "where is a JSON object of " WHERE_FIELD_NAMES ", each a text or a list "
                          "of texts, and conflate_ms a number from 0 to 5000.";
    buffer_init(&text, WHERE_JSON_BYTES_MAX);
    buffer_init(&details, 64 + WHERE_JSON_BYTES_MAX);
    *selection = NULL;
    enum status status = read_selection(exchange, &text, selection, &unknown);
    if (status == STATUS_OK && *selection && !selection_suits(exchange->match.parameters[0])) {
        selection_unref(*selection);
        *selection = NULL;
        status = STATUS_INVALID_REQUEST;
        message = SELECTION_MISPLACED;
    }
    if (status == STATUS_UNKNOWN_PARAMETER) {
        buffer_printf(&details, "{\"parameter\":\"%.*s\"}", (int)unknown.size, unknown.data);
        message = "where has no such field; it has " WHERE_FIELD_NAMES ".";
    }
    bool is_told = status == STATUS_INVALID_REQUEST || status == STATUS_UNKNOWN_PARAMETER;
    if (is_told)
        exchange_answer_error(
            exchange, &(struct exchange_error){
                          .status = status, .message = message, .details = buffer_slice(&details)});
    else if (status != STATUS_OK)
        exchange_answer_status(exchange, status);
    buffer_release(&text);
    buffer_release(&details);
    return status == STATUS_OK;
}
