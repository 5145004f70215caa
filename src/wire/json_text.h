/* Steps over JSON text, shared by the scanner and by walks over validated text. Functions marked
 * "validated" trust the text: the byte they look for is there.
 * Thread: any.
 * Invariant: every step stops at end and never reads past it, also when it looks at eight bytes at
 * once. */
#ifndef WIRE_JSON_TEXT_H
#define WIRE_JSON_TEXT_H

#include <endian.h>
#include <stdint.h>

#include "base/hex.h"
#include "base/slice.h"

#define JSON_TEXT_EACH(byte) (0x0101010101010101u * (uint64_t)(byte))

/* Eight bytes, the first one lowest, so that the lowest flag below is the first byte's. */
static inline uint64_t json_text_word(const char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return le64toh(word);
}

/* The flags below are only exact up to the lowest one set: a borrow can spill upwards. */
static inline uint64_t json_text_flag_equal(uint64_t word, char byte) {
    uint64_t difference = word ^ JSON_TEXT_EACH(byte);
    return (difference - JSON_TEXT_EACH(1)) & ~difference;
}

static inline uint64_t json_text_flag_control(uint64_t word) {
    return (word - JSON_TEXT_EACH(0x20)) & ~word;
}

static inline size_t json_text_first(uint64_t flags) {
    return (size_t)__builtin_ctzll(flags) / 8;
}

static inline const char *json_text_skip_space(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* The next byte that JSON requires to be escaped: a quote, a backslash or a control character. */
static inline const char *json_text_skip_unescaped(const char *at, const char *end) {
    while (end - at >= 8) {
        uint64_t word = json_text_word(at);
        uint64_t flags = (json_text_flag_control(word) | json_text_flag_equal(word, '"') |
                          json_text_flag_equal(word, '\\')) &
                         JSON_TEXT_EACH(0x80);
        if (flags)
            return at + json_text_first(flags);
        at += 8;
    }
    while (at < end && (unsigned char)*at >= 0x20 && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* The next quote or backslash. */
static inline const char *json_text_skip_string(const char *at, const char *end) {
    while (end - at >= 8) {
        uint64_t word = json_text_word(at);
        uint64_t flags = (json_text_flag_equal(word, '"') | json_text_flag_equal(word, '\\')) &
                         JSON_TEXT_EACH(0x80);
        if (flags)
            return at + json_text_first(flags);
        at += 8;
    }
    while (at < end && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* The next quote, bracket or brace; the two kinds of bracket differ by one bit. */
static inline const char *json_text_skip_flat(const char *at, const char *end) {
    while (end - at >= 8) {
        uint64_t word = json_text_word(at);
        uint64_t folded = word | JSON_TEXT_EACH(0x20);
        uint64_t flags = (json_text_flag_equal(word, '"') | json_text_flag_equal(folded, '{') |
                          json_text_flag_equal(folded, '}')) &
                         JSON_TEXT_EACH(0x80);
        if (flags)
            return at + json_text_first(flags);
        at += 8;
    }
    while (at < end && *at != '"' && (*at | 0x20) != '{' && (*at | 0x20) != '}')
        at++;
    return at;
}

/* The value of four hexadecimal digits, or -1. */
static inline int32_t json_text_hex_quad(const char *at) {
    int32_t quad = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(at[i]);
        if (digit < 0)
            return -1;
        quad = quad << 4 | digit;
    }
    return quad;
}

static inline bool json_text_is_high_surrogate(int32_t unit) {
    return unit >= 0xd800 && unit <= 0xdbff;
}

static inline bool json_text_is_low_surrogate(int32_t unit) {
    return unit >= 0xdc00 && unit <= 0xdfff;
}

/* Validated: from a string's opening quote to just past its closing one. */
static inline const char *json_text_string_end(const char *at, const char *end) {
    at = json_text_skip_string(at + 1, end);
    while (at < end && *at == '\\')
        at = json_text_skip_string(at + 2, end);
    return at + 1;
}

/* Validated: past a number, true, false or null. */
static inline const char *json_text_scalar_end(const char *at, const char *end) {
    while (at < end && (*at == '+' || *at == '-' || *at == '.' || (*at >= '0' && *at <= '9') ||
                        (*at >= 'a' && *at <= 'z') || *at == 'E'))
        at++;
    return at;
}

#endif
