/* Phoenix Channels V2: one channel, sync:v1, on which topics are subscribed to.
 *
 * A join is a lookup of the session: the store pool writes which topics the principal may read, and
 * their watermarks. Sessions of one principal that join together share one such read (join_copy).
 * The reply makes the channel joined. The other messages of the channel are in the table of
 * receive; subscribing is in phoenix_subscribe.c. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "auth/grant.h"
#include "base/limits.h"
#include "base/list.h"
#include "delivery/access.h"
#include "delivery/session/notices.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_jobs.h"
#include "delivery/session/subscriber.h"
#include "dialect/dialects.h"
#include "dialect/phoenix/phoenix_message.h"
#include "dialect/phoenix/phoenix_subscribe.h"
#include "dialect/websocket.h"
#include "topic/topic_name.h"
#include "topic/topic_table.h"
#include "wire/json.h"
#include "wire/object_writer.h"

/* ---- the welcome ---- */

struct welcome {
    struct store_session *store;
    const struct principal *principal;
    struct arena arena;
    struct buffer *topics;
    struct buffer *watermarks;
};

static void put_comma(struct buffer *list) {
    if (list->size > 1)
        buffer_append_byte(list, ',');
}

static enum status put_name(struct welcome *welcome, struct slice name) {
    put_comma(welcome->topics);
    return json_write_string(welcome->topics, name);
}

static enum status put_watermark(struct welcome *welcome, struct slice name) {
    struct store_topic topic;
    arena_reset(&welcome->arena);
    enum status status = store_load_topic(welcome->store, name, &welcome->arena, &topic);
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? STATUS_OK : status;
    put_comma(welcome->watermarks);
    struct object_writer object = object_begin(welcome->watermarks);
    object_text(&object, SLICE("topic"), topic.name);
    object_number(&object, SLICE("watermark"), topic.head_seq);
    return object_end(&object);
}

/* A pattern has no watermark. */
static enum status put_if_open(struct welcome *welcome, struct slice name) {
    if (memchr(name.data, '*', name.size))
        return grant_opens(welcome->principal, name) ? put_name(welcome, name) : STATUS_OK;
    if (grant_check(welcome->principal, name, NULL).status != STATUS_OK)
        return STATUS_OK;
    enum status status = put_name(welcome, name);
    return status == STATUS_OK ? put_watermark(welcome, name) : status;
}

/* A stream that no topic has yet is named as the stream. */
static enum status put_stream(struct welcome *welcome, struct slice stream_id) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer name = buffer_over(text, sizeof(text));
    struct topic_address found;
    /* A text that is no stream id opens nothing. */
    if (address_kind(stream_id) == ADDRESS_TOPIC)
        return STATUS_OK;
    arena_reset(&welcome->arena);
    enum status status = topic_address_find(welcome->store, stream_id, &welcome->arena, &found);
    if (status == STATUS_OK)
        status = buffer_append_slice(&name, found.topic.data ? found.topic : stream_id);
    if (status == STATUS_INVALID_TOPIC)
        return STATUS_OK;
    return status == STATUS_OK ? put_if_open(welcome, buffer_slice(&name)) : status;
}

/* A topic whose name would be too long does not exist. */
static enum status put_named(struct welcome *welcome, enum topic_kind kind, struct slice id) {
    char text[TOPIC_NAME_BYTES_MAX];
    const char *pattern = topic_row(kind)->pattern;
    size_t size = topic_pattern_size(pattern, id);
    if (!id.data || size > sizeof(text))
        return STATUS_OK;
    topic_pattern_fill(pattern, id, text);
    return put_if_open(welcome, (struct slice){text, size});
}

/* What a client that joins may read: the JSON array of what the token grants, patterns among it; of
 * a token without grants, the topics its scopes open by name, or "*" for one that reads everything.
 * watermarks: the JSON array of {topic, watermark} of those that exist. A name in the token that
 * its scopes do not open is left out. Runs on a thread of the store pool. */
static enum status welcome_write(struct store_session *store, const struct principal *principal,
                                 struct buffer *topics, struct buffer *watermarks) {
    struct welcome welcome = {
        .store = store, .principal = principal, .topics = topics, .watermarks = watermarks};
    const struct grant_list *named = &principal->topics;
    const struct grant_list *streams = &principal->streams;
    bool is_narrowed = named->count + streams->count > 0;
    enum status status = STATUS_OK;
    arena_init(&welcome.arena, PHOENIX_WELCOME_ARENA_BYTES_MAX);
    buffer_clear(topics);
    buffer_clear(watermarks);
    buffer_append_byte(topics, '[');
    buffer_append_byte(watermarks, '[');
    for (size_t i = 0; status == STATUS_OK && i < named->count; i++)
        status = address_kind(named->names[i]) == ADDRESS_TOPIC
                     ? put_if_open(&welcome, named->names[i])
                     : put_stream(&welcome, named->names[i]);
    for (size_t i = 0; status == STATUS_OK && i < streams->count; i++)
        status = put_stream(&welcome, streams->names[i]);
    if (principal->read_all && !is_narrowed)
        (void)put_name(&welcome, SLICE("*"));
    /* The topics that the table names whole, and those that bear the principal's id. */
    for (size_t i = 0; !is_narrowed && i < TOPIC_KIND_COUNT && status == STATUS_OK; i++) {
        enum topic_kind kind = (enum topic_kind)i;
        switch (topic_row(kind)->ownership) {
        case TOPIC_SHARED:
            /* "*" already names the topic to a principal that reads everything. */
            status = principal->read_all ? put_watermark(&welcome, topic_name(kind))
                                         : put_if_open(&welcome, topic_name(kind));
            break;
        case TOPIC_OWNED_BY_NAMED_USER:
            status = put_named(&welcome, kind, principal->identity.user_id);
            break;
        case TOPIC_OWNED_BY_NAMED_GUEST:
            status = put_named(&welcome, kind, principal->identity.guest_scope);
            break;
        case TOPIC_OWNED_BY_ENTITY:
        case TOPIC_GRANTED:
        case TOPIC_RESERVED:
            break;
        }
    }
    buffer_append_byte(topics, ']');
    buffer_append_byte(watermarks, ']');
    arena_release(&welcome.arena);
    if (status == STATUS_OK)
        status = buffer_status(topics);
    return status == STATUS_OK ? buffer_status(watermarks) : status;
}

#define DEPTH_MAX 16

static void phoenix_free(void *state) {
    struct phoenix *phoenix = state;
    free(phoenix->claim);
    free(phoenix);
}

/* ---- joining ---- */

struct join_request {
    struct phoenix_request base;
    struct buffer topics; /* those that the principal may read */
    struct buffer watermarks;
};

static void join_free(struct session_lookup *call) {
    struct join_request *request = container_of(call, struct join_request, base.call);
    buffer_release(&request->topics);
    buffer_release(&request->watermarks);
    free(request);
}

static bool join_run(struct session_lookup *call, struct store_session *store) {
    struct join_request *request = container_of(call, struct join_request, base.call);
    request->base.status =
        welcome_write(store, request->base.principal, &request->topics, &request->watermarks);
    return false;
}

/* The topics depend on the principal and on the store alone. */
static bool join_copy(struct session_lookup *call, const struct session_lookup *from) {
    struct join_request *request = container_of(call, struct join_request, base.call);
    const struct join_request *other = container_of(from, struct join_request, base.call);
    if (other->base.principal != request->base.principal || other->base.status != STATUS_OK)
        return false;
    buffer_append_slice(&request->topics, buffer_slice(&other->topics));
    request->base.status =
        buffer_append_slice(&request->watermarks, buffer_slice(&other->watermarks));
    if (request->base.status == STATUS_OK)
        request->base.status = buffer_status(&request->topics);
    return true;
}

/* The lookup found the topics that the principal may read: the channel is joined. */
static void join_done(struct session *session, struct session_lookup *call, enum status status) {
    struct join_request *request = container_of(call, struct join_request, base.call);
    struct phoenix_address to = phoenix_request_address(&request->base);
    char id[UUID_TEXT_SIZE];
    struct buffer body;
    if (status == STATUS_OK)
        status = request->base.status;
    if (status != STATUS_OK) {
        phoenix_request_refuse(session, &request->base, status, NULL);
        return;
    }
    /* The reference of the join is kept in the block of the state: a block of its own would take
     * more memory than the state's growth. */
    assert(to.join_ref.size <= PHOENIX_REF_BYTES_MAX);
    struct phoenix *phoenix =
        realloc(session->dialect_state, sizeof(struct phoenix) + to.join_ref.size);
    if (!phoenix) {
        join_free(call);
        phoenix_flush(session, STATUS_OUT_OF_MEMORY);
        return;
    }
    session->dialect_state = phoenix;
    phoenix->join_ref_size = (uint8_t)to.join_ref.size;
    if (to.join_ref.size > 0)
        memcpy(phoenix->join_ref, to.join_ref.data, to.join_ref.size);
    phoenix->is_joined = true;
    phoenix->subscription_id =
        uuid7_next(&session->delivery->io->ids, clock_wall_ms(&session->delivery->io->clock));
    uuid_format(&phoenix->subscription_id, id);
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("subscription_id"), (struct slice){id, sizeof(id)});
    object_text(&object, SLICE("epoch"), slice_of(session->delivery->shared->epoch));
    object_json(&object, SLICE("allowed_topics"), buffer_slice(&request->topics));
    object_json(&object, SLICE("current_watermarks"), buffer_slice(&request->watermarks));
    object_json(&object, SLICE("server"), SLICE(""));
    struct object_writer server = object_begin(&body);
    object_text(&server, SLICE("version"), SLICE(KHALA_VERSION));
    object_number(&server, SLICE("heartbeat_interval_ms"),
                  session->delivery->shared->options.heartbeat_ms);
    object_close(&server);
    status = object_end(&object);
    if (status == STATUS_OK)
        status = phoenix_send_reply(session, &to, true, buffer_slice(&body));
    buffer_release(&body);
    join_free(call);
    phoenix_flush(session, status);
}

static enum status join(struct session *session, const struct phoenix_message *message,
                        const struct phoenix_address *to) {
    const struct phoenix *phoenix = session->dialect_state;
    const struct compatibility_window *window = &settings_of(session)->gate->compatibility;
    if (phoenix->claim) {
        /* The members of the join take precedence over the socket's query. */
        struct compatibility_claim claim = *phoenix->claim;
        compatibility_claim_json(&claim, message->payload);
        struct compatibility_client client = compatibility_claim_client(&claim);
        enum status refusal = compatibility_check(window, &client);
        if (refusal != STATUS_OK) {
            struct buffer body;
            buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
            session_log_incompatible(session, &claim, refusal);
            enum status status = compatibility_write_json(window, refusal, &body);
            if (status == STATUS_OK)
                status = phoenix_send_error_body(session, to, refusal, buffer_slice(&body));
            buffer_release(&body);
            return status;
        }
    }
    struct join_request *request = calloc(1, sizeof(*request));
    if (!request)
        return phoenix_send_error(session, to, STATUS_OUT_OF_MEMORY);
    phoenix_request_init(&request->base, session, to);
    buffer_init(&request->topics, PHOENIX_REPLY_BYTES_MAX);
    buffer_init(&request->watermarks, PHOENIX_REPLY_BYTES_MAX);
    subscriber_drop_all(session);
    request->base.call = (struct session_lookup){
        .run = join_run, .copy = join_copy, .done = join_done, .free = join_free};
    session_look_up(session, &request->base.call);
    return STATUS_OK;
}

static enum status leave(struct session *session, const struct phoenix_address *to) {
    struct phoenix *phoenix = session->dialect_state;
    struct buffer text;
    subscriber_drop_all(session);
    phoenix->is_joined = false;
    enum status status = phoenix_send_reply(session, to, true, SLICE("{}"));
    buffer_init(&text, SHORT_NOTICE_BYTES_MAX);
    if (status == STATUS_OK)
        status = phoenix_write_close(
            &text, (struct slice){phoenix->join_ref, phoenix->join_ref_size}, PHOENIX_CHANNEL);
    if (status == STATUS_OK)
        status = websocket_send(session, buffer_slice(&text));
    buffer_release(&text);
    return status;
}

/* ---- the other messages ---- */

static enum status answer_heartbeat(struct session *session, const struct phoenix_message *message,
                                    const struct phoenix_address *to) {
    struct buffer body;
    (void)message;
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    buffer_append_slice(&body, SLICE("{\"watermarks\":"));
    notice_watermarks(session, &body);
    enum status status = buffer_append_byte(&body, '}');
    if (status == STATUS_OK)
        status = phoenix_send_reply(session, to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

/* Replaces the token of the connection by one of the same principal. The subscriptions stay. A
 * token that may not read all of them is refused, and the old token stays. */
static enum status refresh(struct session *session, const struct phoenix_message *message,
                           const struct phoenix_address *to) {
    struct json_field field = {.name = SLICE("token")};
    struct buffer token;
    struct buffer body;
    const struct principal *principal = NULL;
    struct token_refusal refusal = {0};
    char text[SCOPES_NEEDED_BYTES_MAX];
    buffer_init(&token, TOKEN_BYTES_MAX);
    enum status status = json_read_members(message->payload, &field, 1);
    if (status == STATUS_OK && field.present)
        status = json_string_decode(field.value, &token);
    if (status != STATUS_OK || !field.present)
        status = STATUS_INVALID_MESSAGE;
    if (status == STATUS_OK)
        status =
            gate_admit_token(settings_of(session)->gate, buffer_slice(&token),
                             clock_wall_ms(&session->delivery->io->clock), &principal, &refusal);
    session->token_rule = refusal.rule;
    buffer_release(&token);
    if (status == STATUS_OK)
        status = session_refresh(session, principal);
    principal_unref(principal);
    /* A client that tries many tokens on its connection loses it. */
    if (status == STATUS_INVALID_TOKEN &&
        session->outlet->table->charge_failure(session->outlet) > 0) {
        session_end(session, status);
        return STATUS_OK;
    }
    if (status != STATUS_OK) {
        if (status_http(status) == 401 || status_http(status) == 403)
            session_log_refused(session, (struct slice){NULL, 0}, status);
        const char *fault = status == STATUS_MISSING_SCOPE ? scopes_needed(SCOPE_REPLAY_ALL, text)
                                                           : status_message(status);
        return phoenix_send_fault(session, to, status, fault);
    }
    buffer_init(&body, 256);
    status =
        buffer_printf(&body, "{\"expires_at\":%" PRIu64 "}", session->principal->expires_at_ms);
    if (status == STATUS_OK)
        status = phoenix_send_reply(session, to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status receive(struct session *session, struct slice text) {
    static const struct {
        struct slice event;
        enum status (*answer)(struct session *session, const struct phoenix_message *message,
                              const struct phoenix_address *to);
    } events[] = {
        {SLICE("sync:subscribe"), phoenix_subscribe},
        {SLICE("sync:unsubscribe"), phoenix_unsubscribe},
        {SLICE("sync:heartbeat"), answer_heartbeat},
        {SLICE("sync:refresh"), refresh},
    };
    const struct phoenix *phoenix = session->dialect_state;
    const struct json_limits limits = {settings_of(session)->message_bytes_max, DEPTH_MAX};
    struct phoenix_message message;
    enum status status = phoenix_decode(text, &limits, &message);
    if (status != STATUS_OK)
        return status == STATUS_OUT_OF_MEMORY ? status : STATUS_INVALID_MESSAGE;
    struct phoenix_address to = {message.join_ref, message.ref, message.topic};
    if (websocket_is_flooding(session, text.size)) {
        status = phoenix_send_error(session, &to, STATUS_RATE_LIMITED);
        return status == STATUS_OK ? STATUS_RATE_LIMITED : status;
    }
    if (slice_equal(message.topic, SLICE("phoenix")) &&
        slice_equal(message.event, SLICE("heartbeat")))
        return phoenix_send_reply(session, &to, true, SLICE("{}"));
    if (!slice_equal(message.topic, PHOENIX_CHANNEL))
        return phoenix_send_error(session, &to, STATUS_BAD_TOPIC);
    if (slice_equal(message.event, SLICE("phx_join")))
        return join(session, &message, &to);
    if (slice_equal(message.event, SLICE("phx_leave")))
        return leave(session, &to);
    if (!phoenix->is_joined)
        return phoenix_send_error(session, &to, STATUS_BAD_TOPIC);
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (slice_equal(message.event, events[i].event))
            return events[i].answer(session, &message, &to);
    return phoenix_send_error(session, &to, STATUS_INVALID_MESSAGE);
}

/* ---- notices ---- */

static enum status send_caught_up(struct subscriber *subscriber, struct buffer *out) {
    const struct subscription *subscription = &subscriber->subscription;
    struct buffer body;
    (void)out;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    const struct phoenix_range range = {
        subscription->topic->name, subscription_epoch(subscription)->text, subscription->sent_seq,
        subscriber_position(subscriber), subscription->head_seq};
    bool is_lean = subscriber->form->content == PHOENIX_UPDATES_LEAN;
    enum status status = phoenix_empty_batch(&range, is_lean ? FRAME_LEAN : FRAME_FULL, &body);
    if (status == STATUS_OK)
        status =
            phoenix_send_push(subscriber->session, SLICE("sync:update_batch"), buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status heartbeat(struct session *session, struct buffer *out) {
    const struct phoenix *phoenix = session->dialect_state;
    struct buffer body;
    (void)out;
    if (!phoenix->is_joined)
        return STATUS_OK;
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    buffer_append_slice(&body, SLICE("{\"covered\":"));
    notice_covered(session, &body);
    buffer_append_slice(&body, SLICE(",\"watermarks\":"));
    notice_watermarks(session, &body);
    enum status status = buffer_append_byte(&body, '}');
    if (status == STATUS_OK)
        status = phoenix_send_push(session, SLICE("sync:heartbeat"), buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status send_failed(struct session *session, enum status reason, struct buffer *out) {
    /* The dialect has one code for everything that is too large. */
    enum status why = reason == STATUS_WS_MESSAGE_TOO_BIG ? STATUS_PAYLOAD_TOO_LARGE : reason;
    return notice_end(session, &(struct notice_ending){.why = why, .code = ws_close_code(why)},
                      out);
}

const struct dialect phoenix_dialect = {
    .label = LABEL_DIALECT_PHOENIX,
    .forms = phoenix_forms,
    .receive = receive,
    .opened = phoenix_opened,
    .opening_gone = phoenix_opening_gone,
    .snapshot = notice_snapshot,
    .caught_up = send_caught_up,
    .page_says_caught_up = true,
    .page_covers_range = true,
    .stale = notice_stale,
    .refused = notice_refused,
    .failed = send_failed,
    .reauth = notice_reauth,
    .heartbeat = heartbeat,
    .slow = notice_slow,
    .leaving = notice_leaving,
    .state_free = phoenix_free,
    .names = {.stale = "sync:error",
              .refused = "sync:error",
              .snapshot = "sync:snapshot",
              .reauth = "sync:error",
              .slow = "sync:error",
              .end = "sync:error"},
    .notice_bytes_max = PHOENIX_REPLY_BYTES_MAX,
    .snapshot_bytes_max = PHOENIX_PAYLOAD_BYTES_MAX,
    .send = phoenix_send_notice,
    .send_last = websocket_send_last,
};

void handle_phoenix(struct exchange *exchange) {
    struct slice query = exchange->request->query;
    char text[16];
    struct buffer version = buffer_over(text, sizeof(text));
    bool found;
    enum status status = http1_query_find(query, SLICE("vsn"), &version, &found);
    /* Only version 2 of the protocol is served. A client that names no version is served too. */
    if (status == STATUS_PAYLOAD_TOO_LARGE ||
        (status == STATUS_OK && found && !slice_starts(buffer_slice(&version), SLICE("2."))))
        status = STATUS_INVALID_REQUEST;
    if (status != STATUS_OK) {
        exchange_answer_error(
            exchange,
            &(struct exchange_error){.status = status, .message = "Only vsn=2.0.0 is supported."});
        return;
    }
    struct phoenix *phoenix = calloc(1, sizeof(*phoenix));
    bool has_memory = phoenix != NULL;
    if (phoenix && exchange->http->gate.compatibility.is_enforced) {
        phoenix->claim = calloc(1, sizeof(*phoenix->claim));
        has_memory = phoenix->claim != NULL;
    }
    if (!has_memory) {
        free(phoenix);
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    if (phoenix->claim)
        compatibility_claim_query(phoenix->claim, query);
    struct session *session =
        websocket_open(exchange, &phoenix_dialect, exchange->principal, phoenix);
    if (session)
        session_flush(session);
}
