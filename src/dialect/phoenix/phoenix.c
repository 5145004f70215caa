/* Phoenix Channels V2: one channel, sync:v1, on which topics are subscribed to. */
#include <inttypes.h>
#include <stdlib.h>

#include "wire/object_writer.h"
#include "delivery/dialect.h"
#include "api/handlers.h"
#include "delivery/session_snapshot.h"
#include "delivery/session_token.h"
#include "delivery/notices.h"
#include "dialect/phoenix/phoenix_form.h"
#include "dialect/phoenix/phoenix_session.h"
#include "dialect/phoenix/phoenix_subscribe.h"
#include "server/server.h"
#include "dialect/websocket.h"
#include "dialect/phoenix/welcome.h"

#define DEPTH_MAX 16

static void phoenix_free(void *state) {
    struct phoenix *phoenix = state;
    free(phoenix->claim);
    free(phoenix);
}

/* ---- joining ---- */

struct join_request {
    struct phoenix_request base; /* first */
    struct buffer topics;        /* what may be read, and how far that is */
    struct buffer watermarks;
};

static void join_free(struct link_call *call) {
    struct join_request *request = (struct join_request *)call;
    buffer_release(&request->topics);
    buffer_release(&request->watermarks);
    free(request);
}

static void drop_all(struct link *link) {
    for (struct link_reader *reader = link->readers, *next; reader; reader = next) {
        next = reader->next;
        link_reader_drop(reader);
    }
}

static void put_server(struct object_writer *object, const struct link *link) {
    char text[128];
    int size = snprintf(text, sizeof(text),
                        "{\"version\":\"" KHALA_VERSION "\",\"heartbeat_interval_ms\":%" PRIu64 "}",
                        link->server->config.heartbeat_ms);
    object_json(object, SLICE("server"), (struct slice){text, (size_t)size});
}

/* The reply, once what may be read was looked up. */
static enum status say_joined(struct link *link, const struct join_request *request) {
    struct phoenix_address to = phoenix_request_address(&request->base);
    struct phoenix *phoenix = link->state;
    struct uuid id = uuid7_next(&link->loop->ids, clock_wall_ms(&link->loop->clock));
    struct buffer body;
    phoenix->is_joined = true;
    phoenix->join_ref_size = to.join_ref.size;
    if (to.join_ref.size > 0)
        memcpy(phoenix->join_ref, to.join_ref.data, to.join_ref.size);
    uuid_format(&id, phoenix->subscription_id);
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("subscription_id"),
                (struct slice){phoenix->subscription_id, UUID_TEXT_SIZE});
    object_text(&object, SLICE("epoch"), slice_of(link->server->epoch));
    object_json(&object, SLICE("allowed_topics"), buffer_slice(&request->topics));
    object_json(&object, SLICE("current_watermarks"), buffer_slice(&request->watermarks));
    put_server(&object, link);
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = phoenix_say_reply(link, &to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static void join_run(struct link_call *call, struct store_session *session) {
    struct join_request *request = (struct join_request *)call;
    request->base.status =
        welcome_write(session, request->base.principal, &request->topics, &request->watermarks);
}

static void join_done(struct link *link, struct link_call *call, enum status status) {
    struct join_request *request = (struct join_request *)call;
    if (status == STATUS_OK)
        status = request->base.status;
    if (status != STATUS_OK) {
        phoenix_request_refuse(link, &request->base, status);
        return;
    }
    status = say_joined(link, request);
    join_free(call);
    phoenix_settle(link, status);
}

static enum status join(struct link *link, const struct phoenix_address *to) {
    struct join_request *request = calloc(1, sizeof(*request));
    if (!request)
        return phoenix_say_refusal(link, to, STATUS_OUT_OF_MEMORY);
    phoenix_request_init(&request->base, link, to);
    buffer_init(&request->topics, PHOENIX_REPLY_BYTES_MAX);
    buffer_init(&request->watermarks, PHOENIX_REPLY_BYTES_MAX);
    drop_all(link);
    request->base.call = (struct link_call){.run = join_run, .done = join_done, .free = join_free};
    link_call(link, &request->base.call);
    return STATUS_OK;
}

/* What the join says of its client wins over what the socket's query said. */
static enum status check_client(const struct link *link, const struct phoenix_message *message) {
    const struct phoenix *phoenix = link->state;
    if (!phoenix->claim)
        return STATUS_OK;
    struct compatibility_claim claim = *phoenix->claim;
    compatibility_claim_json(&claim, message->payload);
    struct compatibility_client client = compatibility_claim_client(&claim);
    return compatibility_check(&link->server->gate.compatibility, &client);
}

static enum status refuse_client(struct link *link, const struct phoenix_address *to,
                                 enum status refusal) {
    struct buffer body;
    buffer_init(&body, 4096);
    link_tell_refused(link, (struct slice){NULL, 0}, refusal);
    enum status status =
        compatibility_write_json(&link->server->gate.compatibility, refusal, &body);
    if (status == STATUS_OK)
        status = phoenix_say_refused(link, to, refusal, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status ask_to_join(struct link *link, const struct phoenix_message *message,
                               const struct phoenix_address *to) {
    enum status refusal = check_client(link, message);
    return refusal == STATUS_OK ? join(link, to) : refuse_client(link, to, refusal);
}

static enum status leave(struct link *link, const struct phoenix_address *to) {
    struct phoenix *phoenix = link->state;
    struct buffer text;
    drop_all(link);
    phoenix->is_joined = false;
    enum status status = phoenix_say_reply(link, to, true, SLICE("{}"));
    buffer_init(&text, 4096);
    if (status == STATUS_OK)
        status = phoenix_write_close(
            &text, (struct slice){phoenix->join_ref, phoenix->join_ref_size}, PHOENIX_CHANNEL);
    if (status == STATUS_OK)
        status = websocket_say(link, buffer_slice(&text));
    buffer_release(&text);
    return status;
}

/* ---- the other messages ---- */

static enum status write_watermarks(const struct link *link, struct buffer *body) {
    enum status status = buffer_append_slice(body, SLICE("{\"watermarks\":"));
    if (status == STATUS_OK)
        status = notice_watermarks(link, body);
    return status == STATUS_OK ? buffer_append_byte(body, '}') : status;
}

static enum status answer_heartbeat(struct link *link, const struct phoenix_message *message,
                                    const struct phoenix_address *to) {
    struct buffer body;
    (void)message;
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    enum status status = write_watermarks(link, &body);
    if (status == STATUS_OK)
        status = phoenix_say_reply(link, to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

/* A new token for the one the connection came with: of the same principal, or it is refused. What
 * was subscribed to stays, and so does the old token where the new one may not read all of it. */
static enum status refresh(struct link *link, const struct phoenix_message *message,
                           const struct phoenix_address *to) {
    struct json_field field = {.name = SLICE("token")};
    struct buffer token;
    struct buffer body;
    const struct principal *principal = NULL;
    buffer_init(&token, TOKEN_BYTES_MAX);
    enum status status = json_read_members(message->payload, &field, 1);
    if (status == STATUS_OK && field.present)
        status = json_string_decode(field.value, &token);
    if (status != STATUS_OK || !field.present)
        status = STATUS_INVALID_MESSAGE;
    if (status == STATUS_OK)
        status = gate_admit_token(&link->server->gate, buffer_slice(&token),
                                  clock_wall_ms(&link->loop->clock), &principal, NULL);
    buffer_release(&token);
    if (status == STATUS_OK)
        status = link_refresh(link, principal);
    principal_unref(principal);
    if (status != STATUS_OK) {
        if (status_http(status) == 401 || status_http(status) == 403)
            link_tell_refused(link, (struct slice){NULL, 0}, status);
        return phoenix_say_refusal(link, to, status);
    }
    buffer_init(&body, 256);
    status = buffer_printf(&body, "{\"expires_at\":%" PRIu64 "}", link->principal->expires_at_ms);
    if (status == STATUS_OK)
        status = phoenix_say_reply(link, to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status on_channel(struct link *link, const struct phoenix_message *message,
                              const struct phoenix_address *to) {
    static const struct {
        struct slice event;
        enum status (*answer)(struct link *link, const struct phoenix_message *message,
                              const struct phoenix_address *to);
    } events[] = {
        {SLICE("sync:subscribe"), phoenix_subscribe},
        {SLICE("sync:unsubscribe"), phoenix_unsubscribe},
        {SLICE("sync:heartbeat"), answer_heartbeat},
        {SLICE("sync:refresh"), refresh},
    };
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (slice_equal(message->event, events[i].event))
            return events[i].answer(link, message, to);
    return phoenix_say_refusal(link, to, STATUS_INVALID_MESSAGE);
}

static enum status receive(struct link *link, struct slice text) {
    const struct phoenix *phoenix = link->state;
    const struct json_limits limits = {link->server->config.message_bytes_max, DEPTH_MAX};
    struct phoenix_message message;
    enum status status = phoenix_decode(text, &limits, &message);
    if (status != STATUS_OK)
        return status == STATUS_OUT_OF_MEMORY ? status : STATUS_INVALID_MESSAGE;
    struct phoenix_address to = {message.join_ref, message.ref, message.topic};
    if (websocket_is_flooding(link, text.size)) {
        status = phoenix_say_refusal(link, &to, STATUS_RATE_LIMITED);
        return status == STATUS_OK ? STATUS_RATE_LIMITED : status;
    }
    if (slice_equal(message.topic, SLICE("phoenix")) &&
        slice_equal(message.event, SLICE("heartbeat")))
        return phoenix_say_reply(link, &to, true, SLICE("{}"));
    if (!slice_equal(message.topic, PHOENIX_CHANNEL))
        return phoenix_say_refusal(link, &to, STATUS_BAD_TOPIC);
    if (slice_equal(message.event, SLICE("phx_join")))
        return ask_to_join(link, &message, &to);
    if (slice_equal(message.event, SLICE("phx_leave")))
        return leave(link, &to);
    if (!phoenix->is_joined)
        return phoenix_say_refusal(link, &to, STATUS_BAD_TOPIC);
    return on_channel(link, &message, &to);
}

/* ---- notices ---- */

static enum status say_error(struct link *link, enum status error, struct slice body) {
    link_tell_error(link, error);
    return phoenix_say_push(link, SLICE("sync:error"), body);
}

static enum status tell_caught_up(struct link_reader *reader, struct buffer *out) {
    const struct subscription *subscription = &reader->subscription;
    struct buffer body;
    (void)out;
    buffer_init(&body, 4096);
    enum status status =
        phoenix_empty_batch(subscription->options.topic, subscription->next_seq - 1,
                            subscription->window.head_seq, &body);
    if (status == STATUS_OK)
        status = phoenix_say_push(reader->link, SLICE("sync:update_batch"), buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status tell_snapshot(struct link_reader *reader, struct buffer *out) {
    struct buffer body;
    (void)out;
    buffer_init(&body, PHOENIX_PAYLOAD_BYTES_MAX);
    enum status status = link_snapshot_write(reader->snapshot, &body);
    if (status == STATUS_OK)
        status = phoenix_say_push(reader->link, SLICE("sync:snapshot"), buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status tell_stale(struct link_reader *reader, struct buffer *out) {
    struct buffer body;
    (void)out;
    buffer_init(&body, 65536);
    enum status status = notice_stale(reader, &body);
    if (status == STATUS_OK)
        status = say_error(reader->link, STATUS_STALE_CURSOR, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status heartbeat(struct link *link, struct buffer *out) {
    const struct phoenix *phoenix = link->state;
    struct buffer body;
    (void)out;
    if (!phoenix->is_joined)
        return STATUS_OK;
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    enum status status = write_watermarks(link, &body);
    if (status == STATUS_OK)
        status = phoenix_say_push(link, SLICE("sync:heartbeat"), buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status tell_slow(struct link *link, struct buffer *out) {
    char reason[124];
    struct buffer body;
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    enum status status = notice_slow(link, &body);
    if (status == STATUS_OK)
        status = say_error(link, STATUS_SLOW_CONSUMER, buffer_slice(&body));
    buffer_release(&body);
    notice_resume(link, reason);
    return status == STATUS_OK ? ws_close_write(out, CLOSE_SLOW_CONSUMER, slice_of(reason))
                               : status;
}

/* The error that ends it, with the positions to come back with. */
static enum status tell_end(struct link *link, enum status why, uint64_t retry_after_ms,
                            enum close_code code, struct buffer *out) {
    struct buffer body;
    char reason[124];
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    enum status status = notice_end(link, why, retry_after_ms, &body);
    if (status == STATUS_OK)
        status = say_error(link, why, buffer_slice(&body));
    buffer_release(&body);
    notice_resume(link, reason);
    return status == STATUS_OK ? ws_close_write(out, (unsigned)code, slice_of(reason)) : status;
}

static enum status tell_leaving(struct link *link, uint64_t retry_after_ms, struct buffer *out) {
    return tell_end(link, STATUS_SHUTTING_DOWN, retry_after_ms, CLOSE_RESTARTING, out);
}

static enum status tell_reauth(struct link *link, uint64_t left_ms, struct buffer *out) {
    struct buffer body;
    (void)out;
    buffer_init(&body, 4096);
    enum status status = notice_reauth(left_ms, &body);
    if (status == STATUS_OK)
        status = say_error(link, STATUS_REAUTH_REQUIRED, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status tell_failed(struct link *link, enum status failed, struct buffer *out) {
    /* The dialect has one word for whatever is too large. */
    enum status why = failed == STATUS_WS_MESSAGE_TOO_BIG ? STATUS_PAYLOAD_TOO_LARGE : failed;
    return tell_end(link, why, 0, ws_close_code(why), out);
}

static const struct dialect phoenix_dialect = {
    .label = LABEL_DIALECT_PHOENIX,
    .receive = receive,
    .opened = phoenix_opened,
    .opening_gone = phoenix_opening_gone,
    .snapshot = tell_snapshot,
    .caught_up = tell_caught_up,
    .page_says_caught_up = true,
    .stale = tell_stale,
    .failed = tell_failed,
    .reauth = tell_reauth,
    .heartbeat = heartbeat,
    .slow = tell_slow,
    .leaving = tell_leaving,
    .state_free = phoenix_free,
};

/* Only version 2 of the protocol is spoken; who does not say is taken to speak it. */
static enum status check_version(const struct exchange *exchange) {
    struct buffer version;
    bool found;
    buffer_init(&version, 16);
    enum status status = http1_query_find(exchange->request->query, SLICE("vsn"), &version, &found);
    if (status == STATUS_OK && found && !slice_starts(buffer_slice(&version), SLICE("2.")))
        status = STATUS_INVALID_REQUEST;
    buffer_release(&version);
    return status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_INVALID_REQUEST : status;
}

static struct phoenix *phoenix_make(const struct exchange *exchange) {
    struct phoenix *phoenix = calloc(1, sizeof(*phoenix));
    if (!phoenix || !exchange->server->gate.compatibility.is_enforced)
        return phoenix;
    phoenix->claim = calloc(1, sizeof(*phoenix->claim));
    if (!phoenix->claim) {
        phoenix_free(phoenix);
        return NULL;
    }
    compatibility_claim_query(phoenix->claim, exchange->request->query);
    return phoenix;
}

void handle_phoenix(struct exchange *exchange) {
    enum status status = check_version(exchange);
    if (status != STATUS_OK) {
        exchange_answer_error(
            exchange, &(struct exchange_error){.status = status,
                                               .message = "Only vsn=2.0.0 is spoken here."});
        return;
    }
    struct phoenix *phoenix = phoenix_make(exchange);
    if (!phoenix)
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
    else
        (void)websocket_open(exchange, &phoenix_dialect, exchange->principal, phoenix);
}
