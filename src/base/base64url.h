/* Base64url without padding (RFC 4648 section 5), strict in both directions.
 * Thread: any.
 * Memory: the caller's, sized by the macros.
 * Errors: STATUS_INVALID_BASE64URL for a character outside the alphabet ('=' too), a length of 1
 * mod 4, or unused bits that are not zero.
 * Invariant: one value has exactly one text. */
#ifndef BASE_BASE64URL_H
#define BASE_BASE64URL_H

#include "base/slice.h"
#include "spec/codes.h"

/* The text size of size bytes, and the byte size of a text of size characters. */
#define BASE64URL_SIZE(size)         ((size) / 3 * 4 + ((size) % 3 * 4 + 2) / 3)
#define BASE64URL_DECODED_SIZE(size) ((size) / 4 * 3 + (size) % 4 * 3 / 4)

/* Writes BASE64URL_SIZE(size) characters, no NUL, and returns how many. */
size_t base64url_encode(const void *data, size_t size, char *text);
/* Writes BASE64URL_DECODED_SIZE(text.size) bytes; more than size_max is STATUS_PAYLOAD_TOO_LARGE
 * before anything is written. After an error the memory may hold part of the bytes. */
MUST_CHECK enum status base64url_decode(struct slice text, void *data, size_t size_max,
                                        size_t *size);

#endif
