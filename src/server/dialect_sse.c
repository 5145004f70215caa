/* A topic as an event stream. */
#include <inttypes.h>
#include <stdlib.h>

#include "server/dialect.h"
#include "server/handlers.h"
#include "server/link_snapshot.h"
#include "server/notices.h"
#include "server/server.h"
#include "server/store_read.h"
#include "server/topic_reader.h"
#include "topic/topic_name.h"
#include "wire/http1_response.h"
#include "wire/json.h"
#include "wire/sse.h"

#define PIECE_BYTES_MAX   (128u << 20)
#define HEAD_BYTES_MAX    2048
#define LAST_ID_BYTES_MAX 64
#define NO_ID             ((struct slice){NULL, 0})

/* Whether the pieces are chunks: not for HTTP/1.0. */
struct sse_state {
    bool is_chunked;
};

static enum status put_piece(const struct link *link, struct buffer *out, struct slice piece) {
    const struct sse_state *state = link->state;
    return state->is_chunked ? http1_chunk(out, piece) : buffer_append_slice(out, piece);
}

static enum status put_event(const struct link *link, struct buffer *out, const char *name,
                             struct slice id, struct slice data) {
    struct buffer piece;
    buffer_init(&piece, PIECE_BYTES_MAX);
    enum status status =
        sse_event(&piece, &(struct sse_event){.id = id, .event = slice_of(name), .data = data});
    if (status == STATUS_OK)
        status = put_piece(link, out, buffer_slice(&piece));
    buffer_release(&piece);
    return status;
}

/* ---- forms ---- */

/* Of the default type, so that onmessage sees it, and a kind cannot pose as one of our own. The id
 * names the epoch too: without it a client would resume into another history after a restore. */
static enum status put_frame(const struct io_loop *loop, struct frame *frame, struct buffer *out) {
    char id[24 + 1 + STORE_EPOCH_SIZE + 1];
    struct slice text;
    int size = snprintf(id, sizeof(id), "%" PRIu64 "@%s", frame->content.seq, loop->server->epoch);
    enum status status = frame_encoded(frame, &message_form, &text);
    return status == STATUS_OK
               ? sse_event(out, &(struct sse_event){.id = {id, (size_t)size}, .data = text})
               : status;
}

static enum status encode(const struct page *page, const struct io_loop *loop, bool is_chunked,
                          struct buffer *out) {
    struct buffer piece;
    enum status status = STATUS_OK;
    buffer_init(&piece, PIECE_BYTES_MAX);
    for (size_t i = 0; status == STATUS_OK && i < page->batch.count; i++)
        status = put_frame(loop, page->batch.frames[i], is_chunked ? &piece : out);
    /* Of a page without a frame for its reader nothing is sent. */
    if (status == STATUS_OK && piece.size > 0)
        status = http1_chunk(out, buffer_slice(&piece));
    buffer_release(&piece);
    return status;
}

static enum status encode_chunked(const struct page *page, void *tools, struct buffer *out) {
    return encode(page, tools, true, out);
}

static enum status encode_bare(const struct page *page, void *tools, struct buffer *out) {
    return encode(page, tools, false, out);
}

static const struct page_form chunked_form = {PAGE_FORM_SSE, PIECE_BYTES_MAX, encode_chunked};
static const struct page_form bare_form = {PAGE_FORM_SSE_BARE, PIECE_BYTES_MAX, encode_bare};

/* ---- notices ---- */

static enum status tell_bootstrap(struct link_reader *reader, struct buffer *out) {
    struct buffer body;
    buffer_init(&body, 4096);
    enum status status = buffer_append_slice(&body, SLICE("{\"topic\":"));
    if (status == STATUS_OK)
        status = json_write_string(&body, reader->subscription.options.topic);
    if (status == STATUS_OK)
        status = buffer_printf(&body, ",\"epoch\":\"%s\",", reader->link->server->epoch);
    size_t begin = body.size;
    if (status == STATUS_OK)
        status = notice_bootstrap(reader, &body);
    /* The members stand beside the topic. */
    if (status == STATUS_OK)
        memmove(body.data + begin, body.data + begin + 1, --body.size - begin);
    if (status == STATUS_OK)
        status = put_event(reader->link, out, "bootstrap", NO_ID, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

/* The last part names the position it stands for, so that a client that lost its connection then
 * need not begin again. */
static enum status tell_snapshot(struct link_reader *reader, struct buffer *out) {
    const struct link_snapshot *snapshot = reader->snapshot;
    char id[24 + 1 + STORE_EPOCH_SIZE + 1];
    struct buffer body;
    int size = snprintf(id, sizeof(id), "%" PRIu64 "@%s", snapshot->snapshot->watermark,
                        snapshot->snapshot->epoch);
    struct slice position = {id, (size_t)size};
    buffer_init(&body, PIECE_BYTES_MAX);
    enum status status = link_snapshot_write(snapshot, &body);
    if (status == STATUS_OK)
        status = put_event(reader->link, out, "snapshot",
                           link_snapshot_is_last(snapshot) ? position : NO_ID, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status tell_stale(struct link_reader *reader, struct buffer *out) {
    struct buffer body;
    buffer_init(&body, 65536);
    enum status status = notice_stale(reader, &body);
    if (status == STATUS_OK)
        status = put_event(reader->link, out, "stale_cursor", NO_ID, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status heartbeat(struct link *link, struct buffer *out) {
    struct buffer piece;
    buffer_init(&piece, 64);
    enum status status = sse_comment(&piece, SLICE(" heartbeat"));
    if (status == STATUS_OK)
        status = put_piece(link, out, buffer_slice(&piece));
    buffer_release(&piece);
    return status;
}

static enum status end(struct link *link, struct buffer *out) {
    const struct sse_state *state = link->state;
    return state->is_chunked ? http1_chunk_end(out) : STATUS_OK;
}

static enum status tell_slow(struct link *link, struct buffer *out) {
    struct buffer body;
    buffer_init(&body, 65536);
    enum status status = notice_slow(link, &body);
    if (status == STATUS_OK)
        status = put_event(link, out, "slow_consumer", NO_ID, buffer_slice(&body));
    if (status == STATUS_OK)
        status = end(link, out);
    buffer_release(&body);
    return status;
}

/* Clients come back by themselves, from their last id. */
static enum status tell_leaving(struct link *link, uint64_t retry_after_ms, struct buffer *out) {
    struct buffer piece;
    buffer_init(&piece, 64);
    enum status status = sse_retry(&piece, retry_after_ms);
    if (status == STATUS_OK)
        status = put_piece(link, out, buffer_slice(&piece));
    if (status == STATUS_OK)
        status = end(link, out);
    buffer_release(&piece);
    return status;
}

/* Without the end of the chunks, so that nobody takes it for a whole one. */
static enum status tell_failed(struct link *link, enum status failed, struct buffer *out) {
    char body[96];
    int size = snprintf(body, sizeof(body), "{\"code\":\"%s\"}", status_code(failed));
    return put_event(link, out, "error", NO_ID, (struct slice){body, (size_t)size});
}

/* What the look found, stale or failed, is told when its turn comes. */
static void opened(struct link *link, struct link_opening *opening) {
    (void)link;
    link_reader_start(opening->readers[0]);
}

static const struct dialect sse_dialect = {
    .name = "sse",
    .opened = opened,
    .bootstrap = tell_bootstrap,
    .snapshot = tell_snapshot,
    .stale = tell_stale,
    .restarts_stale = true,
    .failed = tell_failed,
    .heartbeat = heartbeat,
    .slow = tell_slow,
    .leaving = tell_leaving,
    .state_free = free,
};

/* ---- asking ---- */

static bool number_read(struct slice text, uint64_t *number) {
    const struct json_limits limits = {LAST_ID_BYTES_MAX, 0};
    struct json_value value;
    return json_parse(text, &limits, &value) == STATUS_OK && value.raw.size == text.size &&
           json_u64(value, JSON_INTEGER_MAX, number);
}

/* "seq@epoch", as the stream's ids are; or a bare seq. */
static enum status id_read(struct slice id, const char *epoch,
                           struct subscription_options *options) {
    const char *at = memchr(id.data, '@', id.size);
    struct slice seq = {id.data, at ? (size_t)(at - id.data) : id.size};
    options->has_cursor = true;
    if (at)
        options->epoch_differs = !slice_equal(slice_from(id, seq.size + 1), slice_of(epoch));
    return number_read(seq, &options->after_seq) ? STATUS_OK : STATUS_INVALID_CURSOR;
}

/* The header of a client that reconnects wins over the query it first came with. */
static enum status read_cursor(const struct exchange *exchange,
                               struct subscription_options *options) {
    struct slice last_id;
    uint64_t absent = UINT64_MAX;
    const char *epoch = exchange->server->epoch;
    options->after_seq = absent;
    if (http1_header_find(exchange->request, SLICE("last-event-id"), &last_id) && last_id.size > 0)
        return id_read(last_id, epoch, options);
    enum status status =
        query_number(exchange, SLICE("after_seq"), 0, JSON_INTEGER_MAX, &options->after_seq);
    options->has_cursor = options->after_seq != absent;
    if (status == STATUS_OK)
        status = query_epoch(exchange, &options->epoch_differs);
    return status == STATUS_INVALID_REQUEST ? STATUS_INVALID_CURSOR : status;
}

static enum status write_head(struct exchange *exchange, bool is_chunked, struct buffer *head) {
    static const struct http1_header headers[] = {
        {SLICE("Content-Type"), SLICE("text/event-stream")},
        {SLICE("Cache-Control"), SLICE("no-cache, no-transform")},
        {SLICE("X-Accel-Buffering"), SLICE("no")}, /* proxies hold streams back otherwise */
    };
    struct buffer piece;
    enum status status = http1_response_begin(head, 200, false);
    for (size_t i = 0; status == STATUS_OK && i < sizeof(headers) / sizeof(headers[0]); i++)
        status = http1_response_header(head, headers[i].name, headers[i].value);
    if (status == STATUS_OK)
        status = is_chunked ? http1_response_end_chunked(head) : http1_response_end_bare(head);
    buffer_init(&piece, 64);
    if (status == STATUS_OK)
        status = sse_retry(&piece, topic_reader_backoff_ms(exchange));
    if (status == STATUS_OK)
        status = is_chunked ? http1_chunk(head, buffer_slice(&piece))
                            : buffer_append_slice(head, buffer_slice(&piece));
    buffer_release(&piece);
    return status;
}

/* The exchange becomes a link; false: it has been answered. */
static struct link *make_link(struct exchange *exchange) {
    struct sse_state *state = malloc(sizeof(*state));
    struct link *link = NULL;
    struct buffer head;
    buffer_init(&head, HEAD_BYTES_MAX);
    enum status status = state ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    if (status == STATUS_OK) {
        state->is_chunked = exchange->request->version_minor > 0;
        status = write_head(exchange, state->is_chunked, &head);
    }
    if (status == STATUS_OK) {
        link = link_make(exchange, &(struct link_options){&sse_dialect, exchange->principal, state,
                                                          buffer_slice(&head)});
    } else {
        free(state);
        exchange_answer_status(exchange, status);
    }
    buffer_release(&head);
    return link;
}

static void begin(struct link *link, struct slice topic,
                  const struct subscription_options *options) {
    const struct sse_state *state = link->state;
    struct link_opening *opening = malloc(sizeof(*opening) + sizeof(struct link_reader *));
    struct link_reader *reader = NULL;
    enum status status =
        opening ? link_reader_make(link, topic, options, &reader) : STATUS_OUT_OF_MEMORY;
    if (status != STATUS_OK) {
        free(opening);
        link_close(link);
        return;
    }
    reader->form = state->is_chunked ? &chunked_form : &bare_form;
    opening->count = 1;
    opening->readers[0] = reader;
    link_open(link, opening);
    link_flush(link);
}

static void answer_head(struct exchange *exchange) {
    static const struct exchange_stream no_stream = {0};
    exchange->stream = &no_stream;
    exchange_begin(exchange, 200, SLICE("text/event-stream"));
    exchange_end(exchange, (struct slice){NULL, 0});
}

void handle_sse(struct exchange *exchange) {
    struct subscription_options options = {0};
    char topic[TOPIC_NAME_BYTES_MAX];
    enum status status = topic_name_check(exchange->parameters[0]);
    if (status == STATUS_OK)
        status = read_cursor(exchange, &options);
    if (status == STATUS_OK && atomic_load(&exchange->server->draining))
        status = STATUS_SHUTTING_DOWN;
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return;
    }
    if (exchange_is_head(exchange)) {
        answer_head(exchange);
        return;
    }
    /* The exchange's own goes with it. */
    struct slice name = {topic, exchange->parameters[0].size};
    memcpy(topic, exchange->parameters[0].data, name.size);
    struct link *link = make_link(exchange);
    if (link && link->conn)
        begin(link, name, &options);
}
