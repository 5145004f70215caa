#include "http/store_read.h"

#include <assert.h>
#include <stdlib.h>

#include "authority/append_read.h"
#include "base/limits.h"
#include "delivery/access.h"
#include "store/topic_history.h"

#define QUERY_BYTES_MAX 64

static void read_free(void *memory) {
    struct store_read *read = memory;
    if (read->state)
        read->state_free(read->state);
    buffer_release(&read->out);
    arena_release(&read->arena);
    free(read);
}

static void answer_failed(struct store_read *read, enum status status) {
    char details[128];
    if (status != STATUS_STALE_CURSOR) {
        exchange_answer_status(read->exchange, status);
        return;
    }
    const char *reason = reason_code(read->reason);
    int size = snprintf(details, sizeof(details),
                        "{\"full_resync_required\":true,\"reason_codes\":[\"%s\"]}", reason);
    exchange_answer_error(read->exchange,
                          &(struct exchange_error){.status = status,
                                                   .reason_code = reason,
                                                   .details = {details, (size_t)size}});
}

static void answer_json(struct store_read *read) {
    if (read->status == STATUS_OK)
        exchange_answer_json(read->exchange, 200, buffer_slice(&read->out));
    else if (read->status == STATUS_NOT_FOUND && read->entity_kind == ENTITY_TOPIC)
        exchange_answer_error(
            read->exchange,
            &(struct exchange_error){.status = STATUS_NOT_FOUND,
                                     .message = "Nothing was appended to this topic."});
    else
        answer_failed(read, read->status);
}

static void read_answer(struct exchange_call *call) {
    struct store_read *read = container_of(call, struct store_read, call);
    if (call->call.status != STATUS_OK)
        read->status = call->call.status;
    read->answer(read);
}

/* On a thread of the pool. */
static void read_run(struct call *call, struct store_session *store) {
    struct store_read *read = container_of(call, struct store_read, call.call);
    read->runs_again = false;
    read->read(read, store);
    if (read->status == STATUS_OK)
        read->status = buffer_status(&read->out);
    call->has_more = read->runs_again && read->status == STATUS_OK;
}

struct store_read *store_read_new(struct exchange *exchange, enum entity_kind kind,
                                  void (*read)(struct store_read *read,
                                               struct store_session *store)) {
    struct slice id = {NULL, 0};
    enum status status = STATUS_OK;
    struct store_read *made = NULL;
    if (exchange->match.parameter_count > 0) {
        id = exchange->match.parameters[exchange->match.parameter_count - 1];
        if (kind == ENTITY_TOPIC)
            status = address_check(id);
        else if (!append_id_valid(id))
            status = STATUS_INVALID_REQUEST;
    }
    if (status == STATUS_OK) {
        made = calloc(1, sizeof(*made));
        status = made ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    }
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return NULL;
    }
    made->exchange = exchange;
    made->call =
        (struct exchange_call){.call.run = read_run, .exchange = exchange, .answer = read_answer};
    made->read = read;
    made->answer = answer_json;
    made->status = STATUS_OK;
    made->entity_kind = kind;
    made->id = id;
    made->now_ms = clock_wall_ms(&exchange->loop->clock);
    buffer_init(&made->out, STORE_READ_OUT_BYTES_MAX);
    arena_init(&made->arena, STORE_READ_ARENA_BYTES_MAX);
    exchange->work = made;
    exchange->work_free = read_free;
    return made;
}

bool store_read_breaks_off(struct store_read *read) {
    struct exchange *exchange = read->exchange;
    enum status status = read->status;
    if (status == STATUS_OK)
        status = exchange_token_status(exchange);
    if (status == STATUS_OK)
        return false;
    if (exchange_is_answered(exchange))
        exchange_abort(exchange, status);
    else
        answer_failed(read, status);
    return true;
}

/* An empty page is not the end: the principal may read none of the events on it. The answer begins
 * with the first bytes, because until then a client that is gone is noticed soonest. */
static void answer_page(struct store_read *read) {
    struct exchange *exchange = read->exchange;
    if (store_read_breaks_off(read))
        return;
    bool is_last = !read->has_more || exchange_is_head(exchange);
    if (!is_last && read->out.size == 0) {
        store_read_post(read);
        return;
    }
    if (!exchange_is_answered(exchange))
        exchange_begin(exchange, 200, read->content_type);
    if (is_last)
        exchange_end(exchange, buffer_slice(&read->out));
    else if (exchange_send(exchange, buffer_slice(&read->out)))
        store_read_post(read);
}

static void page_sent(struct exchange *exchange) {
    store_read_post(exchange->work);
}

void store_read_post_pages(struct store_read *read, struct slice content_type) {
    static const struct exchange_stream pages = {.sent = page_sent};
    read->content_type = content_type;
    read->answer = answer_page;
    read->exchange->stream = &pages;
    store_read_post(read);
}

void store_read_post(struct store_read *read) {
    exchange_call_store(&read->call);
}

enum status store_read_entity(struct store_read *read, struct store_session *store,
                              struct store_entity *entity) {
    struct slice id = read->id;
    if (read->entity_kind == ENTITY_TOPIC && address_kind(id) != ADDRESS_TOPIC) {
        struct topic_address found;
        enum status status = topic_address_find(store, id, &read->arena, &found);
        if (status != STATUS_OK)
            return status;
        id = found.topic.data ? found.topic : id;
    }
    enum status status = store_load_entity(store, read->entity_kind, id, &read->arena, entity);
    return status == STATUS_NOT_FOUND ? entity_row(read->entity_kind)->not_found : status;
}

enum status store_read_find_cursor(struct store_read *read, struct store_session *store,
                                   struct query_cursor *query, uint64_t *log_id) {
    struct store_state state;
    enum status status = store_read_state(store, &state);
    if (status != STATUS_OK)
        return status;
    bool is_ahead = event_cursor_is_ahead(&query->cursor, &state.cursor);
    if (is_ahead && query->is_since) {
        /* The client continues with a cursor, which must not be ahead. */
        *query = (struct query_cursor){state.log_id > 0, event_cursor_of(&state.cursor), true};
        *log_id = state.log_id;
        return STATUS_OK;
    }
    bool is_lost = false;
    if (!is_ahead)
        status = log_position_find(store, &state.id_mark, &query->cursor, log_id, &is_lost);
    read->reason = is_ahead ? REASON_CURSOR_AHEAD_OF_HEAD : REASON_EPOCH_MISMATCH;
    return is_ahead || (status == STATUS_OK && is_lost) ? STATUS_STALE_CURSOR : status;
}

enum status query_number(const struct exchange *exchange, struct slice name, uint64_t min,
                         uint64_t max, uint64_t *number) {
    struct buffer text;
    bool found;
    buffer_init(&text, QUERY_BYTES_MAX);
    enum status status = http1_query_find(exchange->request->query, name, &text, &found);
    if (status == STATUS_OK && found) {
        struct json_value value;
        const struct json_limits limits = {QUERY_BYTES_MAX, 0};
        uint64_t given;
        /* The form is that of a JSON integer: digits, no sign, no leading zero. */
        if (json_parse(buffer_slice(&text), &limits, &value) == STATUS_OK &&
            value.raw.size == text.size && json_u64(value, max, &given) && given >= min)
            *number = given;
        else
            status = STATUS_INVALID_REQUEST;
    }
    buffer_release(&text);
    return status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_INVALID_REQUEST : status;
}

enum status query_text(const struct exchange *exchange, struct slice name, struct buffer *memory,
                       struct slice *text) {
    bool found = false;
    enum status status = http1_query_find(exchange->request->query, name, memory, &found);
    if (status == STATUS_PAYLOAD_TOO_LARGE)
        return STATUS_INVALID_REQUEST;
    if (status == STATUS_OK && found)
        *text = memory->size > 0 ? buffer_slice(memory) : SLICE("");
    return status;
}
