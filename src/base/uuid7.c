/* Layout, most significant first: 48 bits of Unix milliseconds, 4 of version, 12 random,
 * 2 of variant, 62 random. The generator treats the 74 random bits as one counter behind the
 * timestamp: a new millisecond seeds it, any other call adds a random step, and an overflow
 * carries into the timestamp. So ids stay ordered without being consecutive. */
#include "base/uuid7.h"

#include <assert.h>
#include <errno.h>
#include <sys/random.h>

#include "base/hex.h"

#define RANDOM_LOW_BITS  62
#define RANDOM_LOW_MASK  ((UINT64_C(1) << RANDOM_LOW_BITS) - 1)
#define RANDOM_HIGH_BITS 12
/* The top bit of a seed is clear, so that a millisecond has room for 2^73 to count up into. */
#define SEED_HIGH_MASK ((UINT64_C(1) << (RANDOM_HIGH_BITS - 1)) - 1)

int uuid_compare(const struct uuid *a, const struct uuid *b) {
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

void uuid_format(const struct uuid *uuid, char *text) {
    char digits[2 * sizeof(uuid->bytes)];
    hex_write(digits, uuid->bytes, sizeof(uuid->bytes));
    memcpy(text, digits, 8);
    text[8] = '-';
    memcpy(text + 9, digits + 8, 4);
    text[13] = '-';
    memcpy(text + 14, digits + 12, 4);
    text[18] = '-';
    memcpy(text + 19, digits + 16, 4);
    text[23] = '-';
    memcpy(text + 24, digits + 20, 12);
}

/* -1: it is not a lower-case hexadecimal digit. */
static int nibble_value(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return -1;
}

bool uuid7_valid(const struct uuid *uuid) {
    return uuid->bytes[6] >> 4 == 7 && uuid->bytes[8] >> 6 == 2;
}

enum status uuid7_parse(struct slice text, struct uuid *uuid) {
    if (text.size != UUID_TEXT_SIZE)
        return STATUS_INVALID_UUID;
    struct uuid parsed;
    size_t index = 0;
    for (size_t i = 0; i < sizeof(parsed.bytes); i++) {
        bool is_hyphen = index == 8 || index == 13 || index == 18 || index == 23;
        if (is_hyphen && text.data[index++] != '-')
            return STATUS_INVALID_UUID;
        int high = nibble_value(text.data[index++]);
        int low = nibble_value(text.data[index++]);
        if (high < 0 || low < 0)
            return STATUS_INVALID_UUID;
        parsed.bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (!uuid7_valid(&parsed))
        return STATUS_INVALID_UUID;
    *uuid = parsed;
    return STATUS_OK;
}

static uint64_t read_big_endian(const uint8_t *bytes, size_t size) {
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | bytes[i];
    return number;
}

static void write_big_endian(uint8_t *bytes, size_t size, uint64_t number) {
    for (size_t i = size; i > 0; i--) {
        bytes[i - 1] = (uint8_t)number;
        number >>= 8;
    }
}

uint64_t uuid7_timestamp_ms(const struct uuid *uuid) {
    return read_big_endian(uuid->bytes, 6);
}

struct uuid uuid7_first(uint64_t timestamp_ms) {
    struct uuid first = {.bytes = {[6] = 0x70, [8] = 0x80}};
    assert(timestamp_ms <= UUID7_TIMESTAMP_MS_MAX);
    write_big_endian(first.bytes, 6, timestamp_ms);
    return first;
}

static enum status pool_fill(struct uuid7_generator *generator) {
    size_t filled = 0;
    while (filled < sizeof(generator->pool)) {
        ssize_t got = getrandom(generator->pool + filled, sizeof(generator->pool) - filled, 0);
        if (got > 0)
            filled += (size_t)got;
        else if (got == 0 || errno != EINTR)
            return STATUS_SYSTEM_ERROR;
    }
    generator->pool_used = 0;
    return STATUS_OK;
}

static uint64_t pool_take(struct uuid7_generator *generator, size_t size) {
    assert(generator->pool_used <= sizeof(generator->pool) && size <= sizeof(uint64_t));
    if (sizeof(generator->pool) - generator->pool_used < size) {
        /* Once the kernel's generator has answered, only an interruption can fail it. */
        enum status status = pool_fill(generator);
        assert(status == STATUS_OK);
    }
    uint64_t number = read_big_endian(generator->pool + generator->pool_used, size);
    generator->pool_used += size;
    return number;
}

static void seed(struct uuid7_generator *generator, uint64_t timestamp_ms) {
    generator->timestamp_ms = timestamp_ms;
    generator->random_high = pool_take(generator, 2) & SEED_HIGH_MASK;
    generator->random_low = pool_take(generator, 8) & RANDOM_LOW_MASK;
}

enum status uuid7_generator_init(struct uuid7_generator *generator, const struct uuid *last) {
    if (last && !uuid7_valid(last))
        return STATUS_INVALID_UUID;
    if (last && uuid7_timestamp_ms(last) == UUID7_TIMESTAMP_MS_MAX)
        return STATUS_LIMIT_REACHED;
    enum status status = pool_fill(generator);
    if (status != STATUS_OK)
        return status;
    if (!last) {
        seed(generator, 0);
        return STATUS_OK;
    }
    generator->timestamp_ms = uuid7_timestamp_ms(last);
    generator->random_high = read_big_endian(last->bytes + 6, 2) & 0x0fff;
    generator->random_low = read_big_endian(last->bytes + 8, 8) & RANDOM_LOW_MASK;
    return STATUS_OK;
}

struct uuid uuid7_next(struct uuid7_generator *generator, uint64_t now_ms) {
    assert(now_ms <= UUID7_TIMESTAMP_MS_MAX);
    if (now_ms > generator->timestamp_ms) {
        seed(generator, now_ms);
    } else {
        generator->random_low += pool_take(generator, 4) + 1;
        generator->random_high += generator->random_low >> RANDOM_LOW_BITS;
        generator->random_low &= RANDOM_LOW_MASK;
        generator->timestamp_ms += generator->random_high >> RANDOM_HIGH_BITS;
        generator->random_high &= (UINT64_C(1) << RANDOM_HIGH_BITS) - 1;
        assert(generator->timestamp_ms <= UUID7_TIMESTAMP_MS_MAX);
    }
    struct uuid uuid;
    write_big_endian(uuid.bytes, 6, generator->timestamp_ms);
    write_big_endian(uuid.bytes + 6, 2, UINT64_C(7) << RANDOM_HIGH_BITS | generator->random_high);
    write_big_endian(uuid.bytes + 8, 8, UINT64_C(2) << RANDOM_LOW_BITS | generator->random_low);
    return uuid;
}
