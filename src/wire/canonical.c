/* One pass over the input writes each object's members in their order, and notes the position of
 * each. Keys are nearly always sorted. If they are not, the notes are sorted and the object's text
 * is put in order through a copy. So no text is parsed twice, however deep it is. */
#include "wire/canonical.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hex.h"
#include "wire/json_text.h"

/* Canonical text can be longer by this factor: 1e20 has four bytes and becomes 21. A member's note
 * has 16 bytes for at least four of input, so the factor covers the stack and the copy too. */
#define GROWTH_MAX 6
#define ROOM_MIN   64
/* Keeps every offset within 32 bits. */
#define VALUE_BYTES_MAX (UINT32_MAX / (GROWTH_MAX + 1))

/* A member written to the output: "name":value at start, counted from where the value began. */
struct member {
    uint32_t start;
    uint32_t size;
    uint32_t name_size; /* quotes included */
    uint32_t escaped;
};

struct writer {
    const char *at;
    const char *end;
    struct canonical_scratch *scratch;
    struct buffer *out;
    size_t origin;
    unsigned depth;
};

/* The members of one object, on the stack from this offset on. */
struct object {
    size_t stack_offset;
    size_t body_start;
    bool sorted;
};

static enum status write_value(struct writer *writer);
static enum status write_number(struct buffer *out, struct slice literal);

void canonical_scratch_init(struct canonical_scratch *scratch, size_t value_bytes_max) {
    assert(value_bytes_max <= VALUE_BYTES_MAX);
    buffer_init(&scratch->text, value_bytes_max * GROWTH_MAX + ROOM_MIN);
    buffer_init(&scratch->members, value_bytes_max * GROWTH_MAX + ROOM_MIN);
}

void canonical_scratch_release(struct canonical_scratch *scratch) {
    buffer_release(&scratch->text);
    buffer_release(&scratch->members);
}

/* The name between its quotes, in its canonical form. */
static struct slice member_name(const struct writer *writer, const struct member *member) {
    const char *begin = writer->out->data + writer->origin + member->start;
    return (struct slice){begin + 1, member->name_size - 2};
}

/* The next decoded byte of a canonical string, or -1 at its end; a canonical escape is always
 * one byte. */
static int next_byte(struct slice *text) {
    if (text->size == 0)
        return -1;
    static const char short_forms[] = "b\bf\fn\nr\rt\t\"\"\\\\";
    unsigned char byte = (unsigned char)text->data[0];
    if (byte != '\\') {
        *text = slice_from(*text, 1);
        return byte;
    }
    char form = text->data[1];
    if (form == 'u') {
        const char *digits = text->data + 4;
        int low = digits[1] >= 'a' ? digits[1] - 'a' + 10 : digits[1] - '0';
        *text = slice_from(*text, 6);
        return (digits[0] - '0') * 16 + low;
    }
    *text = slice_from(*text, 2);
    const char *pair = short_forms;
    while (pair[0] != form)
        pair += 2;
    return (unsigned char)pair[1];
}

/* Order by code point, which is the byte order of UTF-8. */
static int compare_members(const struct writer *writer, const struct member *a,
                           const struct member *b) {
    struct slice name_a = member_name(writer, a);
    struct slice name_b = member_name(writer, b);
    if (!a->escaped && !b->escaped) {
        size_t shared = name_a.size < name_b.size ? name_a.size : name_b.size;
        int order = memcmp(name_a.data, name_b.data, shared);
        return order != 0 ? order : (name_a.size > name_b.size) - (name_a.size < name_b.size);
    }
    for (;;) {
        int left = next_byte(&name_a);
        int right = next_byte(&name_b);
        if (left != right)
            return left < right ? -1 : 1;
        if (left < 0)
            return 0;
    }
}

static struct member *members_from(const struct writer *writer, size_t stack_offset) {
    return (struct member *)(void *)(writer->scratch->members.data + stack_offset);
}

static void sift_down(const struct writer *writer, struct member *members, size_t root,
                      size_t count) {
    struct member sinking = members[root];
    for (size_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && compare_members(writer, &members[child], &members[child + 1]) < 0)
            child++;
        if (compare_members(writer, &sinking, &members[child]) >= 0)
            break;
        members[root] = members[child];
        root = child;
    }
    members[root] = sinking;
}

/* Heapsort works in place, and no order of keys makes it slow. */
static void sort_members(const struct writer *writer, struct member *members, size_t count) {
    for (size_t root = count / 2; root-- > 0;)
        sift_down(writer, members, root, count);
    for (size_t last = count - 1; last > 0; last--) {
        struct member largest = members[0];
        members[0] = members[last];
        members[last] = largest;
        sift_down(writer, members, 0, last);
    }
}

/* Sorts the notes of an object, and puts the text of its members in their order. */
static enum status sort_object(struct writer *writer, const struct object *object) {
    struct buffer *stack = &writer->scratch->members;
    struct member *members = members_from(writer, object->stack_offset);
    size_t count = (stack->size - object->stack_offset) / sizeof(struct member);
    sort_members(writer, members, count);
    for (size_t i = 1; i < count; i++) {
        if (compare_members(writer, &members[i - 1], &members[i]) == 0)
            return STATUS_JSON_DUPLICATE_KEY;
    }
    char *body = writer->out->data + object->body_start;
    size_t copy_offset = stack->size;
    enum status status = buffer_append(stack, body, writer->out->size - object->body_start);
    if (status != STATUS_OK)
        return status;
    members = members_from(writer, object->stack_offset);
    const char *copy = stack->data + copy_offset;
    size_t copy_start = object->body_start - writer->origin;
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            *body++ = ',';
        memcpy(body, copy + (members[i].start - copy_start), members[i].size);
        body += members[i].size;
    }
    assert(body == writer->out->data + writer->out->size);
    stack->size = copy_offset;
    return STATUS_OK;
}

/* A string without escapes is canonical as it stands. */
static enum status write_string(struct writer *writer) {
    const char *begin = writer->at;
    const char *stop = json_text_skip_string(begin + 1, writer->end);
    if (*stop == '"') {
        writer->at = stop + 1;
        return buffer_append(writer->out, begin, (size_t)(writer->at - begin));
    }
    writer->at = json_text_string_end(begin, writer->end);
    struct slice raw = {begin, (size_t)(writer->at - begin)};
    struct buffer *stack = &writer->scratch->members;
    size_t offset = stack->size;
    enum status status = json_string_decode((struct json_value){JSON_KIND_STRING, raw}, stack);
    if (status == STATUS_OK)
        status = json_write_string(writer->out, slice_from(buffer_slice(stack), offset));
    stack->size = offset;
    return status;
}

/* Skips white space, and the given byte if it follows. */
static bool take(struct writer *writer, char byte) {
    writer->at = json_text_skip_space(writer->at, writer->end);
    if (*writer->at != byte)
        return false;
    writer->at++;
    return true;
}

static enum status write_array(struct writer *writer) {
    writer->at++;
    enum status status = buffer_append_byte(writer->out, '[');
    while (status == STATUS_OK && !take(writer, ']')) {
        if (take(writer, ','))
            buffer_append_byte(writer->out, ',');
        status = write_value(writer);
    }
    return status == STATUS_OK ? buffer_append_byte(writer->out, ']') : status;
}

static uint32_t written(const struct writer *writer) {
    return (uint32_t)(writer->out->size - writer->origin);
}

/* Notes each member as it is written, and whether the members keep their order. */
static enum status write_object(struct writer *writer) {
    struct buffer *stack = &writer->scratch->members;
    struct buffer *out = writer->out;
    struct object object = {stack->size, out->size + 1, true};
    writer->at++;
    enum status status = buffer_append_byte(out, '{');
    while (status == STATUS_OK && !take(writer, '}')) {
        if (take(writer, ','))
            buffer_append_byte(out, ',');
        struct member member = {.start = written(writer)};
        writer->at = json_text_skip_space(writer->at, writer->end);
        status = write_string(writer);
        if (status != STATUS_OK)
            break;
        member.name_size = written(writer) - member.start;
        const char *name = out->data + writer->origin + member.start;
        member.escaped = memchr(name, '\\', member.name_size) != NULL;
        bool is_first = stack->size == object.stack_offset;
        status = buffer_append(stack, &member, sizeof(member));
        if (status != STATUS_OK)
            break;
        if (!is_first && object.sorted) {
            const struct member *latest = members_from(writer, stack->size - sizeof(member));
            int order = compare_members(writer, latest - 1, latest);
            object.sorted = order < 0;
            if (order == 0) {
                status = STATUS_JSON_DUPLICATE_KEY;
                break;
            }
        }
        take(writer, ':');
        buffer_append_byte(out, ':');
        status = write_value(writer);
        if (status != STATUS_OK)
            break;
        struct member *note = members_from(writer, stack->size - sizeof(member));
        note->size = written(writer) - note->start;
    }
    if (status == STATUS_OK && !object.sorted)
        status = sort_object(writer, &object);
    stack->size = object.stack_offset;
    return status == STATUS_OK ? buffer_append_byte(out, '}') : status;
}

static enum status write_value(struct writer *writer) {
    writer->at = json_text_skip_space(writer->at, writer->end);
    assert(writer->at < writer->end);
    const char *begin = writer->at;
    if (*begin == '"')
        return write_string(writer);
    if (*begin != '{' && *begin != '[') {
        writer->at = json_text_scalar_end(begin, writer->end);
        struct slice raw = {begin, (size_t)(writer->at - begin)};
        return *begin == 't' || *begin == 'f' || *begin == 'n'
                   ? buffer_append_slice(writer->out, raw)
                   : write_number(writer->out, raw);
    }
    assert(writer->depth < JSON_DEPTH_MAX);
    writer->depth++;
    enum status status = *begin == '{' ? write_object(writer) : write_array(writer);
    writer->depth--;
    return status;
}

enum status canonical_write(struct json_value value, struct canonical_scratch *scratch,
                            struct buffer *out) {
    assert(out != &scratch->members);
    if (value.raw.size > VALUE_BYTES_MAX)
        return STATUS_PAYLOAD_TOO_LARGE;
    struct writer writer = {
        .at = value.raw.data,
        .end = value.raw.data + value.raw.size,
        .scratch = scratch,
        .out = out,
        .origin = out->size,
    };
    buffer_clear(&scratch->members);
    enum status status = write_value(&writer);
    if (status != STATUS_OK)
        out->size = writer.origin;
    return status;
}

void payload_hash_text(const uint8_t digest[SHA256_BYTES], char text[PAYLOAD_HASH_SIZE]) {
    memcpy(text, "sha256:", 7);
    hex_write(text + 7, digest, SHA256_BYTES);
    text[PAYLOAD_HASH_SIZE - 1] = '\0';
}

enum status payload_hash(struct json_value value, struct canonical_scratch *scratch,
                         struct payload_hash *hash) {
    buffer_clear(&scratch->text);
    enum status status = canonical_write(value, scratch, &scratch->text);
    if (status != STATUS_OK)
        return status;
    sha256(scratch->text.data, scratch->text.size, hash->digest);
    payload_hash_text(hash->digest, hash->text);
    return STATUS_OK;
}

/* A literal is read into decimal digits first. Up to 15 significant digits survive the conversion
 * to a double and back, and no shorter decimal gives the same double, so they are written
 * unchanged. Only longer literals, and those near the ends of the range, are converted to a double
 * and searched for the shortest digits that give the same double. */

/* The rounding of a double depends on at most 767 digits. Of later digits it only matters whether
 * all are zero. */
#define DIGITS_KEPT 800
/* Enough for one double, and never too many to be exact. */
#define DIGITS_ENOUGH 17
#define DIGITS_EXACT  DBL_DIG
/* Between these powers of ten every double is a normal one. */
#define POINT_NORMAL_MIN (-290)
#define POINT_NORMAL_MAX 300
/* Beyond these every literal is zero, or no double. */
#define POINT_MIN (-400)
#define POINT_MAX 400

/* 0.digits × 10^point; no digits is zero. */
struct decimal {
    char digits[DIGITS_KEPT + 1];
    size_t count;
    int64_t point;
};

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

static void trim_zeros(struct decimal *decimal) {
    while (decimal->count > 0 && decimal->digits[decimal->count - 1] == '0')
        decimal->count--;
}

/* Reads an unsigned literal. */
static void decimal_read(struct decimal *decimal, struct slice literal) {
    /* An exponent is limited to a value that no number of digits can balance. */
    const int64_t exponent_max = INT64_C(1) << 60;
    bool fraction = false;
    bool dropped = false;
    size_t i = 0;
    decimal->count = 0;
    decimal->point = 0;
    for (; i < literal.size && (literal.data[i] == '.' || is_digit(literal.data[i])); i++) {
        char byte = literal.data[i];
        if (byte == '.') {
            fraction = true;
        } else if (decimal->count == 0 && byte == '0') {
            decimal->point -= fraction;
        } else {
            decimal->point += !fraction;
            if (decimal->count < DIGITS_KEPT)
                decimal->digits[decimal->count++] = byte;
            else
                dropped |= byte != '0';
        }
    }
    int64_t exponent = 0;
    bool is_negative = i + 1 < literal.size && literal.data[i + 1] == '-';
    for (; i < literal.size; i++) {
        if (is_digit(literal.data[i]) && exponent < exponent_max / 10)
            exponent = exponent * 10 + (literal.data[i] - '0');
    }
    decimal->point += is_negative ? -exponent : exponent;
    if (dropped)
        decimal->digits[decimal->count++] = '1';
    else
        trim_zeros(decimal);
}

/* The nearest double. A locale changes only the decimal point, and the text has none. */
static double decimal_value(const struct decimal *decimal) {
    char text[DIGITS_KEPT + 32];
    assert(decimal->point >= POINT_MIN && decimal->point <= POINT_MAX);
    int exponent = (int)decimal->point - (int)decimal->count;
    memcpy(text, decimal->digits, decimal->count);
    snprintf(text + decimal->count, sizeof(text) - decimal->count, "e%d", exponent);
    return strtod(text, NULL);
}

/* The given count of digits, correctly rounded. The locale's decimal point is skipped. */
static void decimal_print(struct decimal *decimal, double value, int count) {
    char text[64];
    int size = snprintf(text, sizeof(text), "%.*e", count - 1, value);
    assert(size > 0 && (size_t)size < sizeof(text));
    decimal->count = 0;
    const char *at = text;
    for (; *at != 'e'; at++) {
        if (is_digit(*at))
            decimal->digits[decimal->count++] = *at;
    }
    decimal->point = strtol(at + 1, NULL, 10) + 1;
}

/* The fewest digits that give the value again, and of those the nearest to it. Doubles below a
 * power of two are twice as close as above it. There the nearest decimal of some length can be too
 * low, while the next decimal above, though farther away, still gives the value. */
static void decimal_shortest(struct decimal *decimal, double value) {
    int exponent;
    bool power_of_two = frexp(value, &exponent) == 0.5;
    for (int count = isnormal(value) ? DIGITS_EXACT : 1;; count++) {
        decimal_print(decimal, value, count);
        if (count == DIGITS_ENOUGH || decimal_value(decimal) == value)
            break;
        if (!power_of_two)
            continue;
        /* The next decimal of as many digits. */
        size_t index = decimal->count;
        while (index > 0 && decimal->digits[index - 1] == '9')
            decimal->digits[--index] = '0';
        if (index > 0) {
            decimal->digits[index - 1]++;
        } else {
            decimal->digits[0] = '1';
            decimal->point++;
        }
        if (decimal_value(decimal) == value)
            break;
    }
    trim_zeros(decimal);
}

static char *put(char *at, const char *data, size_t size) {
    memcpy(at, data, size);
    return at + size;
}

static char *put_zeros(char *at, int64_t count) {
    memset(at, '0', (size_t)count);
    return at + count;
}

/* The layout of ECMAScript's Number::toString. */
static char *put_decimal(char *at, const struct decimal *decimal) {
    int64_t count = (int64_t)decimal->count;
    int64_t point = decimal->point;
    if (count == 0)
        return put(at, "0", 1);
    if (count <= point && point <= 21)
        return put_zeros(put(at, decimal->digits, decimal->count), point - count);
    if (point > 0 && point <= 21) {
        at = put(at, decimal->digits, (size_t)point);
        at = put(at, ".", 1);
        return put(at, decimal->digits + point, (size_t)(count - point));
    }
    if (point > -6 && point <= 0)
        return put(put_zeros(put(at, "0.", 2), -point), decimal->digits, decimal->count);
    at = put(at, decimal->digits, 1);
    if (decimal->count > 1)
        at = put(put(at, ".", 1), decimal->digits + 1, decimal->count - 1);
    return at + sprintf(at, "e%+d", (int)point - 1);
}

/* Appends the canonical form of a validated literal, all or nothing. */
static enum status write_number(struct buffer *out, struct slice literal) {
    size_t digits = literal.data[0] == '-';
    while (digits < literal.size && is_digit(literal.data[digits]))
        digits++;
    if (slice_equal(literal, SLICE("-0")))
        return buffer_append_byte(out, '0');
    if (digits == literal.size)
        return buffer_append_slice(out, literal);
    bool is_negative = literal.data[0] == '-';
    struct decimal decimal;
    decimal_read(&decimal, slice_from(literal, is_negative));
    if (decimal.count == 0 || decimal.point < POINT_MIN) {
        decimal.count = 0;
    } else if (decimal.count > DIGITS_EXACT || decimal.point < POINT_NORMAL_MIN ||
               decimal.point > POINT_NORMAL_MAX) {
        double value = decimal.point > POINT_MAX ? INFINITY : decimal_value(&decimal);
        if (isinf(value))
            return STATUS_JSON_NUMBER_OUT_OF_RANGE;
        if (value == 0)
            decimal.count = 0;
        else
            decimal_shortest(&decimal, value);
    }
    char text[64];
    char *at = text;
    if (is_negative && decimal.count > 0)
        *at++ = '-';
    at = put_decimal(at, &decimal);
    assert(at <= text + sizeof(text));
    return buffer_append(out, text, (size_t)(at - text));
}
