/* A topic as a WebSocket: typed JSON messages, one way. */
#include <inttypes.h>

#include "base/decimal.h"
#include "base/limits.h"
#include "delivery/session/notices.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_jobs.h"
#include "delivery/session/subscriber.h"
#include "dialect/dialects.h"
#include "dialect/websocket.h"
#include "http/query_cursor.h"
#include "http/query_selection.h"
#include "http/store_read.h"
#include "topic/stream_id.h"
#include "wire/json.h"
#include "wire/object_writer.h"
#include "wire/put.h"
#include "wire/websocket/ws_frame.h"

/* ---- forms ---- */

/* The members before the text of the frame. */
#define BEGIN_BYTES_MAX (32 + MESSAGE_AFTER_BYTES_MAX)

/* after: the frames between it and this message are hidden from the subscriber. The ends of the
 * message are written first, so that the header is known before the text. */
static enum status put_message(struct delivery_loop *delivery, const struct page_form *form,
                               const struct frame *frame, uint64_t after, struct buffer *out) {
    struct slice text = frame->forms[form->content];
    char begin[BEGIN_BYTES_MAX], end[MESSAGE_END_BYTES_MAX];
    uint8_t header[WS_HEADER_BYTES_MAX];
    enum frame_form content = (enum frame_form)form->content;
    char *at = PUT_LITERAL(begin, "{\"type\":\"message\",");
    at = message_put_after(at, frame, content, after);
    size_t begin_size = (size_t)(at - begin);
    size_t end_size = (size_t)(message_put_end(end, frame, content) - end);
    size_t size = begin_size + text.size + end_size;
    size_t header_size = form->is_packed ? 0 : ws_frame_header(header, WS_TEXT, false, size);
    size_t message_begin = out->size;
    enum status status = buffer_reserve(out, header_size + size);
    if (status != STATUS_OK)
        return status;
    at = put_bytes(out->data + message_begin, header, header_size);
    at = put_slice(put_bytes(at, begin, begin_size), text);
    out->size = (size_t)(put_bytes(at, end, end_size) - out->data);
    return form->is_packed ? websocket_wrap(delivery, out, message_begin, 0, true) : STATUS_OK;
}

static enum status encode(const struct page *page, const struct page_form *form, void *user,
                          struct buffer *out) {
    uint64_t after = page->batch.after_seq;
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < page->batch.count; i++) {
        const struct frame *frame = page->batch.frames[i];
        status = put_message(user, form, frame, after, out);
        after = frame->content.seq;
    }
    return status;
}

static const struct page_form forms[FRAME_FORM_COUNT][2] = {
    [FRAME_FULL] = {{TOPIC_WS_PUSH_BYTES_MAX, encode, FRAME_FULL, false},
                    {TOPIC_WS_PUSH_BYTES_MAX, encode, FRAME_FULL, true}},
    [FRAME_LEAN] = {{TOPIC_WS_PUSH_BYTES_MAX, encode, FRAME_LEAN, false},
                    {TOPIC_WS_PUSH_BYTES_MAX, encode, FRAME_LEAN, true}},
};

/* ---- notices ---- */

static enum status send_hello(struct subscriber *subscriber, struct buffer *out) {
    const struct subscription *subscription = &subscriber->subscription;
    const struct topic_window *window = &subscription->start->window;
    const struct delivery *shared = subscriber->session->delivery->shared;
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream = buffer_over(text, sizeof(text));
    struct buffer body;
    buffer_init(&body, NOTICE_BYTES_MAX);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("topic"), subscription->topic->name);
    if (address_stream(subscription->topic->name, &stream) == STATUS_OK)
        object_text(&object, SLICE("stream_id"), buffer_slice(&stream));
    if (subscription_is_pending(subscription))
        object_json(&object, SLICE("pending"), SLICE("true"));
    object_text(&object, SLICE("epoch"), slice_of(subscription_epoch(subscription)->text));
    /* After a snapshot the subscription continues from the snapshot's watermark. */
    if (!subscriber->snapshot)
        position_put(&object, SLICE("after_seq"), subscription->next_seq - 1,
                     subscription_given_epoch(subscription));
    object_number(&object, SLICE("oldest_available_cursor"),
                  window->oldest_seq > 0 ? window->oldest_seq - 1 : 0);
    object_number(&object, SLICE("head_cursor"), subscription->head_seq);
    object_number(&object, SLICE("replay_budget_events"), window->replay_budget_events);
    object_number(&object, SLICE("limit_applied"), subscriber->frames_max);
    object_number(&object, SLICE("heartbeat_interval_ms"), shared->options.heartbeat_ms);
    if (subscription->is_bootstrap || subscriber->snapshot) {
        object_json(&object, SLICE("bootstrap"), SLICE(""));
        notice_bootstrap(subscriber, &body);
    }
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = typed_send(subscriber->session, out, "hello", buffer_slice(&body));
    buffer_release(&body);
    return status;
}

/* The error that ends the session, with the position to resume from. */
static enum status send_failed(struct session *session, enum status why, struct buffer *out) {
    enum close_code code = why == STATUS_SHUTTING_DOWN ? CLOSE_RESTARTING : ws_close_code(why);
    return notice_end(session, &(struct notice_ending){.why = why, .code = code}, out);
}

/* Covers the hidden frames since the last message, if there are any. */
static enum status heartbeat(struct session *session, struct buffer *out) {
    const struct subscriber *subscriber = session_first(session);
    uint64_t after = subscriber ? subscriber->subscription.sent_seq : 0;
    char body[64];
    enum status status = STATUS_OK;
    if (subscriber && subscriber_has_position(subscriber) &&
        subscriber_position(subscriber) != after) {
        int size = snprintf(body, sizeof(body), "{\"after\":%" PRIu64 ",\"through\":%" PRIu64 "}",
                            after, subscriber_position(subscriber));
        status = typed_send(session, out, "progress", (struct slice){body, (size_t)size});
    }
    return status == STATUS_OK ? websocket_ping(session, out) : status;
}

/* Clients may not send messages on this socket. */
static enum status receive(struct session *session, struct slice text) {
    (void)text;
    session_log_end(session, STATUS_INVALID_MESSAGE, CLOSE_INVALID_MESSAGE);
    enum status status = send_failed(session, STATUS_INVALID_MESSAGE, &session->replies);
    if (status == STATUS_OK)
        session_close(session);
    return status;
}

/* A bootstrap sends hello at its turn, also one that follows a stale position. The hello of a
 * resume leaves at the turn too, in one piece with the first page. */
static void opened(struct session *session, struct session_opening *opening) {
    struct subscriber *subscriber = opening->subscribers[0];
    const struct subscription *subscription = &subscriber->subscription;
    bool resumes = subscription->state == SUBSCRIPTION_OPEN && !subscription->is_bootstrap;
    if (resumes && send_hello(subscriber, &session->replies) != STATUS_OK) {
        outlet_close(session->outlet);
        return;
    }
    subscriber_start(subscriber);
}

const struct dialect topic_ws_dialect = {
    .label = LABEL_DIALECT_TOPIC_WS,
    .has_one_topic = true,
    .forms = forms,
    .receive = receive,
    .opened = opened,
    .bootstrap = send_hello,
    .snapshot = notice_snapshot,
    .stale = notice_stale,
    .restarts_stale = true,
    .failed = send_failed,
    /* A client with a fresh token must reconnect with it: this socket takes no messages. */
    .reauth = notice_reauth,
    .heartbeat = heartbeat,
    .slow = notice_slow,
    .leaving = notice_leaving,
    .names = {.stale = "stale_cursor",
              .snapshot = "snapshot",
              .reauth = "error",
              .slow = "error",
              .end = "error"},
    .notice_bytes_max = NOTICE_BYTES_MAX,
    .snapshot_bytes_max = TOPIC_WS_PUSH_BYTES_MAX,
    .send = typed_send,
    .send_last = websocket_send_last,
};

/* ---- asking ---- */

/* The query of a topic socket, beside its position. */
struct topic_ws_query {
    uint64_t limit;
    enum frame_form form;
};

static void begin(struct session *session, struct slice topic,
                  const struct subscription_options *options, const struct topic_ws_query *query) {
    struct subscriber *subscriber = NULL;
    enum status status = subscriber_new(session, topic, options, &subscriber);
    if (status == STATUS_OK) {
        subscriber->form = &forms[query->form][websocket_deflates(session)];
        subscriber->frames_max = (uint32_t)query->limit;
        status = session_open_one(session, subscriber);
    }
    if (status != STATUS_OK)
        session_end(session, status);
}

void handle_topic_ws(struct exchange *exchange) {
    struct subscription_options options = {.view = exchange->view};
    char topic[STREAM_ID_BYTES_MAX];
    struct topic_ws_query query = {.limit = DELIVERY_FRAMES_MAX};
    if (!query_topic_since(exchange, &options))
        return;
    enum status status = query_topic_cursor(exchange, &options);
    if (status == STATUS_OK)
        status = query_number(exchange, SLICE("limit"), 1, JSON_INTEGER_MAX, &query.limit);
    if (status == STATUS_OK)
        status = message_query_form(exchange, &query.form);
    if (status == STATUS_OK)
        status = query_fold(exchange, &options.folds);
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return;
    }
    if (!query_selection(exchange, &options.selection))
        return;
    if (query.limit > DELIVERY_FRAMES_MAX)
        query.limit = DELIVERY_FRAMES_MAX;
    /* A copy, because the upgrade frees the exchange. */
    struct slice name = {topic, exchange->match.parameters[0].size};
    memcpy(topic, exchange->match.parameters[0].data, name.size);
    struct session *session =
        websocket_open(exchange, &topic_ws_dialect, exchange->principal, NULL);
    if (session && session_is_connected(session))
        begin(session, name, &options, &query);
    selection_unref(options.selection);
}
