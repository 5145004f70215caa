#include "topic/cursor_list.h"

#include "base/utf8.h"
#include "topic/stream_id.h"

void cursor_list_init(struct cursor_list *list) {
    *list = (struct cursor_list){.form = CURSOR_LIST_OVER};
    buffer_init(&list->name, STREAM_ID_BYTES_MAX);
}

void cursor_list_release(struct cursor_list *list) {
    list->form = CURSOR_LIST_OVER;
    buffer_release(&list->name);
}

/* ---- a cursor ----------------------------------------------------------------------------- */

static enum status read_name(struct cursor_list *list, struct json_value text,
                             struct topic_cursor *cursor) {
    buffer_clear(&list->name);
    enum status status = json_string_decode(text, &list->name);
    /* The name is longer than any topic. The text as a whole may still be small. */
    if (status == STATUS_PAYLOAD_TOO_LARGE)
        return cursor->kind == TOPIC_CURSOR_TOPIC ? STATUS_INVALID_TOPIC : STATUS_INVALID_CURSOR;
    if (status != STATUS_OK)
        return status;
    cursor->name = buffer_slice(&list->name);
    if (address_kind(cursor->name) != ADDRESS_TOPIC)
        cursor->kind = TOPIC_CURSOR_STREAM;
    if (cursor->kind == TOPIC_CURSOR_TOPIC)
        return topic_name_check(cursor->name);
    bool is_usable = cursor->name.size > 0 && !utf8_has_control(cursor->name);
    return is_usable ? STATUS_OK : STATUS_INVALID_CURSOR;
}

static enum status read_window(struct json_value value, struct topic_window *window) {
    struct json_field fields[] = {{.name = SLICE("oldest_seq")},
                                  {.name = SLICE("head_seq")},
                                  {.name = SLICE("replay_budget_events")}};
    uint64_t *numbers[] = {&window->oldest_seq, &window->head_seq, &window->replay_budget_events};
    enum status status = json_read_members(value, fields, 3);
    for (size_t i = 0; status == STATUS_OK && i < 3; i++)
        if (!fields[i].present || !json_u64(fields[i].value, JSON_INTEGER_MAX, numbers[i]))
            status = STATUS_INVALID_CURSOR;
    return status;
}

static enum status decode_short(struct json_value value, char *memory, struct slice *text) {
    struct buffer decoded = buffer_over(memory, POSITION_BYTES_MAX);
    if (value.kind != JSON_KIND_STRING || json_string_decode(value, &decoded) != STATUS_OK)
        return STATUS_INVALID_CURSOR;
    *text = buffer_slice(&decoded);
    return STATUS_OK;
}

enum status cursor_list_read_epoch(struct json_value value, struct topic_epoch *epoch) {
    char memory[POSITION_BYTES_MAX];
    struct slice text;
    enum status status = decode_short(value, memory, &text);
    return status == STATUS_OK ? topic_epoch_read(text, epoch) : status;
}

/* A number, or a text as ids of event streams are. */
static enum status read_position(struct json_value value, struct topic_cursor *cursor) {
    char memory[POSITION_BYTES_MAX];
    struct slice text;
    struct position position = {.seq = 0};
    if (value.kind != JSON_KIND_STRING) {
        if (!json_u64(value, JSON_INTEGER_MAX, &cursor->after_seq))
            return STATUS_INVALID_CURSOR;
        return STATUS_OK;
    }
    enum status status = decode_short(value, memory, &text);
    if (status == STATUS_OK)
        status = position_read(text, &position);
    if (status != STATUS_OK)
        return status;
    cursor->after_seq = position.seq;
    cursor->epoch = position.epoch;
    return STATUS_OK;
}

static enum status read_cursor(struct cursor_list *list, struct json_value value,
                               struct cursor_list_item *item) {
    struct json_field fields[] = {{.name = SLICE("topic")},     {.name = SLICE("stream_id")},
                                  {.name = SLICE("after_seq")}, {.name = SLICE("watermark")},
                                  {.name = SLICE("window")},    {.name = SLICE("epoch")}};
    struct topic_cursor *cursor = &item->cursor;
    enum status status = json_read_members(value, fields, 6);
    if (status != STATUS_OK)
        return status;
    if (fields[0].present == fields[1].present || fields[2].present == fields[3].present)
        return STATUS_INVALID_CURSOR;
    bool by_topic = fields[0].present;
    cursor->kind = by_topic ? TOPIC_CURSOR_TOPIC : TOPIC_CURSOR_STREAM;
    status = read_position(fields[fields[2].present ? 2 : 3].value, cursor);
    if (status == STATUS_OK && fields[5].present && fields[5].value.kind != JSON_KIND_NULL) {
        struct topic_epoch epoch;
        status = cursor_list_read_epoch(fields[5].value, &epoch);
        if (status != STATUS_OK)
            return status;
        /* An epoch beside a position that has one must be the same. */
        if (topic_epoch_is_known(&cursor->epoch) && strcmp(cursor->epoch.text, epoch.text) != 0)
            return STATUS_INVALID_CURSOR;
        cursor->epoch = epoch;
    }
    if (status != STATUS_OK)
        return status;
    item->has_window = fields[4].present;
    if (item->has_window)
        status = read_window(fields[4].value, &item->window);
    return status == STATUS_OK ? read_name(list, fields[by_topic ? 0 : 1].value, cursor) : status;
}

/* ---- a list ------------------------------------------------------------------------------- */

/* An object that names a topic or a stream is one cursor. Any other object maps topics. */
static bool is_cursor(struct json_value object) {
    struct json_field fields[] = {{.name = SLICE("topic")}, {.name = SLICE("stream_id")}};
    return json_read_members(object, fields, 2) == STATUS_OK &&
           ((fields[0].present && fields[0].value.kind == JSON_KIND_STRING) ||
            (fields[1].present && fields[1].value.kind == JSON_KIND_STRING));
}

static void begin_value(struct cursor_list *list, struct json_value value) {
    list->form = CURSOR_LIST_SINGLE;
    list->single = value;
    if (value.kind == JSON_KIND_ARRAY)
        list->form = CURSOR_LIST_ARRAY;
    else if (value.kind == JSON_KIND_OBJECT && !is_cursor(value))
        list->form = CURSOR_LIST_MAP;
    if (list->form != CURSOR_LIST_SINGLE)
        list->iterator = json_iterate(value);
}

enum status cursor_list_begin(struct cursor_list *list, struct slice text,
                              const struct json_limits *limits) {
    struct json_field fields[] = {{.name = SLICE("cursors")}, {.name = SLICE("epoch")}};
    struct json_value whole;
    list->form = CURSOR_LIST_OVER;
    list->epoch = (struct topic_epoch){{0}};
    list->limits = *limits;
    enum status status = json_parse(text, limits, &whole);
    if (status != STATUS_OK)
        return status;
    /* In a map, "cursors" may be a topic. Its value is a number then. */
    bool is_wrapped =
        whole.kind == JSON_KIND_OBJECT && !is_cursor(whole) &&
        json_read_members(whole, fields, 2) == STATUS_OK && fields[0].present &&
        (fields[0].value.kind == JSON_KIND_ARRAY || fields[0].value.kind == JSON_KIND_OBJECT);
    if (!is_wrapped) {
        begin_value(list, whole);
        return STATUS_OK;
    }
    bool has_epoch = fields[1].present && fields[1].value.kind != JSON_KIND_NULL;
    if (has_epoch && cursor_list_read_epoch(fields[1].value, &list->epoch) != STATUS_OK)
        return STATUS_INVALID_REQUEST;
    begin_value(list, fields[0].value);
    return STATUS_OK;
}

void cursor_list_begin_lines(struct cursor_list *list, struct slice text,
                             const struct json_limits *limits) {
    list->form = CURSOR_LIST_LINES;
    list->epoch = (struct topic_epoch){{0}};
    list->limits = *limits;
    list->lines = text;
}

/* Takes the next line that is not blank. */
static bool next_line(struct slice *lines, struct slice *line) {
    while (lines->size > 0) {
        const char *newline = memchr(lines->data, '\n', lines->size);
        size_t size = newline ? (size_t)(newline - lines->data) : lines->size;
        size_t blanks = 0;
        *line = (struct slice){lines->data, size};
        *lines = slice_from(*lines, newline ? size + 1 : size);
        while (blanks < size && memchr(" \t\r", line->data[blanks], 3))
            blanks++;
        if (blanks < size)
            return true;
    }
    return false;
}

bool cursor_list_next(struct cursor_list *list, struct cursor_list_item *item) {
    struct json_value name, value;
    struct slice line;
    *item = (struct cursor_list_item){.status = STATUS_OK};
    switch (list->form) {
    case CURSOR_LIST_OVER:
        return false;
    case CURSOR_LIST_ARRAY:
        if (!json_next_element(&list->iterator, &value))
            return false;
        item->status = read_cursor(list, value, item);
        break;
    case CURSOR_LIST_MAP:
        if (!json_next_member(&list->iterator, &name, &value))
            return false;
        item->cursor.kind = TOPIC_CURSOR_TOPIC;
        item->status = read_position(value, &item->cursor);
        if (item->status == STATUS_OK)
            item->status = read_name(list, name, &item->cursor);
        break;
    case CURSOR_LIST_SINGLE:
        list->form = CURSOR_LIST_OVER;
        item->status = read_cursor(list, list->single, item);
        break;
    case CURSOR_LIST_LINES:
        if (!next_line(&list->lines, &line))
            return false;
        item->status = json_parse(line, &list->limits, &value);
        if (item->status == STATUS_OK)
            item->status = read_cursor(list, value, item);
        break;
    }
    if (!topic_epoch_is_known(&item->cursor.epoch))
        item->cursor.epoch = list->epoch;
    return true;
}

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
