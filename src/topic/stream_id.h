/* Stream ids: the canonical runtime.* names of topics, and the topics of stream ids. An address is
 * either, as a client gives it.
 * Thread: any.
 * Memory: the caller's buffer or arena.
 * Errors: STATUS_NOT_FOUND for a stream id without a topic. A failure leaves the buffer unchanged.
 * Invariant: every topic has one stream id, and a topic found by a stream id has that stream id. No
 * topic has a name that is also a stream id. */
#ifndef TOPIC_STREAM_ID_H
#define TOPIC_STREAM_ID_H

#include "base/buffer.h"
#include "topic/topic_name.h"

/* The longest prefix, "runtime.topic.", before the longest topic. */
#define STREAM_ID_BYTES_MAX (TOPIC_NAME_BYTES_MAX + 14)

/* Every byte string has a stream id. topic_name_check says whether it may be a topic. */
MUST_CHECK enum status topic_to_stream(struct slice topic, struct buffer *out);
/* The stream id in the arena. STATUS_OUT_OF_MEMORY. */
MUST_CHECK enum status topic_stream(struct arena *arena, struct slice topic,
                                    struct slice *stream_id);
/* Exact for the retained streams and the built-in topics. For other stream ids ask the store first:
 * a.b and a:b are both runtime.topic.a.b, and this rule returns a:b. */
MUST_CHECK enum status stream_to_topic(struct slice stream_id, struct buffer *out);

enum address_kind {
    ADDRESS_TOPIC,         /* the name of a topic, also one that may not exist */
    ADDRESS_STREAM,        /* a stream id whose topic follows from the text */
    ADDRESS_STORED_STREAM, /* the stream id of several names: the store knows which one exists */
};

enum address_kind address_kind(struct slice address);
/* STATUS_INVALID_TOPIC for a text that is neither. */
MUST_CHECK enum status address_check(struct slice address);
/* Appends the stream id of the address. */
MUST_CHECK enum status address_stream(struct slice address, struct buffer *out);
/* Appends the topic of the address. STATUS_NOT_FOUND for a stored stream. */
MUST_CHECK enum status address_topic(struct slice address, struct buffer *out);

#endif
