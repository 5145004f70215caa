#include "base/decimal.h"

static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233"
                            "34353637383940414243444546474849505152535455565758596061626364656667"
                            "6869707172737475767778798081828384858687888990919293949596979899";

static const uint64_t powers[] = {
    0,
    10u,
    100u,
    1000u,
    10000u,
    100000u,
    1000000u,
    10000000u,
    100000000u,
    1000000000u,
    10000000000u,
    100000000000u,
    1000000000000u,
    10000000000000u,
    100000000000000u,
    1000000000000000u,
    10000000000000000u,
    100000000000000000u,
    1000000000000000000u,
    10000000000000000000u,
};

char *decimal_write_u64(char *at, uint64_t number) {
    /* The count of digits follows from the number of bits: 1233 / 4096 is the logarithm of 2 to the
     * base 10. */
    size_t bits = 64 - (size_t)__builtin_clzll(number | 1);
    size_t count = bits * 1233 >> 12;
    count += number >= powers[count];
    char *first = at + count;
    while (number >= 100) {
        first -= 2;
        memcpy(first, pairs + 2 * (number % 100), 2);
        number /= 100;
    }
    if (number >= 10)
        memcpy(first - 2, pairs + 2 * number, 2);
    else
        first[-1] = (char)('0' + number);
    return at + count;
}

bool decimal_parse_u64(struct slice text, uint64_t *number) {
    if (text.size == 0 || text.size > DECIMAL_U64_SIZE_MAX)
        return false;
    if (text.data[0] == '0' && text.size > 1)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < text.size; i++) {
        char digit = text.data[i];
        if (digit < '0' || digit > '9')
            return false;
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(digit - '0'), &value))
            return false;
    }
    *number = value;
    return true;
}

/* ---- amounts ---- */

bool decimal_parse_amount(struct slice text, struct decimal_amount *amount) {
    const char *point = memchr(text.data, '.', text.size);
    struct slice whole = text, fraction = SLICE("0");
    if (point) {
        whole.size = (size_t)(point - text.data);
        fraction = slice_from(text, whole.size + 1);
    }
    struct decimal_amount parsed = {0};
    if (whole.size > DECIMAL_AMOUNT_DIGITS_MAX || fraction.size > DECIMAL_AMOUNT_DIGITS_MAX ||
        fraction.size == 0 || !decimal_parse_u64(whole, &parsed.whole))
        return false;
    for (size_t i = 0; i < DECIMAL_AMOUNT_DIGITS_MAX; i++) {
        char digit = i < fraction.size ? fraction.data[i] : '0';
        if (digit < '0' || digit > '9')
            return false;
        parsed.fraction = 10 * parsed.fraction + (uint64_t)(digit - '0');
    }
    *amount = parsed;
    return true;
}

struct decimal_amount decimal_add(struct decimal_amount a, struct decimal_amount b) {
    const uint64_t one = powers[DECIMAL_AMOUNT_DIGITS_MAX];
    struct decimal_amount sum = {a.whole + b.whole, a.fraction + b.fraction};
    if (sum.fraction >= one) {
        sum.fraction -= one;
        sum.whole++;
    }
    if (sum.whole >= one)
        sum = (struct decimal_amount){one - 1, one - 1};
    return sum;
}

char *decimal_write_amount(char *at, struct decimal_amount amount) {
    at = decimal_write_u64(at, amount.whole);
    if (amount.fraction == 0)
        return at;
    *at++ = '.';
    for (uint64_t rest = amount.fraction; rest > 0;) {
        uint64_t unit = powers[DECIMAL_AMOUNT_DIGITS_MAX - 1];
        *at++ = (char)('0' + rest / unit);
        rest = rest % unit * 10;
    }
    return at;
}
