/* Items of a stream: cut differently they are the same, lines agree with a parse of each line,
 * and an array that ends well agrees with a parse of the whole. */
#include "fuzz.h"
#include "wire/json_items.h"

#define BYTES_MAX 256

static const struct json_limits limits = {BYTES_MAX, 16};

/* What was seen, as bytes: comparing these compares the streams. */
static bool note(struct buffer *seen, struct json_item item) {
    require(buffer_printf(seen, "%d:%d:", (int)item.kind, (int)item.status) == STATUS_OK);
    if (item.kind == JSON_ITEM_VALUE) {
        require(item.value.raw.size <= BYTES_MAX);
        require(buffer_append_slice(seen, item.value.raw) == STATUS_OK);
    }
    require(buffer_append_byte(seen, '\n') == STATUS_OK);
    return item.kind == JSON_ITEM_BROKEN || item.kind == JSON_ITEM_END;
}

static void read_stream(enum json_items_format format, struct slice text, size_t piece_size,
                        struct buffer *seen) {
    struct json_items items;
    struct json_item item;
    bool over = false;
    json_items_init(&items, format, &limits);
    for (size_t at = 0; at < text.size && !over; at += piece_size) {
        size_t rest = text.size - at;
        struct slice input = {text.data + at, rest < piece_size ? rest : piece_size};
        while (!over && (item = json_items_next(&items, &input)).kind != JSON_ITEM_MORE)
            over = note(seen, item);
        require(over || input.size == 0);
        require(items.pending.size <= BYTES_MAX + 1);
    }
    while (!over)
        over = note(seen, json_items_finish(&items));
    json_items_release(&items);
}

/* The rule for lines, written again in the plainest way. */
static void read_lines(struct slice text, struct buffer *seen) {
    while (text.size > 0) {
        const char *end = memchr(text.data, '\n', text.size);
        struct slice line = {text.data, end ? (size_t)(end - text.data) : text.size};
        text = slice_from(text, line.size + (end != NULL));
        bool blank = true;
        for (size_t i = 0; i < line.size; i++)
            blank = blank && strchr(" \t\r", line.data[i]) && line.data[i] != '\0';
        if (blank && line.size <= BYTES_MAX)
            continue;
        struct json_item item = {.kind = JSON_ITEM_VALUE};
        enum status status = line.size > BYTES_MAX ? STATUS_PAYLOAD_TOO_LARGE
                                                   : json_parse(line, &limits, &item.value);
        if (status != STATUS_OK)
            item = (struct json_item){.kind = JSON_ITEM_BAD, .status = status};
        note(seen, item);
    }
    note(seen, (struct json_item){.kind = JSON_ITEM_END});
}

/* A whole text that is an array has the elements the stream had. */
static void compare_array(struct slice text, const struct buffer *seen) {
    const struct json_limits roomy = {text.size + 1, 17};
    struct json_value whole, element;
    struct buffer expected;
    buffer_init(&expected, seen->size_max);
    bool broken = memmem(seen->data, seen->size, "\n3:", 3) != NULL || seen->data[0] == '3';
    bool parses = json_parse(text, &roomy, &whole) == STATUS_OK && whole.kind == JSON_KIND_ARRAY;
    require(broken || parses);
    if (!broken) {
        struct json_iterator iterator = json_iterate(whole);
        while (json_next_element(&iterator, &element))
            note(&expected, (struct json_item){.kind = JSON_ITEM_VALUE, .value = element});
        note(&expected, (struct json_item){.kind = JSON_ITEM_END});
        require(slice_equal(buffer_slice(&expected), buffer_slice(seen)));
    }
    buffer_release(&expected);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    struct slice text = {(const char *)data + 1, size - 1};
    enum json_items_format format = data[0] & 1 ? JSON_ITEMS_ARRAY : JSON_ITEMS_LINES;
    struct buffer whole, pieces;
    buffer_init(&whole, 64 * size + 4096);
    buffer_init(&pieces, 64 * size + 4096);
    read_stream(format, text, text.size + 1, &whole);
    for (size_t piece_size = 1; piece_size <= 64; piece_size = piece_size * 3 + 1) {
        buffer_clear(&pieces);
        read_stream(format, text, piece_size, &pieces);
        require(slice_equal(buffer_slice(&whole), buffer_slice(&pieces)));
    }
    buffer_clear(&pieces);
    if (format == JSON_ITEMS_LINES) {
        read_lines(text, &pieces);
        require(slice_equal(buffer_slice(&whole), buffer_slice(&pieces)));
    } else {
        compare_array(text, &whole);
    }
    buffer_release(&whole);
    buffer_release(&pieces);
    return 0;
}
