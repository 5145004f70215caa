#include "authority/body_hash.h"

#define HASH_MEMBER "event_hash"

static bool read_digit(char digit, uint8_t *value) {
    if (digit >= '0' && digit <= '9')
        *value = (uint8_t)(digit - '0');
    else if (digit >= 'a' && digit <= 'f')
        *value = (uint8_t)(digit - 'a' + 10);
    else if (digit >= 'A' && digit <= 'F')
        *value = (uint8_t)(digit - 'A' + 10);
    else
        return false;
    return true;
}

static bool read_digest(struct json_value value, uint8_t digest[SHA256_BYTES]) {
    struct slice text;
    if (!json_string_slice(value, &text))
        return false;
    if (slice_starts(text, SLICE("sha256:")))
        text = slice_from(text, sizeof("sha256:") - 1);
    if (text.size != 2 * SHA256_BYTES)
        return false;
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        uint8_t high, low;
        if (!read_digit(text.data[2 * i], &high) || !read_digit(text.data[2 * i + 1], &low))
            return false;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static enum status copy_without_hash(struct json_value body, struct buffer *out) {
    struct json_iterator members = json_iterate(body);
    struct json_value name, value;
    size_t begin = out->size;
    enum status status = buffer_reserve(out, body.raw.size + 1);
    while (status == STATUS_OK && json_next_member(&members, &name, &value)) {
        if (json_string_is(name, SLICE(HASH_MEMBER)))
            continue;
        status = buffer_append_byte(out, out->size > begin ? ',' : '{');
        if (status == STATUS_OK)
            status = buffer_append_slice(out, name.raw);
        if (status == STATUS_OK)
            status = buffer_append_byte(out, ':');
        if (status == STATUS_OK)
            status = buffer_append_slice(out, value.raw);
    }
    if (status == STATUS_OK)
        status = buffer_append_slice(out, out->size > begin ? SLICE("}") : SLICE("{}"));
    return status;
}

enum status body_hash_check(struct append_parser *parser, struct json_value body) {
    struct json_field field = {.name = SLICE(HASH_MEMBER)};
    uint8_t given[SHA256_BYTES];
    struct payload_hash actual;
    enum status status = json_read_members(body, &field, 1);
    if (status != STATUS_OK || !field.present || field.value.kind == JSON_KIND_NULL)
        return status;
    if (!read_digest(field.value, given))
        return STATUS_INVALID_REQUEST;
    buffer_clear(&parser->text);
    status = copy_without_hash(body, &parser->text);
    /* Members of a validated object, in an object, are valid. */
    const struct json_value rest = {JSON_KIND_OBJECT, buffer_slice(&parser->text)};
    if (status == STATUS_OK)
        status = payload_hash(rest, &parser->scratch, &actual);
    if (status != STATUS_OK)
        return status;
    return memcmp(given, actual.digest, SHA256_BYTES) == 0 ? STATUS_OK : STATUS_EVENT_HASH_MISMATCH;
}
