/* Any bytes as a list of cursors. Each cursor read has a valid name and number. Written as an array
 * or one per line, the cursors are read again unchanged. */
#include "base/utf8.h"
#include "fuzz.h"
#include "topic/cursor_list.h"
#include "topic/stream_id.h"

#define OUT_BYTES_MAX (1 << 22)

static const struct json_limits limits = {1 << 20, 16};
static const struct json_limits written_limits = {OUT_BYTES_MAX, 16};

static void check(const struct cursor_list_item *item) {
    struct slice name = item->cursor.name;
    require(utf8_valid(name) && !utf8_has_control(name) && name.size > 0);
    if (item->cursor.kind == TOPIC_CURSOR_TOPIC)
        require(topic_name_check(name) == STATUS_OK);
    else
        require(name.size <= STREAM_ID_BYTES_MAX);
    require(item->cursor.after_seq <= JSON_INTEGER_MAX);
}

static void write_item(struct buffer *out, const struct cursor_list_item *item) {
    bool by_topic = item->cursor.kind == TOPIC_CURSOR_TOPIC;
    require(buffer_printf(out, "{\"%s\":", by_topic ? "topic" : "stream_id") == STATUS_OK);
    require(json_write_string(out, item->cursor.name) == STATUS_OK);
    require(buffer_printf(out, ",\"%s\":", by_topic ? "watermark" : "after_seq") == STATUS_OK);
    if (topic_epoch_is_known(&item->cursor.epoch))
        require(buffer_printf(out, "\"%llu@%s\"", (unsigned long long)item->cursor.after_seq,
                              item->cursor.epoch.text) == STATUS_OK);
    else
        require(buffer_printf(out, "%llu", (unsigned long long)item->cursor.after_seq) ==
                STATUS_OK);
    if (item->has_window)
        require(buffer_printf(out,
                              ",\"window\":{\"oldest_seq\":%llu,\"head_seq\":%llu,\"%s\":%llu}",
                              (unsigned long long)item->window.oldest_seq,
                              (unsigned long long)item->window.head_seq, "replay_budget_events",
                              (unsigned long long)item->window.replay_budget_events) == STATUS_OK);
    require(buffer_append_byte(out, '}') == STATUS_OK);
}

/* Reads all; the good ones go to array and lines, where given. */
static size_t read_all(struct cursor_list *list, struct buffer *array, struct buffer *lines) {
    struct cursor_list_item item;
    size_t count = 0;
    while (cursor_list_next(list, &item)) {
        if (item.status != STATUS_OK)
            continue;
        check(&item);
        require(buffer_append_byte(array, count ? ',' : '[') == STATUS_OK);
        write_item(array, &item);
        if (lines) {
            write_item(lines, &item);
            require(buffer_append_byte(lines, '\n') == STATUS_OK);
        }
        count++;
    }
    require(!cursor_list_next(list, &item));
    require(buffer_append_slice(array, count ? SLICE("]") : SLICE("[]")) == STATUS_OK);
    return count;
}

static void check_again(struct cursor_list *list) {
    struct buffer array, lines, again;
    buffer_init(&array, OUT_BYTES_MAX);
    buffer_init(&lines, OUT_BYTES_MAX);
    buffer_init(&again, OUT_BYTES_MAX);
    size_t count = read_all(list, &array, &lines);
    require(cursor_list_begin(list, buffer_slice(&array), &written_limits) == STATUS_OK);
    require(read_all(list, &again, NULL) == count);
    require(slice_equal(buffer_slice(&array), buffer_slice(&again)));
    buffer_clear(&again);
    cursor_list_begin_lines(list, buffer_slice(&lines), &written_limits);
    require(read_all(list, &again, NULL) == count);
    require(slice_equal(buffer_slice(&array), buffer_slice(&again)));
    buffer_release(&array);
    buffer_release(&lines);
    buffer_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice text = {(const char *)data, size};
    struct cursor_list list;
    cursor_list_init(&list);
    if (cursor_list_begin(&list, text, &limits) == STATUS_OK)
        check_again(&list);
    cursor_list_begin_lines(&list, text, &limits);
    check_again(&list);
    cursor_list_release(&list);
    return 0;
}
