/* Reads JSON values from a stream of bytes: one per line (NDJSON), or the elements of one array.
 * Thread: one at a time.
 * Memory: at most one incomplete value of value_bytes_max bytes, and nothing between values that
 * arrive complete.
 * Errors: a bad line is one bad item, and the next line is the next item. A bad array stays broken,
 * since the start of its next element is unknown.
 * Invariant: the items of a stream do not depend on how the stream was split into pieces. */
#ifndef WIRE_JSON_ITEMS_H
#define WIRE_JSON_ITEMS_H

#include "base/buffer.h"
#include "wire/json.h"

enum json_items_format { JSON_ITEMS_LINES, JSON_ITEMS_ARRAY };

enum json_item_kind {
    JSON_ITEM_MORE,   /* the input is used up */
    JSON_ITEM_VALUE,  /* value is set, and lives until the next call */
    JSON_ITEM_BAD,    /* status is the error of this item; others may follow */
    JSON_ITEM_BROKEN, /* status is the error; no item follows */
    JSON_ITEM_END,    /* everything was well-formed to the end */
};

struct json_item {
    enum json_item_kind kind;
    struct json_value value;
    enum status status;
};

enum json_items_state {
    JSON_ITEMS_OPENS,      /* before the bracket */
    JSON_ITEMS_FIRST,      /* an element or the closing bracket */
    JSON_ITEMS_ELEMENT,    /* an element */
    JSON_ITEMS_SEPARATOR,  /* a comma or the closing bracket */
    JSON_ITEMS_CLOSED,     /* only white space */
    JSON_ITEMS_BROKEN_OFF, /* the rest cannot be read */
};

struct json_items {
    enum json_items_format format;
    struct json_limits limits;
    struct buffer pending; /* the incomplete value */
    struct json_scan scan;
    enum json_items_state state;
    enum status failure;
    bool given;    /* pending was handed out and goes at the next call */
    bool skipping; /* a line that is too long, until its end */
};

void json_items_init(struct json_items *items, enum json_items_format format,
                     const struct json_limits *limits);
void json_items_release(struct json_items *items);
/* Removes the next item from the front of the input. Call until JSON_ITEM_MORE. */
struct json_item json_items_next(struct json_items *items, struct slice *input);
/* No more bytes come. Call until JSON_ITEM_END or JSON_ITEM_BROKEN. */
struct json_item json_items_finish(struct json_items *items);

#endif
