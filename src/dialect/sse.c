/* A topic as an event stream. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/decimal.h"
#include "base/limits.h"
#include "delivery/session/notices.h"
#include "delivery/session/session.h"
#include "delivery/session/subscriber.h"
#include "dialect/dialects.h"
#include "dialect/event_stream.h"
#include "http/query_cursor.h"
#include "http/query_selection.h"
#include "topic/position.h"
#include "topic/stream_id.h"
#include "wire/json.h"
#include "wire/object_writer.h"
#include "wire/put.h"
#include "wire/sse.h"

#define NO_ID ((struct slice){NULL, 0})

/* ---- forms ---- */

/* Everything besides the text of the frame: the line of the id, members and line ends. */
#define OWN_BYTES_MAX                                                                              \
    (SSE_LINE_BEGIN_BYTES + POSITION_BYTES_MAX + MESSAGE_AFTER_BYTES_MAX + MESSAGE_END_BYTES_MAX + \
     64)

/* The id has the epoch too. Without it, a client would resume in another history after a restore.
 * Messages have the default type. So onmessage gets them, and a kind cannot imitate a notice. */
static enum status put_message(const struct page *page, const struct frame *frame,
                               enum frame_form form, uint64_t after, struct buffer *out) {
    char id[POSITION_BYTES_MAX];
    struct slice text = frame->forms[form];
    enum status status = buffer_reserve(out, OWN_BYTES_MAX + text.size);
    if (status != STATUS_OK)
        return status;
    char *at = out->data + out->size;
    at = sse_put_line_begin(at, position_write(frame->content.seq, page->epoch.text, id));
    *at++ = '{';
    at = message_put_after(at, frame, form, after);
    at = message_put_end(put_slice(at, text), frame, form);
    out->size = (size_t)(PUT_LITERAL(at, SSE_LINE_END) - out->data);
    return STATUS_OK;
}

static enum status encode(const struct page *page, const struct page_form *form, void *user,
                          struct buffer *out) {
    (void)user;
    return event_stream_encode(page, form, put_message, out);
}

static const struct page_form forms[FRAME_FORM_COUNT][2] = {
    [FRAME_FULL] = {{EVENT_STREAM_BYTES_MAX, encode, FRAME_FULL, false},
                    {EVENT_STREAM_BYTES_MAX, encode, FRAME_FULL, true}},
    [FRAME_LEAN] = {{EVENT_STREAM_BYTES_MAX, encode, FRAME_LEAN, false},
                    {EVENT_STREAM_BYTES_MAX, encode, FRAME_LEAN, true}},
};

/* ---- notices ---- */

/* An event, because an EventSource does not see comments. It has no id: it is no position. */
static enum status send_pending(struct subscriber *subscriber, struct buffer *out) {
    const struct subscription *subscription = &subscriber->subscription;
    struct buffer body;
    if (!subscription_is_pending(subscription))
        return STATUS_OK;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("topic"), subscription->topic->name);
    object_text(&object, SLICE("epoch"), slice_of(subscription_epoch(subscription)->text));
    object_json(&object, SLICE("pending"), SLICE("true"));
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = event_stream_send(subscriber->session, out, "pending", buffer_slice(&body));
    buffer_release(&body);
    return status;
}

/* The id is the position before the first frame. Without it, a client that reconnects before the
 * first frame would resume at the stale position, or at the head and miss frames. A snapshot has no
 * id before its last part. */
static enum status send_bootstrap(struct subscriber *subscriber, struct buffer *out) {
    const struct subscription *subscription = &subscriber->subscription;
    const char *epoch = subscription_epoch(subscription)->text;
    char id[POSITION_BYTES_MAX];
    struct slice position = position_write(subscription->start->bootstrap.from_seq - 1, epoch, id);
    struct buffer body;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    buffer_note(&body, send_pending(subscriber, out));
    buffer_append_slice(&body, SLICE("{\"topic\":"));
    json_write_string(&body, subscriber->subscription.topic->name);
    buffer_printf(&body, ",\"epoch\":\"%s\",", epoch);
    size_t begin = body.size;
    notice_bootstrap(subscriber, &body);
    enum status status = buffer_status(&body);
    if (status == STATUS_OK) {
        /* Drops the brace: the members follow the topic. */
        memmove(body.data + begin, body.data + begin + 1, --body.size - begin);
        status = event_stream_send_id(subscriber->session, out, "bootstrap",
                                      subscriber->snapshot ? NO_ID : position, buffer_slice(&body));
    }
    buffer_release(&body);
    return status;
}

/* The last part has the watermark as its id, so that a client that loses its connection then need
 * not read the snapshot again. */
static enum status send_snapshot(struct subscriber *subscriber, struct buffer *out) {
    const struct subscriber_snapshot *snapshot = subscriber->snapshot;
    char id[POSITION_BYTES_MAX];
    struct buffer body;
    struct slice position =
        position_write(snapshot->snapshot->watermark, snapshot->snapshot->epoch.text, id);
    buffer_init(&body, EVENT_STREAM_BYTES_MAX);
    enum status status = subscriber_snapshot_write(snapshot, &body);
    if (status == STATUS_OK)
        status = event_stream_send_id(subscriber->session, out, "snapshot",
                                      subscriber_snapshot_is_last(snapshot) ? position : NO_ID,
                                      buffer_slice(&body));
    buffer_release(&body);
    return status;
}

/* The comment keeps the connection open. The event moves the position of the client past frames
 * that are hidden from it. */
static enum status heartbeat(struct session *session, struct buffer *out) {
    const struct subscriber *subscriber = session_first(session);
    enum status status = event_stream_heartbeat(session, out);
    if (status != STATUS_OK || !subscriber || !subscriber_has_position(subscriber))
        return status;
    uint64_t after = subscriber->subscription.sent_seq;
    uint64_t through = subscriber_position(subscriber);
    if (through == after)
        return status;
    char id[POSITION_BYTES_MAX];
    const struct topic_epoch *epoch = subscription_epoch(&subscriber->subscription);
    struct slice position = position_write(through, epoch->text, id);
    struct buffer body;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    buffer_append_slice(&body, SLICE("{\"topic\":"));
    json_write_string(&body, subscriber->subscription.topic->name);
    buffer_printf(&body, ",\"after\":%" PRIu64 ",\"through\":%" PRIu64 "}", after, through);
    status = buffer_status(&body);
    if (status == STATUS_OK)
        status = event_stream_send_id(session, out, "progress", position, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

/* The notice of a bootstrap says it too, also of one that follows a stale position. */
static void opened(struct session *session, struct session_opening *opening) {
    struct subscriber *subscriber = opening->subscribers[0];
    const struct subscription *subscription = &subscriber->subscription;
    bool resumes = subscription->state == SUBSCRIPTION_OPEN && !subscription->is_bootstrap;
    if (resumes && send_pending(subscriber, &session->replies) != STATUS_OK) {
        outlet_close(session->outlet);
        return;
    }
    event_stream_opened(session, opening);
}

const struct dialect sse_dialect = {
    .label = LABEL_DIALECT_SSE,
    .has_one_topic = true,
    .forms = forms,
    .opened = opened,
    .bootstrap = send_bootstrap,
    .snapshot = send_snapshot,
    .stale = notice_stale,
    .restarts_stale = true,
    .failed = event_stream_failed,
    .reauth = notice_reauth,
    .heartbeat = heartbeat,
    .slow = notice_slow,
    .leaving = event_stream_leaving,
    .state_free = free,
    .names = {.stale = "stale_cursor", .reauth = "reauth_required", .slow = "slow_consumer"},
    .notice_bytes_max = NOTICE_BYTES_MAX,
    .send = event_stream_send,
    .send_last = event_stream_send_last,
};

/* ---- asking ---- */

/* The id of a client that reconnects takes precedence over the position in its first query. */
static enum status read_cursor(struct exchange *exchange, struct subscription_options *options) {
    struct slice last_id;
    struct buffer memory;
    buffer_init(&memory, LAST_EVENT_ID_BYTES_MAX);
    enum status status = query_last_event_id(exchange, &memory, &last_id);
    if (status == STATUS_OK && last_id.size > 0) {
        struct position position = {.seq = 0};
        status = position_read(last_id, &position);
        options->has_cursor = true;
        options->has_since = false;
        options->after_seq = position.seq;
        options->epoch = position.epoch;
        if (status == STATUS_OK)
            status = query_replay(exchange, &options->replay_all);
    } else if (status == STATUS_OK) {
        status = query_topic_cursor(exchange, options);
    }
    buffer_release(&memory);
    return status;
}

void handle_sse(struct exchange *exchange) {
    struct subscription_options options = {.view = exchange->view};
    char topic[STREAM_ID_BYTES_MAX];
    enum frame_form form;
    if (!query_topic_since(exchange, &options))
        return;
    enum status status = read_cursor(exchange, &options);
    if (status == STATUS_OK)
        status = message_query_form(exchange, &form);
    if (status == STATUS_OK)
        status = query_fold(exchange, &options.folds);
    if (status == STATUS_OK && atomic_load(&exchange->http->is_draining))
        status = STATUS_SHUTTING_DOWN;
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return;
    }
    if (!query_selection(exchange, &options.selection))
        return;
    if (exchange_is_head(exchange)) {
        event_stream_answer_head(exchange);
        goto out;
    }
    /* A copy, because the upgrade frees the exchange. */
    struct slice name = {topic, exchange->match.parameters[0].size};
    memcpy(topic, exchange->match.parameters[0].data, name.size);
    struct event_stream *state = malloc(sizeof(*state));
    if (!state) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        goto out;
    }
    struct session *session = event_stream_make(exchange, &sse_dialect, state);
    if (session && session_is_connected(session))
        event_stream_begin(session, name, &options, &forms[form][state->is_chunked]);
out:
    selection_unref(options.selection);
}
