#include "wire/json_items.h"

#include <assert.h>

void json_items_init(struct json_items *items, enum json_items_format format,
                     const struct json_limits *limits) {
    *items = (struct json_items){.format = format, .limits = *limits};
    /* One byte more than a value may have: the end of a number shows only by the byte after it,
     * and a value that is too long by the byte over the limit. */
    buffer_init(&items->pending, limits->bytes_max + 1);
}

void json_items_release(struct json_items *items) {
    buffer_release(&items->pending);
}

static struct json_item item_more(void) {
    return (struct json_item){.kind = JSON_ITEM_MORE};
}

static struct json_item item_bad(enum status status) {
    return (struct json_item){.kind = JSON_ITEM_BAD, .status = status};
}

static struct json_item item_broken(struct json_items *items, enum status status) {
    items->state = JSON_ITEMS_BROKEN_OFF;
    items->failure = status;
    buffer_release(&items->pending);
    return (struct json_item){.kind = JSON_ITEM_BROKEN, .status = status};
}

static struct slice skip_blanks(struct slice text) {
    size_t size = 0;
    while (size < text.size && memchr(" \t\r\n", text.data[size], 4))
        size++;
    return slice_from(text, size);
}

/* ---- lines -------------------------------------------------------------------------------- */

static struct json_item line_over(struct json_items *items, struct slice part) {
    if (items->skipping || items->pending.size + part.size > items->limits.bytes_max) {
        items->skipping = false;
        buffer_release(&items->pending);
        return item_bad(STATUS_PAYLOAD_TOO_LARGE);
    }
    struct slice line = part;
    if (items->pending.size > 0) {
        if (buffer_append_slice(&items->pending, part) != STATUS_OK) {
            buffer_release(&items->pending);
            return item_bad(STATUS_OUT_OF_MEMORY);
        }
        items->given = true;
        line = buffer_slice(&items->pending);
    }
    if (skip_blanks(line).size == 0)
        return item_more();
    struct json_item item = {.kind = JSON_ITEM_VALUE};
    enum status status = json_parse(line, &items->limits, &item.value);
    return status == STATUS_OK ? item : item_bad(status);
}

static struct json_item next_line(struct json_items *items, struct slice *input) {
    while (input->size > 0) {
        const char *end = memchr(input->data, '\n', input->size);
        size_t size = end ? (size_t)(end - input->data) : input->size;
        struct slice part = {input->data, size};
        *input = slice_from(*input, end ? size + 1 : size);
        if (!end) {
            /* The beginning of a line is kept, unless the line is too long. */
            if (items->skipping || items->pending.size + part.size > items->limits.bytes_max ||
                buffer_append_slice(&items->pending, part) != STATUS_OK) {
                items->skipping = true;
                buffer_release(&items->pending);
            }
            break;
        }
        struct json_item item = line_over(items, part);
        if (item.kind != JSON_ITEM_MORE)
            return item;
        buffer_clear(&items->pending);
        items->given = false;
    }
    return item_more();
}

/* ---- an array ----------------------------------------------------------------------------- */

/* Continues an element of which a part is pending. */
static struct json_item continue_element(struct json_items *items, struct slice *input) {
    size_t before = items->pending.size;
    size_t room = items->pending.size_max - before;
    struct slice part = {input->data, input->size < room ? input->size : room};
    if (buffer_append_slice(&items->pending, part) != STATUS_OK)
        return item_broken(items, STATUS_OUT_OF_MEMORY);
    struct json_item item = {.kind = JSON_ITEM_VALUE};
    size_t used = 0;
    enum status status =
        json_scan(&items->scan, buffer_slice(&items->pending), &items->limits, &item.value, &used);
    if (status != STATUS_OK)
        return item_broken(items, status);
    if (used == 0) {
        *input = slice_from(*input, part.size);
        return input->size > 0 ? item_broken(items, STATUS_PAYLOAD_TOO_LARGE) : item_more();
    }
    assert(used >= before);
    *input = slice_from(*input, used - before);
    items->given = true;
    items->state = JSON_ITEMS_SEPARATOR;
    return item;
}

/* A complete element is read in place. */
static struct json_item next_element(struct json_items *items, struct slice *input) {
    if (items->pending.size > 0)
        return continue_element(items, input);
    struct json_item item = {.kind = JSON_ITEM_VALUE};
    size_t used = 0;
    /* The same bound as for an element in pieces, so that both are refused for the same reason. */
    size_t size = items->pending.size_max < input->size ? items->pending.size_max : input->size;
    enum status status = json_scan(&items->scan, (struct slice){input->data, size}, &items->limits,
                                   &item.value, &used);
    if (status != STATUS_OK)
        return item_broken(items, status);
    if (used > 0) {
        *input = slice_from(*input, used);
        items->state = JSON_ITEMS_SEPARATOR;
        return item;
    }
    if (buffer_append_slice(&items->pending, *input) != STATUS_OK)
        return item_broken(items, STATUS_PAYLOAD_TOO_LARGE);
    *input = slice_from(*input, input->size);
    return item_more();
}

static struct json_item next_of_array(struct json_items *items, struct slice *input) {
    for (;;) {
        if (items->pending.size == 0)
            *input = skip_blanks(*input);
        if (input->size == 0)
            return item_more();
        /* The next byte belongs to an element, or is one that the array's own syntax allows. */
        char byte = input->data[0];
        bool is_allowed = false;
        switch (items->state) {
        case JSON_ITEMS_OPENS:
            items->state = JSON_ITEMS_FIRST;
            is_allowed = byte == '[';
            break;
        case JSON_ITEMS_FIRST:
            items->state = byte == ']' ? JSON_ITEMS_CLOSED : JSON_ITEMS_ELEMENT;
            if (byte != ']')
                return next_element(items, input);
            is_allowed = true;
            break;
        case JSON_ITEMS_ELEMENT:
            return next_element(items, input);
        case JSON_ITEMS_SEPARATOR:
            items->state = byte == ',' ? JSON_ITEMS_ELEMENT : JSON_ITEMS_CLOSED;
            is_allowed = byte == ',' || byte == ']';
            break;
        case JSON_ITEMS_CLOSED:
        case JSON_ITEMS_BROKEN_OFF:
            break;
        }
        if (!is_allowed)
            return item_broken(items, STATUS_INVALID_JSON);
        *input = slice_from(*input, 1);
    }
}

/* ------------------------------------------------------------------------------------------- */

struct json_item json_items_next(struct json_items *items, struct slice *input) {
    if (items->given) {
        items->given = false;
        buffer_clear(&items->pending);
    }
    if (items->state == JSON_ITEMS_BROKEN_OFF)
        return (struct json_item){.kind = JSON_ITEM_BROKEN, .status = items->failure};
    if (input->size == 0)
        return item_more();
    return items->format == JSON_ITEMS_LINES ? next_line(items, input)
                                             : next_of_array(items, input);
}

struct json_item json_items_finish(struct json_items *items) {
    if (items->given) {
        items->given = false;
        buffer_clear(&items->pending);
    }
    if (items->state == JSON_ITEMS_BROKEN_OFF)
        return (struct json_item){.kind = JSON_ITEM_BROKEN, .status = items->failure};
    if (items->format == JSON_ITEMS_LINES) {
        struct json_item item = item_more();
        if (items->pending.size > 0 || items->skipping)
            item = line_over(items, SLICE(""));
        if (item.kind != JSON_ITEM_MORE)
            return item;
        items->given = false;
        buffer_release(&items->pending);
    } else if (items->state != JSON_ITEMS_CLOSED) {
        return item_broken(items, STATUS_INVALID_JSON);
    }
    return (struct json_item){.kind = JSON_ITEM_END};
}
