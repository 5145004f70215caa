/* Canonical JSON and the payload hash over it: UTF-8, keys sorted by code point, no spaces, the
 * fewest escapes, arrays in order, integers digit for digit, other numbers as ECMAScript writes
 * their double.
 * Thread: any, in any locale; a scratch belongs to one at a time.
 * Memory: a scratch keeps its memory between calls.
 * Errors: JSON_DUPLICATE_KEY at any depth, JSON_NUMBER_OUT_OF_RANGE, PAYLOAD_TOO_LARGE.
 * Invariant: equal values have equal canonical text, and canonical text is its own canonical text.
 */
#ifndef WIRE_CANONICAL_H
#define WIRE_CANONICAL_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/sha256.h"
#include "base/slice.h"
#include "spec/codes.h"
#include "wire/json.h"

/* "sha256:", 64 hexadecimal digits and a NUL. */
#define PAYLOAD_HASH_SIZE (7 + 2 * SHA256_BYTES + 1)

struct canonical_scratch {
    struct buffer text;    /* the canonical text that payload_hash made last */
    struct buffer members; /* a stack: the members of each open object */
};

/* For values of up to value_bytes_max bytes. Each of the two buffers may grow to six times that;
 * memory is allocated only as values need it. */
void canonical_scratch_init(struct canonical_scratch *scratch, size_t value_bytes_max);
void canonical_scratch_release(struct canonical_scratch *scratch);

/* Appends the canonical text of a value to out, all or nothing. */
MUST_CHECK enum status canonical_write(struct json_value value, struct canonical_scratch *scratch,
                                       struct buffer *out);

struct payload_hash {
    uint8_t digest[SHA256_BYTES];
    char text[PAYLOAD_HASH_SIZE];
};

/* Hashes the canonical text, and leaves it in scratch->text until the next call. */
MUST_CHECK enum status payload_hash(struct json_value value, struct canonical_scratch *scratch,
                                    struct payload_hash *hash);
/* "sha256:" + hex, NUL-terminated. */
void payload_hash_text(const uint8_t digest[SHA256_BYTES], char text[PAYLOAD_HASH_SIZE]);

#endif
