#include "base/base64url.h"

#include <assert.h>
#include <stdint.h>

#define NO_DIGIT 64

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

size_t base64url_encode(const void *data, size_t size, char *text) {
    const uint8_t *bytes = data;
    assert(size <= SIZE_MAX / 2);
    size_t written = 0;
    size_t index = 0;
    for (; size - index >= 3; index += 3) {
        uint32_t group =
            (uint32_t)bytes[index] << 16 | (uint32_t)bytes[index + 1] << 8 | bytes[index + 2];
        text[written++] = alphabet[group >> 18];
        text[written++] = alphabet[group >> 12 & 63];
        text[written++] = alphabet[group >> 6 & 63];
        text[written++] = alphabet[group & 63];
    }
    if (size - index == 1) {
        text[written++] = alphabet[bytes[index] >> 2];
        text[written++] = alphabet[(bytes[index] & 3) << 4];
    } else if (size - index == 2) {
        text[written++] = alphabet[bytes[index] >> 2];
        text[written++] = alphabet[(bytes[index] & 3) << 4 | bytes[index + 1] >> 4];
        text[written++] = alphabet[(bytes[index + 1] & 15) << 2];
    }
    assert(written == BASE64URL_SIZE(size));
    return written;
}

static uint32_t digit_value(char digit) {
    if (digit >= 'A' && digit <= 'Z')
        return (uint32_t)(digit - 'A');
    if (digit >= 'a' && digit <= 'z')
        return (uint32_t)(digit - 'a') + 26;
    if (digit >= '0' && digit <= '9')
        return (uint32_t)(digit - '0') + 52;
    if (digit == '-')
        return 62;
    if (digit == '_')
        return 63;
    return NO_DIGIT;
}

/* Reads count digits, at most four; false where one is not of the alphabet. */
static bool read_group(const char *text, size_t count, uint32_t *group) {
    uint32_t bits = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t value = digit_value(text[i]);
        if (value == NO_DIGIT)
            return false;
        bits = bits << 6 | value;
    }
    *group = bits;
    return true;
}

enum status base64url_decode(struct slice text, void *data, size_t size_max, size_t *size) {
    uint8_t *bytes = data;
    size_t tail = text.size % 4;
    if (tail == 1)
        return STATUS_INVALID_BASE64URL;
    if (BASE64URL_DECODED_SIZE(text.size) > size_max)
        return STATUS_PAYLOAD_TOO_LARGE;
    size_t written = 0;
    uint32_t group = 0;
    for (size_t index = 0; index < text.size - tail; index += 4) {
        if (!read_group(text.data + index, 4, &group))
            return STATUS_INVALID_BASE64URL;
        bytes[written++] = (uint8_t)(group >> 16);
        bytes[written++] = (uint8_t)(group >> 8);
        bytes[written++] = (uint8_t)group;
    }
    if (tail > 0) {
        uint32_t unused_mask = tail == 2 ? 15 : 3;
        if (!read_group(text.data + text.size - tail, tail, &group) || (group & unused_mask) != 0)
            return STATUS_INVALID_BASE64URL;
        bytes[written++] = (uint8_t)(tail == 2 ? group >> 4 : group >> 10);
        if (tail == 3)
            bytes[written++] = (uint8_t)(group >> 2);
    }
    assert(written == BASE64URL_DECODED_SIZE(text.size));
    *size = written;
    return STATUS_OK;
}
