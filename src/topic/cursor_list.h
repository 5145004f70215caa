/* Lists of topic cursors as clients store them: reads JSON, yields one cursor after the other.
 * Thread: one at a time for a list.
 * Memory: the caller's text must outlive the list. A list holds the name of one cursor at a time.
 * Errors: a text that is not JSON is refused as a whole. A bad cursor has its own status; later
 * ones follow.
 * Invariant: a name that comes out was checked: it may be looked up and has no control character.
 */
#ifndef TOPIC_CURSOR_LIST_H
#define TOPIC_CURSOR_LIST_H

#include <stdint.h>

#include "base/buffer.h"
#include "topic/continuity.h"
#include "topic/position.h"
#include "wire/json.h"

/* How far a client has read one topic, named by the topic or by its stream id. A cursor borrows its
 * name. */

enum topic_cursor_kind { TOPIC_CURSOR_TOPIC, TOPIC_CURSOR_STREAM };

struct topic_cursor {
    enum topic_cursor_kind kind;
    struct slice name;
    uint64_t after_seq;       /* the last seq that the client applied, 0 before the first */
    struct topic_epoch epoch; /* empty: the client did not give one */
};

/* Turns a cursor of a topic into a cursor of its stream. A stream cursor is unchanged. The name
 * then lives in memory, which must not change while the cursor is used. A full buffer is the only
 * failure; it leaves cursor and buffer unchanged. */
MUST_CHECK enum status topic_cursor_migrate(struct topic_cursor *cursor, struct buffer *memory);

/* A list is one of
 *   [cursor, …]    {"topic": after_seq, …}    cursor    {"cursors": any of these, "epoch"?: text}
 * or one cursor a line. A cursor is {"topic"|"stream_id", "after_seq"|"watermark", "epoch"?,
 * "window"?}; a window is {"oldest_seq", "head_seq", "replay_budget_events"}. A position is a
 * number or a text such as "12@EPOCH". The epoch of a whole list holds for cursors without an
 * epoch. */
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
    struct topic_epoch epoch; /* epoch of the whole list; empty: none */
    struct buffer name;
};

/* Only status is set unless it is STATUS_OK. The name lives until the next item. */
struct cursor_list_item {
    enum status status;
    struct topic_cursor cursor;
    bool has_window;
    struct topic_window window;
};

void cursor_list_init(struct cursor_list *list);
void cursor_list_release(struct cursor_list *list);
/* Starts over with a text that is one JSON value. A refused text leaves an empty list. */
MUST_CHECK enum status cursor_list_begin(struct cursor_list *list, struct slice text,
                                         const struct json_limits *limits);
/* Starts over with a text of one cursor a line. Blank lines are skipped. */
void cursor_list_begin_lines(struct cursor_list *list, struct slice text,
                             const struct json_limits *limits);
bool cursor_list_next(struct cursor_list *list, struct cursor_list_item *item);
/* A JSON string as an epoch. STATUS_INVALID_CURSOR for any other value. */
MUST_CHECK enum status cursor_list_read_epoch(struct json_value value, struct topic_epoch *epoch);

#endif
