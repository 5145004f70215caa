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
    uint32_t name_size; /* with its quotes */
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

static int compare_bytes(struct slice a, struct slice b) {
    size_t shared = a.size < b.size ? a.size : b.size;
    int order = memcmp(a.data, b.data, shared);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
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

static int compare_decoded(struct slice a, struct slice b) {
    for (;;) {
        int left = next_byte(&a);
        int right = next_byte(&b);
        if (left != right)
            return left < right ? -1 : 1;
        if (left < 0)
            return 0;
    }
}

/* Order by code point, which is the byte order of UTF-8. */
static int compare_members(const struct writer *writer, const struct member *a,
                           const struct member *b) {
    struct slice name_a = member_name(writer, a);
    struct slice name_b = member_name(writer, b);
    if (a->escaped || b->escaped)
        return compare_decoded(name_a, name_b);
    return compare_bytes(name_a, name_b);
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

/* Puts the members' text in the order of the sorted notes. */
static enum status reorder_text(struct writer *writer, const struct object *object, size_t count) {
    struct buffer *stack = &writer->scratch->members;
    char *body = writer->out->data + object->body_start;
    size_t copy_offset = stack->size;
    enum status status = buffer_append(stack, body, writer->out->size - object->body_start);
    if (status != STATUS_OK)
        return status;
    const struct member *members = members_from(writer, object->stack_offset);
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

static enum status sort_object(struct writer *writer, const struct object *object) {
    struct member *members = members_from(writer, object->stack_offset);
    size_t count = (writer->scratch->members.size - object->stack_offset) / sizeof(struct member);
    sort_members(writer, members, count);
    for (size_t i = 1; i < count; i++) {
        if (compare_members(writer, &members[i - 1], &members[i]) == 0)
            return STATUS_JSON_DUPLICATE_KEY;
    }
    return reorder_text(writer, object, count);
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

static enum status write_scalar(struct writer *writer) {
    const char *begin = writer->at;
    writer->at = json_text_scalar_end(begin, writer->end);
    struct slice raw = {begin, (size_t)(writer->at - begin)};
    if (*begin == 't' || *begin == 'f' || *begin == 'n')
        return buffer_append_slice(writer->out, raw);
    return json_number_write(writer->out, raw);
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
            status = buffer_append_byte(writer->out, ',');
        if (status == STATUS_OK)
            status = write_value(writer);
    }
    return status == STATUS_OK ? buffer_append_byte(writer->out, ']') : status;
}

static uint32_t written(const struct writer *writer) {
    return (uint32_t)(writer->out->size - writer->origin);
}

/* Notes the member whose name was just written, and whether it keeps the order. */
static enum status push_member(struct writer *writer, struct object *object,
                               const struct member *member) {
    struct buffer *stack = &writer->scratch->members;
    bool first = stack->size == object->stack_offset;
    enum status status = buffer_append(stack, member, sizeof(*member));
    if (status != STATUS_OK || first || !object->sorted)
        return status;
    const struct member *latest = members_from(writer, stack->size - sizeof(*member));
    int order = compare_members(writer, latest - 1, latest);
    if (order == 0)
        return STATUS_JSON_DUPLICATE_KEY;
    object->sorted = order < 0;
    return STATUS_OK;
}

/* Writes the name and its colon, and notes where the member begins. */
static enum status write_name(struct writer *writer, struct object *object) {
    struct member member = {.start = written(writer)};
    writer->at = json_text_skip_space(writer->at, writer->end);
    enum status status = write_string(writer);
    if (status != STATUS_OK)
        return status;
    member.name_size = written(writer) - member.start;
    const char *name = writer->out->data + writer->origin + member.start;
    member.escaped = memchr(name, '\\', member.name_size) != NULL;
    status = push_member(writer, object, &member);
    take(writer, ':');
    return status == STATUS_OK ? buffer_append_byte(writer->out, ':') : status;
}

static enum status write_member(struct writer *writer, struct object *object) {
    enum status status = write_name(writer, object);
    if (status == STATUS_OK)
        status = write_value(writer);
    if (status != STATUS_OK)
        return status;
    size_t note = writer->scratch->members.size - sizeof(struct member);
    struct member *member = members_from(writer, note);
    member->size = written(writer) - member->start;
    return STATUS_OK;
}

static enum status write_object(struct writer *writer) {
    writer->at++;
    enum status status = buffer_append_byte(writer->out, '{');
    struct object object = {writer->scratch->members.size, writer->out->size, true};
    while (status == STATUS_OK && !take(writer, '}')) {
        if (take(writer, ','))
            status = buffer_append_byte(writer->out, ',');
        if (status == STATUS_OK)
            status = write_member(writer, &object);
    }
    if (status == STATUS_OK && !object.sorted)
        status = sort_object(writer, &object);
    writer->scratch->members.size = object.stack_offset;
    return status == STATUS_OK ? buffer_append_byte(writer->out, '}') : status;
}

static enum status write_value(struct writer *writer) {
    writer->at = json_text_skip_space(writer->at, writer->end);
    assert(writer->at < writer->end);
    char first = *writer->at;
    if (first == '"')
        return write_string(writer);
    if (first != '{' && first != '[')
        return write_scalar(writer);
    assert(writer->depth < JSON_DEPTH_MAX);
    writer->depth++;
    enum status status = first == '{' ? write_object(writer) : write_array(writer);
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

/* An exponent is limited to a value that no number of digits can balance. */
static int64_t read_exponent(struct slice text) {
    const int64_t cut = INT64_C(1) << 60;
    bool negative = text.data[0] == '-';
    int64_t exponent = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (is_digit(text.data[i]) && exponent < cut / 10)
            exponent = exponent * 10 + (text.data[i] - '0');
    }
    return negative ? -exponent : exponent;
}

/* Reads an unsigned literal. */
static void decimal_read(struct decimal *decimal, struct slice literal) {
    bool fraction = false;
    bool dropped = false;
    decimal->count = 0;
    decimal->point = 0;
    for (size_t i = 0; i < literal.size; i++) {
        char byte = literal.data[i];
        if (byte == '.') {
            fraction = true;
        } else if (!is_digit(byte)) {
            decimal->point += read_exponent(slice_from(literal, i + 1));
            break;
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

/* The next decimal of as many digits. */
static void decimal_increment(struct decimal *decimal) {
    size_t index = decimal->count;
    while (index > 0 && decimal->digits[index - 1] == '9')
        decimal->digits[--index] = '0';
    if (index > 0) {
        decimal->digits[index - 1]++;
        return;
    }
    decimal->digits[0] = '1';
    decimal->point++;
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
        decimal_increment(decimal);
        if (decimal_value(decimal) == value)
            break;
    }
    trim_zeros(decimal);
}

/* Replaces the digits by the shortest digits of the same double. */
static enum status decimal_round(struct decimal *decimal) {
    if (decimal->count <= DIGITS_EXACT && decimal->point >= POINT_NORMAL_MIN &&
        decimal->point <= POINT_NORMAL_MAX)
        return STATUS_OK;
    if (decimal->count == 0 || decimal->point < POINT_MIN) {
        decimal->count = 0;
        return STATUS_OK;
    }
    if (decimal->point > POINT_MAX)
        return STATUS_JSON_NUMBER_OUT_OF_RANGE;
    double value = decimal_value(decimal);
    if (isinf(value))
        return STATUS_JSON_NUMBER_OUT_OF_RANGE;
    if (value == 0)
        decimal->count = 0;
    else
        decimal_shortest(decimal, value);
    return STATUS_OK;
}

static char *put(char *at, const char *data, size_t size) {
    memcpy(at, data, size);
    return at + size;
}

static char *put_zeros(char *at, int64_t count) {
    memset(at, '0', (size_t)count);
    return at + count;
}

static char *put_scientific(char *at, const struct decimal *decimal) {
    *at++ = decimal->digits[0];
    if (decimal->count > 1) {
        *at++ = '.';
        at = put(at, decimal->digits + 1, decimal->count - 1);
    }
    return at + sprintf(at, "e%+d", (int)decimal->point - 1);
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
    return put_scientific(at, decimal);
}

static bool is_integer(struct slice literal) {
    for (size_t i = 0; i < literal.size; i++) {
        if (literal.data[i] != '-' && !is_digit(literal.data[i]))
            return false;
    }
    return true;
}

enum status json_number_write(struct buffer *out, struct slice literal) {
    if (slice_equal(literal, SLICE("-0")))
        return buffer_append_byte(out, '0');
    if (is_integer(literal))
        return buffer_append_slice(out, literal);
    bool negative = literal.data[0] == '-';
    struct decimal decimal;
    decimal_read(&decimal, slice_from(literal, negative));
    enum status status = decimal_round(&decimal);
    if (status != STATUS_OK)
        return status;
    char text[64];
    char *at = text;
    if (negative && decimal.count > 0)
        *at++ = '-';
    at = put_decimal(at, &decimal);
    assert(at <= text + sizeof(text));
    return buffer_append(out, text, (size_t)(at - text));
}
