/* What every unit test includes: cmocka, in the order it wants, and the few helpers shared. */
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/slice.h"
#include "spec/codes.h"

#define assert_ok(expression) assert_int_equal((expression), STATUS_OK)
#define assert_slice(actual, text)                                                                 \
    do {                                                                                           \
        struct slice checked_ = (actual);                                                          \
        assert_int_equal(checked_.size, strlen(text));                                             \
        assert_memory_equal(checked_.data, text, checked_.size);                                   \
    } while (0)

/* A small generator, so that a property test repeats by its seed. */
static inline uint64_t test_random(uint64_t *seed) {
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
