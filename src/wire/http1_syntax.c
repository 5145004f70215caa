#include "wire/http1_syntax.h"

enum byte_class {
    BYTE_TOKEN = 1,
    BYTE_TARGET = 2,
    BYTE_HOST = 4,
    BYTE_ADDRESS = 8,
    BYTE_FIELD = 16,
    BYTE_DIGIT = 32,
};

#define BYTE_ANY_TEXT (BYTE_TARGET | BYTE_FIELD)
#define BYTE_LETTER   (BYTE_ANY_TEXT | BYTE_TOKEN | BYTE_HOST)
#define BYTE_SYMBOL   (BYTE_ANY_TEXT | BYTE_TOKEN)

/* Targets take all printable bytes except four. RFC 3986 forbids more, such as '|', but browsers
 * send those. A '#' would start a fragment, which is never sent. Hosts take the bytes that names
 * have in practice. RFC 3986 allows more; a comma, for one, would hide two hosts merged into one.
 */
static const unsigned char byte_classes[256] = {
    ['\t'] = BYTE_FIELD,
    [' '] = BYTE_FIELD,
    ['!'] = BYTE_SYMBOL,
    ['"'] = BYTE_FIELD,
    ['#'] = BYTE_FIELD | BYTE_TOKEN,
    ['$'] = BYTE_SYMBOL,
    ['%'] = BYTE_SYMBOL,
    ['&'] = BYTE_SYMBOL,
    ['\''] = BYTE_SYMBOL,
    ['('] = BYTE_ANY_TEXT,
    [')'] = BYTE_ANY_TEXT,
    ['*'] = BYTE_SYMBOL,
    ['+'] = BYTE_SYMBOL,
    [','] = BYTE_ANY_TEXT,
    ['-'] = BYTE_SYMBOL | BYTE_HOST,
    ['.'] = BYTE_SYMBOL | BYTE_HOST | BYTE_ADDRESS,
    ['/'] = BYTE_ANY_TEXT,
    ['0' ... '9'] = BYTE_LETTER | BYTE_ADDRESS | BYTE_DIGIT,
    [':'] = BYTE_ANY_TEXT | BYTE_ADDRESS,
    [';'] = BYTE_ANY_TEXT,
    ['<'] = BYTE_FIELD,
    ['='] = BYTE_ANY_TEXT,
    ['>'] = BYTE_FIELD,
    ['?'] = BYTE_ANY_TEXT,
    ['@'] = BYTE_ANY_TEXT,
    ['A' ... 'F'] = BYTE_LETTER | BYTE_ADDRESS,
    ['G' ... 'Z'] = BYTE_LETTER,
    ['['] = BYTE_ANY_TEXT,
    ['\\'] = BYTE_ANY_TEXT,
    [']'] = BYTE_ANY_TEXT,
    ['^'] = BYTE_SYMBOL,
    ['_'] = BYTE_SYMBOL | BYTE_HOST,
    ['`'] = BYTE_SYMBOL,
    ['a' ... 'f'] = BYTE_LETTER | BYTE_ADDRESS,
    ['g' ... 'z'] = BYTE_LETTER,
    ['{'] = BYTE_ANY_TEXT,
    ['|'] = BYTE_SYMBOL,
    ['}'] = BYTE_ANY_TEXT,
    ['~'] = BYTE_SYMBOL | BYTE_HOST,
    [0x80 ... 0xff] = BYTE_FIELD,
};

static bool all_of(struct slice text, enum byte_class class) {
    for (size_t i = 0; i < text.size; i++)
        if (!(byte_classes[(unsigned char)text.data[i]] & class))
            return false;
    return true;
}

static char lower_case(char byte) {
    return byte >= 'A' && byte <= 'Z' ? (char)(byte | 0x20) : byte;
}

bool http1_equal_any_case(struct slice a, struct slice b) {
    if (a.size != b.size)
        return false;
    for (size_t i = 0; i < a.size; i++)
        if (lower_case(a.data[i]) != lower_case(b.data[i]))
            return false;
    return true;
}

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\t';
}

struct slice http1_trim(struct slice text) {
    while (text.size > 0 && is_blank(text.data[0]))
        text = slice_from(text, 1);
    while (text.size > 0 && is_blank(text.data[text.size - 1]))
        text.size--;
    return text;
}

struct slice http1_split(struct slice *text, char separator) {
    struct slice whole = *text;
    const char *cut = whole.size > 0 ? memchr(whole.data, separator, whole.size) : NULL;
    if (!cut) {
        *text = (struct slice){NULL, 0};
        return whole;
    }
    size_t size = (size_t)(cut - whole.data);
    *text = slice_from(whole, size + 1);
    return (struct slice){whole.data, size};
}

bool http1_is_token(struct slice text) {
    return text.size > 0 && all_of(text, BYTE_TOKEN);
}

bool http1_is_digits(struct slice text) {
    return text.size > 0 && all_of(text, BYTE_DIGIT);
}

bool http1_is_field_text(struct slice text) {
    return all_of(text, BYTE_FIELD);
}

static bool is_port(struct slice text) {
    return text.size <= 5 && all_of(text, BYTE_DIGIT);
}

bool http1_is_host(struct slice text) {
    if (!slice_starts(text, SLICE("["))) {
        struct slice name = http1_split(&text, ':');
        return name.size > 0 && all_of(name, BYTE_HOST) && is_port(text);
    }
    text = slice_from(text, 1);
    struct slice address = http1_split(&text, ']');
    if (!text.data || address.size == 0 || !all_of(address, BYTE_ADDRESS))
        return false;
    return text.size == 0 || (text.data[0] == ':' && is_port(slice_from(text, 1)));
}

enum status http1_check_request_line(struct slice line) {
    struct slice method = http1_split(&line, ' ');
    struct slice target = http1_split(&line, ' ');
    if (!http1_is_token(method) || target.size == 0 || !all_of(target, BYTE_TARGET))
        return STATUS_BAD_REQUEST;
    if (line.size != 8 || !slice_starts(line, SLICE("HTTP/")) || line.data[6] != '.' ||
        !http1_is_digits((struct slice){line.data + 5, 1}) ||
        !http1_is_digits((struct slice){line.data + 7, 1}))
        return STATUS_BAD_REQUEST;
    /* A later minor version is read as 1.1 (RFC 9110 section 2.5). */
    return line.data[5] == '1' ? STATUS_OK : STATUS_UNSUPPORTED_HTTP_VERSION;
}

enum status http1_check_field_line(struct slice line) {
    if (!memchr(line.data, ':', line.size))
        return STATUS_BAD_REQUEST;
    /* A blank is no part of a token. So this refuses a folded line, which begins with a blank, and
     * a blank before the colon. http-parser accepts both. */
    struct slice name = http1_split(&line, ':');
    if (!http1_is_token(name) || !http1_is_field_text(line))
        return STATUS_BAD_REQUEST;
    return STATUS_OK;
}

enum status http1_check_transfer_encoding(struct slice value) {
    unsigned coding_count = 0;
    bool last_is_chunked = false;
    struct slice rest = value;
    do {
        struct slice coding = http1_trim(http1_split(&rest, ','));
        /* Only the last coding may be chunked. An empty element may hide it from another parser. */
        if (coding.size == 0 || last_is_chunked)
            return STATUS_BAD_REQUEST;
        last_is_chunked = http1_equal_any_case(coding, SLICE("chunked"));
        coding_count++;
    } while (rest.data);
    if (!last_is_chunked)
        return STATUS_BAD_REQUEST;
    return coding_count == 1 ? STATUS_OK : STATUS_UNSUPPORTED_TRANSFER_ENCODING;
}
