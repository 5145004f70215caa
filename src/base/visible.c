#include "base/visible.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "base/utf8.h"

/* The size of the valid character at the start of text, or 0. */
static size_t character_size(struct slice text) {
    struct utf8_state state = {0, 0, 0};
    for (size_t size = 1; size <= text.size; size++) {
        if (!utf8_feed(&state, text.data + size - 1, 1))
            return 0;
        if (state.missing == 0)
            return size;
    }
    return 0;
}

/* The code of a character of two or three bytes. No caller passes a longer one. */
static uint32_t character_code(const char *bytes, size_t size) {
    uint32_t code = (uint8_t)bytes[0] & (size == 2 ? 0x1fu : 0x0fu);
    for (size_t i = 1; i < size; i++)
        code = code << 6 | ((uint8_t)bytes[i] & 0x3fu);
    return code;
}

/* Characters that some reader takes for a line end or a terminal command, or that reorder what
 * is shown around them: with these a value could look like another line. */
static bool code_deceives(uint32_t code) {
    return (code >= 0x80 && code <= 0x9f) || code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
           code == 0xfeff;
}

__attribute__((format(printf, 2, 3))) static void visible_print(struct visible *visible,
                                                                const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(visible->bytes, sizeof(visible->bytes), format, arguments);
    va_end(arguments);
    assert(size > 0 && (size_t)size < sizeof(visible->bytes));
    visible->size = (size_t)size;
}

/* JSON has no escape for a byte that is no text, so there it reads as the text form would. */
struct visible visible_next(struct slice text, enum visible_form form) {
    struct visible visible = {.consumed = 1};
    uint8_t byte = (uint8_t)text.data[0];
    if (byte < 0x80) {
        if (byte == '"' || byte == '\\')
            visible_print(&visible, "\\%c", byte);
        else if (byte >= 0x20 && byte < 0x7f)
            visible_print(&visible, "%c", byte);
        else if (byte == '\n' || byte == '\r' || byte == '\t')
            visible_print(&visible, "\\%c", byte == '\n' ? 'n' : byte == '\r' ? 'r' : 't');
        else
            visible_print(&visible, form == VISIBLE_JSON ? "\\u%04x" : "\\x%02x", (unsigned)byte);
        return visible;
    }
    size_t size = character_size(text);
    if (size == 0) {
        visible_print(&visible, form == VISIBLE_JSON ? "\\\\x%02x" : "\\x%02x", (unsigned)byte);
        return visible;
    }
    visible.consumed = size;
    uint32_t code = size < 4 ? character_code(text.data, size) : UINT32_MAX;
    if (code_deceives(code)) {
        visible_print(&visible, "\\u%04x", (unsigned)code);
        return visible;
    }
    memcpy(visible.bytes, text.data, size);
    visible.size = size;
    return visible;
}

bool visible_has_deceptive(struct slice text) {
    while (text.size > 0) {
        size_t size = character_size(text);
        if (size == 0 || (size > 1 && size < 4 && code_deceives(character_code(text.data, size))))
            return true;
        text = slice_from(text, size);
    }
    return false;
}

bool visible_is_word(struct slice text) {
    for (size_t i = 0; i < text.size; i++) {
        char byte = text.data[i];
        if (byte <= ' ' || byte > '~' || byte == '"' || byte == '=' || byte == '\\')
            return false;
    }
    return text.size > 0;
}
