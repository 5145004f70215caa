/* Topic cursors: how far a client has read one topic, named by the topic or by its stream id.
 * Any thread. A cursor borrows its name; migration writes the new name into the caller's buffer.
 * A full buffer is the only failure. It leaves cursor and buffer unchanged.
 * after_seq is exclusive: the last seq that the client applied, 0 before the first.
 * Migration never changes after_seq. */
#ifndef TOPIC_TOPIC_CURSOR_H
#define TOPIC_TOPIC_CURSOR_H

#include <stdint.h>

#include "base/buffer.h"
#include "topic/position.h"

enum topic_cursor_kind { TOPIC_CURSOR_TOPIC, TOPIC_CURSOR_STREAM };

struct topic_cursor {
    enum topic_cursor_kind kind;
    struct slice name;
    uint64_t after_seq;
    struct topic_epoch epoch; /* of the position; empty: the client did not give one */
};

/* Turns a cursor of a topic into a cursor of its stream. A stream cursor is unchanged. The name
 * then lives in memory, which must not change while the cursor is used. */
MUST_CHECK enum status topic_cursor_migrate(struct topic_cursor *cursor, struct buffer *memory);

#endif
