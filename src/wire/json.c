/* A recursive scanner over text in memory, limited in depth. It validates while it goes, keeps no
 * tree, and hands out slices of the text: wanted members of an object, or one value after the other
 * from an iterator, which trusts text that was validated. json_scan only searches for the end of a
 * value in a stream, and leaves the rest to json_parse. */
#include "wire/json.h"

#include <assert.h>

#include "base/utf8.h"
#include "wire/json_text.h"

/* The wanted fields. next is the likely match for the next member, as peers keep an order. */
struct wanted {
    struct json_field *fields;
    size_t count;
    size_t next;
};

/* Each scan_ function takes its start, and returns the end of the text that it read. NULL: the
 * status is set. */
struct scanner {
    const char *end;
    unsigned depth_left;
    bool escaped; /* a string since this was cleared had an escape */
    enum status status;
};

static const char *scan_value(struct scanner *scanner, const char *at);

static const char *refuse(struct scanner *scanner, enum status status) {
    scanner->status = status;
    return NULL;
}

static struct json_value value_between(const char *begin, const char *end) {
    enum json_kind kind = JSON_KIND_NUMBER;
    switch (*begin) {
    case '{':
        kind = JSON_KIND_OBJECT;
        break;
    case '[':
        kind = JSON_KIND_ARRAY;
        break;
    case '"':
        kind = JSON_KIND_STRING;
        break;
    case 't':
        kind = JSON_KIND_TRUE;
        break;
    case 'f':
        kind = JSON_KIND_FALSE;
        break;
    case 'n':
        kind = JSON_KIND_NULL;
        break;
    default:
        break;
    }
    return (struct json_value){kind, {begin, (size_t)(end - begin)}};
}

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

static const char *scan_escape(struct scanner *scanner, const char *at) {
    scanner->escaped = true;
    if (scanner->end - at < 2)
        return refuse(scanner, STATUS_INVALID_JSON);
    switch (at[1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return at + 2;
    case 'u':
        break;
    default:
        return refuse(scanner, STATUS_INVALID_JSON);
    }
    if (scanner->end - at < 6)
        return refuse(scanner, STATUS_INVALID_JSON);
    int32_t unit = json_text_hex_quad(at + 2);
    if (unit < 0 || json_text_is_low_surrogate(unit))
        return refuse(scanner, STATUS_INVALID_JSON);
    if (!json_text_is_high_surrogate(unit))
        return at + 6;
    if (scanner->end - at < 12 || at[6] != '\\' || at[7] != 'u' ||
        !json_text_is_low_surrogate(json_text_hex_quad(at + 8)))
        return refuse(scanner, STATUS_INVALID_JSON);
    return at + 12;
}

static const char *scan_non_ascii(struct scanner *scanner, const char *at) {
    const char *begin = at;
    while (at < scanner->end && (unsigned char)*at >= 0x80)
        at++;
    if (!utf8_valid((struct slice){begin, (size_t)(at - begin)}))
        return refuse(scanner, STATUS_INVALID_UTF8);
    return at;
}

/* The next byte of a string that is not plain: quote, backslash, control or non-ASCII. */
static inline const char *skip_plain(const char *at, const char *end) {
    while (end - at >= 8) {
        uint64_t word = json_text_word(at);
        uint64_t flags = (json_text_flag_control(word) | json_text_flag_equal(word, '"') |
                          json_text_flag_equal(word, '\\') | word) &
                         JSON_TEXT_EACH(0x80);
        if (flags)
            return at + json_text_first(flags);
        at += 8;
    }
    while (at < end && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80 && *at != '"' &&
           *at != '\\')
        at++;
    return at;
}

static inline const char *scan_string(struct scanner *scanner, const char *at) {
    at++;
    for (;;) {
        at = skip_plain(at, scanner->end);
        if (at == scanner->end)
            return refuse(scanner, STATUS_INVALID_JSON);
        if (*at == '"')
            return at + 1;
        if (*at == '\\')
            at = scan_escape(scanner, at);
        else if ((unsigned char)*at >= 0x80)
            at = scan_non_ascii(scanner, at);
        else
            return refuse(scanner, STATUS_INVALID_JSON);
        if (!at)
            return NULL;
    }
}

static const char *scan_literal(struct scanner *scanner, const char *at, struct slice literal) {
    struct slice rest = {at, (size_t)(scanner->end - at)};
    if (!slice_starts(rest, literal))
        return refuse(scanner, STATUS_INVALID_JSON);
    return at + literal.size;
}

/* One digit or more. */
static const char *scan_digits(struct scanner *scanner, const char *at) {
    if (at == scanner->end || !is_digit(*at))
        return refuse(scanner, STATUS_INVALID_JSON);
    while (at < scanner->end && is_digit(*at))
        at++;
    return at;
}

static const char *scan_number(struct scanner *scanner, const char *at) {
    const char *end = scanner->end;
    if (*at == '-')
        at++;
    if (at < end && *at == '0')
        at++;
    else
        at = scan_digits(scanner, at);
    if (at && at < end && *at == '.')
        at = scan_digits(scanner, at + 1);
    if (at && at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        at = scan_digits(scanner, at);
    }
    return at;
}

static bool enter(struct scanner *scanner) {
    if (scanner->depth_left == 0)
        return refuse(scanner, STATUS_JSON_TOO_DEEP) != NULL;
    scanner->depth_left--;
    return true;
}

static const char *leave(struct scanner *scanner, const char *at) {
    scanner->depth_left++;
    return at + 1;
}

/* Skips the comma and the white space before the next item. Stops at the closing byte if there is
 * no other item. */
static const char *scan_separator(struct scanner *scanner, const char *at, char closing) {
    at = json_text_skip_space(at, scanner->end);
    if (at == scanner->end || (*at != ',' && *at != closing))
        return refuse(scanner, STATUS_INVALID_JSON);
    if (*at == closing)
        return at;
    at = json_text_skip_space(at + 1, scanner->end);
    if (at == scanner->end || *at == closing)
        return refuse(scanner, STATUS_INVALID_JSON);
    return at;
}

static const char *scan_array(struct scanner *scanner, const char *at) {
    if (!enter(scanner))
        return NULL;
    at = json_text_skip_space(at + 1, scanner->end);
    while (at < scanner->end && *at != ']') {
        at = scan_value(scanner, at);
        if (!at || !(at = scan_separator(scanner, at, ']')))
            return NULL;
    }
    return at < scanner->end ? leave(scanner, at) : refuse(scanner, STATUS_INVALID_JSON);
}

static enum status keep_member(struct wanted *wanted, struct slice name, bool escaped,
                               struct json_value value) {
    size_t index = wanted->next;
    for (size_t tried = 0; tried < wanted->count; tried++, index++) {
        if (index == wanted->count)
            index = 0;
        struct json_field *field = &wanted->fields[index];
        bool is_wanted =
            escaped ? json_string_is((struct json_value){JSON_KIND_STRING, name}, field->name)
                    : slice_equal((struct slice){name.data + 1, name.size - 2}, field->name);
        if (!is_wanted)
            continue;
        if (field->present)
            return STATUS_JSON_DUPLICATE_KEY;
        field->value = value;
        field->present = true;
        wanted->next = index + 1;
        return STATUS_OK;
    }
    return STATUS_OK;
}

static const char *scan_member(struct scanner *scanner, const char *at, struct wanted *wanted) {
    if (*at != '"')
        return refuse(scanner, STATUS_INVALID_JSON);
    struct slice name = {at, 0};
    scanner->escaped = false;
    at = scan_string(scanner, at);
    if (!at)
        return NULL;
    name.size = (size_t)(at - name.data);
    bool escaped = scanner->escaped;
    at = json_text_skip_space(at, scanner->end);
    if (at == scanner->end || *at != ':')
        return refuse(scanner, STATUS_INVALID_JSON);
    const char *begin = json_text_skip_space(at + 1, scanner->end);
    at = scan_value(scanner, begin);
    if (!at || !wanted)
        return at;
    enum status status = keep_member(wanted, name, escaped, value_between(begin, at));
    return status == STATUS_OK ? at : refuse(scanner, status);
}

/* wanted is NULL for an object whose members are not needed. */
static const char *scan_object(struct scanner *scanner, const char *at, struct wanted *wanted) {
    if (!enter(scanner))
        return NULL;
    at = json_text_skip_space(at + 1, scanner->end);
    while (at < scanner->end && *at != '}') {
        at = scan_member(scanner, at, wanted);
        if (!at || !(at = scan_separator(scanner, at, '}')))
            return NULL;
    }
    return at < scanner->end ? leave(scanner, at) : refuse(scanner, STATUS_INVALID_JSON);
}

static const char *scan_value(struct scanner *scanner, const char *at) {
    if (at == scanner->end)
        return refuse(scanner, STATUS_INVALID_JSON);
    switch (*at) {
    case '"':
        return scan_string(scanner, at);
    case '{':
        return scan_object(scanner, at, NULL);
    case '[':
        return scan_array(scanner, at);
    case 't':
        return scan_literal(scanner, at, SLICE("true"));
    case 'f':
        return scan_literal(scanner, at, SLICE("false"));
    case 'n':
        return scan_literal(scanner, at, SLICE("null"));
    default:
        return scan_number(scanner, at);
    }
}

static struct scanner scanner_over(struct slice text, const struct json_limits *limits) {
    assert(limits->depth_max <= JSON_DEPTH_MAX);
    return (struct scanner){.end = text.data + text.size, .depth_left = limits->depth_max};
}

/* Only white space may follow the end of the value. */
static enum status finish(struct scanner *scanner, const char *at) {
    if (!at)
        return scanner->status;
    at = json_text_skip_space(at, scanner->end);
    return at == scanner->end ? STATUS_OK : STATUS_INVALID_JSON;
}

enum status json_parse(struct slice text, const struct json_limits *limits,
                       struct json_value *value) {
    if (text.size > limits->bytes_max)
        return STATUS_PAYLOAD_TOO_LARGE;
    if (text.size == 0)
        return STATUS_INVALID_JSON;
    struct scanner scanner = scanner_over(text, limits);
    const char *begin = json_text_skip_space(text.data, scanner.end);
    const char *end = scan_value(&scanner, begin);
    enum status status = finish(&scanner, end);
    if (status == STATUS_OK)
        *value = value_between(begin, end);
    return status;
}

static void forget_fields(struct json_field *fields, size_t count) {
    for (size_t i = 0; i < count; i++)
        fields[i].present = false;
}

enum status json_read_object(struct slice text, const struct json_limits *limits,
                             struct json_field *fields, size_t count) {
    forget_fields(fields, count);
    if (text.size > limits->bytes_max)
        return STATUS_PAYLOAD_TOO_LARGE;
    if (text.size == 0)
        return STATUS_INVALID_JSON;
    struct scanner scanner = scanner_over(text, limits);
    struct wanted wanted = {fields, count, 0};
    const char *begin = json_text_skip_space(text.data, scanner.end);
    bool is_object = begin < scanner.end && *begin == '{';
    const char *end =
        is_object ? scan_object(&scanner, begin, &wanted) : scan_value(&scanner, begin);
    enum status status = finish(&scanner, end);
    if (status == STATUS_OK && !is_object)
        status = STATUS_INVALID_REQUEST;
    if (status != STATUS_OK)
        forget_fields(fields, count);
    return status;
}

enum status json_read_members(struct json_value object, struct json_field *fields, size_t count) {
    forget_fields(fields, count);
    if (object.kind != JSON_KIND_OBJECT)
        return STATUS_INVALID_REQUEST;
    struct wanted wanted = {fields, count, 0};
    struct json_iterator iterator = json_iterate(object);
    struct json_value name, value;
    while (json_next_member(&iterator, &name, &value)) {
        bool escaped = memchr(name.raw.data, '\\', name.raw.size) != NULL;
        enum status status = keep_member(&wanted, name.raw, escaped, value);
        if (status != STATUS_OK) {
            forget_fields(fields, count);
            return status;
        }
    }
    return STATUS_OK;
}

struct json_iterator json_iterate(struct json_value container) {
    assert(container.kind == JSON_KIND_ARRAY || container.kind == JSON_KIND_OBJECT);
    const char *end = container.raw.data + container.raw.size - 1;
    return (struct json_iterator){json_text_skip_space(container.raw.data + 1, end), end};
}

static const char *container_end(const char *at, const char *end) {
    unsigned depth = 0;
    do {
        at = json_text_skip_flat(at, end);
        if (*at == '"') {
            at = json_text_string_end(at, end);
            continue;
        }
        depth += (*at | 0x20) == '{' ? 1u : -1u;
        at++;
    } while (depth > 0);
    return at;
}

bool json_next_element(struct json_iterator *iterator, struct json_value *value) {
    const char *begin = iterator->at;
    const char *end = iterator->end;
    const char *at;
    if (begin == end)
        return false;
    if (*begin == '"')
        at = json_text_string_end(begin, end);
    else if (*begin == '{' || *begin == '[')
        at = container_end(begin, end);
    else
        at = json_text_scalar_end(begin, end);
    *value = value_between(begin, at);
    /* Skips white space, a comma or colon, and more white space. */
    at = json_text_skip_space(at, end);
    if (at < end)
        at = json_text_skip_space(at + 1, end);
    iterator->at = at;
    return true;
}

bool json_next_member(struct json_iterator *iterator, struct json_value *name,
                      struct json_value *value) {
    return json_next_element(iterator, name) && json_next_element(iterator, value);
}

/* Takes one byte outside strings. True when the value ends before that byte or with it. */
static bool scan_structure(struct json_scan *scan, char byte) {
    bool begun = scan->begun;
    switch (byte) {
    case ' ':
    case '\n':
    case '\r':
    case '\t':
        if (begun && scan->depth == 0)
            return true;
        break;
    case ',':
    case ':':
        if (scan->depth == 0)
            return true;
        break;
    case '}':
    case ']':
        if (scan->depth == 0)
            return true;
        scan->depth--;
        scan->offset++;
        return scan->depth == 0;
    case '{':
    case '[':
    case '"':
        if (begun && scan->depth == 0)
            return true;
        scan->quoted = byte == '"';
        scan->depth += byte != '"';
        scan->begun = true;
        break;
    default:
        scan->begun = true;
    }
    scan->offset++;
    return false;
}

/* Whether text holds the end of the value. Only brackets and quotes are checked. */
static bool find_end(struct json_scan *scan, struct slice text, unsigned depth_max) {
    const char *end = text.data + text.size;
    while (scan->offset < text.size && scan->depth <= depth_max) {
        if (!scan->quoted) {
            if (scan_structure(scan, text.data[scan->offset]))
                return true;
            continue;
        }
        /* The part of a string that is in text. A backslash waits for the byte after it. */
        const char *at = json_text_skip_string(text.data + scan->offset, end);
        while (end - at >= 2 && *at == '\\')
            at = json_text_skip_string(at + 2, end);
        bool closed = at < end && *at == '"';
        scan->offset = (size_t)(at - text.data) + closed;
        if (!closed)
            return false;
        scan->quoted = false;
        if (scan->depth == 0)
            return true;
    }
    return false;
}

enum status json_scan(struct json_scan *scan, struct slice text, const struct json_limits *limits,
                      struct json_value *value, size_t *used) {
    assert(scan->offset <= text.size);
    *used = 0;
    if (!find_end(scan, text, limits->depth_max)) {
        if (scan->depth > limits->depth_max)
            return STATUS_JSON_TOO_DEEP;
        return text.size > limits->bytes_max ? STATUS_PAYLOAD_TOO_LARGE : STATUS_OK;
    }
    size_t size = scan->offset;
    enum status status = json_parse((struct slice){text.data, size}, limits, value);
    if (status != STATUS_OK)
        return status;
    *scan = (struct json_scan){0};
    *used = size;
    return STATUS_OK;
}

bool json_u64(struct json_value value, uint64_t max, uint64_t *number) {
    if (value.kind != JSON_KIND_NUMBER)
        return false;
    uint64_t sum = 0;
    for (size_t i = 0; i < value.raw.size; i++) {
        if (!is_digit(value.raw.data[i]))
            return false;
        uint64_t digit = (uint64_t)(value.raw.data[i] - '0');
        if (digit > max || sum > (max - digit) / 10)
            return false;
        sum = sum * 10 + digit;
    }
    *number = sum;
    return true;
}

bool json_bool(struct json_value value, bool *flag) {
    if (value.kind != JSON_KIND_TRUE && value.kind != JSON_KIND_FALSE)
        return false;
    *flag = value.kind == JSON_KIND_TRUE;
    return true;
}
