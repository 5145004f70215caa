#include "client/subscribe_request.h"

#include "wire/object_writer.h"

static enum status write_topics(struct buffer *out, struct follower **group, size_t count) {
    enum status status = buffer_append_slice(out, SLICE("{\"topics\":["));
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        if (i > 0)
            status = buffer_append_byte(out, ',');
        if (status == STATUS_OK)
            status = json_write_string(out, slice_of(group[i]->follow.topic));
    }
    return status == STATUS_OK ? buffer_append_slice(out, SLICE("],\"resume_after\":[")) : status;
}

static enum status write_position(struct buffer *out, const struct follower *follower) {
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), slice_of(follower->follow.topic));
    object_number(&object, SLICE("watermark"), follower->received.position.seq);
    if (topic_epoch_is_known(&follower->received.position.epoch))
        object_text(&object, SLICE("epoch"), slice_of(follower->received.position.epoch.text));
    return object_end(&object);
}

enum status subscribe_request_write(struct buffer *out, struct follower **group, size_t count) {
    enum status status = write_topics(out, group, count);
    bool is_first = true;
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        if (!group[i]->received.is_known)
            continue;
        if (!is_first)
            status = buffer_append_byte(out, ',');
        is_first = false;
        if (status == STATUS_OK)
            status = write_position(out, group[i]);
    }
    if (status == STATUS_OK)
        status = buffer_append_byte(out, ']');
    /* The server takes it for topics without a position. */
    if (status == STATUS_OK && group[0]->since) {
        status = buffer_append_slice(out, SLICE(",\"since\":"));
        if (status == STATUS_OK)
            status = json_write_string(out, slice_of(group[0]->since));
    }
    if (status == STATUS_OK && group[0]->follow.replay) {
        status = buffer_append_slice(out, SLICE(",\"replay\":"));
        if (status == STATUS_OK)
            status = json_write_string(out, slice_of(group[0]->follow.replay));
    }
    return status == STATUS_OK ? buffer_append_byte(out, '}') : status;
}
