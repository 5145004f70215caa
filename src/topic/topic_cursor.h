/* Topic cursors: how far a client has read one topic, named by the topic or by its stream id.
 * Any thread. A cursor borrows its name; migration writes the new name into the caller's buffer.
 * A full buffer is the only failure, and leaves cursor and buffer as they were.
 * Exclusive: after_seq is the last one applied, 0 before the first. Migration never changes it. */
#ifndef TOPIC_TOPIC_CURSOR_H
#define TOPIC_TOPIC_CURSOR_H

#include <stdint.h>

#include "base/buffer.h"

enum topic_cursor_kind { TOPIC_CURSOR_TOPIC, TOPIC_CURSOR_STREAM };

struct topic_cursor {
    enum topic_cursor_kind kind;
    struct slice name;
    uint64_t after_seq;
};

/* Turns a topic's cursor into its stream's; a stream's stays what it is. The name then lives in
 * memory, which must not change while the cursor is used. */
MUST_CHECK enum status topic_cursor_migrate(struct topic_cursor *cursor, struct buffer *memory);

#endif
