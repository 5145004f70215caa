#include "authority/object_writer.h"

#include "wire/canonical.h"
#include "wire/json.h"

struct object_writer object_begin(struct buffer *out) {
    return (struct object_writer){out, out->size, buffer_append_byte(out, '{')};
}

enum status object_end(struct object_writer *object) {
    if (object->status == STATUS_OK)
        object->status = buffer_append_byte(object->out, '}');
    if (object->status != STATUS_OK)
        object->out->size = object->begin;
    return object->status;
}

static void put_raw(struct object_writer *object, struct slice text) {
    if (object->status == STATUS_OK)
        object->status = buffer_append_slice(object->out, text);
}

static void put_name(struct object_writer *object, struct slice name) {
    if (object->status == STATUS_OK)
        object->status = buffer_reserve(object->out, name.size + 4);
    if (object->out->size > object->begin + 1)
        put_raw(object, SLICE(","));
    put_raw(object, SLICE("\""));
    put_raw(object, name);
    put_raw(object, SLICE("\":"));
}

void object_text(struct object_writer *object, struct slice name, struct slice text) {
    put_name(object, name);
    if (!text.data)
        put_raw(object, SLICE("null"));
    else if (object->status == STATUS_OK)
        object->status = json_write_string(object->out, text);
}

void object_json(struct object_writer *object, struct slice name, struct slice json) {
    put_name(object, name);
    put_raw(object, json);
}

void object_number(struct object_writer *object, struct slice name, uint64_t number) {
    put_name(object, name);
    if (object->status == STATUS_OK)
        object->status = buffer_append_u64(object->out, number);
}

void object_hash(struct object_writer *object, struct slice name,
                 const uint8_t digest[SHA256_BYTES]) {
    char text[PAYLOAD_HASH_SIZE];
    payload_hash_text(digest, text);
    put_name(object, name);
    put_raw(object, SLICE("\""));
    put_raw(object, (struct slice){text, sizeof(text) - 1});
    put_raw(object, SLICE("\""));
}

void object_text_given(struct object_writer *object, struct slice name, struct slice text) {
    if (text.data)
        object_text(object, name, text);
}

void object_json_given(struct object_writer *object, struct slice name, struct slice json) {
    if (json.data)
        object_json(object, name, json);
}
