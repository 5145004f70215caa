#include "base/hex.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Eight digits at once: the nibbles are spread over the bytes of a word, and those above nine get
 * the distance from '9' to 'a' on top. */
static void write_four(char *text, const unsigned char *bytes) {
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    uint64_t nibbles = be32toh(word);
    nibbles = (nibbles << 16 | nibbles) & UINT64_C(0x0000ffff0000ffff);
    nibbles = (nibbles << 8 | nibbles) & UINT64_C(0x00ff00ff00ff00ff);
    nibbles = (nibbles << 4 | nibbles) & EACH(0x0f);
    uint64_t above_nine = (nibbles + EACH(6)) >> 4 & EACH(1);
    uint64_t digits = htobe64(nibbles + EACH('0') + above_nine * ('a' - '9' - 1));
    memcpy(text, &digits, sizeof(digits));
}

void hex_write(char *text, const void *data, size_t size) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *bytes = data;
    for (; size >= 4; size -= 4, bytes += 4, text += 8)
        write_four(text, bytes);
    for (; size > 0; size--, bytes++) {
        *text++ = digits[*bytes >> 4];
        *text++ = digits[*bytes & 15];
    }
}
