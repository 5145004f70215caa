#include "wire/phoenix.h"

#include <assert.h>

#define ELEMENT_COUNT 5

/* Reads a string, in place if it has no escapes. The storage fits the longest value of each part.
 */
static enum status read_text(struct json_value value, size_t size_max, struct buffer *storage,
                             struct slice *text) {
    if (value.kind != JSON_KIND_STRING)
        return STATUS_INVALID_MESSAGE;
    if (json_string_slice(value, text))
        return text->size <= size_max ? STATUS_OK : STATUS_INVALID_MESSAGE;
    size_t offset = storage->size;
    struct buffer part = buffer_over(storage->data + offset, size_max);
    if (json_string_decode(value, &part) != STATUS_OK)
        return STATUS_INVALID_MESSAGE;
    storage->size += part.size;
    *text = buffer_slice(&part);
    return STATUS_OK;
}

static enum status read_reference(struct json_value value, struct buffer *storage,
                                  struct slice *text) {
    if (value.kind == JSON_KIND_NULL) {
        *text = PHOENIX_NULL;
        return STATUS_OK;
    }
    return read_text(value, PHOENIX_REF_BYTES_MAX, storage, text);
}

enum status phoenix_decode(struct slice text, const struct json_limits *limits,
                           struct phoenix_message *message) {
    struct json_value array, extra;
    struct json_value elements[ELEMENT_COUNT];
    enum status status = json_parse(text, limits, &array);
    if (status != STATUS_OK)
        return status;
    if (array.kind != JSON_KIND_ARRAY)
        return STATUS_INVALID_MESSAGE;
    struct json_iterator iterator = json_iterate(array);
    for (size_t i = 0; i < ELEMENT_COUNT; i++) {
        if (!json_next_element(&iterator, &elements[i]))
            return STATUS_INVALID_MESSAGE;
    }
    if (json_next_element(&iterator, &extra))
        return STATUS_INVALID_MESSAGE;
    struct buffer storage = buffer_over(message->storage, sizeof(message->storage));
    status = read_reference(elements[0], &storage, &message->join_ref);
    if (status == STATUS_OK)
        status = read_reference(elements[1], &storage, &message->ref);
    if (status == STATUS_OK)
        status = read_text(elements[2], PHOENIX_TOPIC_BYTES_MAX, &storage, &message->topic);
    if (status == STATUS_OK)
        status = read_text(elements[3], PHOENIX_EVENT_BYTES_MAX, &storage, &message->event);
    assert(storage.size <= sizeof(message->storage));
    message->payload = elements[4];
    return status;
}

static void write_reference(struct buffer *out, struct slice reference) {
    if (reference.data)
        json_write_string(out, reference);
    else
        buffer_append_slice(out, SLICE("null"));
    buffer_append_byte(out, ',');
}

/* Writes everything before the payload. A failure sticks to the buffer. */
static void write_head(struct buffer *out, const struct phoenix_address *address,
                       struct slice event) {
    buffer_append_byte(out, '[');
    write_reference(out, address->join_ref);
    write_reference(out, address->ref);
    json_write_string(out, address->topic);
    buffer_append_byte(out, ',');
    json_write_string(out, event);
    buffer_append_byte(out, ',');
}

enum status phoenix_write(struct buffer *out, const struct phoenix_address *address,
                          struct slice event, struct slice payload) {
    assert(payload.size > 0);
    size_t begin = out->size;
    write_head(out, address, event);
    buffer_append_slice(out, payload);
    buffer_append_byte(out, ']');
    return buffer_end(out, begin);
}

enum status phoenix_write_reply(struct buffer *out, const struct phoenix_address *address, bool ok,
                                struct slice response) {
    assert(response.size > 0);
    size_t begin = out->size;
    write_head(out, address, SLICE("phx_reply"));
    buffer_append_slice(out, ok ? SLICE("{\"status\":\"ok\",\"response\":")
                                : SLICE("{\"status\":\"error\",\"response\":"));
    buffer_append_slice(out, response);
    buffer_append_slice(out, SLICE("}]"));
    return buffer_end(out, begin);
}

enum status phoenix_push_begin(struct buffer *out, struct slice join_ref, struct slice topic,
                               struct slice event) {
    struct phoenix_address address = {join_ref, PHOENIX_NULL, topic};
    size_t begin = out->size;
    write_head(out, &address, event);
    return buffer_end(out, begin);
}

enum status phoenix_push_end(struct buffer *out) {
    return buffer_append_byte(out, ']');
}

enum status phoenix_write_push(struct buffer *out, struct slice join_ref, struct slice topic,
                               struct slice event, struct slice payload) {
    struct phoenix_address address = {join_ref, PHOENIX_NULL, topic};
    return phoenix_write(out, &address, event, payload);
}

enum status phoenix_write_close(struct buffer *out, struct slice join_ref, struct slice topic) {
    struct phoenix_address address = {join_ref, join_ref, topic};
    return phoenix_write(out, &address, SLICE("phx_close"), SLICE("{}"));
}
