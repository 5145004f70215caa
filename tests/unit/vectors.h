/* The test vectors of spec/vectors/, for the tests that run them. */
#ifndef VECTORS_H
#define VECTORS_H

#include <jansson.h>

#include "test.h"

/* Release with json_decref. */
static inline json_t *vectors_load(const char *name) {
    char path[512];
    json_error_t error;
    snprintf(path, sizeof(path), "%s/vectors/%s.json", SPEC_DIR, name);
    json_t *vectors = json_load_file(path, 0, &error);
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

#endif
