/* The test vectors of spec/vectors/, for the tests that run them. */
#ifndef VECTORS_H
#define VECTORS_H

#include <jansson.h>

#include "base/buffer.h"
#include "test.h"

#define VECTOR_BYTES_MAX 100000

/* Release with json_decref. */
static inline json_t *vectors_load(const char *name) {
    char path[512];
    json_error_t error;
    snprintf(path, sizeof(path), "%s/vectors/%s.json", SPEC_DIR, name);
    json_t *vectors = json_load_file(path, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!vectors)
        fail_msg("%s line %d: %s", path, error.line, error.text);
    return vectors;
}

/* A vector file without cases would be a test that cannot fail. */
static inline json_t *vectors_array(json_t *vectors, const char *key) {
    json_t *array = json_object_get(vectors, key);
    assert_true(json_array_size(array) > 0);
    return array;
}

static inline struct slice vector_text(json_t *vector, const char *key) {
    json_t *text = json_object_get(vector, key);
    assert_true(json_is_string(text));
    return (struct slice){json_string_value(text), json_string_length(text)};
}

static inline uint64_t vector_number(json_t *vector, const char *key) {
    json_t *number = json_object_get(vector, key);
    assert_true(json_is_integer(number) && json_integer_value(number) >= 0);
    return (uint64_t)json_integer_value(number);
}

/* data is NULL where the vector has null, or nothing. */
static inline struct slice vector_text_or_null(json_t *vector, const char *key) {
    json_t *text = json_object_get(vector, key);
    return !text || json_is_null(text) ? (struct slice){NULL, 0} : vector_text(vector, key);
}

/* False where the vector has nothing. */
static inline bool vector_flag(json_t *vector, const char *key) {
    json_t *flag = json_object_get(vector, key);
    assert_true(!flag || json_is_boolean(flag));
    return json_is_true(flag);
}

/* A status code nobody has would otherwise be a row that says nothing. */
static inline enum status vector_status(json_t *vector) {
    struct slice code = vector_text(vector, "status");
    for (int status = 0; status < STATUS_COUNT; status++)
        if (slice_equal(slice_of(status_code((enum status)status)), code))
            return (enum status)status;
    fail_msg("no status %s", code.data);
    return STATUS_INTERNAL_ERROR;
}

static inline unsigned vector_hex_digit(char character) {
    const char *digits = "0123456789abcdef";
    const char *found = character ? strchr(digits, character) : NULL;
    assert_non_null(found);
    return (unsigned)(found - digits);
}

/* The bytes of a hexadecimal text. Release. */
static inline struct buffer vector_hex(json_t *vector, const char *key) {
    struct slice text = vector_text(vector, key);
    struct buffer bytes;
    buffer_init(&bytes, VECTOR_BYTES_MAX);
    assert_int_equal(text.size % 2, 0);
    for (size_t i = 0; i < text.size; i += 2) {
        unsigned byte = vector_hex_digit(text.data[i]) << 4 | vector_hex_digit(text.data[i + 1]);
        assert_ok(buffer_append_byte(&bytes, (char)byte));
    }
    return bytes;
}

/* What stands as text under one key or, where it is not printable, as hexadecimal under the
 * other. Release. */
static inline struct buffer vector_text_or_hex(json_t *vector, const char *text_key,
                                               const char *hex_key) {
    struct buffer bytes;
    if (!json_object_get(vector, text_key))
        return vector_hex(vector, hex_key);
    buffer_init(&bytes, VECTOR_BYTES_MAX);
    assert_ok(buffer_append_slice(&bytes, vector_text(vector, text_key)));
    return bytes;
}

/* The bytes of a text whose characters stand for one byte each. Release. */
static inline struct buffer vector_latin1(json_t *text) {
    struct buffer bytes;
    buffer_init(&bytes, VECTOR_BYTES_MAX);
    assert_true(json_is_string(text));
    const char *at = json_string_value(text);
    const char *end = at + json_string_length(text);
    while (at < end) {
        unsigned byte = (unsigned char)*at++;
        if (byte >= 0x80) {
            assert_in_range(byte, 0xc2, 0xc3);
            byte = (byte & 3u) << 6 | ((unsigned char)*at++ & 0x3fu);
        }
        assert_ok(buffer_append_byte(&bytes, (char)byte));
    }
    return bytes;
}

#endif
