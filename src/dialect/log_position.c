#include "dialect/log_position.h"

#include <stdio.h>

#include "wire/object_writer.h"

void log_position_set(struct log_position *position, const struct event_cursor *cursor,
                      uint64_t now_ms) {
    position->asked = (struct query_cursor){.given = true, .cursor = *cursor};
    position->is_future = cursor->timestamp_ms >= now_ms;
}

void log_position_set_head(struct log_position *position, uint64_t now_ms) {
    struct uuid first = uuid7_first(now_ms);
    struct event_cursor cursor = event_cursor_of(&first);
    log_position_set(position, &cursor, now_ms);
}

bool log_position_is_before(const struct log_position *position,
                            const struct frame_content *content) {
    struct event_cursor cursor = event_cursor_of(&content->cursor);
    return !position->is_future || event_cursor_compare(&cursor, &position->asked.cursor) > 0;
}

struct query_cursor log_position_now(const struct log_position *position,
                                     const struct session *session) {
    static const struct uuid none;
    const struct subscriber *subscriber = session_first(session);
    if (!subscriber || uuid_compare(&subscriber->driver.subscription.cursor, &none) == 0)
        return position->asked;
    struct event_cursor at = event_cursor_of(&subscriber->driver.subscription.cursor);
    /* Events that were skipped on the way to a cursor of the future, or that are hidden in its
     * millisecond, do not move the position back. */
    if (position->asked.given && event_cursor_compare(&at, &position->asked.cursor) < 0)
        return position->asked;
    return (struct query_cursor){.given = true, .cursor = at};
}

enum status log_position_slow(const struct log_position *position, const struct session *session,
                              struct buffer *out) {
    const struct subscriber *subscriber = session_first(session);
    const struct delivery_options *options = &session->delivery->shared->options;
    struct query_cursor now = log_position_now(position, session);
    struct buffer cursor;
    buffer_init(&cursor, 2 + EVENT_CURSOR_SIZE_MAX);
    enum status status = query_cursor_write(&cursor, &now);
    struct object_writer object = object_begin(out);
    if (subscriber)
        object_number(&object, SLICE("lag"), driver_own_lag(&subscriber->driver));
    object_number(&object, SLICE("strikes"), session->strikes.count);
    object_number(&object, SLICE("max_strikes"), options->strikes_max);
    object_json(&object, SLICE("resume_after"), buffer_slice(&cursor));
    object_number(&object, SLICE("reconnect_after_ms"), io_loop_backoff_ms(session->delivery->io));
    enum status ended = object_end(&object);
    buffer_release(&cursor);
    return status == STATUS_OK ? ended : status;
}

void log_position_reason(const struct log_position *position, const struct session *session,
                         char text[124]) {
    char cursor[EVENT_CURSOR_SIZE_MAX];
    struct query_cursor now = log_position_now(position, session);
    text[0] = '\0';
    if (!now.given)
        return;
    int size = (int)event_cursor_encode(&now.cursor, cursor);
    (void)snprintf(text, 124, "resume_after %.*s", size, cursor);
}
