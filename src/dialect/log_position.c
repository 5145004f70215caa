#include "dialect/log_position.h"

#include <stdio.h>

#include "wire/object_writer.h"

void log_position_ask(const struct log_position *position, struct subscription_options *options) {
    const struct query_cursor *asked = &position->asked;
    options->has_since = asked->given && asked->is_since;
    options->since_ms = asked->cursor.timestamp_ms;
    options->has_event_cursor = asked->given && !asked->is_since;
    options->event_cursor = asked->cursor;
}

struct query_cursor log_position_now(const struct log_position *position,
                                     const struct session *session) {
    static const struct uuid none;
    const struct subscriber *subscriber = session_first(session);
    struct query_cursor asked = position->asked;
    /* A time may be later than the last event. It is a position only after the store was read. */
    asked.given &= !asked.is_since;
    const struct uuid *cursor = subscriber ? &subscriber->driver.subscription.log->cursor : &none;
    if (uuid_compare(cursor, &none) == 0)
        return asked;
    struct event_cursor at = event_cursor_of(cursor);
    /* Events that are hidden in the millisecond of the cursor do not move the position back. */
    if (asked.given && event_cursor_compare(&at, &asked.cursor) < 0)
        return asked;
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
    object_number(&object, SLICE("strikes"), session_strike_count(session));
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
