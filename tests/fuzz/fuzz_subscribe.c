/* Any JSON as the payload of a subscribe. What is read has names of their kind, none twice, within
 * its limits; and written down again it is read as the same. */
#include "base/utf8.h"
#include "dialect/phoenix/subscribe_request.h"
#include "fuzz.h"
#include "topic/stream_id.h"
#include "topic/topic_name.h"

#define TOPICS_MAX 64
#define OUT_BYTES  (1 << 22)

static const struct json_limits limits = {1 << 20, 16};
static const struct json_limits written_limits = {OUT_BYTES, 16};

static void check(const struct subscribe *subscribe) {
    require(subscribe->count > 0 && subscribe->count <= TOPICS_MAX);
    require(subscribe->batch_size >= 1 && subscribe->batch_size <= 1000);
    for (size_t i = 0; i < subscribe->count; i++) {
        const struct subscribe_item *item = &subscribe->items[i];
        require(utf8_valid(item->name));
        require(item->is_stream ? item->name.size <= STREAM_ID_BYTES_MAX
                                : topic_name_check(item->name) == STATUS_OK &&
                                      slice_equal(item->topic, item->name));
        require(!item->has_cursor || item->position.seq <= JSON_INTEGER_MAX);
        for (size_t k = 0; k < i; k++)
            require(subscribe->items[k].is_stream != item->is_stream ||
                    !slice_equal(subscribe->items[k].name, item->name));
    }
}

static void write_list(const struct subscribe *subscribe, bool streams, struct buffer *out) {
    bool has_one = false;
    for (size_t i = 0; i < subscribe->count; i++) {
        if (subscribe->items[i].is_stream != streams)
            continue;
        require(!has_one || buffer_append_byte(out, ',') == STATUS_OK);
        has_one = true;
        require(json_write_string(out, subscribe->items[i].name) == STATUS_OK);
    }
}

static void write_again(const struct subscribe *subscribe, struct buffer *out) {
    bool has_one = false;
    require(buffer_append_slice(out, SLICE("{\"topics\":[")) == STATUS_OK);
    write_list(subscribe, false, out);
    require(buffer_append_slice(out, SLICE("],\"streams\":[")) == STATUS_OK);
    write_list(subscribe, true, out);
    require(buffer_append_slice(out, SLICE("],\"resume_after\":[")) == STATUS_OK);
    for (size_t i = 0; i < subscribe->count; i++) {
        const struct subscribe_item *item = &subscribe->items[i];
        if (!item->has_cursor || item->name.size == 0)
            continue;
        require(!has_one || buffer_append_byte(out, ',') == STATUS_OK);
        has_one = true;
        require(buffer_printf(out, "{\"%s\":", item->is_stream ? "stream_id" : "topic") ==
                STATUS_OK);
        require(json_write_string(out, item->name) == STATUS_OK);
        require(buffer_printf(out, ",\"after_seq\":%llu}",
                              (unsigned long long)item->position.seq) == STATUS_OK);
    }
    require(buffer_printf(out, "],\"bootstrap\":%s,\"frames\":%s,\"replay_batch_size\":%llu}",
                          subscribe->bootstrap ? "true" : "false",
                          subscribe->frames ? "true" : "false",
                          (unsigned long long)subscribe->batch_size) == STATUS_OK);
}

/* Cursors may meet again in another order, since two names can be one stream. */
static void check_same(const struct subscribe *one, const struct subscribe *other) {
    require(one->count == other->count && one->bootstrap == other->bootstrap &&
            one->frames == other->frames && one->batch_size == other->batch_size);
    for (size_t i = 0; i < one->count; i++) {
        const struct subscribe_item *item = &one->items[i];
        require(item->is_stream == other->items[i].is_stream &&
                slice_equal(item->name, other->items[i].name));
        require(!item->has_cursor || item->name.size == 0 || other->items[i].has_cursor);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json_value payload;
    struct subscribe subscribe;
    struct subscribe again;
    struct buffer out;
    if (json_parse((struct slice){(const char *)data, size}, &limits, &payload) != STATUS_OK)
        return 0;
    if (subscribe_read(&subscribe, payload, TOPICS_MAX) == STATUS_OK) {
        check(&subscribe);
        buffer_init(&out, OUT_BYTES);
        write_again(&subscribe, &out);
        require(json_parse(buffer_slice(&out), &written_limits, &payload) == STATUS_OK);
        require(subscribe_read(&again, payload, TOPICS_MAX) == STATUS_OK);
        check_same(&subscribe, &again);
        subscribe_release(&again);
        buffer_release(&out);
    }
    subscribe_release(&subscribe);
    return 0;
}
