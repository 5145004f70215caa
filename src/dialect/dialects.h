/* What the dialects have in common: their settings, handlers and tables, the upgrade of an
 * exchange to a session, the form of a message, and the position in the whole log.
 * Thread: settings are filled before the loops start and read-only afterwards, except for the
 * gate, which any thread uses. A handler runs on its connection's loop, with the whole request
 * read.
 * Memory: settings outlive every session. An exchange belongs to its connection, and is gone after
 * an upgrade. Messages are appended to the caller's buffer.
 * Errors: those of a handler are answers of its exchange; those of a message are the buffer's.
 * Invariant: a message is the same bytes in every answer. A position in the log is never later
 * than its last event: the store refuses such a cursor. */
#ifndef DIALECT_DIALECTS_H
#define DIALECT_DIALECTS_H

#include "delivery/page.h"
#include "delivery/session/session.h"
#include "delivery/session/session_events.h"
#include "http/admit/gate.h"
#include "http/admit/single_use.h"
#include "http/exchange.h"
#include "http/query_cursor.h"
#include "hub/frame.h"
#include "wire/object_writer.h"

struct dialect_settings {
    struct gate *gate;
    struct single_uses *single_uses;
    size_t message_bytes_max;       /* the largest message from a peer */
    size_t first_message_bytes_max; /* the largest one before the peer has authenticated */
    uint64_t messages_per_second;
    size_t subscriptions_max; /* on one connection */
    uint64_t audit_init_timeout_ms;
    bool token_single_use;
    bool legacy_cursors;
    uint64_t poll_default_limit;
    uint64_t poll_max_limit;
    uint64_t outbound_queue_limit;
};

static inline const struct dialect_settings *settings_of(const struct session *session) {
    return session->delivery->shared->dialects;
}

/* ---- handlers ---- */

struct exchange;

void handle_messages(struct exchange *exchange); /* poll.c */
void handle_phoenix(struct exchange *exchange);
void handle_sse(struct exchange *exchange);
void handle_log_sse(struct exchange *exchange);
void handle_topic_ws(struct exchange *exchange);
void handle_audit_ws(struct exchange *exchange);

extern const struct dialect sse_dialect;
extern const struct dialect log_sse_dialect;
extern const struct dialect topic_ws_dialect;
extern const struct dialect audit_ws_dialect;
extern const struct dialect phoenix_dialect;

/* A poll has waited as long as its client asked for. */
void poll_expired(struct deadline *deadline);

/* ---- upgrades ---- */

/* Fills in delivery, outlet and name of the options. NULL: the exchange has been answered. */
struct session *upgrade_to_session(struct exchange *exchange, struct session_options options);

/* ---- messages ---- */

/* The object {…}. */
MUST_CHECK enum status message_write(struct buffer *out, const struct frame *frame,
                                     enum frame_form form);
/* The member "after", the position before the message, and a comma. A lean message has it only if
 * frames before it are hidden or folded into it: otherwise it is seq - 1. Writes at most
 * MESSAGE_AFTER_BYTES_MAX bytes and returns their end. */
#define MESSAGE_AFTER_BYTES_MAX 40
char *message_put_after(char *at, const struct frame *frame, enum frame_form form, uint64_t after);
/* The members that follow the text of the frame, and the closing brace. Writes at most
 * MESSAGE_END_BYTES_MAX bytes and returns their end. */
#define MESSAGE_END_BYTES_MAX 80
char *message_put_end(char *at, const struct frame *frame, enum frame_form form);
/* The form that the query asks for; FRAME_FULL without the parameter. */
MUST_CHECK enum status message_query_form(const struct exchange *exchange, enum frame_form *form);

/* ---- positions in the log ---- */

struct log_position {
    struct query_cursor asked; /* the position before the first event */
};

/* Writes the position that was asked for to the options of a subscription. */
void log_position_ask(const struct log_position *position, struct subscription_options *options);

/* The session's position; given is false before the first event of a log read from its start. */
struct query_cursor log_position_now(const struct log_position *position,
                                     const struct session *session);
/* The members lag, strikes, max_strikes, resume_after and reconnect_after_ms. */
void log_position_put_slow(const struct log_position *position, const struct session *session,
                           struct object_writer *object);
/* "resume_after CURSOR", for the reason of a close; empty if there is none. */
void log_position_reason(const struct log_position *position, const struct session *session,
                         char text[124]);

#endif
