/* Lists of topic cursors as clients keep them: JSON in, one cursor after the other out.
 * Any thread; a list belongs to one at a time. Reads the caller's text, which must stay as long as
 * the list is read; one cursor's name is kept at a time, in at most STREAM_ID_BYTES_MAX bytes.
 * A text that is not JSON is refused as a whole; a bad cursor by its own status, and the next ones
 * still come. Names are checked: what comes out may be looked up, and fits on a line. */
#ifndef TOPIC_CURSOR_LIST_H
#define TOPIC_CURSOR_LIST_H

#include "topic/continuity.h"
#include "topic/topic_cursor.h"
#include "wire/json.h"

/* A list is one of
 *   [cursor, …]    {"topic": after_seq, …}    cursor    {"cursors": any of these, "epoch"?: text}
 * or one cursor a line. A cursor is {"topic"|"stream_id", "after_seq"|"watermark", "window"?}; a
 * window is {"oldest_seq", "head_seq", "replay_budget_events"}. */
enum cursor_list_form {
    CURSOR_LIST_OVER,
    CURSOR_LIST_ARRAY,
    CURSOR_LIST_MAP,
    CURSOR_LIST_SINGLE,
    CURSOR_LIST_LINES,
};

struct cursor_list {
    enum cursor_list_form form;
    struct json_limits limits;
    struct json_iterator iterator;
    struct json_value single;
    struct slice lines;
    struct json_value epoch; /* a string, where has_epoch */
    bool has_epoch;
    struct buffer name;
};

/* With a status other than STATUS_OK nothing else is set. The name lives until the next one. */
struct cursor_list_item {
    enum status status;
    struct topic_cursor cursor;
    bool has_window;
    struct topic_window window;
};

void cursor_list_init(struct cursor_list *list);
void cursor_list_release(struct cursor_list *list);
/* Begins anew with a text that is one JSON value; refused, the list is over. */
MUST_CHECK enum status cursor_list_begin(struct cursor_list *list, struct slice text,
                                         const struct json_limits *limits);
/* Begins anew with a text of one cursor a line; blank lines are skipped. */
void cursor_list_begin_lines(struct cursor_list *list, struct slice text,
                             const struct json_limits *limits);
bool cursor_list_next(struct cursor_list *list, struct cursor_list_item *item);
/* The list names an epoch, and it is another one. */
bool cursor_list_epoch_differs(const struct cursor_list *list, struct slice epoch);

#endif
