/* Bytes of the peer go through the decoder, which calls back for each message. A message is passed
 * to the dialect at once, or waits while a lookup is under way or replies are not read; while one
 * waits, reading pauses. Messages and control frames cost credit that grows with time; a peer
 * without credit has its messages refused, and loses the connection after many. */
#include "dialect/websocket.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/list.h"
#include "base/metrics.h"
#include "delivery/session/notices.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_events.h"
#include "delivery/session/session_jobs.h"
#include "dialect/dialects.h"
#include "wire/http1.h"
#include "wire/websocket/ws_frame.h"
#include "wire/websocket/ws_handshake.h"

#define DEFLATE_LEVEL 1
/* Smaller texts are not compressed: the overhead costs more than compression saves. */
#define DEFLATE_BYTES_MIN 128
/* The same for a reply, which is compressed for one peer only: that takes the loop some 30 us. */
#define DEFLATE_REPLY_BYTES_MIN 1024
/* The most credit of a peer. A peer that reaches it has its refused messages forgiven. */
#define CREDIT_US_MAX 2000000u
/* Of a ping or a pong, whatever the rate of messages: the pongs to fast heartbeats are no flood. */
#define CONTROL_COST_US 10000
#define FLOODED_MAX     1000
#define WEIGHT_BYTES    4096

struct websocket {
    struct framing framing;
    struct ws_decoder decoder;
    struct buffer *waiting; /* messages that the dialect has not handled yet, each after its size;
                             * NULL: none */
    uint64_t credited_at_ms;
    uint32_t credit_us; /* each message costs its share of a second */
    uint16_t flooded;   /* the weight of the messages that were refused, at most FLOODED_MAX */
    /* Bits, because every idle connection has this struct. */
    bool deflate : 1;
    unsigned server_window_bits : 4;
    bool is_paused : 1; /* nothing is read from the peer */
    bool peer_closed : 1;
};

static void received(struct session *session, struct slice bytes);
static void resume(struct session *session);
static void ended(struct session *session);
static void websocket_free(struct framing *framing);

static const struct framing_table framing_table = {received, resume, ended, websocket_free};

static enum status on_message(void *user, enum ws_opcode opcode, struct slice message);
static enum status on_ping(void *user, struct slice payload);
static enum status on_pong(void *user, struct slice payload);
static enum status on_close(void *user, unsigned code, struct slice reason);

static const struct ws_handlers handlers = {on_message, on_ping, on_pong, on_close};

_Static_assert(sizeof(struct websocket) <= 80, "every idle WebSocket has one");

static struct websocket *websocket_of(const struct session *session) {
    return container_of(session->framing, struct websocket, framing);
}

/* A whole message arrived. Single bytes do not count: one byte a minute could keep a connection for
 * ever. */
static void restart_silence_deadline(struct session *session) {
    session->outlet->table->set_deadline(session->outlet, DEADLINE_SILENCE);
}

/* ---- handshake ---- */

static enum status handshake(struct exchange *exchange, struct buffer *head,
                             struct ws_agreement *agreement) {
    const struct http1_request *request = exchange->request;
    const struct ws_policy policy = {.deflate = true};
    struct ws_request wanted;
    struct buffer joined;
    if (atomic_load(&exchange->http->is_draining))
        return STATUS_SHUTTING_DOWN;
    if (exchange_is_head(exchange) || request->version_minor == 0)
        return STATUS_WS_BAD_HANDSHAKE;
    buffer_init(&joined, HTTP1_HEAD_BYTES_LIMIT);
    enum status status = ws_request_read(request, &joined, &wanted);
    if (status == STATUS_OK)
        status = ws_handshake(head, &wanted, &policy, agreement);
    buffer_release(&joined);
    return status;
}

struct session *websocket_open(struct exchange *exchange, const struct dialect *dialect,
                               const struct principal *principal, void *state) {
    struct ws_agreement agreement = {0};
    struct buffer head;
    struct session *session = NULL;
    struct slab *framings = &conn_loop(exchange->conn)->delivery->framings;
    buffer_init(&head, UPGRADE_HEAD_BYTES_MAX);
    struct websocket *websocket = slab_take(framings, sizeof(*websocket));
    enum status status = websocket ? handshake(exchange, &head, &agreement) : STATUS_OUT_OF_MEMORY;
    if (status != STATUS_OK) {
        if (dialect->state_free)
            dialect->state_free(state);
        struct http1_header version = {SLICE("Sec-WebSocket-Version"), SLICE("13")};
        exchange_answer_error(
            exchange,
            &(struct exchange_error){.status = status,
                                     .headers = &version,
                                     .header_count = status == STATUS_WS_UNSUPPORTED_VERSION});
    } else {
        session =
            upgrade_to_session(exchange, (struct session_options){.dialect = dialect,
                                                                  .principal = principal,
                                                                  .dialect_state = state,
                                                                  .head = buffer_slice(&head)});
    }
    buffer_release(&head);
    if (!session) {
        if (websocket)
            slab_give(framings, websocket);
        return NULL;
    }
    websocket->deflate = agreement.deflate;
    websocket->server_window_bits = agreement.server_window_bits & 0xf;
    websocket->credit_us = CREDIT_US_MAX;
    websocket->credited_at_ms = clock_mono_ms(&session->delivery->io->clock);
    const struct dialect_settings *settings = settings_of(session);
    size_t message_bytes_max =
        principal ? settings->message_bytes_max : settings->first_message_bytes_max;
    ws_decoder_init(&websocket->decoder, &session->delivery->websockets, &handlers, session,
                    message_bytes_max, agreement.deflate);
    websocket->framing.table = &framing_table;
    session->framing = &websocket->framing;
    restart_silence_deadline(session);
    return session;
}

static void waiting_free(struct websocket *websocket) {
    if (websocket->waiting)
        buffer_release(websocket->waiting);
    free(websocket->waiting);
    websocket->waiting = NULL;
}

static void websocket_free(struct framing *framing) {
    struct websocket *websocket = container_of(framing, struct websocket, framing);
    const struct session *session = websocket->decoder.user;
    ws_decoder_release(&websocket->decoder);
    waiting_free(websocket);
    slab_give(&session->delivery->framings, websocket);
}

/* Shared messages are compressed once, with the largest window. */
bool websocket_deflates(const struct session *session) {
    const struct websocket *websocket = websocket_of(session);
    return websocket->deflate && websocket->server_window_bits == WS_WINDOW_BITS;
}

/* The weight of a message: 1 for a small one. A few hundred compressed bytes may be a message of
 * the largest size, which takes as long to read as many small ones. */
static unsigned weight_of(size_t message_bytes) {
    return 1 + (unsigned)(message_bytes / WEIGHT_BYTES);
}

static bool lacks_credit(struct session *session, uint64_t cost_us) {
    struct websocket *websocket = websocket_of(session);
    uint64_t now_ms = clock_mono_ms(&session->delivery->io->clock);
    if (cost_us > CREDIT_US_MAX)
        cost_us = CREDIT_US_MAX;
    uint64_t credit_us = websocket->credit_us + (now_ms - websocket->credited_at_ms) * 1000;
    if (credit_us >= CREDIT_US_MAX) {
        credit_us = CREDIT_US_MAX;
        websocket->flooded = 0;
    }
    bool is_flooding = credit_us < cost_us;
    websocket->credited_at_ms = now_ms;
    websocket->credit_us = (uint32_t)(is_flooding ? credit_us : credit_us - cost_us);
    return is_flooding;
}

bool websocket_is_flooding(struct session *session, size_t message_bytes) {
    return lacks_credit(session, weight_of(message_bytes) * UINT64_C(1000000) /
                                     settings_of(session)->messages_per_second);
}

/* ---- out ---- */

enum status websocket_wrap(struct delivery_loop *delivery, struct buffer *out, size_t begin,
                           size_t gap, bool compress) {
    struct slice text = slice_from(buffer_slice(out), begin + gap);
    struct buffer packed;
    if (!compress || text.size < DEFLATE_BYTES_MIN)
        return ws_frame_wrap(out, begin, gap, WS_TEXT);
    if (!delivery->deflater) {
        struct ws_deflater *deflater = calloc(1, sizeof(*deflater));
        enum status made =
            deflater ? ws_deflater_init(deflater, DEFLATE_LEVEL) : STATUS_OUT_OF_MEMORY;
        if (made != STATUS_OK) {
            free(deflater);
            return made;
        }
        delivery->deflater = deflater;
    }
    buffer_init(&packed, text.size + 1024);
    enum status status = ws_deflate(delivery->deflater, &packed, text);
    if (status == STATUS_OK) {
        buffer_truncate(out, begin);
        status = ws_frame_write(out, WS_TEXT, true, buffer_slice(&packed));
    } else if (status == STATUS_PAYLOAD_TOO_LARGE) {
        /* The compressed text is larger: the text is sent uncompressed. */
        status = ws_frame_wrap(out, begin, gap, WS_TEXT);
    }
    buffer_release(&packed);
    return status;
}

enum status websocket_text(struct delivery_loop *delivery, struct buffer *out, struct slice text,
                           bool compress) {
    size_t begin = out->size;
    enum status status = buffer_append_slice(out, text);
    if (status == STATUS_OK)
        status = websocket_wrap(delivery, out, begin, 0, compress);
    if (status != STATUS_OK)
        buffer_truncate(out, begin);
    return status;
}

enum status websocket_send(struct session *session, struct slice text) {
    const struct websocket *websocket = websocket_of(session);
    bool compress = websocket->deflate && text.size >= DEFLATE_REPLY_BYTES_MIN &&
                    ws_deflate_fits(text.size, websocket->server_window_bits);
    return websocket_text(session->delivery, &session->replies, text, compress);
}

enum status websocket_send_last(struct session *session, struct buffer *out, enum close_code code) {
    char reason[124];
    notice_resume(session, reason);
    return ws_close_write(out, (unsigned)code, slice_of(reason));
}

enum status websocket_ping(struct session *session, struct buffer *out) {
    (void)session;
    return ws_frame_write(out, WS_PING, false, (struct slice){NULL, 0});
}

/* ---- in ---- */

static bool must_wait(const struct session *session) {
    return session_is_opening(session) || session->replies.size > SESSION_REPLIES_UNREAD_BYTES;
}

/* Refused messages of a peer that floods are tolerated up to FLOODED_MAX. */
static enum status count_flooded(struct session *session, size_t weight) {
    struct websocket *websocket = websocket_of(session);
    size_t flooded = websocket->flooded + weight;
    websocket->flooded = (uint16_t)(flooded < FLOODED_MAX ? flooded : FLOODED_MAX);
    return flooded < FLOODED_MAX ? STATUS_OK : STATUS_RATE_LIMITED;
}

static enum status dispatch(struct session *session, struct slice text) {
    metrics_add(METRIC_SYNC_SOCKET_MESSAGES_RECEIVED, METRIC_LABELS(session->dialect->label), 1);
    enum status status = session->dialect->receive(session, text);
    return status == STATUS_RATE_LIMITED ? count_flooded(session, weight_of(text.size)) : status;
}

/* A message must wait for its turn. */
static enum status keep_waiting(struct websocket *websocket, struct slice message) {
    uint32_t size = (uint32_t)message.size;
    struct buffer *waiting = websocket->waiting;
    if (!waiting) {
        waiting = websocket->waiting = malloc(sizeof(*waiting));
        if (!waiting)
            return STATUS_OUT_OF_MEMORY;
        buffer_init(waiting, LOOP_READ_BYTES + websocket->decoder.message_bytes_max * 2 + 1024);
    }
    enum status status = buffer_reserve(waiting, sizeof(size) + message.size);
    if (status == STATUS_OK)
        status = buffer_append(waiting, &size, sizeof(size));
    return status == STATUS_OK ? buffer_append_slice(waiting, message) : status;
}

static enum status on_message(void *user, enum ws_opcode opcode, struct slice message) {
    struct session *session = user;
    struct websocket *websocket = websocket_of(session);
    if (!session_is_open(session))
        return STATUS_OK;
    restart_silence_deadline(session);
    if (opcode != WS_TEXT)
        return STATUS_INVALID_MESSAGE;
    return websocket->waiting || must_wait(session) ? keep_waiting(websocket, message)
                                                    : dispatch(session, message);
}

static enum status on_ping(void *user, struct slice payload) {
    struct session *session = user;
    if (!session_is_open(session))
        return STATUS_OK;
    restart_silence_deadline(session);
    if (lacks_credit(session, CONTROL_COST_US))
        return count_flooded(session, 1);
    /* Pings that arrive faster than the peer reads the answers are not answered. */
    return session->replies.size > SESSION_REPLIES_UNREAD_BYTES
               ? STATUS_OK
               : ws_frame_write(&session->replies, WS_PONG, false, payload);
}

static enum status on_pong(void *user, struct slice payload) {
    struct session *session = user;
    (void)payload;
    if (!session_is_open(session))
        return STATUS_OK;
    restart_silence_deadline(session);
    return lacks_credit(session, CONTROL_COST_US) ? count_flooded(session, 1) : STATUS_OK;
}

static enum status on_close(void *user, unsigned code, struct slice reason) {
    struct session *session = user;
    (void)reason;
    websocket_of(session)->peer_closed = true;
    if (!session_is_connected(session))
        return STATUS_OK;
    if (!session_is_open(session)) {
        outlet_close(session->outlet);
        return STATUS_OK;
    }
    enum status status = ws_close_write(&session->replies, code, (struct slice){NULL, 0});
    if (status == STATUS_OK)
        session_close(session);
    return status;
}

static void pause_reading(struct session *session) {
    if (!websocket_of(session)->is_paused)
        session->outlet->table->pause_reading(session->outlet);
    websocket_of(session)->is_paused = true;
}

static void resume_reading(struct session *session) {
    if (websocket_of(session)->is_paused)
        session->outlet->table->resume_reading(session->outlet);
    websocket_of(session)->is_paused = false;
}

/* A peer that has sent its close waits for the server to end the connection. After a protocol
 * failure no further frame can be read, not even the peer's close, so the server ends its side then
 * too. Otherwise the server reads until the peer's close arrives. */
static void ended(struct session *session) {
    const struct websocket *websocket = websocket_of(session);
    if (websocket->peer_closed || websocket->decoder.failed != STATUS_OK) {
        session->outlet->table->linger(session->outlet);
        return;
    }
    session->outlet->table->set_deadline(session->outlet, DEADLINE_LINGER);
    resume_reading(session);
}

/* Handles waiting messages until the next one must wait. */
static enum status dispatch_waiting(struct session *session) {
    struct websocket *websocket = websocket_of(session);
    struct buffer *waiting = websocket->waiting;
    size_t at = 0;
    enum status status = STATUS_OK;
    while (waiting && status == STATUS_OK && at < waiting->size && session_is_open(session) &&
           !must_wait(session)) {
        uint32_t size;
        memcpy(&size, waiting->data + at, sizeof(size));
        struct slice text = {waiting->data + at + sizeof(size), size};
        at += sizeof(size) + size;
        status = dispatch(session, text);
    }
    if (waiting)
        buffer_consume(waiting, at);
    if (waiting && waiting->size == 0)
        waiting_free(websocket);
    return status;
}

/* Replies that the socket took at once make room for the messages that wait, and no event follows
 * that would resume them. */
static void handle(struct session *session, enum status status) {
    const struct websocket *websocket = websocket_of(session);
    if (!session_is_connected(session))
        return;
    for (;;) {
        if (status != STATUS_OK && session_is_open(session))
            session_end(session, status);
        session_flush(session);
        if (!session_is_open(session))
            return;
        if (!websocket->waiting || must_wait(session))
            break;
        status = dispatch_waiting(session);
        if (!session_is_connected(session))
            return;
    }
    /* Most peers send nothing during a lookup, and pausing costs a call of the kernel. */
    if (websocket->waiting || session->replies.size > SESSION_REPLIES_UNREAD_BYTES)
        pause_reading(session);
    else
        resume_reading(session);
}

static void received(struct session *session, struct slice bytes) {
    handle(session, ws_feed(&websocket_of(session)->decoder, bytes));
}

static void resume(struct session *session) {
    if (websocket_of(session)->waiting || websocket_of(session)->is_paused)
        handle(session, dispatch_waiting(session));
}

/* ---- typed messages ---- */

#define TAG_BYTES_MAX 64

enum status typed_write(struct buffer *out, const char *tag, struct slice body) {
    assert(body.size >= 2 && body.data[0] == '{');
    enum status status = buffer_reserve(out, TAG_BYTES_MAX + body.size);
    if (status == STATUS_OK)
        status = buffer_printf(out, "{\"type\":\"%s\"%s", tag, body.size > 2 ? "," : "");
    return status == STATUS_OK ? buffer_append_slice(out, slice_from(body, 1)) : status;
}

enum status typed_send(struct session *session, struct buffer *out, const char *tag,
                       struct slice body) {
    struct buffer text;
    buffer_init(&text, body.size + TAG_BYTES_MAX);
    enum status status = typed_write(&text, tag, body);
    if (status == STATUS_OK)
        status = websocket_text(session->delivery, out, buffer_slice(&text),
                                websocket_deflates(session));
    buffer_release(&text);
    return status;
}

enum status typed_send_last(struct session *session, struct buffer *out, const char *tag,
                            struct slice body, enum close_code code, const char *reason) {
    enum status status = typed_send(session, out, tag, body);
    return status == STATUS_OK ? ws_close_write(out, (unsigned)code, slice_of(reason)) : status;
}
