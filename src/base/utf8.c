#include "base/utf8.h"

#define ASCII_MASK 0x8080808080808080u

/* The bytes that must follow a lead byte; missing 0 means it cannot lead. */
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

/* In valid text 0xc2 leads U+0080 to U+00BF, of which C1 is the first half. */
bool utf8_has_control(struct slice text) {
    for (size_t i = 0; i < text.size; i++) {
        uint8_t byte = (uint8_t)text.data[i];
        if (byte < 0x20 || byte == 0x7f)
            return true;
        if (byte == 0xc2 && (uint8_t)text.data[i + 1] < 0xa0)
            return true;
    }
    return false;
}

size_t utf8_white_space_size(struct slice text) {
    static const char *const spaces[] = {
        " ",
        "\t",
        "\n",
        "\v",
        "\f",
        "\r",
        "\xc2\x85",
        "\xc2\xa0",
        "\xe1\x9a\x80",
        "\xe2\x80\xa8",
        "\xe2\x80\xa9",
        "\xe2\x80\xaf",
        "\xe2\x81\x9f",
        "\xe3\x80\x80",
    };
    if (text.size == 0 || ((uint8_t)text.data[0] > 0x20 && (uint8_t)text.data[0] < 0x80))
        return 0;
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
        if (slice_starts(text, slice_of(spaces[i])))
            return strlen(spaces[i]);
    /* U+2000 to U+200A */
    bool is_typographic = text.size >= 3 && memcmp(text.data, "\xe2\x80", 2) == 0 &&
                          (unsigned char)text.data[2] >= 0x80 &&
                          (unsigned char)text.data[2] <= 0x8a;
    return is_typographic ? 3 : 0;
}

bool utf8_has_outer_space(struct slice text) {
    if (text.size == 0)
        return false;
    size_t last = text.size - 1;
    while (last > 0 && ((uint8_t)text.data[last] & 0xc0) == 0x80)
        last--;
    return utf8_white_space_size(text) > 0 || utf8_white_space_size(slice_from(text, last)) > 0;
}
