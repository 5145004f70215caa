#include "topic/topic_cursor.h"

#include "topic/stream_id.h"

enum status topic_cursor_migrate(struct topic_cursor *cursor, struct buffer *memory) {
    if (cursor->kind == TOPIC_CURSOR_STREAM)
        return STATUS_OK;
    size_t begin = memory->size;
    enum status status = topic_to_stream(cursor->name, memory);
    if (status != STATUS_OK)
        return status;
    cursor->kind = TOPIC_CURSOR_STREAM;
    cursor->name = slice_from(buffer_slice(memory), begin);
    return STATUS_OK;
}
