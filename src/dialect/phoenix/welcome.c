#include "dialect/phoenix/welcome.h"

#include "auth/grant.h"
#include "base/limits.h"
#include "delivery/topic_address.h"
#include "topic/topic_name.h"
#include "topic/topic_table.h"
#include "wire/json.h"
#include "wire/object_writer.h"

struct welcome {
    struct store_session *session;
    const struct principal *principal;
    struct arena arena;
    struct buffer *topics;
    struct buffer *watermarks;
};

static enum status put_comma(struct buffer *list) {
    return list->size > 1 ? buffer_append_byte(list, ',') : STATUS_OK;
}

static enum status put_name(struct welcome *welcome, struct slice name) {
    enum status status = put_comma(welcome->topics);
    return status == STATUS_OK ? json_write_string(welcome->topics, name) : status;
}

static enum status put_watermark(struct welcome *welcome, struct slice name) {
    struct store_topic topic;
    arena_reset(&welcome->arena);
    enum status status = store_load_topic(welcome->session, name, &welcome->arena, &topic);
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? STATUS_OK : status;
    status = put_comma(welcome->watermarks);
    if (status != STATUS_OK)
        return status;
    struct object_writer object = object_begin(welcome->watermarks);
    object_text(&object, SLICE("topic"), topic.name);
    object_number(&object, SLICE("watermark"), topic.head_seq);
    return object_end(&object);
}

/* A pattern has no watermark. */
static enum status put_if_open(struct welcome *welcome, struct slice name) {
    if (memchr(name.data, '*', name.size))
        return grant_opens(welcome->principal, name) ? put_name(welcome, name) : STATUS_OK;
    if (grant_check(welcome->principal, name, NULL).status != STATUS_OK)
        return STATUS_OK;
    enum status status = put_name(welcome, name);
    return status == STATUS_OK ? put_watermark(welcome, name) : status;
}

/* A stream that no topic has yet is named as the stream. */
static enum status put_stream(struct welcome *welcome, struct slice stream_id) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer name = buffer_over(text, sizeof(text));
    struct topic_address found;
    /* A text that is no stream id opens nothing. */
    if (address_kind(stream_id) == ADDRESS_TOPIC)
        return STATUS_OK;
    arena_reset(&welcome->arena);
    enum status status = topic_address_find(welcome->session, stream_id, &welcome->arena, &found);
    if (status == STATUS_OK)
        status = buffer_append_slice(&name, found.topic.data ? found.topic : stream_id);
    if (status == STATUS_INVALID_TOPIC)
        return STATUS_OK;
    return status == STATUS_OK ? put_if_open(welcome, buffer_slice(&name)) : status;
}

static enum status put_granted(struct welcome *welcome) {
    const struct principal *principal = welcome->principal;
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < principal->topics.count; i++) {
        struct slice name = principal->topics.names[i];
        bool is_topic = address_kind(name) == ADDRESS_TOPIC;
        status = is_topic ? put_if_open(welcome, name) : put_stream(welcome, name);
    }
    for (size_t i = 0; status == STATUS_OK && i < principal->streams.count; i++)
        status = put_stream(welcome, principal->streams.names[i]);
    return status;
}

/* A topic whose name would be too long does not exist. */
static enum status put_named(struct welcome *welcome, enum topic_kind kind, struct slice id) {
    char text[TOPIC_NAME_BYTES_MAX];
    const char *pattern = topic_row(kind)->pattern;
    size_t size = topic_pattern_size(pattern, id);
    if (!id.data || size > sizeof(text))
        return STATUS_OK;
    topic_pattern_fill(pattern, id, text);
    return put_if_open(welcome, (struct slice){text, size});
}

/* The topics that the table names whole, and those that bear the principal's id. */
static enum status put_built_in(struct welcome *welcome) {
    const struct principal *principal = welcome->principal;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < TOPIC_KIND_COUNT && status == STATUS_OK; i++) {
        enum topic_kind kind = (enum topic_kind)i;
        switch (topic_row(kind)->ownership) {
        case TOPIC_SHARED:
            /* "*" already names the topic to a principal that reads everything. */
            status = principal->read_all ? put_watermark(welcome, topic_name(kind))
                                         : put_if_open(welcome, topic_name(kind));
            break;
        case TOPIC_OWNED_BY_NAMED_USER:
            status = put_named(welcome, kind, principal->identity.user_id);
            break;
        case TOPIC_OWNED_BY_NAMED_GUEST:
            status = put_named(welcome, kind, principal->identity.guest_scope);
            break;
        case TOPIC_OWNED_BY_ENTITY:
        case TOPIC_GRANTED:
        case TOPIC_RESERVED:
            break;
        }
    }
    return status;
}

enum status welcome_write(struct store_session *session, const struct principal *principal,
                          struct buffer *topics, struct buffer *watermarks) {
    struct welcome welcome = {
        .session = session, .principal = principal, .topics = topics, .watermarks = watermarks};
    bool is_narrowed = principal->topics.count + principal->streams.count > 0;
    arena_init(&welcome.arena, PHOENIX_WELCOME_ARENA_BYTES_MAX);
    buffer_clear(topics);
    buffer_clear(watermarks);
    enum status status = buffer_append_byte(topics, '[');
    if (status == STATUS_OK)
        status = buffer_append_byte(watermarks, '[');
    if (status == STATUS_OK && principal->read_all && !is_narrowed)
        status = put_name(&welcome, SLICE("*"));
    if (status == STATUS_OK)
        status = is_narrowed ? put_granted(&welcome) : put_built_in(&welcome);
    if (status == STATUS_OK)
        status = buffer_append_byte(topics, ']');
    if (status == STATUS_OK)
        status = buffer_append_byte(watermarks, ']');
    arena_release(&welcome.arena);
    return status;
}
