/* A literal is read into decimal digits first. Up to 15 significant digits survive the conversion
 * to a double and back, and no shorter decimal gives the same double, so they are written
 * unchanged. Only longer literals, and those near the ends of the range, are converted to a double
 * and searched for the shortest digits that give the same double. */
#include "wire/json_number.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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
