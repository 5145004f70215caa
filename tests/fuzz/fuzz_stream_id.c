/* Any bytes as a topic and as a stream id. Every topic has a stream id of bounded size; a topic
 * that a stream id leads to has that stream id; retained streams lead back to their topic.
 * Names, classes and ownership are decided for the same bytes without surprises. */
#include "base/utf8.h"
#include "fuzz.h"
#include "topic/policy.h"
#include "topic/stream_id.h"

#define OUT_BYTES_MAX (1 << 18)

static void check_topic(struct slice topic) {
    struct buffer stream_id;
    struct buffer back;
    buffer_init(&stream_id, OUT_BYTES_MAX);
    buffer_init(&back, OUT_BYTES_MAX);
    require(topic_to_stream(topic, &stream_id) == STATUS_OK);
    require(stream_id.size <= topic.size + STREAM_ID_BYTES_MAX - TOPIC_NAME_BYTES_MAX);
    require(slice_starts(buffer_slice(&stream_id), SLICE("runtime.")));
    bool is_other = slice_starts(buffer_slice(&stream_id), SLICE("runtime.topic."));
    enum status status = stream_to_topic(buffer_slice(&stream_id), &back);
    require(status == STATUS_OK || status == STATUS_NOT_FOUND);
    if (status == STATUS_OK && !is_other)
        require(slice_equal(buffer_slice(&back), topic));
    if (status == STATUS_OK)
        require(back.size == topic.size);
    buffer_release(&back);
    buffer_release(&stream_id);
}

static void check_stream(struct slice stream_id) {
    struct buffer topic;
    struct buffer again;
    buffer_init(&topic, OUT_BYTES_MAX);
    buffer_init(&again, OUT_BYTES_MAX);
    if (stream_to_topic(stream_id, &topic) == STATUS_OK) {
        require(topic.size > 0);
        require(topic_to_stream(buffer_slice(&topic), &again) == STATUS_OK);
        require(slice_equal(buffer_slice(&again), stream_id));
    } else {
        require(topic.size == 0);
    }
    buffer_release(&again);
    buffer_release(&topic);
}

/* Every address has one stream id, and a topic with that stream id unless the store must tell. */
static void check_address(struct slice address) {
    struct buffer stream_id;
    struct buffer topic;
    struct buffer again;
    buffer_init(&stream_id, OUT_BYTES_MAX);
    buffer_init(&topic, OUT_BYTES_MAX);
    buffer_init(&again, OUT_BYTES_MAX);
    enum address_kind kind = address_kind(address);
    require(address_stream(address, &stream_id) == STATUS_OK);
    require(kind == ADDRESS_TOPIC || slice_equal(buffer_slice(&stream_id), address));
    enum status status = address_topic(address, &topic);
    require((status == STATUS_NOT_FOUND) == (kind == ADDRESS_STORED_STREAM));
    if (status == STATUS_OK) {
        require(topic_to_stream(buffer_slice(&topic), &again) == STATUS_OK);
        require(slice_equal(buffer_slice(&again), buffer_slice(&stream_id)));
    }
    if (address_check(address) == STATUS_OK)
        require(address.size > 0 && address.size <= STREAM_ID_BYTES_MAX);
    buffer_release(&again);
    buffer_release(&topic);
    buffer_release(&stream_id);
}

static void check_name(struct slice topic) {
    bool valid = topic_name_check(topic) == STATUS_OK;
    require(!valid || (topic.size > 0 && topic.size <= TOPIC_NAME_BYTES_MAX && utf8_valid(topic)));
    for (size_t i = 0; valid && i < topic.size; i++)
        require((uint8_t)topic.data[i] >= 0x20 && topic.data[i] != 0x7f);
    /* Only the fallback holds topics that clients may write. */
    require(policy_row_of(topic) == POLICY_FALLBACK || topic_is_projection_owned(topic));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice input = {(const char *)data, size};
    check_topic(input);
    check_stream(input);
    check_address(input);
    check_name(input);
    return 0;
}
