#include "base/decimal.h"

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
