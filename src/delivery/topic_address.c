#include "delivery/topic_address.h"

enum status topic_address_absent(struct slice address, struct arena *arena,
                                 struct topic_address *found) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer topic = buffer_over(text, sizeof(text));
    *found = (struct topic_address){.stream_id = address};
    enum status status = address_topic(address, &topic);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    char *copy = status == STATUS_OK ? arena_alloc(arena, topic.size) : NULL;
    if (!copy)
        return status == STATUS_OK ? STATUS_OUT_OF_MEMORY : status;
    memcpy(copy, topic.data, topic.size);
    found->topic = (struct slice){copy, topic.size};
    return topic_stream(arena, found->topic, &found->stream_id);
}

/* Most addresses are names of topics that exist, and take one read. */
static enum status load(struct store_session *session, struct slice address, struct arena *arena,
                        struct topic_address *found) {
    bool is_topic = address_kind(address) == ADDRESS_TOPIC;
    struct slice stream_id = address;
    if (is_topic) {
        enum status status = store_load_topic(session, address, arena, &found->row);
        if (status != STATUS_NOT_FOUND)
            return status;
        status = topic_stream(arena, address, &stream_id);
        if (status != STATUS_OK)
            return status;
        /* The stream id of a built-in topic, which has no row before its first event, or one that
         * no other name has. */
        if (address_kind(stream_id) == ADDRESS_STREAM)
            return topic_is_projection_owned(address) ? STATUS_NOT_FOUND
                                                      : STATUS_STREAM_ID_CONFLICT;
    }
    enum status status = store_load_stream(session, stream_id, arena, &found->row);
    /* The topic may have been created between the two reads. */
    bool is_other = is_topic && status == STATUS_OK && !slice_equal(found->row.name, address);
    return is_other ? STATUS_STREAM_ID_CONFLICT : status;
}

enum status topic_address_find(struct store_session *session, struct slice address,
                               struct arena *arena, struct topic_address *found) {
    *found = (struct topic_address){.exists = false};
    enum status status = address_check(address);
    if (status == STATUS_OK)
        status = load(session, address, arena, found);
    if (status == STATUS_NOT_FOUND)
        return topic_address_absent(address, arena, found);
    if (status != STATUS_OK)
        return status;
    found->exists = true;
    found->topic = found->row.name;
    found->stream_id = found->row.stream_id;
    return STATUS_OK;
}
