#include "base/utf8.h"

#define ASCII_MASK 0x8080808080808080u

/* What a lead byte asks of the bytes behind it; missing 0 means it cannot lead. */
static struct utf8_state utf8_lead(uint8_t byte) {
    if (byte >= 0xc2 && byte <= 0xdf)
        return (struct utf8_state){1, 0x80, 0xbf};
    if (byte == 0xe0)
        return (struct utf8_state){2, 0xa0, 0xbf};
    if (byte == 0xed)
        return (struct utf8_state){2, 0x80, 0x9f};
    if (byte >= 0xe1 && byte <= 0xef)
        return (struct utf8_state){2, 0x80, 0xbf};
    if (byte == 0xf0)
        return (struct utf8_state){3, 0x90, 0xbf};
    if (byte >= 0xf1 && byte <= 0xf3)
        return (struct utf8_state){3, 0x80, 0xbf};
    if (byte == 0xf4)
        return (struct utf8_state){3, 0x80, 0x8f};
    return (struct utf8_state){0, 0, 0};
}

bool utf8_feed(struct utf8_state *state, const void *data, size_t size) {
    const uint8_t *bytes = data;
    size_t index = 0;
    while (index < size) {
        if (state->missing == 0) {
            uint64_t word;
            while (index + sizeof(word) <= size) {
                memcpy(&word, bytes + index, sizeof(word));
                if (word & ASCII_MASK)
                    break;
                index += sizeof(word);
            }
            if (index == size)
                return true;
            uint8_t byte = bytes[index++];
            if (byte < 0x80)
                continue;
            *state = utf8_lead(byte);
            if (state->missing == 0)
                return false;
            continue;
        }
        uint8_t byte = bytes[index++];
        if (byte < state->low || byte > state->high)
            return false;
        *state = state->missing > 1 ? (struct utf8_state){(uint8_t)(state->missing - 1), 0x80, 0xbf}
                                    : (struct utf8_state){0, 0, 0};
    }
    return true;
}

bool utf8_valid(struct slice text) {
    struct utf8_state state = {0, 0, 0};
    return utf8_feed(&state, text.data, text.size) && state.missing == 0;
}
