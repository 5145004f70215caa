/* Decodes validated JSON strings, and writes strings. wire/json.h declares both. */
#include <assert.h>

#include "wire/json.h"
#include "wire/json_text.h"
#include "wire/put.h"

/* The longest escape of one byte: a backslash, u and four digits. */
#define ESCAPED_BYTES_MAX 6

/* The text between the quotes. */
static struct slice string_content(struct json_value value) {
    assert(value.kind == JSON_KIND_STRING && value.raw.size >= 2);
    return (struct slice){value.raw.data + 1, value.raw.size - 2};
}

bool json_string_slice(struct json_value value, struct slice *text) {
    if (value.kind != JSON_KIND_STRING)
        return false;
    struct slice content = string_content(value);
    if (memchr(content.data, '\\', content.size))
        return false;
    *text = content;
    return true;
}

/* The code point of the validated escape at *at, which moves past it. */
static uint32_t read_escape(const char **at) {
    const char *escape = *at;
    *at += 2;
    switch (escape[1]) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'u':
        break;
    default:
        return (uint32_t)escape[1];
    }
    *at += 4;
    int32_t unit = json_text_hex_quad(escape + 2);
    if (!json_text_is_high_surrogate(unit))
        return (uint32_t)unit;
    *at += 6;
    int32_t low = json_text_hex_quad(escape + 8);
    return 0x10000u + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
}

static size_t encode_utf8(uint32_t code, char text[4]) {
    if (code < 0x80) {
        text[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        text[0] = (char)(0xc0 | code >> 6);
        text[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        text[0] = (char)(0xe0 | code >> 12);
        text[1] = (char)(0x80 | (code >> 6 & 0x3f));
        text[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    text[0] = (char)(0xf0 | code >> 18);
    text[1] = (char)(0x80 | (code >> 12 & 0x3f));
    text[2] = (char)(0x80 | (code >> 6 & 0x3f));
    text[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* The next decoded run of a string: plain bytes of the text, or the character of one escape in the
 * given memory. False at the end. */
static bool next_run(const char **at, const char *end, char character[4], struct slice *run) {
    if (*at == end)
        return false;
    if (**at == '\\') {
        *run = (struct slice){character, encode_utf8(read_escape(at), character)};
        return true;
    }
    const char *escape = memchr(*at, '\\', (size_t)(end - *at));
    const char *run_end = escape ? escape : end;
    *run = (struct slice){*at, (size_t)(run_end - *at)};
    *at = run_end;
    return true;
}

enum status json_string_decode(struct json_value value, struct buffer *out) {
    if (value.kind != JSON_KIND_STRING)
        return STATUS_INVALID_REQUEST;
    struct slice content = string_content(value);
    const char *at = content.data;
    const char *end = content.data + content.size;
    size_t size_before = out->size;
    char character[4];
    struct slice run;
    while (next_run(&at, end, character, &run)) {
        enum status status = buffer_append_slice(out, run);
        if (status != STATUS_OK) {
            buffer_truncate(out, size_before);
            return status;
        }
    }
    return STATUS_OK;
}

bool json_string_is(struct json_value value, struct slice text) {
    if (value.kind != JSON_KIND_STRING)
        return false;
    struct slice content = string_content(value);
    const char *at = content.data;
    const char *end = content.data + content.size;
    char character[4];
    struct slice run;
    while (next_run(&at, end, character, &run)) {
        if (!slice_starts(text, run))
            return false;
        text = slice_from(text, run.size);
    }
    return text.size == 0;
}

enum status json_write_string(struct buffer *out, struct slice text) {
    static const char letters[256] = {['"'] = '"',  ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f',
                                      ['\n'] = 'n', ['\r'] = 'r',  ['\t'] = 't'};
    static const char digits[] = "0123456789abcdef";
    size_t begin = out->size;
    /* An empty text may have no address, to which nothing may be added. */
    const char *end = text.size > 0 ? text.data + text.size : text.data;
    char escape[ESCAPED_BYTES_MAX] = "\\u00";
    buffer_note(out, buffer_reserve(out, text.size + 2));
    buffer_append_byte(out, '"');
    for (const char *at = text.data; at < end && buffer_status(out) == STATUS_OK; at++) {
        const char *stop = json_text_skip_unescaped(at, end);
        buffer_append(out, at, (size_t)(stop - at));
        at = stop;
        if (at == end)
            break;
        unsigned char byte = (unsigned char)*at;
        if (letters[byte]) {
            const char letter[] = {'\\', letters[byte]};
            buffer_append(out, letter, sizeof(letter));
        } else {
            escape[4] = digits[byte >> 4];
            escape[5] = digits[byte & 15];
            buffer_append(out, escape, sizeof(escape));
        }
    }
    buffer_append_byte(out, '"');
    if (buffer_status(out) != STATUS_OK)
        out->size = begin;
    return buffer_status(out);
}

/* Most texts need no escape. */
static bool is_plain(struct slice text) {
    const char *end = text.data + text.size;
    return json_text_skip_unescaped(text.data, end) == end;
}

size_t json_string_bytes(struct slice text) {
    if (!text.data)
        return sizeof("null") - 1;
    return 2 + text.size * (is_plain(text) ? 1 : ESCAPED_BYTES_MAX);
}

char *json_put_string(char *at, struct slice text) {
    if (!text.data)
        return PUT_LITERAL(at, "null");
    if (is_plain(text)) {
        *at++ = '"';
        at = put_slice(at, text);
        *at++ = '"';
        return at;
    }
    size_t bytes_max = json_string_bytes(text);
    struct buffer out = buffer_over(at, bytes_max);
    enum status status = json_write_string(&out, text);
    assert(status == STATUS_OK);
    (void)status;
    return at + out.size;
}
