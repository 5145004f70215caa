/* The operator key: who may append and read the log over HTTP.
 * Loaded on the main thread before others start, read-only afterwards. Owns no heap.
 * A key that is not 1 to 256 visible ASCII characters is STATUS_INVALID_CONFIG; what the file
 * system refuses is STATUS_SYSTEM_ERROR with errno set.
 * Compared in constant time, never logged, kept in a file that only its owner reads. */
#ifndef HTTP_ADMIT_OPERATOR_KEY_H
#define HTTP_ADMIT_OPERATOR_KEY_H

#include "base/sha256.h"
#include "wire/http1_request.h"

#define OPERATOR_KEY_BYTES_MAX 256
#define OPERATOR_KEY_PATH_MAX  1024
#define OPERATOR_KEY_FILE      "operator.key"

enum operator_key_source { OPERATOR_KEY_GIVEN, OPERATOR_KEY_READ, OPERATOR_KEY_GENERATED };

struct operator_key {
    enum operator_key_source source;
    char text[OPERATOR_KEY_BYTES_MAX + 1];
    char path[OPERATOR_KEY_PATH_MAX]; /* of the file; empty when the key was given */
    uint8_t digest[SHA256_BYTES];
};

/* given, unless it is empty; else the file in the folder, which is made when there is none. */
MUST_CHECK enum status operator_key_load(struct operator_key *key, const char *given,
                                         const char *folder);
/* The file in the folder only: STATUS_NOT_FOUND when there is none. */
MUST_CHECK enum status operator_key_read(struct operator_key *key, const char *folder);
/* STATUS_OK for a request that carries the key; else one of the 401s. */
MUST_CHECK enum status operator_key_check(const struct operator_key *key,
                                          const struct http1_request *request);
/* Whether it is the key. */
bool operator_key_is(const struct operator_key *key, struct slice given);

#endif
