/* Stream ids: the canonical runtime.* names of topics, and the way back.
 * Any thread. Appends to the caller's buffer; a failure leaves it as it was.
 * No topic behind a stream id is STATUS_NOT_FOUND; a full buffer says so in its own words.
 * Every topic has one stream id, and a topic that a stream id leads to has that stream id. */
#ifndef TOPIC_STREAM_ID_H
#define TOPIC_STREAM_ID_H

#include "base/buffer.h"
#include "topic/topic_name.h"

/* The longest prefix, "runtime.topic.", before the longest topic. */
#define STREAM_ID_BYTES_MAX (TOPIC_NAME_BYTES_MAX + 14)

/* Any bytes map; whether they may name a topic is topic_name_check's to say. */
MUST_CHECK enum status topic_to_stream(struct slice topic, struct buffer *out);
/* The stream id in the arena. STATUS_OUT_OF_MEMORY. */
MUST_CHECK enum status topic_stream(struct arena *arena, struct slice topic,
                                    struct slice *stream_id);
/* Exact for the retained streams and the fixed runtime.* topics. For others ask the store first:
 * both a.b and a:b are runtime.topic.a.b, and of those this rule knows only the colons. */
MUST_CHECK enum status stream_to_topic(struct slice stream_id, struct buffer *out);

#endif
