#include "wire/object_writer.h"

#include "wire/canonical.h"
#include "wire/json.h"

struct object_writer object_begin(struct buffer *out) {
    struct object_writer object = {out, out->size};
    buffer_append_byte(out, '{');
    return object;
}

void object_close(struct object_writer *object) {
    buffer_append_byte(object->out, '}');
}

enum status object_end(struct object_writer *object) {
    buffer_append_byte(object->out, '}');
    return buffer_end(object->out, object->begin);
}

/* Names are most of a frame, so a name reserves its memory once and not five times. */
static bool put_name(struct object_writer *object, struct slice name) {
    struct buffer *out = object->out;
    if (buffer_status(out) != STATUS_OK ||
        buffer_note(out, buffer_reserve(out, name.size + 4)) != STATUS_OK)
        return false;
    char *at = out->data + out->size;
    if (out->size > object->begin + 1)
        *at++ = ',';
    *at++ = '"';
    memcpy(at, name.data, name.size);
    at += name.size;
    *at++ = '"';
    *at++ = ':';
    out->size = (size_t)(at - out->data);
    return true;
}

void object_text(struct object_writer *object, struct slice name, struct slice text) {
    if (!text.data)
        object_json(object, name, SLICE("null"));
    else if (put_name(object, name))
        json_write_string(object->out, text);
}

void object_json(struct object_writer *object, struct slice name, struct slice json) {
    if (put_name(object, name))
        buffer_append_slice(object->out, json);
}

void object_number(struct object_writer *object, struct slice name, uint64_t number) {
    if (put_name(object, name))
        buffer_append_u64(object->out, number);
}

void object_hash(struct object_writer *object, struct slice name,
                 const uint8_t digest[SHA256_BYTES]) {
    char text[PAYLOAD_HASH_SIZE + 1];
    text[0] = '"';
    payload_hash_text(digest, text + 1);
    text[PAYLOAD_HASH_SIZE] = '"';
    object_json(object, name, (struct slice){text, sizeof(text)});
}

void object_text_given(struct object_writer *object, struct slice name, struct slice text) {
    if (text.data)
        object_text(object, name, text);
}

void object_json_given(struct object_writer *object, struct slice name, struct slice json) {
    if (json.data)
        object_json(object, name, json);
}
