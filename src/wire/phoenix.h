/* Phoenix Channels V2 in text frames: [join_ref, ref, topic, event, payload].
 * Thread: any.
 * Memory: the caller's buffer. A decoded message points into its text, or into its own storage for
 * parts with escapes: it lives no longer than the text, and must not be copied.
 * Errors: INVALID_MESSAGE for another shape or a part that is too long; JSON's and the buffer's
 * own.
 * Invariant: an encoded message decodes to the same parts. */
#ifndef WIRE_PHOENIX_H
#define WIRE_PHOENIX_H

#include "base/buffer.h"
#include "base/slice.h"
#include "spec/codes.h"
#include "wire/json.h"

/* Sizes of decoded text. */
#define PHOENIX_REF_BYTES_MAX   64
#define PHOENIX_TOPIC_BYTES_MAX 512
#define PHOENIX_EVENT_BYTES_MAX 128

/* A null reference, which differs from an empty one. */
#define PHOENIX_NULL ((struct slice){NULL, 0})

struct phoenix_message {
    struct slice join_ref; /* data is NULL for null */
    struct slice ref;      /* data is NULL for null */
    struct slice topic;
    struct slice event;
    struct json_value payload;
    char storage[2 * PHOENIX_REF_BYTES_MAX + PHOENIX_TOPIC_BYTES_MAX + PHOENIX_EVENT_BYTES_MAX];
};

MUST_CHECK enum status phoenix_decode(struct slice text, const struct json_limits *limits,
                                      struct phoenix_message *message);

/* Where a frame goes: the topic, and the join and request it answers. */
struct phoenix_address {
    struct slice join_ref;
    struct slice ref;
    struct slice topic;
};

/* Each appends one message, all or nothing. A payload or response is valid JSON and stays
 * unchanged. */
MUST_CHECK enum status phoenix_write(struct buffer *out, const struct phoenix_address *address,
                                     struct slice event, struct slice payload);
/* "phx_reply" with {"status": "ok" or "error", "response": response}. */
MUST_CHECK enum status phoenix_write_reply(struct buffer *out,
                                           const struct phoenix_address *address, bool ok,
                                           struct slice response);
/* A message that is no reply; with join_ref PHOENIX_NULL its bytes are the same for every client.
 */
MUST_CHECK enum status phoenix_write_push(struct buffer *out, struct slice join_ref,
                                          struct slice topic, struct slice event,
                                          struct slice payload);
/* The same with the payload written in place between the two calls. When one of them fails, the
 * caller truncates the buffer. */
MUST_CHECK enum status phoenix_push_begin(struct buffer *out, struct slice join_ref,
                                          struct slice topic, struct slice event);
MUST_CHECK enum status phoenix_push_end(struct buffer *out);
/* Ends a channel for good. Clients recognise the channel by join_ref. */
MUST_CHECK enum status phoenix_write_close(struct buffer *out, struct slice join_ref,
                                           struct slice topic);

#endif
