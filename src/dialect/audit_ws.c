/* The whole log as a WebSocket: the client authenticates in its first message, then events go one
 * way, by event cursor.
 *
 *   NEW ──init──▶ ADMITTING: capability ──▶ nonce used ──▶ token used ──▶ opening ──▶ BEGUN
 *                     └──▶ DENIED, which the client learns later
 *
 * The capability is checked on the loop. The uses of the nonce and of a single-use token are two
 * lookups of the session, each decided by the writer. Then the subscription to the log opens. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_jobs.h"
#include "delivery/session/subscriber.h"
#include "dialect/audit_init.h"
#include "dialect/dialects.h"
#include "dialect/websocket.h"
#include "http/admit/single_use.h"
#include "hub/frame.h"
#include "wire/object_writer.h"
#include "wire/websocket/ws_frame.h"

/* How far a client's clock may be off. */
#define NONCE_SKEW_MS_MAX UINT64_C(300000)

enum audit_state {
    AUDIT_NEW,       /* waits for the init */
    AUDIT_ADMITTING, /* the init was read, and is being checked */
    AUDIT_DENIED,    /* the init was refused, which the client learns later */
    AUDIT_BEGUN,     /* init_ack was sent */
};

struct audit {
    struct log_position position;
    struct audit_init init; /* the filters are in use as long as the session */
    enum audit_state state;
    enum status denied; /* why, in AUDIT_DENIED */
    struct session_lookup lookup;
    struct single_use use;             /* the nonce is used first, then the token */
    const struct principal *principal; /* the session's, during a use */
    struct single_uses *uses;
    struct quota_refusal refusal; /* the quota of subscriptions refused it */
};

static void audit_free(void *state) {
    struct audit *audit = state;
    if (audit->state != AUDIT_NEW)
        audit_init_release(&audit->init);
    free(audit);
}

/* ---- forms ---- */

/* All clients of the page get the same server_time, so that its bytes are shared. */
static enum status encode(const struct page *page, const struct page_form *form, void *user,
                          struct buffer *out) {
    struct delivery_loop *delivery = user;
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < page->batch.count; i++) {
        const struct frame_content *content = &page->batch.frames[i]->content;
        char cursor_text[EVENT_CURSOR_SIZE_MAX];
        struct event_cursor cursor = event_cursor_of(&content->cursor);
        int size = (int)event_cursor_encode(&cursor, cursor_text);
        size_t begin = out->size;
        buffer_append_slice(out, SLICE("{\"type\":\"event\",\"event\":"));
        buffer_append_slice(out, content->payload);
        status = buffer_printf(out, ",\"cursor\":\"%.*s\",\"server_time\":%" PRIu64 "}", size,
                               cursor_text, clock_wall_ms(&delivery->io->clock));
        if (status == STATUS_OK)
            status = websocket_wrap(delivery, out, begin, 0, form->is_packed);
    }
    return status;
}

static const struct page_form forms[][2] = {
    {{AUDIT_WS_PUSH_BYTES_MAX, encode, FRAME_FULL, false},
     {AUDIT_WS_PUSH_BYTES_MAX, encode, FRAME_FULL, true}},
};

/* ---- errors ---- */

/* The error codes of this dialect. */
static const char *error_code(enum status status) {
    static const struct {
        enum close_code close;
        const char *code;
    } codes[] = {
        {CLOSE_AUTH_FAILED, "AUTH_FAILED"},         {CLOSE_TOKEN_EXPIRED, "CAPABILITY_EXPIRED"},
        {CLOSE_INVALID_MESSAGE, "INVALID_MESSAGE"}, {CLOSE_SLOW_CONSUMER, "SLOW_CONSUMER"},
        {CLOSE_POLICY_VIOLATION, "AUTH_FAILED"},    {CLOSE_PROTOCOL_ERROR, "INVALID_MESSAGE"},
        {CLOSE_INVALID_UTF8, "INVALID_MESSAGE"},    {CLOSE_TOO_BIG, "INVALID_MESSAGE"},
    };
    if (status_http(status) == 429)
        return "RATE_LIMITED";
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (codes[i].close == ws_close_code(status))
            return codes[i].code;
    return "INTERNAL_ERROR";
}

/* details: an object, or empty. */
static enum status send_error(struct session *session, enum status why, struct slice details,
                              struct buffer *out) {
    const struct audit *audit = session->dialect_state;
    char reason[124];
    struct buffer body;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    log_position_reason(&audit->position, session, reason);
    session_log_error(session, why);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("code"), slice_of(error_code(why)));
    object_text(&object, SLICE("message"), slice_of(status_message(why)));
    object_json_given(&object, SLICE("details"), details);
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status =
            typed_send_last(session, out, "error", buffer_slice(&body), ws_close_code(why), reason);
    buffer_release(&body);
    return status;
}

/* Details: {"name":text,"retry_after_ms"?,"resume_after":cursor}; the cursor is null before the
 * first event. */
static enum status send_error_detail(struct session *session, enum status why, const char *name,
                                     const char *text, struct buffer *out) {
    const struct audit *audit = session->dialect_state;
    struct query_cursor now = log_position_now(&audit->position, session);
    struct buffer details;
    buffer_init(&details, SHORT_NOTICE_BYTES_MAX);
    struct object_writer object = object_begin(&details);
    object_text(&object, slice_of(name), slice_of(text));
    if (why == STATUS_QUOTA_EXCEEDED) {
        object_text(&object, SLICE("quota"), SLICE("subscriptions"));
        object_number(&object, SLICE("used"), audit->refusal.used);
        object_number(&object, SLICE("limit"), audit->refusal.limit);
    }
    if (status_http(why) == 429)
        object_number(&object, SLICE("retry_after_ms"), CONN_RETRY_MS);
    object_json(&object, SLICE("resume_after"), SLICE(""));
    query_cursor_write(&details, &now);
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = send_error(session, why, buffer_slice(&details), out);
    buffer_release(&details);
    return status;
}

/* Refuses the message of the peer; the text is a member of details. */
static enum status refuse_message(struct session *session, enum status why, const char *name,
                                  const char *text) {
    session_log_end(session, why, ws_close_code(why));
    enum status status = send_error_detail(session, why, name, text, &session->replies);
    if (status == STATUS_OK)
        session_close(session);
    return status;
}

static enum status send_slow(struct session *session, struct buffer *out) {
    const struct audit *audit = session->dialect_state;
    struct buffer details;
    buffer_init(&details, SHORT_NOTICE_BYTES_MAX);
    struct object_writer object = object_begin(&details);
    log_position_put_slow(&audit->position, session, &object);
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = send_error(session, STATUS_SLOW_CONSUMER, buffer_slice(&details), out);
    buffer_release(&details);
    return status;
}

/* Only the connection ends: the client may resume at its cursor. */
static enum status send_reconnect(struct session *session, uint64_t retry_after_ms,
                                  enum close_code code, struct buffer *out) {
    const struct audit *audit = session->dialect_state;
    struct query_cursor now = log_position_now(&audit->position, session);
    char reason[124];
    struct buffer body;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    buffer_printf(&body, "{\"retry_after_ms\":%" PRIu64 ",\"resume_after\":", retry_after_ms);
    query_cursor_write(&body, &now);
    enum status status = buffer_append_byte(&body, '}');
    log_position_reason(&audit->position, session, reason);
    if (status == STATUS_OK)
        status = typed_send_last(session, out, "reconnect", buffer_slice(&body), code, reason);
    buffer_release(&body);
    return status;
}

static enum status send_failed(struct session *session, enum status why, struct buffer *out) {
    if (why == STATUS_WS_SILENT)
        return send_reconnect(session, io_loop_backoff_ms(session->delivery->io),
                              ws_close_code(why), out);
    return send_error_detail(session, why, "reason", status_code(why), out);
}

static enum status send_leaving(struct session *session, uint64_t retry_after_ms,
                                struct buffer *out) {
    return send_reconnect(session, retry_after_ms, CLOSE_RESTARTING, out);
}

static enum status deny(struct session *session, enum status why, const char *reason);

/* ---- notices ---- */

/* {"name":cursor, then the tail, which closes the object. */
static enum status send_cursor(struct session *session, const char *tag, const char *name,
                               const char *tail, struct buffer *out) {
    const struct audit *audit = session->dialect_state;
    struct query_cursor now = log_position_now(&audit->position, session);
    struct buffer body;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    buffer_printf(&body, "{\"%s\":", name);
    query_cursor_write(&body, &now);
    enum status status = buffer_append_slice(&body, slice_of(tail));
    if (status == STATUS_OK)
        status = typed_send(session, out, tag, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status send_caught_up(struct subscriber *subscriber, struct buffer *out) {
    return send_cursor(subscriber->session, "replay_complete", "cursor", "}", out);
}

/* Before the init, this is the timeout of the init. Each heartbeat has a ping, because its answer
 * restarts the silence deadline of a peer that sends nothing else. */
static enum status heartbeat(struct session *session, struct buffer *out) {
    const struct audit *audit = session->dialect_state;
    char tail[64];
    if (audit->state == AUDIT_DENIED)
        return deny(session, audit->denied, status_code(audit->denied));
    if (audit->state == AUDIT_NEW)
        return refuse_message(session, STATUS_INVALID_MESSAGE, "reason",
                              "the init did not arrive in time");
    if (audit->state != AUDIT_BEGUN)
        return STATUS_OK;
    (void)snprintf(tail, sizeof(tail), ",\"interval_ms\":%" PRIu64 "}",
                   session->delivery->shared->options.heartbeat_ms);
    enum status status = send_cursor(session, "heartbeat", "last_cursor", tail, out);
    return status == STATUS_OK ? websocket_ping(session, out) : status;
}

static void opened(struct session *session, struct session_opening *opening) {
    struct audit *audit = session->dialect_state;
    struct subscriber *subscriber = opening->subscribers[0];
    enum status status = STATUS_OK;
    if (subscriber->subscription.state == SUBSCRIPTION_STALE) {
        /* The client begins again without a cursor. */
        const struct continuity *continuity = subscription_continuity(&subscriber->subscription);
        session_log_stale(subscriber);
        audit->position.asked.given = false;
        session->close_code = CLOSE_INVALID_MESSAGE;
        if (refuse_message(session, STATUS_INVALID_MESSAGE, "reason",
                           reason_code(continuity->reasons[0])) != STATUS_OK)
            outlet_close(session->outlet);
        return;
    }
    if (subscriber->subscription.state == SUBSCRIPTION_OPEN) {
        struct uuid session_id =
            uuid7_next(&session->delivery->io->ids, clock_wall_ms(&session->delivery->io->clock));
        char id[UUID_TEXT_SIZE];
        char body[160];
        uuid_format(&session_id, id);
        snprintf(body, sizeof(body),
                 "{\"session_id\":\"%.*s\",\"heartbeat_interval_ms\":%" PRIu64 "}", UUID_TEXT_SIZE,
                 id, session->delivery->shared->options.heartbeat_ms);
        status = typed_send(session, &session->replies, "init_ack", slice_of(body));
        audit->state = AUDIT_BEGUN;
    }
    if (status != STATUS_OK) {
        outlet_close(session->outlet);
        return;
    }
    subscriber_start(subscriber);
    session_flush(session);
}

/* ---- the init ---- */

static bool wants(const void *user, const struct frame_content *content) {
    const struct audit *audit = user;
    return audit_init_wants(&audit->init, content);
}

static enum status begin(struct session *session) {
    struct audit *audit = session->dialect_state;
    struct subscription_options options = {
        .view = grant_check(session->principal, topic_name(TOPIC_AUDIT), NULL).view,
        .wants = audit_init_filters(&audit->init) ? wants : NULL,
        .wants_user = audit,
    };
    struct subscriber *subscriber;
    log_position_ask(&audit->position, &options);
    enum status status =
        subscription_quota_set(session->delivery->shared->subscription_quota,
                               &session->subscriptions, session->principal, 1, &audit->refusal);
    if (status == STATUS_OK)
        status = subscriber_new(session, SLICE(LOG_TOPIC), &options, &subscriber);
    if (status != STATUS_OK)
        return status;
    subscriber->form = &forms[0][websocket_deflates(session)];
    return session_open_one(session, subscriber);
}

/* The client does not authenticate, or may not read the log: counted, logged and sent. */
static enum status deny(struct session *session, enum status why, const char *reason) {
    if (status_http(why) == 401 || status_http(why) == 403)
        session_log_refused(session, (struct slice){NULL, 0}, why);
    session->close_code = (uint16_t)ws_close_code(why);
    return refuse_message(session, why, "reason", reason);
}

/* The lookup is a member of the session's state, and freed with it. */
static void lookup_free(struct session_lookup *lookup) {
    (void)lookup;
}

static void use_begin(struct session_lookup *lookup, struct call *call) {
    struct audit *audit = container_of(lookup, struct audit, lookup);
    single_use_post(audit->uses, &audit->use, call, audit->principal);
}

/* Anything but STATUS_OK: the id cannot be used, and done does not run. */
static enum status use_once(struct session *session, enum single_use_kind kind, struct slice id,
                            uint64_t expires_at_ms,
                            void (*done)(struct session *session, struct session_lookup *lookup,
                                         enum status status)) {
    struct audit *audit = session->dialect_state;
    enum status status = single_use_init(&audit->use, kind, id);
    if (status != STATUS_OK)
        return status;
    audit->use.expires_at_ms = expires_at_ms;
    audit->use.forget_ms = io_loop_forget_ms(session->delivery->io);
    audit->uses = settings_of(session)->single_uses;
    audit->principal = session->principal;
    audit->lookup = (struct session_lookup){.begin = use_begin, .done = done, .free = lookup_free};
    session_look_up(session, &audit->lookup);
    return STATUS_OK;
}

/* The refusal waits, so that a client which opens the next socket at once costs little. */
static void deny_later(struct session *session, enum status status, uint64_t delay_ms) {
    struct audit *audit = session->dialect_state;
    audit->state = AUDIT_DENIED;
    audit->denied = status;
    io_loop_deadline_in(session->delivery->io, &session->heartbeat_deadline, DEADLINE_HEARTBEAT,
                        delay_ms);
}

static void admitted(struct session *session, enum status status, const char *reason) {
    if (status == STATUS_RATE_LIMITED) {
        deny_later(session, status, CONN_RETRY_MS);
        return;
    }
    if (status == STATUS_OK) {
        status = begin(session);
        reason = status_code(status);
    }
    if (status != STATUS_OK && deny(session, status, reason) != STATUS_OK)
        outlet_close(session->outlet);
}

static void token_used(struct session *session, struct session_lookup *lookup, enum status status) {
    (void)lookup;
    admitted(session, status, status_code(status));
}

static void nonce_used(struct session *session, struct session_lookup *lookup, enum status status) {
    (void)lookup;
    if (status != STATUS_OK || !settings_of(session)->token_single_use) {
        admitted(session, status,
                 status == STATUS_TOKEN_REPLAYED ? "nonce_used" : status_code(status));
        return;
    }
    struct slice id = session->principal->token_id;
    status = STATUS_MISSING_JTI;
    if (id.data)
        status = use_once(session, SINGLE_USE_TOKEN, id,
                          single_use_token_until_ms(session->principal), token_used);
    if (status != STATUS_OK)
        admitted(session, status, status_code(status));
}

/* The capability is checked first, so that a client without one cannot use up nonces. Every error
 * of a nonce is a failed authentication. */
static enum status admit(struct session *session) {
    struct audit *audit = session->dialect_state;
    const struct audit_init *init = &audit->init;
    uint64_t now_ms = clock_wall_ms(&session->delivery->io->clock);
    const struct principal *principal = NULL;
    struct token_refusal refusal = {0};
    enum status status = gate_admit_token(settings_of(session)->gate, init->capability, now_ms,
                                          &principal, &refusal);
    session->token_rule = refusal.rule;
    if (refusal.name_size > 0)
        session->bearer = strndup(refusal.name, refusal.name_size);
    if (status == STATUS_OK)
        status = session_admit(session, principal);
    if (status == STATUS_OK)
        status = grant_check(principal, topic_name(TOPIC_AUDIT), NULL).status;
    uint64_t delay_ms = status == STATUS_INVALID_TOKEN
                            ? session->outlet->table->charge_failure(session->outlet)
                            : 0;
    if (delay_ms > 0) {
        deny_later(session, status, delay_ms);
        return STATUS_OK;
    }
    if (status != STATUS_OK)
        return deny(session, status, status_code(status));
    if (init->at_ms > now_ms + NONCE_SKEW_MS_MAX || now_ms > init->at_ms + NONCE_SKEW_MS_MAX)
        return deny(session, STATUS_INVALID_TOKEN, "ts_out_of_skew");
    if (init->has_cursor)
        audit->position.asked = (struct query_cursor){.given = true, .cursor = init->cursor};
    if (init->has_since)
        audit->position.asked = query_cursor_since(since_time_ms(&init->since, now_ms), now_ms);
    io_loop_deadline(session->delivery->io, &session->heartbeat_deadline, DEADLINE_HEARTBEAT);
    status = use_once(session, SINGLE_USE_NONCE, init->nonce, init->at_ms + NONCE_SKEW_MS_MAX + 1,
                      nonce_used);
    return status == STATUS_OK ? STATUS_OK : deny(session, status, status_code(status));
}

static enum status receive(struct session *session, struct slice text) {
    struct audit *audit = session->dialect_state;
    const char *problem = "";
    if (audit->state == AUDIT_DENIED)
        return STATUS_OK;
    if (audit->state != AUDIT_NEW)
        return refuse_message(session, STATUS_INVALID_MESSAGE, "reason",
                              "only one message is allowed, the init");
    enum status status =
        audit_init_read(text, settings_of(session)->legacy_cursors, &audit->init, &problem);
    if (status == STATUS_INVALID_MESSAGE)
        return refuse_message(session, status, "reason", problem);
    if (status != STATUS_OK)
        return refuse_message(session, status, "reason", status_code(status));
    audit->state = AUDIT_ADMITTING;
    return admit(session);
}

const struct dialect audit_ws_dialect = {
    .label = LABEL_DIALECT_AUDIT_WS,
    .forms = forms,
    .receive = receive,
    .opened = opened,
    .caught_up = send_caught_up,
    .failed = send_failed,
    .heartbeat = heartbeat,
    .slow = send_slow,
    .leaving = send_leaving,
    .state_free = audit_free,
};

void handle_audit_ws(struct exchange *exchange) {
    struct query_cursor after;
    struct io_loop *loop = exchange->loop;
    /* The token is in the first message; only the handshake has the origin. */
    enum status status = gate_check_origin(&exchange->http->gate, exchange->request);
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return;
    }
    if (!query_after_cursor(exchange, &after))
        return;
    struct audit *audit = calloc(1, sizeof(*audit));
    if (!audit) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    audit->position.asked = after;
    struct session *session = websocket_open(exchange, &audit_ws_dialect, NULL, audit);
    if (session)
        session_flush(session);
    if (session && session_is_connected(session))
        io_loop_deadline_in(loop, &session->heartbeat_deadline, DEADLINE_HEARTBEAT,
                            settings_of(session)->audit_init_timeout_ms);
}
