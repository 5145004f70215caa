/* A dialect: how a session's messages look on the wire. Only encoders and decoders; positions,
 * fairness, strikes and time belong to the session.
 * Belongs to the session's loop.
 * Memory: encoders append whole messages to a buffer, all or nothing.
 * Errors: a decoder answers the status that the session is closed with, after its replies.
 * A function is NULL where the dialect has no such message. */
#ifndef DELIVERY_SESSION_DIALECT_H
#define DELIVERY_SESSION_DIALECT_H

#include "delivery/session/session.h"
#include "spec/metrics.h"

enum page_form_index {
    PAGE_FORM_SSE,
    PAGE_FORM_SSE_BARE,
    PAGE_FORM_SSE_LEAN,
    PAGE_FORM_SSE_LEAN_BARE,
    PAGE_FORM_LOG_SSE,
    PAGE_FORM_LOG_SSE_BARE,
    PAGE_FORM_TOPIC_WS,
    PAGE_FORM_TOPIC_WS_DEFLATE,
    PAGE_FORM_TOPIC_WS_LEAN,
    PAGE_FORM_TOPIC_WS_LEAN_DEFLATE,
    PAGE_FORM_AUDIT_WS,
    PAGE_FORM_AUDIT_WS_DEFLATE,
    PAGE_FORM_PHOENIX,
    PAGE_FORM_PHOENIX_DEFLATE,
    PAGE_FORM_PHOENIX_LEAN,
    PAGE_FORM_PHOENIX_LEAN_DEFLATE,
    PAGE_FORM_PHOENIX_FRAMES,
    PAGE_FORM_PHOENIX_FRAMES_DEFLATE,
    PAGE_FORM_COUNT,
};
_Static_assert(PAGE_FORM_COUNT <= PAGE_FORMS_MAX, "a page has room for each");

struct dialect {
    enum label_dialect label; /* what it is counted as */
    bool has_one_topic;       /* from its beginning; its session counts as one subscription */
    /* A message of the peer, from a WebSocket. */
    enum status (*receive)(struct session *session, struct slice text);
    /* The positions of the opening are known. The dialect starts its subscribers, or drops them. */
    void (*opened)(struct session *session, struct session_opening *opening);
    /* In place of opened, when the session has ended: frees the opening's user. */
    void (*opening_gone)(struct session_opening *opening);
    /* A subscriber begins with a bootstrap. */
    enum status (*bootstrap)(struct subscriber *subscriber, struct buffer *out);
    /* A part of the snapshot that the subscriber begins with; NULL: it begins with the journal. */
    enum status (*snapshot)(struct subscriber *subscriber, struct buffer *out);
    /* Nothing is left to replay; sent once, where a page does not say so. With page_covers_range,
     * it covers the hidden frames too. */
    enum status (*caught_up)(struct subscriber *subscriber, struct buffer *out);
    /* Retention overtook the subscriber. */
    enum status (*stale)(struct subscriber *subscriber, struct buffer *out);
    bool restarts_stale;      /* a stale subscriber bootstraps; false: it is dropped */
    bool page_says_caught_up; /* a page says whether it is the last one of the replay */
    bool page_covers_range;   /* a page covers the hidden frames behind its last frame too */
    /* A subscriber ends, and the session goes on: the topic that appeared is not the one it may
     * read. NULL: the session ends with it. */
    enum status (*refused)(struct subscriber *subscriber, enum status status, struct buffer *out);
    /* Why the session ends: a subscriber that failed, a token that expired or was revoked. */
    enum status (*failed)(struct session *session, enum status status, struct buffer *out);
    /* The token ends in left_ms, and nothing is delivered after that. */
    enum status (*reauth)(struct session *session, uint64_t left_ms, struct buffer *out);
    /* Covers what each subscriber passed since it was last sent its position. */
    enum status (*heartbeat)(struct session *session, struct buffer *out);
    /* The last strike: the error, before the close. */
    enum status (*slow)(struct session *session, struct buffer *out);
    /* The server ends. */
    enum status (*leaving)(struct session *session, uint64_t retry_after_ms, struct buffer *out);
    void (*state_free)(void *state);
};

#endif
