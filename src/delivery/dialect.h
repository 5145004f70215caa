/* A dialect: how what is delivered looks on the wire, and what a peer may say. Only encoders and
 * decoders; positions, fairness, strikes and time are the session's.
 * Belongs to the session's loop. Encoders append whole messages to a buffer, all or nothing.
 * A decoder answers the status the session is closed with, after what it wrote to own.
 * NULL where a dialect has no such thing. */
#ifndef DELIVERY_DIALECT_H
#define DELIVERY_DIALECT_H

#include "delivery/session.h"
#include "spec/metrics.h"

enum page_form_index {
    PAGE_FORM_SSE,
    PAGE_FORM_SSE_BARE,
    PAGE_FORM_LOG_SSE,
    PAGE_FORM_LOG_SSE_BARE,
    PAGE_FORM_TOPIC_WS,
    PAGE_FORM_TOPIC_WS_DEFLATE,
    PAGE_FORM_AUDIT_WS,
    PAGE_FORM_AUDIT_WS_DEFLATE,
    PAGE_FORM_PHOENIX,
    PAGE_FORM_PHOENIX_DEFLATE,
    PAGE_FORM_PHOENIX_FRAMES,
    PAGE_FORM_PHOENIX_FRAMES_DEFLATE,
    PAGE_FORM_COUNT,
};
_Static_assert(PAGE_FORM_COUNT <= PAGE_FORMS_MAX, "a page has room for each");

struct dialect {
    enum label_dialect label; /* what it is counted as */
    /* A message of the peer, from a WebSocket. */
    enum status (*receive)(struct session *session, struct slice text);
    /* The opening was looked at. The dialect starts its subscribers, or drops them. */
    void (*opened)(struct session *session, struct session_opening *opening);
    /* In place of opened, when the session is gone: takes back the opening's user. */
    void (*opening_gone)(struct session_opening *opening);
    /* A subscriber began anew where its topic allows. */
    enum status (*bootstrap)(struct subscriber *subscriber, struct buffer *out);
    /* A part of the snapshot the subscriber begins with; NULL: it begins with what the journal has.
     */
    enum status (*snapshot)(struct subscriber *subscriber, struct buffer *out);
    /* Nothing is left to replay; said once, where a page does not say it. */
    enum status (*caught_up)(struct subscriber *subscriber, struct buffer *out);
    /* Retention overtook the subscriber. True: it goes on with a bootstrap; false: it is dropped.
     */
    enum status (*stale)(struct subscriber *subscriber, struct buffer *out);
    bool restarts_stale;
    bool page_says_caught_up;
    /* Why it ends: a subscriber that cannot go on, a token that expired or was revoked. The session
     * is closed afterwards. */
    enum status (*failed)(struct session *session, enum status status, struct buffer *out);
    /* The token ends in so long, and nothing is delivered after it. */
    enum status (*reauth)(struct session *session, uint64_t left_ms, struct buffer *out);
    enum status (*heartbeat)(struct session *session, struct buffer *out);
    /* The last strike: the error, before the close. */
    enum status (*slow)(struct session *session, struct buffer *out);
    /* The server ends. */
    enum status (*leaving)(struct session *session, uint64_t retry_after_ms, struct buffer *out);
    void (*state_free)(void *state);
};

#endif
