#include "base/base64url.h"

#include <assert.h>
#include <stdint.h>

/* The two digits of each twelve bits. */
/* clang-format off */
#define PAIRS(a)                                                                                   \
    {a, 'A'}, {a, 'B'}, {a, 'C'}, {a, 'D'}, {a, 'E'}, {a, 'F'}, {a, 'G'}, {a, 'H'},                \
    {a, 'I'}, {a, 'J'}, {a, 'K'}, {a, 'L'}, {a, 'M'}, {a, 'N'}, {a, 'O'}, {a, 'P'},                \
    {a, 'Q'}, {a, 'R'}, {a, 'S'}, {a, 'T'}, {a, 'U'}, {a, 'V'}, {a, 'W'}, {a, 'X'},                \
    {a, 'Y'}, {a, 'Z'}, {a, 'a'}, {a, 'b'}, {a, 'c'}, {a, 'd'}, {a, 'e'}, {a, 'f'},                \
    {a, 'g'}, {a, 'h'}, {a, 'i'}, {a, 'j'}, {a, 'k'}, {a, 'l'}, {a, 'm'}, {a, 'n'},                \
    {a, 'o'}, {a, 'p'}, {a, 'q'}, {a, 'r'}, {a, 's'}, {a, 't'}, {a, 'u'}, {a, 'v'},                \
    {a, 'w'}, {a, 'x'}, {a, 'y'}, {a, 'z'}, {a, '0'}, {a, '1'}, {a, '2'}, {a, '3'},                \
    {a, '4'}, {a, '5'}, {a, '6'}, {a, '7'}, {a, '8'}, {a, '9'}, {a, '-'}, {a, '_'},

static const char pairs[4096][2] = {
    PAIRS('A') PAIRS('B') PAIRS('C') PAIRS('D') PAIRS('E') PAIRS('F')
    PAIRS('G') PAIRS('H') PAIRS('I') PAIRS('J') PAIRS('K') PAIRS('L')
    PAIRS('M') PAIRS('N') PAIRS('O') PAIRS('P') PAIRS('Q') PAIRS('R')
    PAIRS('S') PAIRS('T') PAIRS('U') PAIRS('V') PAIRS('W') PAIRS('X')
    PAIRS('Y') PAIRS('Z') PAIRS('a') PAIRS('b') PAIRS('c') PAIRS('d')
    PAIRS('e') PAIRS('f') PAIRS('g') PAIRS('h') PAIRS('i') PAIRS('j')
    PAIRS('k') PAIRS('l') PAIRS('m') PAIRS('n') PAIRS('o') PAIRS('p')
    PAIRS('q') PAIRS('r') PAIRS('s') PAIRS('t') PAIRS('u') PAIRS('v')
    PAIRS('w') PAIRS('x') PAIRS('y') PAIRS('z') PAIRS('0') PAIRS('1')
    PAIRS('2') PAIRS('3') PAIRS('4') PAIRS('5') PAIRS('6') PAIRS('7')
    PAIRS('8') PAIRS('9') PAIRS('-') PAIRS('_')
};
/* clang-format on */

static void write_group(char *text, uint32_t group) {
    memcpy(text, pairs[group >> 12], 2);
    memcpy(text + 2, pairs[group & 4095], 2);
}

/* Three bytes, absent ones as zero. */
static uint32_t read_bytes(const uint8_t *bytes, size_t count) {
    uint32_t group = (uint32_t)bytes[0] << 16;
    if (count > 1)
        group |= (uint32_t)bytes[1] << 8;
    return count > 2 ? group | bytes[2] : group;
}

size_t base64url_encode(const void *data, size_t size, char *text) {
    const uint8_t *bytes = data;
    assert(size <= SIZE_MAX / 2);
    size_t written = 0;
    size_t index = 0;
    for (; size - index >= 3; index += 3, written += 4)
        write_group(text + written, read_bytes(bytes + index, 3));
    if (size > index) {
        char digits[4];
        write_group(digits, read_bytes(bytes + index, size - index));
        memcpy(text + written, digits, BASE64URL_SIZE(size - index));
        written += BASE64URL_SIZE(size - index);
    }
    assert(written == BASE64URL_SIZE(size));
    return written;
}

/* Reads count digits, at most four. False: one of them is not in the alphabet. */
static bool read_group(const char *text, size_t count, uint32_t *group) {
    uint32_t bits = 0;
    for (size_t i = 0; i < count; i++) {
        char digit = text[i];
        uint32_t value;
        if (digit >= 'A' && digit <= 'Z')
            value = (uint32_t)(digit - 'A');
        else if (digit >= 'a' && digit <= 'z')
            value = (uint32_t)(digit - 'a') + 26;
        else if (digit >= '0' && digit <= '9')
            value = (uint32_t)(digit - '0') + 52;
        else if (digit == '-' || digit == '_')
            value = digit == '-' ? 62 : 63;
        else
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
