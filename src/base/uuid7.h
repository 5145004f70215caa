/* UUIDv7 (RFC 9562) in canonical lower-case text, and a strictly monotonic generator of them.
 * Thread: any for values; one for a generator.
 * Errors: STATUS_INVALID_UUID for a text or value that is no UUIDv7; STATUS_SYSTEM_ERROR when a
 * generator starts.
 * Invariant: each id of a generator is greater than the one before, even if the clock steps back.
 */
#ifndef BASE_UUID7_H
#define BASE_UUID7_H

#include <stdint.h>

#include "base/slice.h"
#include "spec/codes.h"

#define UUID_TEXT_SIZE         36
#define UUID7_TIMESTAMP_MS_MAX ((UINT64_C(1) << 48) - 1)
#define UUID7_POOL_BYTES       1024

struct uuid {
    uint8_t bytes[16];
};

/* Below, at or above zero, in byte order: for ids of one generator this is the order of creation.
 */
int uuid_compare(const struct uuid *a, const struct uuid *b);
/* Writes UUID_TEXT_SIZE characters, no NUL. */
void uuid_format(const struct uuid *uuid, char *text);

/* True for version 7 and the RFC's variant. */
bool uuid7_valid(const struct uuid *uuid);
MUST_CHECK enum status uuid7_parse(struct slice text, struct uuid *uuid);
uint64_t uuid7_timestamp_ms(const struct uuid *uuid);
/* The smallest id of a millisecond, which is at most UUID7_TIMESTAMP_MS_MAX. */
struct uuid uuid7_first(uint64_t timestamp_ms);

struct uuid7_generator {
    uint64_t timestamp_ms;
    /* The 74 random bits of the last id: 12 beside the version, 62 beside the variant. */
    uint64_t random_high;
    uint64_t random_low;
    /* Random bytes are fetched in bulk: one system call per id would cost more than the id. */
    uint8_t pool[UUID7_POOL_BYTES];
    size_t pool_used;
};

/* Every id will be greater than last (NULL: no last id), however far behind the clock is.
 * STATUS_LIMIT_REACHED when last is of the final millisecond. */
MUST_CHECK enum status uuid7_generator_init(struct uuid7_generator *generator,
                                            const struct uuid *last);
/* now_ms is at most UUID7_TIMESTAMP_MS_MAX. */
struct uuid uuid7_next(struct uuid7_generator *generator, uint64_t now_ms);

#endif
