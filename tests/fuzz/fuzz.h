/* What fuzz targets share. A target includes this header and defines the entry point. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The entry point, which libFuzzer and replay.c call. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Unlike assert it also holds where assertions are off. */
static inline void require(bool holds) {
    if (!holds)
        abort();
}

/* JSON that Khala accepts and jansson refuses: numbers beyond a double, and a NUL in a key. */
static inline bool is_jansson_limit(const json_error_t *error) {
    enum json_error_code code = json_error_code(error);
    return code == json_error_numeric_overflow || code == json_error_null_byte_in_key;
}

#endif
