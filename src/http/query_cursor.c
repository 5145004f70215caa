#include "http/query_cursor.h"

#include <stdio.h>

#include "topic/since.h"
#include "wire/http1_syntax.h"

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
        status = event_cursor_read(buffer_slice(&text), exchange->http->options.legacy_cursors,
                                   &query->cursor, &reason);
    buffer_release(&text);
    if (status == STATUS_OK)
        return true;
    if (status == STATUS_INVALID_CURSOR || status == STATUS_PAYLOAD_TOO_LARGE)
        answer_invalid(exchange, name, reason);
    else
        exchange_answer_status(exchange, status);
    return false;
}

static bool refuse_since(struct exchange *exchange, const char *reason) {
    char details[192];
    int size =
        snprintf(details, sizeof(details), "{\"parameter\":\"since\",\"reason\":\"%s\"}", reason);
    exchange_answer_error(exchange, &(struct exchange_error){.status = STATUS_INVALID_REQUEST,
                                                             .message = "since is " SINCE_FORMS
                                                                        ", instead of a position.",
                                                             .details = {details, (size_t)size}});
    return false;
}

/* Whether the query has another position. */
static enum status has_position(const struct exchange *exchange, bool *found) {
    static const char *const names[] = {"after_seq", "from", "after_cursor", "start_cursor"};
    enum status status = STATUS_OK;
    *found = false;
    for (size_t i = 0; status == STATUS_OK && !*found && i < sizeof(names) / sizeof(names[0]);
         i++) {
        struct buffer text;
        buffer_init(&text, QUERY_CURSOR_BYTES_MAX);
        status = http1_query_find(exchange->request->query, slice_of(names[i]), &text, found);
        if (status == STATUS_PAYLOAD_TOO_LARGE) {
            *found = true;
            status = STATUS_OK;
        }
        buffer_release(&text);
    }
    return status;
}

bool query_since(struct exchange *exchange, bool *given, uint64_t *since_ms) {
    char memory[SINCE_BYTES_MAX];
    struct buffer text = buffer_over(memory, sizeof(memory));
    struct since since;
    bool has_other = false;
    enum status status = http1_query_find(exchange->request->query, SLICE("since"), &text, given);
    if (status == STATUS_OK && !*given)
        return true;
    if (status == STATUS_OK)
        status = since_read(buffer_slice(&text), &since);
    if (status == STATUS_INVALID_REQUEST || status == STATUS_PAYLOAD_TOO_LARGE)
        return refuse_since(exchange, "it is not " SINCE_FORMS);
    if (status == STATUS_OK)
        status = has_position(exchange, &has_other);
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return false;
    }
    if (has_other)
        return refuse_since(exchange, "the query has another position");
    *since_ms = since_time_ms(&since, clock_wall_ms(&exchange->loop->clock));
    return true;
}

bool query_topic_since(struct exchange *exchange, struct subscription_options *options) {
    return query_since(exchange, &options->has_since, &options->since_ms);
}

struct query_cursor query_cursor_since(uint64_t since_ms, uint64_t now_ms) {
    struct uuid first = uuid7_first(since_ms < now_ms ? since_ms : now_ms);
    return (struct query_cursor){true, event_cursor_of(&first), true};
}

bool query_after_cursor(struct exchange *exchange, struct query_cursor *query) {
    struct query_cursor alias = {.given = false};
    uint64_t since_ms;
    bool has_since = false;
    *query = alias;
    if (!query_since(exchange, &has_since, &since_ms))
        return false;
    if (has_since) {
        *query = query_cursor_since(since_ms, clock_wall_ms(&exchange->loop->clock));
        return true;
    }
    if (!query_cursor_read(exchange, "after_cursor", query) ||
        !query_cursor_read(exchange, "start_cursor", &alias))
        return false;
    if (query->given && alias.given && event_cursor_compare(&query->cursor, &alias.cursor) != 0) {
        answer_invalid(exchange, "start_cursor", "it differs from after_cursor");
        return false;
    }
    if (alias.given)
        *query = alias;
    return true;
}

bool header_cursor_read(struct exchange *exchange, const char *name, struct slice text,
                        struct query_cursor *query) {
    const char *reason = "";
    query->given = true;
    if (event_cursor_read(text, exchange->http->options.legacy_cursors, &query->cursor, &reason) ==
        STATUS_OK)
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

/* A repeated parameter is two cursors: the client could mean either, and with the wrong one it
 * would miss frames. */
static enum status find_position(const struct exchange *exchange, struct slice name,
                                 struct buffer *text, bool *found) {
    struct slice query = exchange->request->query;
    char memory[QUERY_CURSOR_BYTES_MAX];
    struct buffer seen = buffer_over(memory, sizeof(memory));
    size_t count = 0;
    bool has_next = true;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && has_next) {
        buffer_clear(&seen);
        status = http1_query_next(&query, &seen, &has_next);
        count += status == STATUS_OK && has_next && slice_equal(buffer_slice(&seen), name);
    }
    return count > 1 ? STATUS_BAD_SUBSCRIPTION
                     : http1_query_find(exchange->request->query, name, text, found);
}

enum status query_last_event_id(const struct exchange *exchange, struct buffer *memory,
                                struct slice *id) {
    const struct http1_request *request = exchange->request;
    bool found = false;
    *id = SLICE("");
    for (size_t i = 0; i < request->header_count; i++) {
        struct slice value = request->headers[i].value;
        if (!http1_equal_any_case(request->headers[i].name, SLICE("last-event-id")))
            continue;
        if (id->size > 0 && value.size > 0 && !slice_equal(*id, value))
            return STATUS_BAD_SUBSCRIPTION;
        *id = value.size > 0 ? value : *id;
    }
    if (id->size > 0)
        return STATUS_OK;
    enum status status = find_position(exchange, SLICE("lastEventId"), memory, &found);
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

enum status query_position(const struct exchange *exchange, struct position *position, bool *given,
                           bool *has_epoch) {
    char memory[POSITION_BYTES_MAX];
    struct buffer text = buffer_over(memory, sizeof(memory));
    struct slice query = exchange->request->query;
    struct topic_epoch epoch = {{0}};
    *has_epoch = false;
    *position = (struct position){.seq = 0};
    enum status status = find_position(exchange, SLICE("after_seq"), &text, given);
    if (status == STATUS_OK && *given)
        status = position_read(buffer_slice(&text), position);
    buffer_clear(&text);
    if (status == STATUS_OK)
        status = http1_query_find(query, SLICE("epoch"), &text, has_epoch);
    if (status == STATUS_OK && *has_epoch)
        status = topic_epoch_read(buffer_slice(&text), &epoch);
    if (status == STATUS_PAYLOAD_TOO_LARGE)
        return STATUS_INVALID_CURSOR;
    if (status != STATUS_OK || !*has_epoch)
        return status;
    /* Both forms at once must agree. */
    if (topic_epoch_is_known(&position->epoch) && strcmp(position->epoch.text, epoch.text) != 0)
        return STATUS_INVALID_CURSOR;
    position->epoch = epoch;
    return STATUS_OK;
}

enum status query_replay(struct exchange *exchange, bool *replay_all) {
    char memory[8];
    struct buffer text = buffer_over(memory, sizeof(memory));
    enum status status =
        http1_query_find(exchange->request->query, SLICE("replay"), &text, replay_all);
    if (status != STATUS_OK || !*replay_all)
        return status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_INVALID_REQUEST : status;
    if (!slice_equal(buffer_slice(&text), SLICE("all")))
        return STATUS_INVALID_REQUEST;
    if (!topic_is_from_log(exchange->match.parameters[0]))
        return STATUS_REPLAY_ALL_UNAVAILABLE;
    exchange->scopes_needed = SCOPE_REPLAY_ALL;
    return principal_may_replay_all(exchange->principal) ? STATUS_OK : STATUS_MISSING_SCOPE;
}

enum status query_fold(const struct exchange *exchange, bool *folds) {
    char memory[8];
    struct buffer text = buffer_over(memory, sizeof(memory));
    bool given = false;
    enum status status = http1_query_find(exchange->request->query, SLICE("fold"), &text, &given);
    *folds = status == STATUS_OK && given && slice_equal(buffer_slice(&text), SLICE("true"));
    if (status == STATUS_PAYLOAD_TOO_LARGE ||
        (given && !*folds && !slice_equal(buffer_slice(&text), SLICE("false"))))
        status = STATUS_INVALID_REQUEST;
    return status;
}

enum status query_topic_cursor(struct exchange *exchange, struct subscription_options *options) {
    struct position position;
    enum status status =
        query_position(exchange, &position, &options->has_cursor, &options->keeps_epoch);
    if (status == STATUS_OK)
        status = query_from_head(exchange, &options->from_head);
    if (status == STATUS_OK && options->from_head && options->has_cursor)
        status = STATUS_INVALID_CURSOR;
    if (status == STATUS_OK)
        status = query_replay(exchange, &options->replay_all);
    options->after_seq = position.seq;
    options->epoch = position.epoch;
    return status;
}
